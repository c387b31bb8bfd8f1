use super::super::deadlines::Moved;
use super::*;
use serde_json::json;

const NOW: &str = "2026-01-01T00:00:00.000Z";
const ID: AllocationId = AllocationId(1);

/// One whose lease ends then, and which has one device.
fn lent(until: Timestamp, warned: bool) -> Txn {
    let mut txn = Txn::new(Tables::default());
    let lease = json!({ "until": until, "whole_ms": 1000, "warned": warned });
    let allocation = json!({ "id": "alloc-1", "host": "host1", "since": NOW, "lease": lease });
    txn.put_allocation(serde_json::from_value(allocation).unwrap());
    let epoch = tlp_codec::ids::Epoch::new(0, 2).unwrap();
    let binding = json!({
        "id": "bind-1", "allocation": "alloc-1", "slot": "box1/1", "host": "host1",
        "functions": [{ "function": 0, "epoch": epoch }], "port": 0, "phase": "configured",
        "desired": "bound", "since": NOW, "changed": NOW,
    });
    txn.add_binding(serde_json::from_value(binding).unwrap());
    txn
}

/// What is to be done when the lease has no time left.
fn over(txn: &Txn, moved: Vec<Moved>) -> Vec<Todo> {
    let look = Look { jumped_ms: 0, moved, left: vec![(Key::Lease(ID), Duration::ZERO)] };
    todo(txn, &look, Duration::from_secs(60), &HashMap::new(), Instant::now())
}

fn do_all(txn: &mut Txn, todo: &[Todo]) {
    todo.iter().for_each(|todo| carry_out(txn, todo, &Settings::default()));
}

/// Whoever decides looks at the records of before.
#[test]
fn a_lease_that_was_extended_meanwhile_neither_ends_nor_warns() {
    let early = Timestamp::from_millis(1_800_000_000_000);
    for warned in [false, true] {
        let mut txn = lent(early, warned);
        let decided = over(&txn, Vec::new());
        assert_eq!(decided.len(), 1, "{decided:?}");
        extend(&mut txn, ID, 3_600_000, |_| Duration::ZERO).unwrap();
        do_all(&mut txn, &decided);
        assert_eq!(txn.running().count(), 0, "{warned}");
        assert!(!txn.allocations()[&ID].lease.as_ref().unwrap().warned, "{warned}");
    }
}

/// As while the store could not be written.
#[test]
fn a_lease_whose_end_is_told_late_lasts_for_the_warning_time_from_then() {
    let (hour, warning) = (3_600_000, Duration::from_secs(60));
    let now = Timestamp::now().as_millis();
    for (left, told) in [(0, true), (30_000, true), (59_900, false), (90_000, false)] {
        let until = Timestamp::from_millis(now + left);
        let mut txn = lent(until, false);
        let mut allocation = txn.allocations()[&ID].clone();
        allocation.lease.as_mut().unwrap().whole_ms = hour;
        txn.put_allocation(allocation);
        warn(&mut txn, ID, until, warning);
        let lease = txn.allocations()[&ID].lease.clone().unwrap();
        assert!(lease.warned);
        assert_eq!(lease.until >= Timestamp::from_millis(now + 60_000), told || left > 60_000);
        assert_eq!(lease.until != until, told, "{left}");
    }
}

/// Its end in the records is moved with the wall clock, in the same change.
#[test]
fn a_lease_that_is_over_when_its_end_is_moved_ends() {
    let early = Timestamp::from_millis(1_800_000_000_000);
    let late = Timestamp::from_millis(1_900_000_000_000);
    let mut txn = lent(early, true);
    let moved = Moved { key: Key::Lease(ID), from: early, to: late };
    let decided = over(&txn, vec![moved]);
    do_all(&mut txn, &decided);
    assert_eq!(txn.allocations()[&ID].lease.as_ref().unwrap().until, late);
    assert_eq!(txn.running().count(), 1);
    // Once.
    assert_eq!(over(&txn, Vec::new()), []);
}

/// A host that is away may be waited for by a release, and not by a lease.
#[test]
fn a_lease_that_is_over_takes_what_is_being_released() {
    let mut txn = lent(Timestamp::from_millis(1_800_000_000_000), true);
    let target = request::ReleaseTarget::Allocation(ID);
    let orderly = request::ReleaseMode::Orderly { within_ms: 60_000 };
    let release = request::release(&mut txn, target, orderly, None).unwrap().id;
    let decided = over(&txn, Vec::new());
    do_all(&mut txn, &decided);
    let taken: Vec<OperationId> = take_back_ids(&txn);
    assert_eq!(taken.len(), 1, "{decided:?}");
    assert_eq!(over(&txn, Vec::new()), [], "it is taken back already");
    take_back::force(&mut txn, taken[0]);
    let binding = txn.bindings_of(ID).next().unwrap();
    assert_eq!((binding.desired, binding.operation), (Desired::Forced, Some(release)));
    assert_eq!(over(&txn, Vec::new()), []);
}

/// Its box frees it when it can.
#[test]
fn a_lease_that_is_over_leaves_what_is_out_of_its_host() {
    let mut txn = lent(Timestamp::from_millis(1_800_000_000_000), true);
    let binding = txn.bindings_of(ID).next().unwrap().clone();
    let (desired, phase) = (Desired::Released { within_ms: 1 }, Phase::Withdrawn);
    txn.update_binding(BindingRecord { desired, phase, ..binding });
    assert_eq!(over(&txn, Vec::new()), []);
}

fn take_back_ids(txn: &Txn) -> Vec<OperationId> {
    let taking = txn.running().filter(|operation| take_back::stage(operation).is_some());
    taking.map(|operation| operation.id).collect()
}

/// Its box is away, and has not freed it yet.
#[test]
fn a_host_that_has_let_go_is_not_said_to_have_kept_it() {
    let mut txn = lent(Timestamp::from_millis(1_800_000_000_000), true);
    let decided = over(&txn, Vec::new());
    do_all(&mut txn, &decided);
    let taken = take_back_ids(&txn)[0];
    let binding = txn.bindings_of(ID).next().unwrap().clone();
    txn.update_binding(BindingRecord { phase: Phase::Withdrawn, ..binding.clone() });
    take_back::force(&mut txn, taken);
    assert_eq!(take_back::stage(&txn.operations()[&taken]), Some(TakeBackStage::Force));
    assert_eq!(txn.bindings_of(ID).next().unwrap().desired, binding.desired);
    assert!(txn.events().values().all(|event| event.kind != EventKind::TakeBackForced));
}
