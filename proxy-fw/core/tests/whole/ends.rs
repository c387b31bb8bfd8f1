//! What ends a lending, and that nothing of it is left: release, reset, a cut cable, a device that is pulled.

use crate::world::*;
use proxy_core::boxes::SlotSignal;
use proxy_core::control::{
    BindingFailure, ControlError, Event, FromProxy, LinkDownReason, OperationId, PortState,
    Removal, Reply, Request, SlotState, Term,
};
use proxy_core::limits::{DEVICE_TAGS, ROOT_OUTSTANDING, TLP_BUFFER};
use proxy_core::link::ClassSet;
use proxy_core::role::Role;
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

const WINDOW: u64 = FIRST_WINDOW;

pub(super) fn force(counter: u32) -> Request {
    unbind_port(port(0), key(counter).epoch, Removal::Force)
}

/// That the operating system let go of a device by itself, as often as it was told.
fn told_let_go(world: &mut World) -> Vec<(NodeId, BindingKey)> {
    let told = std::mem::take(&mut world.host_messages);
    let of_host = |message| match message {
        FromProxy::Event { event: Event::BindingFailed { peer, key, reason }, .. } => {
            assert_eq!(reason, BindingFailure::HostLetGo);
            Some((peer, key))
        }
        _ => None,
    };
    told.into_iter().filter_map(of_host).collect()
}

#[test]
fn who_joins_is_told_what_the_operating_system_let_go_of() {
    const SLOT_CONTROL: u16 = 0x88;
    let mut world = World::bound();
    let port = bdf(2, 0);
    for indicator in [0x100, 0x300] {
        assert_eq!(world.config_write(port, SLOT_CONTROL, indicator), CplStatus::Success);
    }
    let let_go = (node(BOX), key(1));
    assert_eq!(told_let_go(&mut world), [let_go]);
    // Nobody heard it.
    for _ in 0..2 {
        world.host.control_reconnected();
        world.turn();
        assert_eq!(told_let_go(&mut world), [let_go]);
    }
    // It was heard: the slot is taken back, and nothing is told of the next binding.
    assert_eq!(world.ask_host(force(1)), Ok(Reply::Removed { orderly: false }));
    world.ask_box(Request::UnbindSlot(key(1))).unwrap();
    world.bind(2);
    world.host.control_reconnected();
    world.turn();
    assert_eq!(told_let_go(&mut world), []);
}

#[test]
fn after_release_nothing_reaches_the_device_and_it_was_reset() {
    let mut world = World::bound();
    world.mem_write(WINDOW, &[7; 4]);
    assert_eq!(world.ask_host(force(1)), Ok(Reply::Removed { orderly: false }));
    let resets = world.device.resets;
    let released = world.ask_box(Request::UnbindSlot(key(1)));
    assert_eq!(released, Ok(Reply::Slot(SlotState::Free)));
    assert_eq!(world.device.resets, resets + 1);
    world.device.received.clear();
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::UnsupportedRequest);
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::UnsupportedRequest);
    assert!(world.device.received.is_empty());
    // Asked again, the answers are the same.
    assert_eq!(world.ask_host(force(1)), Ok(Reply::Removed { orderly: true }));
    assert_eq!(world.ask_box(Request::UnbindSlot(key(1))), Ok(Reply::Slot(SlotState::Free)));
    // And it can be lent again, under a later epoch alone.
    let stale = world.ask_box(Request::BindSlot(slot_binding(key(1))));
    assert_eq!(stale, Err(ControlError::StaleEpoch(key(1).epoch)));
    world.bind(2);
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::Success);
}

#[test]
fn a_released_device_reaches_nobody() {
    let mut world = World::bound();
    world.ask_host(force(1)).unwrap();
    world.ask_box(Request::UnbindSlot(key(1))).unwrap();
    world.to_root.clear();
    world.device.received.clear();
    world.device.out.push_back(emit(&Repr::new(mem_write(bdf(3, 0), 0x1000, &[9; 4]))));
    world.device.out.push_back(emit(&Repr::new(mem_read(bdf(3, 0), 1, 0x1000, 1))));
    world.turn();
    assert!(world.to_root.is_empty());
    let answer = Packet::new_checked(&world.device.received[0][..]).unwrap();
    assert_eq!(answer.status(), CplStatus::UnsupportedRequest);
    assert_eq!(world.counter("box: posted TLPs of functions that are not lent"), 1);
    assert_eq!(world.counter("box: non-posted requests of functions that are not lent"), 1);
}

