//! The flight recorder in both roles.

#![cfg(any(not(dxpu_limits = "card"), feature = "card-recorder"))]

use crate::world::*;
use proxy_core::boxes::{BoxConfig, BoxRole};
use proxy_core::control::{ControlError, FromProxy, OperationId, Reply, Request, StampEntry, Term};
use proxy_core::recorder::{Entry, Recorded, entries};
use proxy_core::role::Role;
use proxy_core::stamps::{Sampling, StampedTlp};
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::tlp::*;

const WINDOW: u64 = FIRST_WINDOW;

/// What a role has recorded, with the bytes that follow each entry.
fn recorded(answer: Result<Reply, ControlError>) -> Vec<(Entry, Vec<u8>)> {
    let Ok(Reply::Recorder(page)) = answer else { panic!("{answer:?}") };
    let found = entries(&page.bytes).map(Result::unwrap);
    let entries = found.map(|(entry, bytes)| (entry, bytes.to_vec())).collect();
    assert_eq!(page.first + page.bytes.len() as u64, page.end, "it is all there");
    entries
}

#[test]
fn a_recorded_binding_leaves_its_tlps_their_stamps_and_its_frames() {
    let mut world = World::bound();
    let what = |peer, tlps, frames| {
        let one = Recorded { peer: node(peer), binding: key(1), one_in: 1, tlps, frames };
        Request::SetRecorder([one].into_iter().collect())
    };
    world.ask_host(what(BOX, 4096, 9000)).unwrap();
    world.ask_box(what(HOST, 0, 0)).unwrap();
    world.mem_read(WINDOW, 1);
    world.device.out.push_back(emit(&Repr::new(mem_write(bdf(3, 0), 0x1000, &[9; 64]))));
    world.run(Duration::from_millis(10));
    let host = recorded(world.ask_host(Request::ReadRecorder { from: 0 }));
    let boxes = recorded(world.ask_box(Request::ReadRecorder { from: 0 }));
    let stages = |stamps: &StampEntry| stamps.at.map(|at| at.is_some());
    let (sent, received) =
        ([true, true, true, false, false, false], [false, false, false, true, true, true]);
    let mut types = Vec::new();
    for (entry, bytes) in &host {
        let Entry::Tlp { id, length, .. } = entry else { continue };
        assert_eq!(usize::from(*length), bytes.len());
        types.push(Packet::new_checked(&bytes[..]).unwrap().tlp_type());
        let mine = |e: &&(Entry, _)| matches!(e.0, Entry::Stamps { id: other, .. } if other == *id);
        let Some((Entry::Stamps { stamps, .. }, _)) = host.iter().find(mine) else { panic!() };
        let from_here = matches!(stamps.tlp, StampedTlp::Request(_)) && stamps.from_host;
        assert_eq!(stages(stamps), if from_here { sent } else { received });
        let other_end = boxes.iter().find(|(entry, bytes)| match entry {
            Entry::Stamps { stamps: there, .. } => {
                assert!(bytes.is_empty() && there.peer == node(HOST));
                (there.from_host, there.tlp) == (stamps.from_host, stamps.tlp)
            }
            other => panic!("not asked for: {other:?}"),
        });
        let Some((Entry::Stamps { stamps: there, .. }, _)) = other_end else {
            panic!("{stamps:?}")
        };
        assert_eq!(stages(there), if from_here { received } else { sent });
    }
    assert_eq!(types, [TlpType::MRd, TlpType::CplD, TlpType::MWr]);
    let frames = host.iter().filter(|(entry, _)| matches!(entry, Entry::Frame { .. }));
    let mut ways = Vec::new();
    for (entry, bytes) in frames {
        let Entry::Frame { received, .. } = entry else { unreachable!() };
        let frame = tlp_codec::fabric::Frame::new_checked(&bytes[..]).unwrap();
        ways.push((*received, frame.source().get()));
    }
    assert!(ways.iter().all(|way| *way == (false, HOST) || *way == (true, BOX)), "{ways:?}");
    assert!(ways.contains(&(false, HOST)) && ways.contains(&(true, BOX)));
    assert_eq!(boxes.len(), 3, "stamps alone: {boxes:?}");
    // Whoever comes next on the connection has not asked for any of it.
    world.host.control_reconnected();
    world.mem_read(WINDOW, 1);
    assert_eq!(recorded(world.ask_host(Request::ReadRecorder { from: 0 })), []);
}

/// An end that does not record, as a card may not, answers what is stamped with what is stamped. What
/// it sends on its own is stamped if it samples.
#[test]
fn of_an_end_that_does_not_record_the_answers_are_stamped_and_what_it_samples() {
    let mut world = World::bound();
    let one = Recorded { peer: node(BOX), binding: key(1), one_in: 1, tlps: 4096, frames: 0 };
    world.ask_host(Request::SetRecorder([one].into_iter().collect())).unwrap();
    let mut from = 0;
    let mut stamped = |world: &mut World| {
        world.mem_read(WINDOW, 1);
        world.device.out.push_back(emit(&Repr::new(mem_write(bdf(3, 0), 0x1000, &[9; 64]))));
        world.run(Duration::from_millis(10));
        let answer = world.ask_host(Request::ReadRecorder { from });
        if let Ok(Reply::Recorder(page)) = &answer {
            from = page.end;
        }
        let whole = |entry: &(Entry, Vec<u8>)| match &entry.0 {
            Entry::Stamps { stamps, .. } => {
                assert_eq!(stamps.at.iter().flatten().count(), 3, "{stamps:?}");
                Some(stamps.tlp)
            }
            _ => None,
        };
        recorded(answer).iter().filter_map(whole).collect::<Vec<_>>()
    };
    use StampedTlp::{Completion, Posted, Request as Asked};
    assert!(matches!(stamped(&mut world)[..], [Asked(_), Completion(_)]));
    world.ask_box(Request::SetSampling(Sampling::All)).unwrap();
    assert!(matches!(stamped(&mut world)[..], [Asked(_), Completion(_), Posted(Some(_))]));
}

#[test]
fn without_memory_for_it_nothing_is_recorded() {
    let config = BoxConfig { recorder: 0, ..BoxConfig::default() };
    let mut boxes = BoxRole::new(&config);
    boxes.set_node(node(BOX));
    let one = Recorded { peer: node(HOST), binding: key(1), one_in: 1, tlps: 1, frames: 1 };
    let mut ask = |list: Vec<Recorded>| {
        let request = Request::SetRecorder(list.into_iter().collect());
        boxes.handle_control(Instant::ZERO, OperationId(1), Term(1), &request);
        match boxes.poll_control() {
            Some(FromProxy::Response { result, .. }) => result,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(vec![one]), Err(ControlError::NoRecorder));
    assert_eq!(ask(vec![]), Ok(Reply::Done));
}
