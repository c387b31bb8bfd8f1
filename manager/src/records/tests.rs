use super::writes::Writes;
use super::*;
use crate::store::{Change, Record, Table};
use crate::types::{
    AllocationId, AllocationRecord, BindingRecord, Desired, EventKind, EventRecord,
    FunctionAddress, FunctionEpoch, LinkUse, ModelRecord, NodeName, NodeRecord, OperationId,
    OperationKind, OperationRecord, OperationState, Phase, Role, Timestamp, Wishes,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io;
use tlp_codec::ids::{Epoch, NodeId, PortId, SlotFunction};

type Contents = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// A store in memory that can be told to fail.
#[derive(Default)]
struct Memory {
    tables: Mutex<Contents>,
    full: std::sync::atomic::AtomicBool,
}

impl Store for Memory {
    fn read(&self, table: Table) -> Result<Vec<Record>, StoreError> {
        let tables = self.tables.lock().unwrap();
        let records = tables.iter().filter(|((t, _), _)| *t == table);
        Ok(records.map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }

    fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        if self.full.load(std::sync::atomic::Ordering::SeqCst) {
            let error = io::Error::from(io::ErrorKind::StorageFull);
            return Err(StoreError::io(Path::new("memory"), "written", error));
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

fn open(store: &Arc<Memory>) -> Arc<Records> {
    Records::open(store.clone(), Path::new("memory")).unwrap()
}

fn function(text: &str) -> FunctionAddress {
    FunctionAddress { slot: text.parse().unwrap(), function: SlotFunction::ZERO }
}

fn epoch(generation: u8, counter: u32) -> Epoch {
    Epoch::new(generation, counter).unwrap()
}

fn event(text: &str) -> EventRecord {
    EventRecord::new(EventKind::Trouble, text)
}

#[tokio::test]
async fn every_start_has_a_later_term() {
    let store = Arc::default();
    assert_eq!(open(&store).snapshot().meta().term, 1);
    let records = open(&store);
    assert_eq!(records.snapshot().meta().term, 2);
    assert_eq!(records.snapshot().meta().generation, 0);
    records.apply(|txn| txn.learn_term(9)).await.unwrap();
    assert_eq!(records.snapshot().meta().term, 2, "not before the next start");
    let meta = open(&store).snapshot().meta().clone();
    assert_eq!((meta.term, meta.generation), (10, 1), "something happened that this store missed");
    let meta = open(&store).snapshot().meta().clone();
    assert_eq!((meta.term, meta.generation), (11, 1), "once");
}

#[tokio::test]
async fn a_term_that_leaves_no_room_is_not_believed() {
    let store = Arc::default();
    open(&store).apply(|txn| txn.learn_term(u64::MAX)).await.unwrap();
    assert_eq!(open(&store).snapshot().meta().term, 2);
}

#[tokio::test]
async fn epochs_only_grow() {
    let store = Arc::default();
    let records = open(&store);
    let address = function("box1/1");
    let next = || async { records.change(|txn| txn.new_epoch(&function("box1/1"))).await };
    assert_eq!(next().await.unwrap(), epoch(0, 1));
    assert_eq!(next().await.unwrap(), epoch(0, 2));
    records.apply(|txn| txn.learn_epoch(&address, epoch(0, 9))).await.unwrap();
    records.apply(|txn| txn.learn_epoch(&address, epoch(0, 3))).await.unwrap();
    assert_eq!(next().await.unwrap(), epoch(0, 10));
    let other = records.change(|txn| txn.new_epoch(&function("box1/2"))).await.unwrap();
    assert_eq!(other, epoch(0, 1), "each function has its own");
    // A generation that is ahead of ours is followed.
    records.apply(|txn| txn.learn_epoch(&address, epoch(7, 1))).await.unwrap();
    assert_eq!(next().await.unwrap(), epoch(7, 2));
    let last = epoch(7, Epoch::MAX_COUNTER);
    records.apply(|txn| txn.learn_epoch(&address, last)).await.unwrap();
    let exhausted = next().await.unwrap_err();
    assert_eq!(exhausted.code, ProblemCode::EpochsExhausted);
    assert!(exhausted.detail.contains("dxpu-manager restore"), "{exhausted}");
    let last = epoch(u8::MAX, Epoch::MAX_COUNTER);
    records.apply(|txn| txn.learn_epoch(&address, last)).await.unwrap();
    let exhausted = next().await.unwrap_err();
    assert!(exhausted.detail.contains("to another slot"), "{exhausted}");
    assert_eq!(open(&store).snapshot().highest_epoch(&address), Some(last), "it is in the store");
}

/// What a check says of what is in a store: table, key and reason.
fn inspected(store: &Memory, whole: bool) -> Vec<(&'static str, String, String)> {
    let mut read = |table| (store.read(table).unwrap(), None);
    let found = inspect(&mut read, whole, Path::new("memory")).unwrap();
    let named = |damage: Damage| (damage.table, damage.key.unwrap(), damage.reason);
    found.damaged.into_iter().map(named).collect()
}

#[tokio::test]
async fn a_record_under_a_key_that_is_not_its_own_is_not_read() {
    let store: Arc<Memory> = Arc::default();
    let records = open(&store);
    let first = records.apply(|txn| txn.new_allocation_id()).await.unwrap();
    records.apply(|txn| txn.event(event("one"))).await.unwrap();
    drop(records);
    assert_eq!((first, inspected(&store, true)), (AllocationId(1), vec![]));
    // Now there are two that say that they are the same.
    let (_, value) = store.read(Table::Events).unwrap().remove(0);
    let key = 9_u64.to_be_bytes().to_vec();
    store.commit(&[Change { table: Table::Events, key, value: Some(value) }]).unwrap();
    let why = "what stands there is of the key 1".to_owned();
    assert_eq!(inspected(&store, true), [("events", "9".to_owned(), why.clone())]);
    let Err(error) = Records::open(store.clone(), Path::new("memory")) else {
        panic!("it is read")
    };
    let StoreError::CorruptRecord { table: "events", key, reason, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((key, reason), ("9".to_owned(), why));
}

fn allocation() -> AllocationRecord {
    AllocationRecord {
        id: AllocationId(1),
        host: NodeName::new("host1").unwrap(),
        reason: None,
        since: Timestamp::now(),
        link: LinkUse::default(),
        lease: None,
        tenant: None,
        wishes: Wishes::default(),
    }
}

#[tokio::test]
async fn a_binding_whose_operation_a_repair_took_out_is_of_none() {
    let store: Arc<Memory> = Arc::default();
    let of_lost = BindingRecord {
        desired: Desired::Released { within_ms: 1 },
        operation: Some(OperationId(9)),
        ..binding(1, "a/1", "host1", 0)
    };
    let id = of_lost.id;
    let mut writes = Writes::default();
    writes.put(&Arc::new(allocation()));
    writes.put(&Arc::new(of_lost));
    store.commit(&writes.encode()).unwrap();
    assert_eq!(open(&store).snapshot().bindings()[&id].operation, None);
}

#[tokio::test]
async fn bindings_of_one_slot_or_port_and_proxies_of_one_number_are_named() {
    let store: Arc<Memory> = Arc::default();
    drop(open(&store));
    let now = Timestamp::now();
    let node = |name, node| {
        NodeRecord::new(NodeName::new(name).unwrap(), NodeId::new(node).unwrap(), Role::Box, 1, now)
    };
    let nodes = [node("a", 1), node("b", 2), node("c", 1)];
    let bindings = [
        binding(1, "a/1", "host1", 0),
        binding(4, "a/1", "host1", 1),
        binding(7, "a/2", "host1", 1),
        binding(10, "a/3", "host1", 2),
    ];
    let mut writes = Writes::default();
    writes.put(&Arc::new(allocation()));
    nodes.into_iter().for_each(|node| writes.put(&Arc::new(node)));
    bindings.into_iter().for_each(|binding| writes.put(&Arc::new(binding)));
    store.commit(&writes.encode()).unwrap();
    let said = inspected(&store, true).into_iter();
    let said: Vec<_> = said.map(|(table, key, why)| format!("{table} {key}: {why}")).collect();
    let expected = [
        "nodes a: it has number 1, and so has c",
        "nodes c: it has number 1, and so has a",
        "bindings 1: it has a/1, and so has 4",
        "bindings 4: it has a/1, and so has 1",
        "bindings 7: it has port 1 of host1, and so has 4",
    ];
    assert_eq!(said, expected);
}

#[tokio::test]
async fn counters_of_damaged_pages_are_believed_only_when_nothing_shows_otherwise() {
    let store: Arc<Memory> = Arc::default();
    let records = open(&store);
    records.apply(|txn| txn.event(event("one"))).await.unwrap();
    records.change(|txn| txn.new_epoch(&function("box1/1"))).await.unwrap();
    let good = Meta { generation: 0, ..records.snapshot().meta().clone() };
    let say = |meta: &Meta, whole| {
        let value = Some(serde_json::to_vec(meta).unwrap());
        let key = b"meta".to_vec();
        store.commit(&[Change { table: Table::Meta, key, value }]).unwrap();
        inspected(&store, whole).into_iter().map(|(of, _, why)| format!("{of}: {why}")).collect()
    };
    let none: Vec<String> = say(&good, false);
    assert_eq!(none, [""; 0]);
    let behind = Meta { next_event: 1, ..good.clone() };
    let said: Vec<_> = say(&behind, false);
    assert_eq!(said, ["meta: next_event is 1, but number 1 is in events"]);
    let high = Meta { next_event: u64::MAX, ..good.clone() };
    for whole in [true, false] {
        let said: Vec<_> = say(&high, whole);
        assert_eq!(said, ["meta: next_event is 18446744073709551615, which is too high"]);
    }
    records.apply(|txn| txn.learn_epoch(&function("box1/1"), epoch(7, 1))).await.unwrap();
    // A box whose epochs are ahead was with another manager; what is repaired goes above them.
    for whole in [true, false] {
        let none: Vec<String> = say(&good, whole);
        assert_eq!(none, [""; 0]);
    }
    let mut read = |table| (store.read(table).unwrap(), None);
    let found = inspect(&mut read, false, Path::new("memory")).unwrap();
    assert_eq!((found.generation, found.shown_generation), (0, 7));
    let last = epoch(u8::MAX, 1);
    records.apply(|txn| txn.learn_epoch(&function("box1/2"), last)).await.unwrap();
    let said: Vec<_> = say(&good, false);
    let none_above = "generation is 0, but there is an epoch of generation 255, so late that none \
                      begins above it";
    assert_eq!(said, [format!("meta: {none_above}")]);
}

/// What a box from another pool had since the backup was made is in no record: the epochs that
/// follow are above those of its pool, and not only above our own.
#[tokio::test]
async fn a_new_generation_is_above_that_of_a_box_from_another_pool() {
    let store: Arc<Memory> = Arc::default();
    let path = Path::new("memory");
    let records = open(&store);
    let [own, other] = [function("box1/1"), function("box2/1")];
    records.apply(|txn| txn.learn_epoch(&other, epoch(7, 5))).await.unwrap();
    assert_eq!(next_generation(store.as_ref(), path, 0).unwrap(), 8);
    assert_eq!(next_generation(store.as_ref(), path, 20).unwrap(), 21, "a lost record showed it");
    let records = open(&store);
    for function in [&own, &other] {
        let next = records.change(|txn| txn.new_epoch(function)).await.unwrap();
        assert_eq!(next, epoch(21, 1));
    }
    // So it is when a proxy shows that this store is older than what happened.
    records.apply(|txn| txn.learn_epoch(&other, epoch(30, 5))).await.unwrap();
    let term = records.snapshot().meta().term;
    records.apply(|txn| txn.learn_term(term + 9)).await.unwrap();
    assert_eq!(open(&store).snapshot().meta().generation, 31);
    // A box that claims the last one does not use up all that there are.
    let records = open(&store);
    records.apply(|txn| txn.learn_epoch(&other, epoch(u8::MAX, 5))).await.unwrap();
    assert_eq!(next_generation(store.as_ref(), path, 0).unwrap(), 32);
}

#[tokio::test]
async fn a_new_generation_begins_its_epochs_above_all_earlier_ones() {
    let store: Arc<Memory> = Arc::default();
    let records = open(&store);
    let address = function("box1/1");
    let last = epoch(0, Epoch::MAX_COUNTER);
    records.apply(|txn| txn.learn_epoch(&address, last)).await.unwrap();
    drop(records);
    next_generation(store.as_ref(), Path::new("memory"), 0).unwrap();
    let records = open(&store);
    assert_eq!(records.change(|txn| txn.new_epoch(&address)).await.unwrap(), epoch(1, 1));
    assert!(records.snapshot().meta().next_node > 8_192);
    assert!(
        records.snapshot().meta().term > 1000,
        "whose backup it was may have begun terms since"
    );
    for _ in 1..255 {
        next_generation(store.as_ref(), Path::new("memory"), 0).unwrap();
    }
    let error = next_generation(store.as_ref(), Path::new("memory"), 0).unwrap_err();
    assert!(matches!(error, StoreError::GenerationsExhausted(_)));
}

#[tokio::test]
async fn node_numbers_run_out_with_a_reason() {
    let store = Arc::default();
    let records = open(&store);
    let node = |number| NodeId::new(number).unwrap();
    let give = || async { records.apply(|txn| txn.new_node_id()).await.unwrap() };
    assert_eq!(give().await, Some(node(1)));
    // Proxies that came with numbers of their own: those are left out, and no others.
    for number in [2, 3, 0xfffe] {
        let name = NodeName::new(format!("box{number}")).unwrap();
        let (node, now) = (node(number), Timestamp::now());
        let record = NodeRecord::new(name, node, Role::Box, 1, now);
        records.apply(|txn| txn.put_node(record)).await.unwrap();
    }
    assert_eq!(give().await, Some(node(4)));
    // One that was forgotten is left out, too, also by who reads the store again.
    records.apply(|txn| txn.remove_node(&NodeName::new("box65534").unwrap())).await.unwrap();
    let again = open(&store).snapshot();
    assert_eq!(again.forgotten(node(0xfffe)).map(NodeName::as_str), Some("box65534"));
    records
        .apply(|txn| while txn.new_node_id().is_some_and(|given| given != node(0xfffd)) {})
        .await
        .unwrap();
    assert_eq!(give().await, None);
    assert_eq!(give().await, None);
}

#[tokio::test]
async fn what_cannot_be_written_never_was() {
    let store: Arc<Memory> = Arc::default();
    let records = open(&store);
    records.apply(|txn| txn.event(event("before"))).await.unwrap();
    store.full.store(true, std::sync::atomic::Ordering::SeqCst);
    let problem = records.apply(|txn| txn.event(event("lost"))).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::StoreFailed);
    assert!(problem.detail.contains("memory"), "{problem}");
    assert_eq!(records.snapshot().events().len(), 1);
    store.full.store(false, std::sync::atomic::Ordering::SeqCst);
    records.apply(|txn| txn.event(event("after"))).await.unwrap();
    let numbers: Vec<u64> = records.snapshot().events().keys().copied().collect();
    assert_eq!(numbers, [1, 2]);
}

#[tokio::test]
async fn an_error_changes_nothing() {
    let records = open(&Arc::default());
    let refused: Result<(), Problem> = records
        .change(|txn| {
            txn.event(event("never"));
            Err(Problem::new(ProblemCode::Internal, "no"))
        })
        .await;
    assert!(refused.is_err());
    assert!(records.snapshot().events().is_empty());
}

#[tokio::test]
async fn a_caller_that_goes_away_stops_nothing() {
    let store = Arc::default();
    let records = open(&store);
    for round in 1..50 {
        let change = records.apply(|txn| txn.event(event("x")));
        // Polled a few times and dropped, wherever it is then.
        let _ = tokio::time::timeout(std::time::Duration::from_nanos(round), change).await;
    }
    records.apply(|txn| txn.event(event("last"))).await.unwrap();
    let kept = records.snapshot().events().len();
    assert_eq!(open(&store).snapshot().events().len(), kept, "memory and store agree");
}

#[tokio::test]
async fn the_oldest_events_go() {
    let store = Arc::default();
    let records = open(&store);
    records
        .apply(|txn| {
            (0..MAX_EVENTS + 5).for_each(|_| txn.event(event("x")));
        })
        .await
        .unwrap();
    let snapshot = records.snapshot();
    assert_eq!((snapshot.events().len(), *snapshot.events().first().unwrap().0), (MAX_EVENTS, 6));
}

fn keeping(store: &Arc<Memory>, least: usize, most: usize) -> Arc<Records> {
    let retention =
        Retention { operations_least: least, operations_most: most, operations_hours: 1 };
    Records::open_with(store.clone(), Path::new("memory"), retention).unwrap()
}

fn add_ended(txn: &mut Txn, hours_ago: u64) -> OperationId {
    let id = txn.new_operation_id();
    let at = Timestamp::from_millis(txn.now().as_millis() - hours_ago * 3_600_000);
    txn.put_operation(OperationRecord {
        ended: Some(at),
        ..operation(id, OperationState::Succeeded)
    });
    let event = EventRecord::new(EventKind::OperationSucceeded, "over");
    txn.event(event.operation(id));
    id
}

fn ids(records: &Records) -> Vec<u64> {
    records.snapshot().operations().keys().map(|id| id.0).collect()
}

#[tokio::test]
async fn operations_that_ended_go_by_age_and_number_and_those_that_run_stay() {
    let store = Arc::default();
    let records = keeping(&store, 2, 4);
    let add = |hours: &'static [u64]| {
        records.apply(|txn| hours.iter().for_each(|h| _ = add_ended(txn, *h)))
    };
    let runs = |txn: &mut Txn| {
        let id = txn.new_operation_id();
        txn.put_operation(operation(id, OperationState::Running));
    };
    records.apply(runs).await.unwrap();
    add(&[3, 2]).await.unwrap();
    assert_eq!(ids(&records), [1, 2, 3], "the last two stay, however old");
    add(&[0]).await.unwrap();
    assert_eq!(ids(&records), [1, 3, 4], "what is old goes when there are more");
    add(&[0, 0]).await.unwrap();
    assert_eq!(ids(&records), [1, 4, 5, 6]);
    add(&[0, 0, 0]).await.unwrap();
    assert_eq!(ids(&records), [1, 6, 7, 8, 9], "and no more than so many stay, however new");
    assert_eq!(ids(&keeping(&store, 2, 4)), ids(&records), "memory and store agree");
}

#[tokio::test]
async fn made_up_models_do_not_add_up() {
    let records = open(&Arc::default());
    let fails = |n: usize, failures| {
        let (model, since) = (format!("model {n}"), Timestamp::from_millis(n as u64));
        ModelRecord { model, failures, since }
    };
    let all = |txn: &mut Txn| {
        txn.put_model(fails(0, 2));
        (1..MAX_MODELS + 5).for_each(|n| txn.put_model(fails(n, 1)));
    };
    records.apply(all).await.unwrap();
    let tables = records.snapshot();
    assert_eq!(tables.models().len(), MAX_MODELS);
    let there = |n| tables.models().contains_key(&fails(n, 0).model);
    assert!(there(0) && there(1) && there(MAX_MODELS + 4) && !there(MAX_MODELS + 3));
}

/// What ends while the wall clock is behind is no older than what ended before.
#[tokio::test]
async fn a_clock_that_is_set_back_has_what_ended_last_stay() {
    let store = Arc::default();
    let records = keeping(&store, 1, 1);
    for hours in [0, 1, 2] {
        let ends = move |txn: &mut Txn| {
            let id = add_ended(txn, hours);
            key(txn, &format!("key-{}", id.0), id, txn.now());
        };
        records.apply(ends).await.unwrap();
    }
    assert_eq!(ids(&records), [3]);
    // The same of keys, of which no more are kept.
    let tables = records.snapshot();
    let oldest = std::iter::successors(Some((*tables).clone()), |tables| {
        let mut tables = tables.clone();
        let key = tables.keys.oldest()?.clone();
        tables.keys.remove(&key);
        Some(tables)
    });
    let keys: Vec<_> = oldest.map_while(|tables| tables.keys.oldest().cloned()).collect();
    assert_eq!(keys, ["key-1", "key-2", "key-3"]);
    assert_eq!(ids(&keeping(&store, 1, 1)), [3]);
}

#[tokio::test]
async fn stories_are_kept_as_long_as_their_operations() {
    let store = Arc::default();
    let records = keeping(&store, 0, 1);
    let tells = |text: &'static str| {
        move |txn: &mut Txn| {
            let event = EventRecord::new(EventKind::Trouble, text);
            txn.event(event.operation(OperationId(1)));
        }
    };
    records.apply(|txn| _ = txn.new_operation_id()).await.unwrap();
    records
        .apply(|txn| txn.put_operation(operation(OperationId(1), OperationState::Running)))
        .await
        .unwrap();
    records.apply(tells("early")).await.unwrap();
    let start = EventRecord::new(EventKind::ManagerStarted, "again");
    records.apply(|txn| txn.event(start)).await.unwrap();
    let noise = |txn: &mut Txn| (0..MAX_EVENTS).for_each(|_| txn.event(event("noise")));
    records.apply(noise).await.unwrap();
    records.apply(tells("late")).await.unwrap();
    for records in [records, keeping(&store, 0, 1)] {
        let tables = records.snapshot();
        assert_eq!(tables.events().len(), MAX_EVENTS);
        assert!(*tables.events().first().unwrap().0 > 2, "the early ones are not of the last");
        let story = tables.story(OperationId(1));
        let told: Vec<&str> = story.iter().map(|event| event.detail.as_str()).collect();
        assert_eq!(told, ["early", "again", "late"]);
    }
    // With the operation its story goes, also from the store.
    let records = keeping(&store, 0, 1);
    let end = |txn: &mut Txn| txn.put_operation(operation(OperationId(1), OperationState::Failed));
    records.apply(end).await.unwrap();
    records.apply(|txn| _ = add_ended(txn, 0)).await.unwrap();
    assert_eq!(ids(&records), [2]);
    let kept = Store::read(&*store, Table::Events).unwrap().len();
    assert_eq!(kept, MAX_EVENTS + 1, "the last, and the start");
}

/// Which starts belong to a story does not go by the wall clock.
#[test]
fn a_start_is_part_of_the_story_that_it_was_in_whatever_the_clock_says() {
    const HOUR: u64 = 3_600_000;
    let mut txn = Txn::new(Tables::default());
    let began = txn.now().as_millis();
    let start = |txn: &mut Txn| txn.event(EventRecord::new(EventKind::ManagerStarted, "again"));
    let tell =
        |txn: &mut Txn, kind| txn.event(EventRecord::new(kind, "").operation(OperationId(1)));
    start(&mut txn);
    txn.new_operation_id();
    txn.put_operation(operation(OperationId(1), OperationState::Running));
    tell(&mut txn, EventKind::OperationStarted);
    txn.set_now(Timestamp::from_millis(began - HOUR));
    start(&mut txn);
    let kinds =
        |txn: &Txn| txn.story(OperationId(1)).iter().map(|event| event.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&txn), [EventKind::OperationStarted, EventKind::ManagerStarted]);
    let ended = Some(Timestamp::from_millis(began + HOUR));
    let operation = operation(OperationId(1), OperationState::Failed);
    txn.put_operation(OperationRecord { ended, ..operation });
    tell(&mut txn, EventKind::OperationFailed);
    start(&mut txn);
    let told = [EventKind::OperationStarted, EventKind::ManagerStarted, EventKind::OperationFailed];
    assert_eq!(kinds(&txn), told);
}

fn key(txn: &mut Txn, name: &str, operation: OperationId, since: Timestamp) {
    let digest = digest("request");
    txn.put_key(KeyRecord { key: name.to_owned(), operation, digest, since, outcome: None });
}

#[tokio::test]
async fn a_key_outlives_its_operation_with_what_came_of_it() {
    let store = Arc::default();
    let records = keeping(&store, 0, 1);
    let begin = |txn: &mut Txn| {
        let (id, now) = (add_ended(txn, 0), txn.now());
        key(txn, &format!("key-{}", id.0), id, now);
    };
    for _ in 0..3 {
        records.apply(begin).await.unwrap();
    }
    for records in [records, keeping(&store, 0, 1)] {
        let tables = records.snapshot();
        assert_eq!(ids(&records), [3]);
        let gone = tables.key("key-1", Timestamp::now()).unwrap();
        let outcome = gone.outcome.as_ref().unwrap();
        assert_eq!((outcome.id.0, outcome.state), (1, OperationState::Succeeded));
        assert!(outcome.steps.is_empty() && outcome.warnings[0].contains("no longer kept"));
        assert_eq!(tables.key("key-3", Timestamp::now()).unwrap().outcome, None);
    }
}

#[tokio::test]
async fn keys_go_after_a_day_unless_their_operation_runs() {
    let store = Arc::default();
    let records = keeping(&store, 9, 9);
    let long_ago = Timestamp::from_millis(Timestamp::now().as_millis() - KEEP_KEYS_MS);
    records
        .apply(|txn| {
            let runs = txn.new_operation_id();
            txn.put_operation(operation(runs, OperationState::Running));
            key(txn, "key-1", runs, long_ago);
            let over = add_ended(txn, 24);
            key(txn, "over", over, long_ago);
        })
        .await
        .unwrap();
    let tables = records.snapshot();
    assert!(tables.key("over", Timestamp::now()).is_none() && tables.key_count() == 1);
    assert!(tables.key("key-1", Timestamp::now()).is_some());
    assert_eq!(tables.meta().keys_dropped_early, 0);
    // The day begins when it ends: a retry just after finds it, also after a restart.
    let end = |at: Timestamp| {
        records.apply(move |txn| {
            let ended = operation(OperationId(1), OperationState::Failed);
            txn.put_operation(OperationRecord { ended: Some(at), ..ended });
        })
    };
    let now = Timestamp::now();
    end(now).await.unwrap();
    for tables in [records.snapshot(), open(&store).snapshot()] {
        assert!(tables.key("key-1", now).is_some());
        let later = Timestamp::from_millis(now.as_millis() + KEEP_KEYS_MS);
        // Not because the wall clock was set forward: a retry would do it again.
        assert!(tables.key("key-1", later).is_some());
        let mut tables = Tables::clone(&tables);
        tables.keys.age(KEEP_KEYS_MS);
        assert!(tables.key("key-1", now).is_some(), "it was set back");
        assert!(tables.key("key-1", later).is_none());
    }
    // When that is over, the next key takes it out.
    end(long_ago).await.unwrap();
    assert!(records.snapshot().key("key-1", Timestamp::now()).is_none());
    let next = |txn: &mut Txn| key(txn, "next", OperationId(99), txn.now());
    records.apply(next).await.unwrap();
    assert_eq!(open(&store).snapshot().key_count(), 1);
}

/// Keys that are over go with each new one, but not after the wall clock was set forward.
#[test]
fn a_wall_clock_that_is_set_forward_takes_out_no_keys() {
    let mut txn = Txn::new(Tables::default());
    let ended = add_ended(&mut txn, 0);
    let now = txn.now();
    key(&mut txn, "retried", ended, now);
    let mut txn = Txn::new(txn.into_tables());
    let later = Timestamp::from_millis(now.as_millis() + KEEP_KEYS_MS);
    txn.set_now(later);
    key(&mut txn, "next", OperationId(99), later);
    assert!(txn.key("retried", later).is_some());
}

/// Nor does one that was behind when the manager started keep them for ever.
#[test]
fn keys_that_ended_after_the_clock_was_set_right_go_after_a_day() {
    let mut txn = Txn::new(Tables::default());
    let now = txn.now().as_millis();
    txn.tables.keys.begin_at(Timestamp::from_millis(now - 365 * KEEP_KEYS_MS));
    let ended = add_ended(&mut txn, 0);
    key(&mut txn, "early", ended, Timestamp::from_millis(now));
    let later = Timestamp::from_millis(now + KEEP_KEYS_MS + 1);
    txn.set_now(later);
    assert!(txn.key("early", later).is_some(), "it may be the wall clock alone");
    txn.tables.keys.age(KEEP_KEYS_MS);
    assert!(txn.key("early", later).is_none());
    key(&mut txn, "next", OperationId(99), later);
    assert_eq!((txn.key_count(), txn.meta().keys_dropped_early), (1, 0));
}

#[test]
fn too_many_keys_push_the_oldest_out_and_that_is_counted() {
    let mut txn = Txn::new(Tables::default());
    let now = txn.now().as_millis();
    for number in 0..MAX_KEYS as u64 + 3 {
        let since = Timestamp::from_millis(now - MAX_KEYS as u64 - 3 + number);
        key(&mut txn, &number.to_string(), OperationId(number), since);
    }
    assert_eq!((txn.key_count(), txn.meta().keys_dropped_early), (MAX_KEYS, 3));
    assert!(txn.key("2", txn.now()).is_none() && txn.key("3", txn.now()).is_some());
}

/// A client that repeats a request with another key each time fills nothing, and pushes out nobody's
/// key but its own.
#[test]
fn of_an_operation_that_many_requests_joined_the_first_key_and_the_last_ones_are_kept() {
    let mut txn = Txn::new(Tables::default());
    let other = add_ended(&mut txn, 0);
    let now = txn.now();
    key(&mut txn, "other", other, now);
    let runs = txn.new_operation_id();
    let own = Some("own".to_owned());
    let record = operation(runs, OperationState::Running);
    txn.put_operation(OperationRecord { client_key: own, ..record });
    key(&mut txn, "own", runs, now);
    let joined = |number: usize| format!("joined-{number}");
    let many = 3 * MAX_JOINED;
    for number in 0..many {
        let since = Timestamp::from_millis(now.as_millis() + number as u64);
        key(&mut txn, &joined(number), runs, since);
        // The same one again is none more.
        key(&mut txn, &joined(number), runs, since);
    }
    assert_eq!((txn.key_count(), txn.keys.of(runs).len()), (MAX_JOINED + 2, MAX_JOINED + 1));
    assert_eq!(txn.meta().keys_dropped_early as usize, many - MAX_JOINED);
    for kept in ["other", "own", &joined(many - MAX_JOINED), &joined(many - 1)] {
        assert!(txn.key(kept, now).is_some(), "{kept}");
    }
    assert!(txn.key(&joined(many - MAX_JOINED - 1), now).is_none());
}

/// A store of an earlier version may have had more of one operation, which all end at once.
#[test]
fn no_change_takes_out_many_keys() {
    let mut txn = Txn::new(Tables::default());
    let now = txn.now();
    let early = Timestamp::from_millis(now.as_millis() - KEEP_KEYS_MS);
    let record = |name: String| {
        let (digest, operation) = (digest("request"), OperationId(7));
        KeyRecord { key: name, operation, digest, since: early, outcome: None }
    };
    let there = MAX_KEYS + 100;
    for number in 0..there {
        let record = Arc::new(record(number.to_string()));
        txn.tables.keys.insert(record, Some(now));
    }
    for (name, expected) in [("a", there - 7), ("b", there - 14)] {
        key(&mut txn, name, OperationId(8), now);
        assert_eq!(txn.key_count(), expected);
    }
}

fn operation(id: OperationId, state: OperationState) -> OperationRecord {
    OperationRecord {
        id,
        what: OperationKind::Release { slots: Vec::new(), force: false, reason: None },
        state,
        allocation: None,
        steps: Vec::new(),
        warnings: Vec::new(),
        error: None,
        client_key: Some(format!("key-{}", id.0)),
        started: crate::types::Timestamp::now(),
        ended: None,
    }
}

fn binding(id: u64, slot: &str, host: &str, port: u8) -> BindingRecord {
    BindingRecord {
        id: BindingId(id),
        allocation: AllocationId(id % 3),
        slot: slot.parse().unwrap(),
        functions: vec![FunctionEpoch { function: SlotFunction::ZERO, epoch: epoch(0, 1) }],
        host: NodeName::new(host).unwrap(),
        port: PortId::new(port).unwrap(),
        model: String::new(),
        demand: None,
        path_set: None,
        phase: Phase::Reserved,
        desired: Desired::Bound,
        box_incarnation: None,
        host_incarnation: None,
        operation: None,
        trouble: None,
        since: crate::types::Timestamp::now(),
        changed: crate::types::Timestamp::now(),
    }
}

#[test]
#[should_panic(expected = "box1/1 is lent")]
fn no_slot_is_lent_twice() {
    let mut txn = Txn::new(Tables::default());
    txn.add_binding(binding(1, "box1/1", "host1", 0));
    txn.add_binding(binding(2, "box1/1", "host2", 0));
}

#[test]
#[should_panic(expected = "goes from reserved to configured")]
fn no_phase_is_skipped() {
    let mut txn = Txn::new(Tables::default());
    txn.add_binding(binding(1, "box1/1", "host1", 0));
    let phase = Phase::Configured;
    txn.update_binding(BindingRecord { phase, ..binding(1, "box1/1", "host1", 0) });
}

proptest! {
    /// However bindings come and go, the indexes say what the records say, also after reading
    /// them back.
    #[test]
    fn indexes_follow_the_records(
        steps in prop::collection::vec((0..6u8, 0..3u8, 0..4u8), 1..40),
    ) {
        let store = Memory::default();
        let mut tables = Tables::default();
        for (id, (slot, host, port)) in steps.into_iter().enumerate() {
            let new = binding(id as u64, &format!("box{}/{}", slot % 2, slot / 2 + 1), &format!("host{host}"), port);
            let mut txn = Txn::new(tables);
            let there = txn.binding_at_slot(&new.slot).or(txn.binding_at_port(&new.host, new.port));
            match there.map(|b| b.id) {
                Some(there) => txn.remove_binding(there),
                None => txn.add_binding(new),
            }
            let (next, changes, _) = txn.finish();
            store.commit(&changes).unwrap();
            tables = next;
        }
        let read = load::load(&store, Path::new("memory")).unwrap();
        for tables in [&tables, &read] {
            let mut at_nodes = 0;
            for binding in tables.bindings().values() {
                prop_assert_eq!(tables.binding_at_slot(&binding.slot), Some(binding));
                prop_assert_eq!(tables.binding_at_port(&binding.host, binding.port), Some(binding));
                prop_assert!(tables.bindings_of(binding.allocation).any(|b| b == binding));
                prop_assert!(tables.bindings_at(&binding.host).any(|b| b == binding));
                prop_assert!(tables.bindings_at(binding.slot.box_name()).any(|b| b == binding));
            }
            for node in ["box0", "box1", "host0", "host1", "host2"] {
                at_nodes += tables.bindings_at(&NodeName::new(node).unwrap()).count();
            }
            prop_assert_eq!(at_nodes, 2 * tables.bindings().len());
        }
        prop_assert_eq!(tables.bindings(), read.bindings());
    }
}
