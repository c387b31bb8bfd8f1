//! What is none of a card's frames: from the network, and from its PCIe side.

use crate::scene::{Cards, Scene, firmware};
use processes::random::Random;
use soc::board::SlotWire;
use soc::records::{Body, Record};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tlp_codec::fabric::{ETHERTYPE, FrameKind, FrameWriter, Header};
use tlp_codec::ids::{NodeId, PathId};

/// The cards, in the order of their cables, and the places at the PCIe side of each: the box's devices,
/// the host's root complex.
const CARDS: [(&str, std::ops::RangeInclusive<u8>); 2] =
    [("card-box", 1..=2), ("card-host", 0..=0)];

/// EtherType of records.
const RECORDS: u16 = 0x88b6;

/// Lets the cards have the processor, too.
const PAUSE: Duration = Duration::from_micros(500);

/// How long there is garbage, while TLPs are carried.
const LONG: Duration = Duration::from_secs(4);

/// How many frames of the network that are none a card gets at least, however slow the machine is.
const ENOUGH: u64 = 1000;

/// What counts frames of the network that are none of the fabric's; each kind of garbage has one.
const DROPS: [&str; 3] =
    ["link.dropped_cut_short", "link.dropped_version", "link.dropped_frame_crc"];

/// What counts frames that are no records.
const NO_RECORDS: &str = "records: frames that are no record";

struct Noise(Random);

impl Noise {
    fn next(&mut self) -> usize {
        self.0.next() as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.next() % (most + 1)).map(|_| self.next() as u8).collect()
    }
}

/// A frame to the card at a cable.
fn ethernet(cable: u8, ethertype: u16, body: &[u8]) -> Vec<u8> {
    let address = [2, 0, 0, 0, 0, cable];
    [&address[..], &[2, 0, 0, 0, 0, 9], &ethertype.to_be_bytes(), body].concat()
}

/// A frame of the fabric that is whole, of a link that is not there.
fn of_no_link(cable: u8, noise: &mut Noise) -> Vec<u8> {
    let header = Header {
        kind: [FrameKind::Data, FrameKind::Probe][noise.next() % 2],
        destination: NodeId::new(1 + u16::from(cable)).expect("in range"),
        source: NodeId::new(3 + noise.next() as u16 % 8).expect("in range"),
        source_incarnation: noise.next() as u32 | 1,
        destination_incarnation: Some(noise.next() as u32 | 1),
        session: noise.next() as u32,
        path: PathId::new(0).expect("in range"),
        packet: noise.next() as u32,
        sequence: noise.next() as u32,
        ack: None,
    };
    let mut frame = vec![0; 400];
    let mut writer = FrameWriter::new(&mut frame, &header).expect("room");
    writer.pad(200);
    let length = writer.finish();
    frame.truncate(length);
    frame
}

/// A frame from the network: noise as what somebody may have to do with, or one of the fabric's that is
/// of no link, cut short, or has a bit turned.
fn from_network(cable: u8, noise: &mut Noise) -> Vec<u8> {
    let mut frame = of_no_link(cable, noise);
    match noise.next() % 4 {
        0 => {
            // IPv4, ARP, IPv6, a VLAN's, the fabric's, anybody's.
            let types = [0x0800, 0x0806, 0x86dd, 0x8100, ETHERTYPE, noise.next() as u16];
            return ethernet(cable, types[noise.next() % types.len()], &noise.bytes(1500));
        }
        1 => frame.truncate(noise.next() % frame.len()),
        2 => {
            let bit = noise.next() % (frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        _ => {}
    }
    ethernet(cable, ETHERTYPE, &frame)
}

/// A frame from a card's PCIe side that is no record: another's, one of no kind, one for no place that there is,
/// or one that ends before its body does.
fn from_pcie(cable: u8, noise: &mut Noise) -> Vec<u8> {
    // Longer than Ethernet's shortest frame, up to which the emulator may fill one.
    let body: Vec<u8> = (0..100).map(|_| noise.next() as u8).collect();
    let places = &CARDS[usize::from(cable)].1;
    let place = SlotWire(places.start() + noise.next() as u8 % places.clone().count() as u8);
    let mut record = vec![0; 128];
    let length = Record { at: place, body: Body::Tlp(&body) }.emit(&mut record);
    record.truncate(length);
    match noise.next() % 4 {
        0 => return ethernet(cable, ETHERTYPE, &record),
        1 => record[0] = 17 + noise.next() as u8 % 200,
        2 => record[1] = 17 + noise.next() as u8 % 200,
        _ => record.truncate(noise.next() % record.len()),
    }
    ethernet(cable, RECORDS, &record)
}

/// Sends both to the card at a cable until told to stop, and [`ENOUGH`]: how many of each.
fn send(scene: &Scene, cable: u8, stop: &AtomicBool) -> (u64, u64) {
    let socket = UnixDatagram::unbound().expect("a socket");
    let wire = scene.path(&format!("cable-{cable}-card"));
    let tap = &scene.taps[usize::from(cable)];
    let (mut noise, mut sent) = (Noise(Random(1 + u64::from(cable))), (0, 0));
    while !stop.load(Ordering::Relaxed) || sent.0 < ENOUGH {
        // What the card has no room for is lost, as in any network.
        let _ = socket.send_to(&from_network(cable, &mut noise), &wire);
        sent.0 += 1;
        if sent.0 % 4 == 0 {
            tap.say(&from_pcie(cable, &mut noise)).expect("the card is there");
            sent.1 += 1;
        }
        std::thread::sleep(PAUSE);
    }
    sent
}

/// Reads a register all the time while there is garbage for both cards; how much, for each.
fn reads_meanwhile(scene: &Scene) -> [(u64, u64); 2] {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let senders = [0, 1].map(|cable| {
            scope.spawn({
                let stop = &stop;
                move || send(scene, cable, stop)
            })
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let began = Instant::now();
            while began.elapsed() < LONG {
                reads(scene, "200");
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let sent = senders.map(|sender| sender.join().expect("it sends"));
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent
    })
}

fn reads(scene: &Scene, count: &str) {
    scene.host(&["latency", "03:00.0", "--reads", count]).unwrap();
}

#[test]
fn cards_count_garbage_from_both_sides_and_go_on() {
    let Some(firmware) = firmware() else { return };
    let mut scene = Scene::start(&firmware, Cards::Tapped).unwrap();
    scene.lend("accelerator");
    reads(&scene, "100");
    let events = scene.manager(&["events"]).unwrap();
    let counters = |scene: &Scene| CARDS.map(|(card, _)| scene.counters(card));
    let before = counters(&scene);
    let sent = reads_meanwhile(&scene);
    reads(&scene, "500");
    let after = counters(&scene);
    for (n, (card, _)) in CARDS.iter().enumerate() {
        let (before, after, (network, pcie)) = (&before[n], &after[n], sent[n]);
        println!("{card}: {network} frames from the network, {pcie} from its PCIe side");
        for name in DROPS {
            assert!(after[name] - before[name] > network / 50, "{card}: {name} did not count");
        }
        let none = after[NO_RECORDS] - before[NO_RECORDS];
        assert_eq!(none, pcie, "{card}: the wire loses nothing");
        // It is the same life, in which it never left, and no link took harm.
        for (name, value) in after.iter().filter(|(name, _)| name.starts_with("resets: ")) {
            assert_eq!(*value, u64::from(name.contains("power")), "{card}: {name}");
        }
        assert_eq!(after["link.violations"], 0, "{card}");
    }
    assert_eq!(scene.manager(&["events"]).unwrap(), events, "nothing happened");
}
