//! The network by itself.

use super::*;
use crate::profile::Profile;
use crate::random::{Drawer, Random};
use tlp_codec::fabric::{Frame, FrameKind, FrameWriter, Header, Record, RecordAddress, SplitData};
use tlp_codec::ids::{Epoch, NodeId, PathId, SlotFunction, SlotId};
use tlp_codec::tlp::Class;

fn fabric(tiers: usize) -> Fabric {
    Fabric { hosts: 2, boxes: 2, paths: 2, tiers, ..Profile::calm().fabric }
}

/// When an agenda begins.
const BEGINS: Instant = Instant::from_nanos(1_000_000);

/// Sends frames at once and says when each came, in order of arrival.
fn send(network: &mut Network, count: usize, length: usize) -> Vec<Instant> {
    send_every(network, count, length, Duration::ZERO)
}

/// As [`send`], with so much time between them.
fn send_every(network: &mut Network, count: usize, length: usize, gap: Duration) -> Vec<Instant> {
    let mut agenda = crate::clock::Agenda::new();
    for number in 0..count {
        let frame = vec![number as u8; length];
        let flight = network.send(0, 2, 1, &frame).unwrap();
        agenda.plan(agenda.now() + gap * number as u32, flight);
    }
    let mut came = Vec::new();
    while let Some(flight) = agenda.pop(Instant::FAR_FUTURE) {
        match network.step(agenda.now(), flight) {
            Moved::Goes(next) => {
                next.into_iter().flatten().for_each(|(at, number)| agenda.plan(at, number));
            }
            Moved::Arrived(flight) => {
                came.push(agenda.now());
                network.recycle(flight);
            }
            Moved::Lost(flight, _) => network.recycle(flight),
        }
    }
    assert_eq!(network.in_flight(), 0);
    came
}

#[test]
fn frames_come_one_after_the_other_at_the_rate_of_the_cable() {
    for tiers in [1, 2] {
        let fabric = fabric(tiers);
        let mut network = Network::new(1, &fabric, Trouble::default());
        let came = send(&mut network, 10, 1000);
        assert_eq!(came.len(), 10);
        let gap = (1000 + 38) * 8 * 1000 / fabric.cable.rate_mbps;
        for pair in came.windows(2) {
            assert_eq!(pair[1].saturating_since(pair[0]).as_nanos() as u64, gap);
        }
    }
}

#[test]
fn a_full_queue_drops_the_rest() {
    let mut fabric = fabric(1);
    fabric.cable.queue_kb = 8;
    let mut network = Network::new(1, &fabric, Trouble::default());
    let came = send(&mut network, 100, 1000).len();
    assert!((8..=10).contains(&came), "{came} frames came");
    assert_eq!(network.lost, 100 - came as u64);
}

#[test]
fn each_trouble_does_what_it_is_called() {
    let count = |trouble: Trouble| {
        let mut network = Network::new(3, &fabric(1), trouble);
        send(&mut network, 400, 200).len()
    };
    let half = 500_000;
    assert!((50..150).contains(&count(Trouble { loss_ppm: half, ..Trouble::default() })));
    let bursts = Trouble { burst_ppm: 50_000, burst_end_ppm: 200_000, ..Trouble::default() };
    assert!((100..390).contains(&count(bursts)));
    let twice = Trouble { twice_ppm: half, late_us: 5, ..Trouble::default() };
    assert!(count(twice) > 700, "two hops, each of which doubles half of what comes");
    let errors = Trouble { bit_errors_e12: 100_000_000, ..Trouble::default() };
    assert!((200..380).contains(&count(errors)));
    let escaped = Trouble { escapes_ppm: 1_000_000, ..errors };
    assert_eq!(count(escaped), 400, "damaged ones come, too");
}

/// What the network has counted under a name.
fn counted(network: &Network, name: &str) -> u64 {
    network.happened().find(|(what, _)| *what == name).expect("it is counted").1
}

