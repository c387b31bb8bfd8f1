//! What is none of a card's frames: from the network, and from where its devices are.

use crate::scene::{Cards, Scene, Tap, firmware};
use processes::random::Random;
use soc::board::SlotWire;
use soc::records::{Body, Record};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tlp_codec::fabric::{ETHERTYPE, FrameKind, FrameWriter, Header};
use tlp_codec::ids::{NodeId, PathId};

const CARD: &str = "card-box";

/// Its address in the network, and there the socket of its cable.
const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 0];
const CABLE: &str = "cable-0-card";

/// EtherType of records.
const RECORDS: u16 = 0x88b6;

/// Lets the cards have the processor, too.
const PAUSE: Duration = Duration::from_micros(500);

/// How long there is garbage, while TLPs are carried.
const LONG: Duration = Duration::from_secs(4);

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

fn ethernet(ethertype: u16, body: &[u8]) -> Vec<u8> {
    [&ADDRESS[..], &[2, 0, 0, 0, 0, 9], &ethertype.to_be_bytes(), body].concat()
}

/// A frame of the fabric that is whole, of a link that is not there.
fn of_no_link(noise: &mut Noise) -> Vec<u8> {
    let header = Header {
        kind: [FrameKind::Data, FrameKind::Probe][noise.next() % 2],
        destination: NodeId::new(1).expect("in range"),
        source: NodeId::new(2 + noise.next() as u16 % 8).expect("in range"),
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
fn from_network(noise: &mut Noise) -> Vec<u8> {
    let mut frame = of_no_link(noise);
    match noise.next() % 4 {
        0 => {
            // IPv4, ARP, IPv6, a VLAN's, the fabric's, anybody's.
            let types = [0x0800, 0x0806, 0x86dd, 0x8100, ETHERTYPE, noise.next() as u16];
            return ethernet(types[noise.next() % types.len()], &noise.bytes(1500));
        }
        1 => frame.truncate(noise.next() % frame.len()),
        2 => {
            let bit = noise.next() % (frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        _ => {}
    }
    ethernet(ETHERTYPE, &frame)
}

/// A frame from the devices that is no record: another's, one of no kind, one for no place that there is,
/// or one that ends before its body does.
fn from_devices(noise: &mut Noise) -> Vec<u8> {
    // Longer than Ethernet's shortest frame, up to which the emulator may fill one.
    let body: Vec<u8> = (0..100).map(|_| noise.next() as u8).collect();
    let place = SlotWire(1 + noise.next() as u8 % 2);
    let mut record = vec![0; 128];
    let length = Record { at: place, body: Body::Tlp(&body) }.emit(&mut record);
    record.truncate(length);
    match noise.next() % 4 {
        0 => return ethernet(ETHERTYPE, &record),
        1 => record[0] = 17 + noise.next() as u8 % 200,
        2 => record[1] = 17 + noise.next() as u8 % 200,
        _ => record.truncate(noise.next() % record.len()),
    }
    ethernet(RECORDS, &record)
}

/// Sends both until told to stop: how many of each.
fn send(scene: &Scene, tap: &Tap, stop: &AtomicBool) -> (u64, u64) {
    let socket = UnixDatagram::unbound().expect("a socket");
    let cable = scene.path(CABLE);
    let (mut noise, mut sent) = (Noise(Random(1)), (0, 0));
    while !stop.load(Ordering::Relaxed) {
        // What the card has no room for is lost, as in any network.
        let _ = socket.send_to(&from_network(&mut noise), &cable);
        sent.0 += 1;
        if sent.0 % 4 == 0 {
            tap.say(&from_devices(&mut noise)).expect("the card is there");
            sent.1 += 1;
        }
        std::thread::sleep(PAUSE);
    }
    sent
}

#[test]
fn a_card_counts_garbage_from_both_sides_and_goes_on() {
    let Some(firmware) = firmware() else { return };
    let mut scene = Scene::start(&firmware, Cards::Tapped).unwrap();
    scene.lend("accelerator");
    let reads = |scene: &Scene, count: &str| {
        scene.host(&["latency", "03:00.0", "--reads", count]).unwrap();
    };
    reads(&scene, "100");
    let events = scene.manager(&["events"]).unwrap();
    let before = scene.counters(CARD);
    let tap = scene.tap.as_ref().expect("it was asked for");
    let stop = AtomicBool::new(false);
    let (network, devices) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&scene, tap, &stop));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let began = Instant::now();
            while began.elapsed() < LONG {
                reads(&scene, "200");
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let sent = sender.join().expect("it sends");
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent
    });
    reads(&scene, "500");
    let after = scene.counters(CARD);
    println!("{network} frames from the network, {devices} from the devices");
    assert!(network > 1000 && devices > 200, "{network} {devices}");
    for name in DROPS {
        assert!(after[name] - before[name] > network / 50, "{name} did not count");
    }
    assert_eq!(after[NO_RECORDS] - before[NO_RECORDS], devices, "the wire loses nothing");
    // It is the same life, in which it never left, and no link took harm.
    for (name, value) in after.iter().filter(|(name, _)| name.starts_with("resets: ")) {
        assert_eq!(*value, u64::from(name.contains("power")), "{name}");
    }
    assert_eq!(after["link.violations"], 0);
    assert_eq!(scene.manager(&["events"]).unwrap(), events, "nothing happened");
}
