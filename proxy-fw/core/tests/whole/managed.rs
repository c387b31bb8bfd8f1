//! What a manager asks and is told.

use crate::world::*;
use proxy_core::control::{
    ControlError, Event, FirmwareRequest, FromProxy, LinkDownReason, LogLevel, Reply, Request,
    StampEntry, Term,
};
use proxy_core::role::Role;
use proxy_core::stamps::{Sampling, StampedTlp};
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

const WINDOW: u64 = FIRST_WINDOW;

#[test]
fn wrong_requests_are_refused_with_the_reason() {
    let mut world = World::new();
    world.insert();
    let unknown = world.ask_box(Request::BindSlot(slot_binding(key(1))));
    assert_eq!(unknown, Err(ControlError::UnknownPeer(node(HOST))));
    world.introduce();
    let mut binding = slot_binding(key(1));
    binding.key.slot = slot(2);
    assert_eq!(
        world.ask_box(Request::BindSlot(binding.clone())),
        Err(ControlError::SlotEmpty(slot(2)))
    );
    binding.key.slot = slot(3);
    assert_eq!(world.ask_box(Request::BindSlot(binding)), Err(ControlError::NoSuchSlot(slot(3))));
    let mut binding = slot_binding(key(1));
    binding.windows.clear();
    assert_eq!(world.ask_box(Request::BindSlot(binding)), Err(ControlError::BadWindows));
    assert_eq!(world.ask_box(super::ends::force(1)), Err(ControlError::WrongRole));
    world.bind(1);
    let used = world.ask_box(Request::BindSlot(slot_binding(key(2))));
    assert_eq!(used, Err(ControlError::InUse(key(1).epoch)));
    let mut elsewhere = port_binding(key(2));
    assert_eq!(
        world.ask_host(Request::BindPort(elsewhere.clone())),
        Err(ControlError::InUse(key(1).epoch))
    );
    elsewhere.port = port(5);
    assert_eq!(
        world.ask_host(Request::BindPort(elsewhere)),
        Err(ControlError::NoSuchPort(port(5)))
    );
    assert_eq!(world.ask_host(Request::RemovePeer(node(BOX))), Err(ControlError::Busy));
}

#[test]
fn a_manager_of_an_earlier_term_is_not_obeyed() {
    let mut world = World::new();
    world.host.handle_control(
        world.now,
        proxy_core::control::OperationId(1),
        Term(5),
        &super::ends::force(1),
    );
    let stale = world.ask_host(super::ends::force(1));
    assert_eq!(stale, Err(ControlError::StaleTerm(Term(5))));
}

#[test]
fn stamps_of_both_ends_join_into_round_trips() {
    let mut world = World::bound();
    world.ask_host(Request::SetSampling(Sampling::All)).unwrap();
    for _ in 0..3 {
        world.mem_read(WINDOW, 1);
    }
    let Ok(Reply::Stamps { entries: host, .. }) = world.ask_host(Request::ReadStamps { from: 0 })
    else {
        panic!()
    };
    let Ok(Reply::Stamps { entries: boxes, .. }) = world.ask_box(Request::ReadStamps { from: 0 })
    else {
        panic!()
    };
    assert_eq!((host.len(), boxes.len()), (6, 6));
    for asked in host.iter().filter(|s| matches!(s.tlp, StampedTlp::Request(_))) {
        let same = |s: &&StampEntry| (s.binding, entry_of(s)) == (asked.binding, entry_of(asked));
        assert_eq!(boxes.iter().filter(same).count(), 2);
    }
}

/// What joins the stamps of a request with those of its completions.
fn entry_of(stamp: &StampEntry) -> Option<OutstandingRef> {
    match stamp.tlp {
        StampedTlp::Request(entry) | StampedTlp::Completion(entry) => Some(entry),
        StampedTlp::Posted(_) => None,
    }
}

#[test]
fn posted_requests_are_stamped_at_both_ends_whoever_sends_them() {
    let mut world = World::bound();
    world.ask_host(Request::SetSampling(Sampling::All)).unwrap();
    world.ask_box(Request::SetSampling(Sampling::OneIn(2))).unwrap();
    world.mem_write(WINDOW + 0x20, &[7; 64]);
    for at in [0x1000, 0x2000, 0x3000, 0x4000] {
        world.device.out.push_back(emit(&Repr::new(mem_write(bdf(3, 0), at, &[9; 64]))));
    }
    let off = Kind::Message {
        routing: MsgRouting::Broadcast,
        code: MsgCode::PmeTurnOff,
        requester: Bdf::default(),
        tag: Tag::new(0).unwrap(),
        fields: [0; 8],
        data: &[],
    };
    world.host.handle_tlp(world.now, &emit(&Repr::new(off))).unwrap();
    world.run(Duration::from_millis(10));
    let stamps = |answer| match answer {
        Ok(Reply::Stamps { entries, .. }) => entries,
        other => panic!("{other:?}"),
    };
    let host = stamps(world.ask_host(Request::ReadStamps { from: 0 }));
    let boxes = stamps(world.ask_box(Request::ReadStamps { from: 0 }));
    let posted = |side: &[StampEntry], from_host: bool, stages: [bool; 6]| -> Vec<StampedTlp> {
        let wanted = side.iter().filter(|s| s.from_host == from_host);
        let posted = wanted.filter(|s| matches!(s.tlp, StampedTlp::Posted(Some(_))));
        posted
            .map(|stamp| {
                assert_eq!(stamp.at.map(|at| at.is_some()), stages, "{stamp:?}");
                stamp.tlp
            })
            .collect()
    };
    let (sent, received) =
        ([true, true, true, false, false, false], [false, false, false, true, true, true]);
    for (from_host, sender, receiver, count) in
        [(true, &host, &boxes, 2), (false, &boxes, &host, 2)]
    {
        let there = posted(sender, from_host, sent);
        assert_eq!(there, posted(receiver, from_host, received));
        assert_eq!(there.len(), count);
    }
}

