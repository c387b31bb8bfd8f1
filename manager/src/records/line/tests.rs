use crate::records::{MAX_UNWRITTEN, Records, Tables};
use crate::store::{Change, Record, Store, StoreError, Table};
use crate::types::{EventKind, EventRecord, Problem, ProblemCode};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Contents = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// What the next write does, and then the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Succeeds,
    Fails,
    Panics,
}

/// A store that takes its time and fails by a script. When the script is over it succeeds.
#[derive(Default)]
struct Slow {
    tables: Mutex<Contents>,
    script: Mutex<Vec<Write>>,
    writes: Mutex<usize>,
    /// While it is set, a write does not end.
    stuck: AtomicBool,
}

impl Slow {
    fn new(script: Vec<Write>) -> Arc<Self> {
        Arc::new(Self { script: Mutex::new(script), ..Self::default() })
    }

    fn writes(&self) -> usize {
        *self.writes.lock().unwrap()
    }

    /// The texts of the events that are durable.
    fn texts(&self) -> BTreeSet<String> {
        let tables = self.tables.lock().unwrap();
        let events = tables.iter().filter(|((table, _), _)| *table == Table::Events);
        let event = |value: &Vec<u8>| serde_json::from_slice::<EventRecord>(value).unwrap().detail;
        events.map(|(_, value)| event(value)).collect()
    }
}

impl Store for Slow {
    fn read(&self, table: Table) -> Result<Vec<Record>, StoreError> {
        let tables = self.tables.lock().unwrap();
        let records = tables.iter().filter(|((t, _), _)| *t == table);
        Ok(records.map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }

    fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        *self.writes.lock().unwrap() += 1;
        while self.stuck.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(200));
        let next = self.script.lock().unwrap().pop();
        match next.unwrap_or(Write::Succeeds) {
            Write::Succeeds => {}
            Write::Fails => {
                let error = io::Error::from(io::ErrorKind::StorageFull);
                return Err(StoreError::io(Path::new("slow"), "written", error));
            }
            Write::Panics => panic!("the store panics"),
        }
        let mut tables = self.tables.lock().unwrap();
        for Change { table, key, value } in changes.iter().cloned() {
            match value {
                Some(value) => tables.insert((table, key), value),
                None => tables.remove(&(table, key)),
            };
        }
        Ok(())
    }
}

fn open(store: &Arc<Slow>) -> Arc<Records> {
    Records::open(store.clone(), Path::new("slow")).unwrap()
}

fn texts(tables: &Tables) -> BTreeSet<String> {
    tables.events().values().map(|event| event.detail.clone()).collect()
}