#[test]
fn frames_that_are_late_are_overtaken() {
    let half = Trouble { late_ppm: 500_000, late_us: 1000, ..Trouble::default() };
    let mut network = Network::new(3, &fabric(1), half);
    let came = send(&mut network, 400, 200);
    assert_eq!(came.len(), 400, "late is not lost");
    let straight = send(&mut Network::new(3, &fabric(1), Trouble::default()), 400, 200);
    let latest = |came: &[Instant]| came.iter().max().copied().unwrap();
    let behind = latest(&came).saturating_since(latest(&straight));
    assert!((500..=2000).contains(&behind.as_micros()), "{behind:?}, over two hops");
    assert!((300..500).contains(&counted(&network, "frames that were late by themselves")));
    assert!((200..400).contains(&counted(&network, "frames that others overtook")));
    let mut network = Network::new(3, &fabric(1), Trouble::default());
    send(&mut network, 400, 200);
    assert_eq!(counted(&network, "frames that others overtook"), 0);
}

#[test]
fn frames_wait_for_the_end_of_a_pause() {
    let new = || Network::new(1, &fabric(1), Trouble::default());
    let straight = send(&mut new(), 1, 200)[0];
    let (pause, gap) = (Duration::from_micros(300), Duration::from_micros(50));
    let mut network = new();
    network.pause(Cables::From { node: 0, path: 1 }, BEGINS + pause);
    let came = send_every(&mut network, 10, 200, gap);
    assert_eq!(came.len(), 10, "none is lost");
    assert_eq!(came[0], straight + pause, "the first one waits for its end, and no longer");
    assert_eq!(came[9], straight + gap * 9, "then all goes on");
    assert_eq!(counted(&network, "frames that a pause held up"), 6);
}

#[test]
fn frames_take_longer_while_there_is_a_delay_spike() {
    let new = || Network::new(1, &fabric(1), Trouble::default());
    let straight = send(&mut new(), 5, 200);
    let (cables, delay) = (Cables::From { node: 0, path: 1 }, Duration::from_millis(7));
    let mut network = new();
    network.spike(cables, 1, delay);
    let later: Vec<Instant> = straight.iter().map(|came| *came + delay).collect();
    assert_eq!(send(&mut network, 5, 200), later);
    assert_eq!(counted(&network, "frames that a delay spike held up"), 5);
    let mut network = new();
    network.spike(cables, 1, delay);
    network.end(Instant::ZERO, cables, 1);
    assert_eq!(send(&mut network, 5, 200), straight, "it is over");
}

#[test]
fn what_is_cut_is_mended_and_a_reboot_loses_what_is_under_way() {
    let mut network = Network::new(1, &fabric(2), Trouble::default());
    let cables = Cables::Of { node: 2, path: 1 };
    network.cut(cables, Loss::PathDead);
    assert!(send(&mut network, 5, 100).is_empty());
    network.mend(Instant::ZERO, cables, Loss::PathDead);
    assert_eq!(send(&mut network, 5, 100).len(), 5);
    let under_way = network.send(0, 2, 1, &[0; 64]).unwrap();
    network.reboot(1);
    assert!(matches!(network.step(Instant::ZERO, under_way), Moved::Lost(..)));
    network.shrink(Cables::Plane { path: 1 }, 1, 500);
    assert!(send(&mut network, 5, 501).is_empty());
    network.end(Instant::ZERO, Cables::Plane { path: 1 }, 1);
    assert_eq!(send(&mut network, 5, 501).len(), 5);
}

