//! What the link costs: two links that hand each other their frames in memory.
//!
//! `cargo bench -p proxy-core --bench link` prints nanoseconds for a read that goes out alone and
//! its completion that comes back alone (queue, frame, check, store and drain, twice), and for each
//! write of a stream that shares frames, with the acknowledgements and credits that it
//! takes. *Floor* is a copy and both CRCs of the same frames.

use proxy_core::link::{ClassSet, Link, LinkConfig, LinkState, TlpMeta};
use proxy_core::stamps::Stamps;
use proxy_core::time::Instant;
use std::hint::black_box;
use std::time::{Duration, Instant as Clock};
use tlp_codec::crc;
use tlp_codec::ids::{BindingKey, Epoch, NodeId, OutstandingRef, SlotFunction, SlotId};
use tlp_codec::tlp::Class;

const ROUNDS: usize = 300;
const TRIPS: usize = 200;
const STREAM: usize = 2000;
const WRITE: usize = 16 + 256;

struct End {
    link: Link,
    stamps: Stamps,
}

struct Pair {
    ends: [End; 2],
    now: Instant,
    buffer: Vec<u8>,
    key: BindingKey,
    frames: usize,
}

impl Pair {
    fn new() -> Self {
        let node = |n| NodeId::new(n).expect("a node number");
        let end = |local: u16, peer: u16| {
            let config = LinkConfig::default();
            let link = Link::new(node(local), local.into(), node(peer), None, local == 1, config);
            End { link, stamps: Stamps::new() }
        };
        let key = BindingKey {
            slot: SlotId::new(1).expect("a slot"),
            function: SlotFunction::ZERO,
            epoch: Epoch::new(0, 1).expect("an epoch"),
        };
        let ends = [end(1, 2), end(2, 1)];
        let mut pair = Self { ends, now: Instant::ZERO, buffer: vec![0; 9000], key, frames: 0 };
        for end in &mut pair.ends {
            end.link.open_channel(key).expect("room");
        }
        for _ in 0..10 {
            pair.carry(0);
            pair.carry(1);
        }
        assert!(pair.ends.iter().all(|end| end.link.state() == LinkState::Up));
        pair
    }

    /// Takes the frames of one end to the other.
    fn carry(&mut self, from: usize) {
        let [a, b] = &mut self.ends;
        let (from, to) = if from == 0 { (a, b) } else { (b, a) };
        self.now = self.now + Duration::from_micros(2);
        while let Some(frame) =
            from.link.poll_transmit(self.now, &mut self.buffer, &mut from.stamps)
        {
            self.frames += 1;
            let bytes = &self.buffer[..frame.len];
            to.link.handle_frame(self.now, bytes, &mut to.stamps).expect("a right frame");
        }
    }

    fn send(&mut self, from: usize, class: Class, tlp: &[u8]) -> bool {
        let end = &mut self.ends[from];
        let channel = end.link.channel_of(&self.key).expect("open");
        if !end.link.can_send(channel, class) {
            return false;
        }
        let outstanding = Some(OutstandingRef { index: 1, generation: 1 });
        let meta = TlpMeta { class, outstanding, relaxed: false, stamp: None };
        end.link.send_tlp(self.now, channel, meta, tlp).expect("room");
        true
    }

    /// Takes everything that came to one end.
    fn drain(&mut self, end: usize) -> usize {
        let link = &mut self.ends[end].link;
        let channel = link.channel_of(&self.key).expect("open");
        let mut count = 0;
        while let Some(received) = link.next_received(channel, ClassSet::ALL) {
            black_box(&received.tlp);
            let handle = received.handle;
            link.release_received(handle);
            count += 1;
        }
        count
    }

    fn timers(&mut self) {
        for end in &mut self.ends {
            end.link.handle_timeout(self.now);
        }
    }

    fn round_trip(&mut self, read: &[u8], completion: &[u8]) {
        assert!(self.send(0, Class::NonPosted, read));
        self.carry(0);
        assert_eq!(self.drain(1), 1);
        assert!(self.send(1, Class::Completion, completion));
        self.carry(1);
        assert_eq!(self.drain(0), 1);
        self.timers();
    }

    fn stream(&mut self, write: &[u8], count: usize) {
        let (mut sent, mut came) = (0, 0);
        while came < count {
            while sent < count && self.send(0, Class::Posted, write) {
                sent += 1;
            }
            self.carry(0);
            came += self.drain(1);
            self.carry(1);
            self.timers();
        }
    }
}

/// Nanoseconds of the fastest of some rounds, for each of `count`.
fn time(count: usize, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Clock::now();
        work();
        best = best.min(start.elapsed().as_nanos() as f64 / count as f64);
    }
    best
}

fn floor(frame: usize, tlps: usize, tlp: usize) -> f64 {
    let (from, mut to) = (vec![1; frame], vec![0; frame]);
    time(100 * tlps, || {
        for _ in 0..100 {
            to.copy_from_slice(black_box(&from));
            black_box(crc::frame(black_box(&to)));
            for _ in 0..tlps {
                black_box(crc::tlp(black_box(&to[..tlp])));
            }
        }
    })
}

fn main() {
    let (read, completion, write) = ([0; 16], [0; 16], [0; WRITE]);
    let mut pair = Pair::new();
    let trip = time(TRIPS, || {
        for _ in 0..TRIPS {
            pair.round_trip(&read, &completion);
        }
    });
    println!("read and completion alone: {trip:.0} ns, floor {:.0} ns", 4.0 * floor(84, 1, 16));
    let mut pair = Pair::new();
    pair.stream(&write, STREAM);
    pair.frames = 0;
    let each = time(STREAM, || pair.stream(&write, STREAM));
    let frames = pair.frames as f64 / (ROUNDS * STREAM) as f64;
    println!(
        "write of 256 B in a stream: {each:.0} ns, floor {:.0} ns; {frames:.3} frames for each",
        2.0 * floor(8700, 29, WRITE)
    );
}