async fn say(records: &Arc<Records>, text: &str) -> Result<(), Problem> {
    let event = EventRecord::new(EventKind::Trouble, text);
    records.apply(|txn| txn.event(event)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_come_during_a_write_share_the_next() {
    let store = Slow::new(Vec::new());
    let records = open(&store);
    let before = store.writes();
    store.stuck.store(true, Ordering::SeqCst);
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..2 * MAX_UNWRITTEN {
        let records = records.clone();
        tasks.spawn(async move { say(&records, &index.to_string()).await });
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(records.snapshot().events().is_empty(), "nothing is shown before it is durable");
    store.stuck.store(false, Ordering::SeqCst);
    while let Some(said) = tasks.join_next().await {
        said.unwrap().unwrap();
    }
    // What does not find room waits until some of the others are durable.
    let writes = store.writes() - before;
    assert!(writes < MAX_UNWRITTEN / 2, "{writes} writes of {} changes", 2 * MAX_UNWRITTEN);
    assert_eq!(records.snapshot().events().len(), 2 * MAX_UNWRITTEN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_stands_on_a_write_waits_for_it() {
    for write in [Write::Succeeds, Write::Fails] {
        // The first write is the term's.
        let store = Slow::new(vec![write, Write::Succeeds]);
        let records = open(&store);
        store.stuck.store(true, Ordering::SeqCst);
        let first = tokio::spawn({
            let records = records.clone();
            async move { say(&records, "first").await }
        });
        while store.writes() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let was_asked = Arc::new(AtomicBool::new(false));
        let refused = tokio::spawn({
            let (records, was_asked) = (records.clone(), was_asked.clone());
            async move {
                let refuse = |txn: &mut crate::records::Txn| {
                    was_asked.store(true, Ordering::SeqCst);
                    match txn.events().len() {
                        0 => Ok(()),
                        _ => Err(Problem::new(ProblemCode::SlotBusy, "it is there")),
                    }
                };
                records.change(refuse).await
            }
        });
        while !was_asked.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // An answer that does not wait would be there by then.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!refused.is_finished(), "it is not known yet whether the first one stands");
        store.stuck.store(false, Ordering::SeqCst);
        let codes = (first.await.unwrap(), refused.await.unwrap().unwrap_err().code);
        match write {
            Write::Succeeds => assert_eq!(codes, (Ok(()), ProblemCode::SlotBusy)),
            _ => assert_eq!(codes.1, ProblemCode::StoreFailed),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_made_is_stood_on_at_once_and_shown_when_it_is_durable() {
    for write in [Write::Succeeds, Write::Fails] {
        let store = Slow::new(vec![write, Write::Succeeds]);
        let records = open(&store);
        store.stuck.store(true, Ordering::SeqCst);
        let first = EventRecord::new(EventKind::Trouble, "first");
        let ((), unwritten) = records.make(|txn| txn.event(first)).await;
        let (seen, later) = records.make(|txn| txn.events().len()).await;
        assert_eq!(seen, 1);
        assert!(records.snapshot().events().is_empty(), "it may be lost");
        store.stuck.store(false, Ordering::SeqCst);
        let written = unwritten.written().await;
        assert_eq!(written.is_ok(), write == Write::Succeeds, "{written:?}");
        // Who stood on it knows, too.
        assert_eq!(later.written().await, written);
        let shown = usize::from(write == Write::Succeeds);
        assert_eq!((texts(&records.snapshot()).len(), store.texts().len()), (shown, shown));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever writes fail, who was told that a change is durable finds it in the store, who was
    /// told otherwise does not, and nobody ever sees what is not durable.
    #[test]
    fn what_is_told_is_what_is_there(
        script in prop::collection::vec(
            prop_oneof![
                4 => Just(Write::Succeeds), 3 => Just(Write::Fails), 1 => Just(Write::Panics)
            ],
            0..24,
        ),
        tasks in 1..12usize,
        each in 1..8usize,
    ) {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let store = Slow::new(Vec::new());
        let records = open(&store);
        *store.script.lock().unwrap() = script;
        let told: BTreeSet<String> = runtime.block_on(async {
            let mut all = tokio::task::JoinSet::new();
            for task in 0..tasks {
                let (records, store) = (records.clone(), store.clone());
                all.spawn(async move {
                    let mut told = Vec::new();
                    for round in 0..each {
                        let text = format!("{task}.{round}");
                        if say(&records, &text).await.is_ok() {
                            told.push(text);
                        }
                        let shown = texts(&records.snapshot());
                        assert!(shown.is_subset(&store.texts()), "shown before it was durable");
                    }
                    told
                });
            }
            let mut told = BTreeSet::new();
            while let Some(task) = all.join_next().await {
                told.extend(task.unwrap());
            }
            // The way is free again after any failure.
            while say(&records, "last").await.is_err() {}
            told.insert("last".to_owned());
            told
        });
        prop_assert_eq!(&texts(&records.snapshot()), &told);
        prop_assert_eq!(&store.texts(), &told);
        store.script.lock().unwrap().clear();
        prop_assert_eq!(&texts(&open(&store).snapshot()), &told);
    }
}