#[test]
fn what_dies_one_way_carries_the_other() {
    for sends in [false, true] {
        let mut network = Network::new(1, &fabric(2), Trouble::default());
        network.cut(Cables::one_way(0, 1, sends), Loss::PathDeadOneWay);
        assert_eq!(send(&mut network, 5, 100).len(), if sends { 0 } else { 5 });
        assert_eq!(network.lost_one_way, if sends { 5 } else { 0 });
        network.cut(Cables::one_way(0, 1, !sends), Loss::PathDeadOneWay);
        assert!(send(&mut network, 5, 100).is_empty());
        assert_eq!(network.lost_one_way, if sends { 5 } else { 0 }, "it is dead both ways");
    }
    let dies = Trouble { dies_ppm: 20_000, dies_us: 50, ..Trouble::default() };
    let mut network = Network::new(3, &fabric(1), dies);
    let came = send_every(&mut network, 400, 1000, Duration::from_micros(10)).len();
    assert!((200..390).contains(&came), "{came}: it comes back by itself");
    assert_eq!(network.lost_one_way, 400 - came as u64);
    network.heal();
    assert!(network.ports.iter().all(|port| port.carries(Instant::ZERO)));
}

#[test]
fn a_path_is_whole_since_its_last_fault_on_any_of_its_cables() {
    let at = |us| Instant::ZERO + Duration::from_micros(us);
    let mut network = Network::new(1, &fabric(2), Trouble::default());
    let whole = |network: &Network, us, path| network.whole_since(at(us), [0, 2], path);
    network.cut(Cables::From { node: 2, path: 1 }, Loss::CutOff);
    assert_eq!(whole(&network, 10, 1), None);
    assert_eq!(whole(&network, 10, 0), Some(at(0)));
    network.mend(at(20), Cables::From { node: 2, path: 1 }, Loss::CutOff);
    network.cut(Cables::Of { node: 1, path: 1 }, Loss::CutOff);
    assert_eq!(whole(&network, 30, 1), Some(at(20)), "another node's are no part of it");
    network.pause(Cables::Plane { path: 1 }, at(50));
    assert_eq!([whole(&network, 40, 1), whole(&network, 60, 1)], [None, Some(at(50))]);
    network.shrink(Cables::Plane { path: 0 }, 7, 1000);
    assert_eq!(whole(&network, 60, 0), None);
    network.end(at(70), Cables::Plane { path: 0 }, 7);
    assert_eq!(whole(&network, 80, 0), Some(at(70)));
}

#[test]
fn memory_lies_of_any_byte_of_a_split_tlp_and_of_nothing_else() {
    let node = |number| NodeId::new(number).unwrap();
    let header = Header {
        kind: FrameKind::Data,
        destination: node(2),
        source: node(1),
        source_incarnation: 1,
        destination_incarnation: Some(1),
        session: 0,
        path: PathId::new(0).unwrap(),
        packet: 0,
        sequence: 0,
        ack: None,
    };
    let (slot, epoch) = (SlotId::new(3).unwrap(), Epoch::new(0, 7).unwrap());
    let key = BindingKey { slot, function: SlotFunction::ZERO, epoch };
    let bytes = [0; 64];
    let (class, part, offset) = (Class::Posted, 1, 128);
    let address = RecordAddress::from_box(&key);
    let mut right = [0; 200];
    let mut writer = FrameWriter::new(&mut right, &header).unwrap();
    let data = SplitData { address, class, part, offset, bytes: &bytes };
    writer.push(&Record::SplitData(data)).unwrap();
    let length = writer.finish();
    let mut random = Random::stream(1, Drawer::Port, 0);
    let mut changed = [0; 64];
    for _ in 0..1000 {
        let mut frame = right[..length].to_vec();
        assert_eq!(damage::lie(&mut frame, &mut random), Some(key));
        let frame = Frame::new_checked(&frame[..]).unwrap();
        let Some(Ok(Record::SplitData(told))) = frame.records().next() else { panic!() };
        assert_eq!(SplitData { bytes: &bytes, ..told }, data);
        let at = told.bytes.iter().position(|byte| *byte != 0).unwrap();
        changed[at] += 1;
    }
    assert!(!changed.contains(&0), "{changed:?}");
}