#[test]
fn a_proxy_that_stops_says_goodbye() {
    let mut world = World::bound();
    world.boxes.close_links(world.now);
    let before = world.now;
    world.turn();
    let (peer, reason) = (node(BOX), LinkDownReason::PeerClosed);
    let heard = |m: &FromProxy| {
        matches!(m, FromProxy::Event { event: Event::LinkDown { peer: p, reason: r }, .. }
            if (*p, *r) == (peer, reason))
    };
    assert!(world.host_messages.iter().any(heard), "{:?}", world.host_messages);
    assert_eq!(world.now, before, "nobody waited for it");
}

#[test]
fn what_is_counted_around_a_role_is_reported_with_its_own() {
    let mut world = World::bound();
    assert!(!world.boxes.is_asked_for_counters());
    world.boxes.set_surroundings(&[("port: frames sent", 40), ("port: frames sent", 2)]);
    let mut found = None;
    let mut next = Some(0);
    while let Some(from) = next {
        let Ok(Reply::Counters { entries, next: further }) =
            world.ask_box(Request::ReadCounters { from })
        else {
            panic!("counters")
        };
        found = found.or(entries.iter().find(|(n, _)| n == "port: frames sent").map(|e| e.1));
        next = further;
    }
    assert_eq!(found, Some(42));
}

#[test]
fn the_level_of_the_log_is_given_once() {
    let mut world = World::bound();
    assert_eq!(world.boxes.poll_log_level(), None);
    for level in [LogLevel::Debug, LogLevel::Error] {
        assert_eq!(world.ask_box(Request::SetLogLevel(level)), Ok(Reply::Done));
    }
    assert_eq!(world.boxes.poll_log_level(), Some(LogLevel::Error), "the last one counts");
    assert_eq!(world.boxes.poll_log_level(), None);
    assert_eq!(world.ask_host(Request::SetLogLevel(LogLevel::Trace)), Ok(Reply::Done));
    assert_eq!(world.host.poll_log_level(), Some(LogLevel::Trace));
}

/// A role has no flash: a card takes what is asked of its firmware before it gets here, and asks
/// the role only whether that manager is obeyed.
#[test]
fn a_role_has_no_firmware_and_knows_whose_it_would_obey() {
    let mut world = World::new();
    let status = || Request::Firmware(FirmwareRequest::Status);
    assert_eq!(world.ask_box(status()), Err(ControlError::NoFirmware));
    assert_eq!(world.ask_host(status()), Err(ControlError::NoFirmware));
    assert_eq!(world.boxes.obey(Term(7)), Ok(()));
    assert_eq!(world.boxes.obey(Term(7)), Ok(()));
    assert_eq!(world.boxes.obey(Term(6)), Err(ControlError::StaleTerm(Term(7))));
    assert_eq!(world.ask_box(status()), Err(ControlError::StaleTerm(Term(7))));
}

/// Pages name places: whatever is in the slots, a page of those behind them begins where it did.
#[test]
fn what_is_in_slots_moves_no_entry_of_others_to_another_page() {
    let entries = |world: &mut World, from| {
        let Ok(Reply::Inventory { entries, .. }) = world.ask_box(Request::ReadInventory { from })
        else {
            panic!("an inventory")
        };
        entries.iter().map(|entry| entry.slot).collect::<Vec<_>>()
    };
    let mut world = World::new();
    let empty = (0..40).map(|from| entries(&mut world, from)).collect::<Vec<_>>();
    world.device = Registers::with_functions(2, true);
    world.insert();
    let behind: Vec<_> = (0..40).map(|from| entries(&mut world, from)).collect();
    assert_eq!(behind[0].iter().filter(|s| **s == slot(1)).count(), 2);
    let first = empty.iter().position(|page| !page.contains(&slot(1))).unwrap();
    assert!(!empty[first].is_empty(), "there is another slot");
    assert_eq!(behind[first + 1..], empty[first + 1..]);
}

#[test]
fn error_messages_of_a_device_are_counted_for_its_slot() {
    let mut world = World::bound();
    let counted = |world: &mut World| {
        let (mut found, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let asked = world.ask_box(Request::ReadCounters { from });
            let Ok(Reply::Counters { entries, next: further }) = asked else { panic!("counters") };
            let of_slots = entries.iter().filter(|(name, _)| name.starts_with("slot "));
            found.extend(of_slots.map(|(name, count)| format!("{name}: {count}")));
            next = further;
        }
        found
    };
    assert_eq!(counted(&mut world), [""; 0]);
    let codes = [MsgCode::ErrCor, MsgCode::ErrFatal, MsgCode::ErrCor, MsgCode::AssertInta];
    for code in codes {
        let (fields, tag) = ([0; 8], Tag::new(0).unwrap());
        let routing = match code {
            MsgCode::AssertInta => MsgRouting::Local,
            _ => MsgRouting::ToRootComplex,
        };
        let kind = Kind::Message { routing, code, requester: bdf(3, 0), tag, fields, data: &[] };
        world.boxes.handle_tlp(world.now, slot(1), &emit(&Repr::new(kind))).unwrap();
    }
    let expected = ["slot 1: correctable errors: 2", "slot 1: fatal errors: 1"];
    assert_eq!(counted(&mut world), expected);
    // Another device begins anew.
    world.boxes.device_removed(world.now, slot(1));
    world.run(Duration::from_secs(3));
    assert_eq!(counted(&mut world), [""; 0]);
}
