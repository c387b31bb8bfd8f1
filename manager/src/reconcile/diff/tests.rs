use super::*;
use crate::records::Records;
use crate::store::EmbeddedStore;
use crate::types::{
    AllocationId, BindingRecord, Desired, FunctionEpoch, NodeRecord, Phase, Role, Timestamp,
};
use proxy_core::control::{PathSet, SlotState};
use std::sync::Arc;
use tlp_codec::ids::{Bdf, SlotFunction, SlotId};

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn epoch(counter: u32) -> Epoch {
    Epoch::new(0, counter).unwrap()
}

/// Records with host1 (node 1), box1 (node 2) and one binding, epoch 5, slot 1 to port 0.
struct Fixture {
    records: Arc<Records>,
    _folder: tempfile::TempDir,
}

impl Fixture {
    async fn new(phase: Phase, desired: Desired) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let store = Arc::new(EmbeddedStore::open(&path).unwrap());
        let records = Records::open(store, &path).unwrap();
        let fixture = Self { records, _folder: folder };
        let now = Timestamp::now();
        let node = |text: &str, node, role| {
            NodeRecord::new(name(text), NodeId::new(node).unwrap(), role, 4, now)
        };
        let changed = fixture.records.apply(|txn| {
            txn.put_node(node("host1", 1, Role::Host));
            txn.put_node(node("box1", 2, Role::Box));
            txn.add_binding(BindingRecord {
                id: BindingId(1),
                allocation: AllocationId(1),
                slot: "box1/1".parse().unwrap(),
                functions: vec![FunctionEpoch { function: SlotFunction::ZERO, epoch: epoch(5) }],
                host: name("host1"),
                port: PortId::new(0).unwrap(),
                model: String::new(),
                demand: None,
                path_set: None,
                phase,
                desired,
                box_incarnation: Some(1),
                host_incarnation: Some(1),
                operation: None,
                trouble: None,
                since: now,
                changed: now,
            });
        });
        changed.await.unwrap();
        fixture
    }

    fn now(&self) -> Arc<Tables> {
        self.records.snapshot()
    }
}

fn slot_entry(slot: u8, counter: u32, used: bool) -> SlotEntry {
    SlotEntry {
        entry: slot.into(),
        valid: true,
        used,
        state: if used { SlotState::Bound } else { SlotState::Free },
        slot: SlotId::new(slot).unwrap(),
        function: SlotFunction::ZERO,
        host_node: u16::from(used),
        path_set: PathSet::FIRST,
        epoch: epoch(counter).bits(),
        windows: Default::default(),
    }
}

pub(in crate::reconcile) fn mapping(
    port: u8,
    box_node: u16,
    counter: u32,
    state: PortState,
) -> MappingEntry {
    MappingEntry {
        port: PortId::new(port).unwrap(),
        used: true,
        state,
        buses: (0, 0),
        device: Bdf::from_bits(0),
        memory: None,
        prefetchable: None,
        io: None,
        box_node,
        slot: 1,
        functions: [(SlotFunction::ZERO, epoch(counter))].into_iter().collect(),
        path_set: PathSet::FIRST,
        configured: false,
    }
}

/// Found by the simulator: a host whose port was bound already when it was asked to bind it tells
/// of its operating system no second time.
#[tokio::test]
async fn a_table_says_that_the_device_is_in_use() {
    let fixture = Fixture::new(Phase::Bound, Desired::Bound).await;
    let now = fixture.now();
    let in_use = MappingEntry { configured: true, ..mapping(0, 2, 5, PortState::Present) };
    let diff = of_host(&name("host1"), std::slice::from_ref(&in_use), &now, &now);
    assert_eq!(diff.configured.len(), 1);
    let other_epoch = MappingEntry { configured: true, ..mapping(0, 2, 4, PortState::Present) };
    assert!(of_host(&name("host1"), &[other_epoch], &now, &now).configured.is_empty());
    let fixture = Fixture::new(Phase::Configured, Desired::Bound).await;
    let now = fixture.now();
    assert!(of_host(&name("host1"), &[in_use], &now, &now).configured.is_empty(), "it is known");
}

#[tokio::test]
async fn tables_that_agree_differ_in_nothing() {
    let fixture = Fixture::new(Phase::Configured, Desired::Bound).await;
    let now = fixture.now();
    let table = [slot_entry(1, 5, true), slot_entry(2, 9, false)];
    assert_eq!(of_box(&name("box1"), &table, &now, &now), BoxDiff::default());
    let table = [mapping(0, 2, 5, PortState::Present)];
    assert_eq!(of_host(&name("host1"), &table, &now, &now), HostDiff::default());
}

#[tokio::test]
async fn another_epoch_slot_port_or_box_is_a_stray() {
    let fixture = Fixture::new(Phase::Configured, Desired::Bound).await;
    let now = fixture.now();
    for entry in [slot_entry(1, 4, true), slot_entry(2, 5, true)] {
        let diff = of_box(&name("box1"), &[entry], &now, &now);
        assert_eq!((diff.stray.len(), diff.missing.as_slice()), (1, &[BindingId(1)][..]));
        assert_eq!(diff.stray[0].host, NodeId::new(1).ok());
    }
    for entry in [
        mapping(0, 2, 4, PortState::Present),
        mapping(1, 2, 5, PortState::Present),
        mapping(0, 3, 5, PortState::Present),
    ] {
        let port = entry.port;
        let diff = of_host(&name("host1"), &[entry], &now, &now);
        assert_eq!((diff.stray.len(), diff.missing.as_slice()), (1, &[BindingId(1)][..]));
        assert_eq!(diff.stray_ports, BTreeSet::from([port]));
    }
}