#[test]
fn a_device_that_does_not_come_back_from_reset_is_quarantined() {
    let mut world = World::bound();
    world.ask_host(force(1)).unwrap();
    world.device.manner = Manner::Silent;
    let released = world.ask_box(Request::UnbindSlot(key(1)));
    assert_eq!(released, Ok(Reply::Slot(SlotState::Quarantined)));
    let refused = world.ask_box(Request::BindSlot(slot_binding(key(2))));
    assert_eq!(refused, Err(ControlError::Quarantined(slot(1))));
    world.device.manner = Manner::Answers;
    let recovered = world.ask_box(Request::Recover(slot(1)));
    assert_eq!(recovered, Ok(Reply::Slot(SlotState::Free)));
    world.bind(2);
}

/// Its link may train for long: what is sent before it is up is lost, and no sign that it does not work.
#[test]
fn a_device_whose_link_is_up_late_after_its_reset_is_waited_for() {
    let mut world = World::new();
    world.device.manner = Manner::Silent;
    world.boxes.device_inserted(world.now, slot(1), "regs".try_into().unwrap());
    world.run(Duration::from_millis(1000));
    assert_eq!(world.boxes.inventory().next().unwrap().state, SlotState::Probing);
    world.device.manner = Manner::Answers;
    world.run(Duration::from_millis(600));
    assert_eq!(world.boxes.inventory().next().unwrap().state, SlotState::Free);
}

/// One that is only slow answers what it was asked first, too: under a tag that nobody has by then.
#[test]
fn what_a_slow_device_was_asked_first_keeps_its_tag() {
    let mut world = World::new();
    world.device.manner = Manner::Silent;
    world.boxes.device_inserted(world.now, slot(1), "regs".try_into().unwrap());
    world.run(Duration::from_millis(300));
    let first = world.device.received[0].clone();
    world.device.manner = Manner::Answers;
    world.run(Duration::from_millis(600));
    assert_eq!(world.boxes.inventory().next().unwrap().state, SlotState::Free);
    let old = Packet::new_checked(&first[..]).unwrap().tag();
    world.introduce();
    world.bind(1);
    world.assign_buses();
    world.device.received.clear();
    for _ in 0..2 * DEVICE_TAGS {
        world.mem_read(WINDOW, 1);
    }
    let tags = world.device.received.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap().tag());
    assert!(tags.into_iter().all(|tag| tag != old), "{old:?} may still be answered");
}

/// A reset of the function ends that, too.
#[test]
fn what_a_slow_device_was_asked_before_its_reset_keeps_no_tag() {
    let mut world = World::new();
    world.device.manner = Manner::Silent;
    world.boxes.device_inserted(world.now, slot(1), "regs".try_into().unwrap());
    world.run(Duration::from_millis(300));
    world.device.manner = Manner::Answers;
    world.run(Duration::from_secs(4));
    let old = Packet::new_checked(&world.device.received[0][..]).unwrap().tag();
    world.introduce();
    world.bind(1);
    world.ask_host(force(1)).unwrap();
    assert_eq!(world.ask_box(Request::UnbindSlot(key(1))), Ok(Reply::Slot(SlotState::Free)));
    world.bind(2);
    world.assign_buses();
    world.device.received.clear();
    for _ in 0..2 * DEVICE_TAGS {
        world.mem_read(WINDOW, 1);
    }
    let mut received = world.device.received.iter();
    assert!(received.any(|tlp| Packet::new_checked(&tlp[..]).unwrap().tag() == old));
}

