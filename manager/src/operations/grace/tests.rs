use super::*;
use crate::records::Records;
use crate::store::EmbeddedStore;
use crate::types::{AllocationId, Desired, FunctionEpoch, Phase, Timestamp};
use tlp_codec::ids::{Epoch, PortId, SlotFunction};

const GRACE: Duration = Duration::from_secs(60);

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn binding(id: u64, host: &str, desired: Desired) -> BindingRecord {
    let epoch = Epoch::new(0, 1).unwrap();
    BindingRecord {
        id: BindingId(id),
        allocation: AllocationId(1),
        slot: format!("box1/{id}").parse().unwrap(),
        functions: vec![FunctionEpoch { function: SlotFunction::ZERO, epoch }],
        host: name(host),
        port: PortId::new(id as u8).unwrap(),
        model: String::new(),
        demand: None,
        path_set: None,
        phase: Phase::Configured,
        desired,
        box_incarnation: None,
        host_incarnation: None,
        operation: None,
        trouble: None,
        since: Timestamp::now(),
        changed: Timestamp::now(),
    }
}

/// Records with these bindings.
async fn tables(bindings: &[BindingRecord]) -> Arc<Tables> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let records = Records::open(Arc::new(EmbeddedStore::open(&path).unwrap()), &path).unwrap();
    let entered = records.apply(|txn| bindings.iter().cloned().for_each(|b| txn.add_binding(b)));
    entered.await.unwrap();
    records.snapshot()
}

struct Counted {
    countdowns: Countdowns,
    begin: Instant,
}

impl Counted {
    fn new() -> Self {
        Self { countdowns: Countdowns::default(), begin: Instant::now() }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.begin + Duration::from_secs(seconds)
    }

    /// The bindings whose time is over at this second, of hosts that went away at these.
    fn look(&self, seconds: u64, tables: &Tables, away: &[(&str, u64)]) -> Vec<u64> {
        let away: Vec<_> = away.iter().map(|(host, at)| (name(host), self.at(*at))).collect();
        let over = self.countdowns.look(self.at(seconds), GRACE, tables, &away);
        over.into_iter().flat_map(|(_, ids)| ids).map(|id| id.0).collect()
    }

    /// How many are counted down.
    fn count(&self) -> usize {
        self.countdowns.begun.lock().unwrap().len()
    }
}

#[tokio::test]
async fn what_a_host_has_is_over_a_grace_time_after_it_went() {
    let two = [binding(1, "host1", Desired::Bound), binding(2, "host2", Desired::Bound)];
    let (counted, tables) = (Counted::new(), tables(&two).await);
    assert!(counted.look(0, &tables, &[]).is_empty() && counted.count() == 0);
    assert!(counted.look(10, &tables, &[("host1", 10)]).is_empty());
    assert!(counted.look(69, &tables, &[("host1", 10)]).is_empty());
    assert_eq!(counted.count(), 1, "the other host is there");
    assert_eq!(counted.look(70, &tables, &[("host1", 10)]), [1]);
    let left = counted.countdowns.left(&name("host2"), Instant::now(), GRACE, &tables);
    assert_eq!(left, Some(GRACE), "it would have its whole time");
}

#[tokio::test]
async fn a_root_complex_that_comes_in_time_ends_the_countdown() {
    let (counted, tables) = (Counted::new(), tables(&[binding(1, "host1", Desired::Bound)]).await);
    assert!(counted.look(0, &tables, &[("host1", 0)]).is_empty());
    assert!(counted.look(59, &tables, &[]).is_empty());
    assert_eq!(counted.count(), 0);
    assert!(counted.look(80, &tables, &[("host1", 80)]).is_empty());
    // It came and went between two looks.
    assert!(counted.look(140, &tables, &[("host1", 130)]).is_empty());
    assert_eq!(counted.look(190, &tables, &[("host1", 130)]), [1]);
}

#[tokio::test]
async fn what_is_lent_to_a_host_that_is_away_has_its_time_from_then_on() {
    let one = binding(1, "host1", Desired::Bound);
    let other = binding(2, "host1", Desired::Bound);
    let (counted, before) = (Counted::new(), tables(std::slice::from_ref(&one)).await);
    let both = tables(&[one, other]).await;
    assert!(counted.look(1000, &before, &[("host1", 0)]).is_empty());
    assert!(counted.look(1030, &both, &[("host1", 0)]).is_empty());
    assert_eq!(counted.look(1060, &both, &[("host1", 0)]), [1]);
    assert_eq!(counted.look(1090, &both, &[("host1", 0)]), [1, 2]);
}

#[tokio::test]
async fn what_ends_already_is_not_counted() {
    let ending = [
        binding(1, "host1", Desired::Forced),
        binding(2, "host1", Desired::Released { within_ms: 1 }),
    ];
    let (counted, tables) = (Counted::new(), tables(&ending).await);
    for seconds in [0, 100] {
        assert!(counted.look(seconds, &tables, &[("host1", 0)]).is_empty());
    }
    assert_eq!(counted.count(), 0);
    assert_eq!(counted.countdowns.left(&name("host1"), counted.begin, GRACE, &tables), None);
}