#[tokio::test]
async fn what_the_box_had_under_its_epoch_is_over() {
    let fixture = Fixture::new(Phase::Configured, Desired::Bound).await;
    let now = fixture.now();
    // Ended; and ended for another one of which no record knows.
    for entry in [slot_entry(1, 5, false), slot_entry(1, 6, true)] {
        let diff = of_box(&name("box1"), &[entry], &now, &now);
        assert_eq!((diff.over.as_slice(), diff.missing.len()), (&[BindingId(1)][..], 0));
    }
    // Never had, and another slot's.
    for entry in [slot_entry(1, 4, false), slot_entry(2, 5, false)] {
        let diff = of_box(&name("box1"), &[entry], &now, &now);
        assert_eq!((diff.over.len(), diff.missing.as_slice()), (0, &[BindingId(1)][..]));
    }
}

#[tokio::test]
async fn only_what_should_be_there_is_missed() {
    for phase in Phase::ALL {
        for desired in [Desired::Bound, Desired::Forced] {
            let fixture = Fixture::new(phase, desired).await;
            let now = fixture.now();
            let bound = desired == Desired::Bound;
            let at_box = of_box(&name("box1"), &[], &now, &now).missing.len();
            assert_eq!(at_box == 1, bound && phase.at_box(), "{phase}");
            let at_host = of_host(&name("host1"), &[], &now, &now).missing.len();
            assert_eq!(at_host == 1, bound && phase.at_host(), "{phase}");
        }
    }
}

/// It was skipped while the host was away.
#[tokio::test]
async fn what_counts_as_withdrawn_and_is_there_is_a_stray() {
    let table = [mapping(0, 2, 5, PortState::Present)];
    for phase in Phase::ALL {
        let fixture = Fixture::new(phase, Desired::Forced).await;
        let now = fixture.now();
        let diff = of_host(&name("host1"), &table, &now, &now);
        assert_eq!(diff.stray.len(), usize::from(phase == Phase::Withdrawn), "{phase}");
        assert_eq!(diff.stray_ports.len(), diff.stray.len());
    }
    // It was only just asked to take it out.
    let fixture = Fixture::new(Phase::Bound, Desired::Forced).await;
    let before = fixture.now();
    let withdrawn = fixture.records.apply(|txn| {
        let binding = txn.bindings()[&BindingId(1)].clone();
        txn.update_binding(BindingRecord { phase: Phase::Withdrawn, ..binding });
    });
    withdrawn.await.unwrap();
    assert!(of_host(&name("host1"), &table, &before, &fixture.now()).stray.is_empty());
}

#[tokio::test]
async fn what_changed_while_the_table_was_read_is_left_alone() {
    let fixture = Fixture::new(Phase::SlotBound, Desired::Bound).await;
    let before = fixture.now();
    let changed = fixture.records.apply(|txn| {
        let binding = txn.bindings()[&BindingId(1)].clone();
        txn.update_binding(BindingRecord { phase: Phase::Bound, ..binding });
    });
    changed.await.unwrap();
    let after = fixture.now();
    assert!(of_box(&name("box1"), &[], &before, &after).missing.is_empty());
    assert!(of_host(&name("host1"), &[], &before, &after).missing.is_empty());
    // Gone meanwhile: not missing, and what the table still has of it is no stray.
    fixture.records.apply(|txn| txn.remove_binding(BindingId(1))).await.unwrap();
    let gone = fixture.now();
    let table = [slot_entry(1, 5, true)];
    // But it may stay, and has to be looked at again.
    let unsure = BoxDiff { unsure: true, ..BoxDiff::default() };
    assert_eq!(of_box(&name("box1"), &table, &after, &gone), unsure);
    assert_eq!(of_box(&name("box1"), &table, &gone, &gone).stray.len(), 1);
    let table = [mapping(0, 2, 5, PortState::Present)];
    let unsure = HostDiff { unsure: true, ..HostDiff::default() };
    assert_eq!(of_host(&name("host1"), &table, &after, &gone), unsure);
    // It was out of the host, or skipped there, when the table was read: it is nobody's.
    let fixture = Fixture::new(Phase::Withdrawn, Desired::Forced).await;
    let skipped = fixture.now();
    fixture.records.apply(|txn| txn.remove_binding(BindingId(1))).await.unwrap();
    let diff = of_host(&name("host1"), &table, &skipped, &fixture.now());
    assert_eq!((diff.stray.len(), diff.unsure), (1, false));
}

#[tokio::test]
async fn a_port_whose_link_is_down_has_failed() {
    let fixture = Fixture::new(Phase::Configured, Desired::Bound).await;
    let now = fixture.now();
    let diff = of_host(&name("host1"), &[mapping(0, 2, 5, PortState::Failed)], &now, &now);
    assert_eq!((diff.failed.as_slice(), diff.missing.len()), (&[BindingId(1)][..], 0));
}