/// The proxy's own requests that a device did not answer are over when it is reset: their tags do not
/// run out afterwards, which would take them from its next host.
#[test]
fn what_a_reset_device_did_not_answer_costs_its_next_host_no_tag() {
    let mut world = World::bound();
    world.ask_host(force(1)).unwrap();
    world.device.manner = Manner::Silent;
    let released = world.ask_box(Request::UnbindSlot(key(1)));
    assert_eq!(released, Ok(Reply::Slot(SlotState::Quarantined)));
    world.device.manner = Manner::Answers;
    assert_eq!(world.ask_box(Request::Recover(slot(1))), Ok(Reply::Slot(SlotState::Free)));
    world.run(Duration::from_secs(5));
    assert_eq!(world.counter("box: requests that a device did not answer"), 0);

    // The same of one that does not answer when it is put in.
    let mut world = World::new();
    world.device.manner = Manner::Silent;
    world.boxes.device_inserted(world.now, slot(1), "regs".try_into().unwrap());
    world.run(Duration::from_millis(1700));
    assert_eq!(world.boxes.inventory().next().unwrap().state, SlotState::Quarantined);
    world.device.manner = Manner::Answers;
    assert_eq!(world.ask_box(Request::Recover(slot(1))), Ok(Reply::Slot(SlotState::Probing)));
    world.run(Duration::from_secs(5));
    assert_eq!(world.boxes.inventory().next().unwrap().state, SlotState::Free);
    assert_eq!(world.counter("box: requests that a device did not answer"), 0);
}

#[test]
fn a_cut_cable_ends_everything_in_bounded_time() {
    let mut world = World::bound();
    world.cut = true;
    let before = world.now;
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::UnsupportedRequest);
    assert!(world.now.saturating_since(before) <= Duration::from_millis(2100));
    world.run(Duration::from_secs(3));
    assert_eq!(world.host.mapping_entry(port(0)).state, PortState::Failed);
    let down = |m: &FromProxy| {
        matches!(m, FromProxy::Event { event: Event::LinkDown { reason, .. }, .. }
            if *reason == LinkDownReason::GaveUp)
    };
    assert!(world.host_messages.iter().any(down));
    // The box takes its function back by itself.
    assert_eq!(world.boxes.inventory().next().unwrap().state, SlotState::Free);
    // The port answers at once now, and can be bound anew when the cable is back.
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::UnsupportedRequest);
    world.cut = false;
    assert_eq!(world.ask_host(force(1)), Ok(Reply::Removed { orderly: false }));
    world.introduce();
    world.bind(2);
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::Success);
}

#[test]
fn a_device_that_is_pulled_is_a_surprise_removal_at_the_host() {
    let mut world = World::bound();
    world.boxes.device_removed(world.now, slot(1));
    world.run(Duration::from_millis(50));
    assert_eq!(world.host.mapping_entry(port(0)).state, PortState::Failed);
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::UnsupportedRequest);
    assert_eq!(world.boxes.inventory().next().unwrap().state, SlotState::Empty);
}

/// A root complex that was reset, or is another one, hears nothing of what the last one asked.
#[test]
fn a_reset_of_the_host_resets_the_devices_and_forgets_its_requests() {
    use proxy_core::switch::ResetKind;
    let mut world = World::bound();
    world.device.manner = Manner::Holds;
    let read = Repr::new(mem_read(Bdf::default(), 9, WINDOW, 1));
    world.host.handle_tlp(world.now, &emit(&read)).unwrap();
    world.turn();
    let resets = world.device.resets;
    world.host.handle_reset(world.now, ResetKind::Hot);
    world.device.answer(Manner::Answers);
    world.device.manner = Manner::Answers;
    world.run(Duration::from_secs(3));
    assert_eq!(world.device.resets, resets + 1);
    assert!(world.to_root.is_empty());
    world.assign_buses();
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::Success);
    assert_eq!(world.device.get(0x68) & 0x1f, 0b1101, "the completion timeout is the proxy's");
}

#[test]
fn what_another_slot_has_under_the_same_epoch_stays_in_its_port() {
    let mut world = World::bound();
    let other = unbind_port_of(BOX + 1, port(0), key(1).epoch, Removal::Force);
    assert_eq!(world.ask_host(other), Ok(Reply::Removed { orderly: true }));
    assert_eq!(world.host.mapping_entry(port(0)).state, PortState::Present);
    assert_eq!(world.config_read(bdf(3, 0), 0), (CplStatus::Success, 0xd0ac_1b36));
}

#[test]
fn the_epochs_of_a_slot_outlive_its_device() {
    let mut world = World::bound();
    world.ask_host(force(1)).unwrap();
    world.boxes.device_removed(world.now, slot(1));
    world.run(Duration::from_secs(3));
    let entry = world.boxes.slot_entries().next().unwrap();
    assert_eq!((entry.valid, entry.epoch), (false, key(1).epoch.bits()), "of the empty slot, too");
    world.device = Registers::new();
    world.insert();
    world.introduce();
    assert_eq!(world.boxes.inventory().next().unwrap().highest_epoch, key(1).epoch.bits());
    let again = world.ask_box(Request::BindSlot(slot_binding(key(1))));
    assert_eq!(again, Err(ControlError::StaleEpoch(key(1).epoch)));
    assert_eq!(world.ask_box(Request::BindSlot(slot_binding(key(2)))), Ok(Reply::Done));
}

#[test]
fn a_function_level_reset_by_the_host_frees_the_devices_tags() {
    let mut world = World::bound();
    world.config_write(bdf(3, 0), 0x04, 0x0006);
    let read = |address| emit(&Repr::new(mem_read(bdf(3, 0), 7, address, 1)));
    world.device.out.push_back(read(0x2000));
    world.turn();
    let (old, _) = to_memory(&mut world);
    // Initiate Function Level Reset (Device Control bit 15); the capability is at 40h.
    world.config_write(bdf(3, 0), 0x48, 1 << 15);
    world.run(Duration::from_secs(1));
    world.config_write(bdf(3, 0), 0x04, 0x0006);
    world.device.out.push_back(read(0x3000));
    world.turn();
    let (new, address) = to_memory(&mut world);
    assert_eq!(address, 0x3000, "the tag is the device's to use again");
    assert_eq!(world.counter("box: requests with a tag that is in use"), 0);
    world.device.received.clear();
    for (tag, data) in [(old, [1; 4]), (new, [2; 4])] {
        answer_memory(&mut world, tag, &data);
    }
    let answers: Vec<_> =
        world.device.received.iter().map(|t| Packet::new_checked(&t[..]).unwrap()).collect();
    assert_eq!(answers.len(), 1, "what was asked for before the reset does not come");
    assert_eq!(answers[0].payload(), [2; 4]);
}

/// A device does nothing of what is poisoned (PCIe 5.0 section 2.7.2.2).
#[test]
fn a_poisoned_write_resets_no_function() {
    let mut world = World::bound();
    world.config_write(bdf(3, 0), 0x04, 0x0006);
    world.device.out.push_back(emit(&Repr::new(mem_read(bdf(3, 0), 7, 0x2000, 1))));
    world.turn();
    let (asked, _) = to_memory(&mut world);
    world.device.manner = Manner::Refuses(CplStatus::UnsupportedRequest);
    let (tag, data) = (world.tag(), 0x8000_u32.to_le_bytes());
    let reset = config_write(tag, bdf(3, 0), 0x48, &data);
    world.request(&Repr { poisoned: true, ..reset }, tag);
    world.device.received.clear();
    answer_memory(&mut world, asked, &[1; 4]);
    assert_eq!(world.device.received.len(), 1, "the device waits for it still");
}

/// The read that came up to the root complex: its tag there, and its address.
fn to_memory(world: &mut World) -> (Tag, u64) {
    let is_read = |tlp: &Vec<u8>| Packet::new_checked(&tlp[..]).unwrap().tlp_type() == TlpType::MRd;
    let at = world.to_root.iter().position(is_read).expect("a read");
    let tlp = world.to_root.remove(at).unwrap();
    let packet = Packet::new_checked(&tlp[..]).unwrap();
    (packet.tag(), packet.address())
}

/// The root complex answers a read of the device on bus 3.
fn answer_memory(world: &mut World, tag: Tag, data: &[u8]) {
    let completion = Repr::new(Kind::Completion {
        completer: Bdf::default(),
        requester: bdf(3, 0),
        tag,
        status: CplStatus::Success,
        bcm: false,
        byte_count: data.len() as u16,
        lower_address: 0,
        locked: false,
        data,
    });
    world.host.handle_tlp(world.now, &emit(&completion)).unwrap();
    world.turn();
}

#[test]
fn a_release_leaves_the_device_the_id_that_its_completions_come_to() {
    let mut world = World::bound();
    world.config_write(bdf(3, 0), 0x04, 0x0006);
    world.device.received.clear();
    world.ask_host(force(1)).unwrap();
    world.run(Duration::from_secs(3));
    let requests = world.device.received.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
    let ids: Vec<_> = requests
        .filter(|packet| packet.tlp_type() == TlpType::CfgWr0)
        .map(|packet| packet.destination())
        .collect();
    assert!(ids.len() >= 2 && ids.iter().all(|id| *id == bdf(3, 0)), "{ids:?}");
}

/// Found by the simulator: a device got answers to what it had asked before its reset.
#[test]
fn answers_that_a_device_has_not_taken_do_not_come_after_its_reset() {
    let mut world = World::bound();
    let unbind = Request::UnbindSlot(key(1));
    world.boxes.handle_control(world.now, OperationId(900), Term(1), &unbind);
    world.boxes.handle_timeout(world.now);
    let mut tlp = [0; TLP_BUFFER];
    let length = world.boxes.poll_tlp(world.now, slot(1), ClassSet::ALL, &mut tlp).unwrap();
    let write = Packet::new_checked(&tlp[..length]).unwrap();
    assert_eq!(write.tlp_type(), TlpType::CfgWr0, "Bus Master off");
    let refused = emit(&Repr::new(Kind::Completion {
        completer: bdf(3, 0),
        requester: write.requester(),
        tag: write.tag(),
        status: CplStatus::UnsupportedRequest,
        bcm: false,
        byte_count: 4,
        lower_address: 0,
        locked: false,
        data: &[],
    }));
    // Nobody has the device any more: its read is answered by its proxy.
    let read = emit(&Repr::new(mem_read(bdf(3, 0), 7, 0x1000, 1)));
    world.boxes.handle_tlp(world.now, slot(1), &read).unwrap();
    // It does not take the write, and so is reset by other means.
    world.boxes.handle_tlp(world.now, slot(1), &refused).unwrap();
    assert_eq!(world.boxes.poll_signal(slot(1)), Some(SlotSignal::HotReset));
    assert_eq!(world.boxes.poll_tlp(world.now, slot(1), ClassSet::ALL, &mut tlp), None);
}

/// The root complex answers what it was asked when the device is gone already: the port has all of
/// its tags for the next one.
#[test]
fn answers_for_a_device_that_is_gone_free_the_tags_of_its_port() {
    let mut world = World::bound();
    let mut counter = 1;
    for _ in 0..3 {
        for n in 0..ROOT_OUTSTANDING.min(DEVICE_TAGS) as u16 {
            let address = 0x2000 + 64 * u64::from(n);
            world.device.out.push_back(emit(&Repr::new(mem_read(bdf(3, 0), n, address, 1))));
        }
        world.run(Duration::from_millis(20));
        assert_eq!(world.to_root.len(), ROOT_OUTSTANDING.min(DEVICE_TAGS), "{counter}");
        assert_eq!(world.ask_host(force(counter)), Ok(Reply::Removed { orderly: false }));
        let taken = world.ask_box(Request::UnbindSlot(key(counter)));
        assert_eq!(taken, Ok(Reply::Slot(SlotState::Free)));
        let reads: Vec<_> = world.to_root.drain(..).collect();
        for read in reads.iter().filter(|tlp| is_read(tlp)) {
            world.host.handle_tlp(world.now, &answer_to(read, &[1; 4])).unwrap();
        }
        world.turn();
        counter += 1;
        world.bind(counter);
        world.assign_buses();
        world.forget_the_past();
    }
}

fn is_read(tlp: &[u8]) -> bool {
    Packet::new_checked(tlp).unwrap().tlp_type() == TlpType::MRd
}

/// With ARI a routing ID beyond function 7 is that of another function, and not of one that has the
/// same last three bits.
#[test]
fn a_function_that_is_not_lent_is_not_taken_for_one_that_is() {
    let mut world = World::bound();
    let device = world.device.received.len();
    let virtual_function = Bdf::from_bits(bdf(3, 0).bits() | 0x80);
    assert_eq!(world.config_read(virtual_function, 0).0, CplStatus::UnsupportedRequest);
    assert_eq!(world.device.received.len(), device);
    world.device.out.push_back(emit(&Repr::new(mem_read(virtual_function, 1, 0x2000, 1))));
    world.turn();
    assert!(!world.to_root.iter().any(|tlp| is_read(tlp)), "it is nobody's");
}
