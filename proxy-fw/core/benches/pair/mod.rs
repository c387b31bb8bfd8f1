//! Two links that hand each other their frames in memory.
#![allow(unreachable_pub)] // part of each bench that uses it

use proxy_core::link::{ClassSet, Link, LinkConfig, LinkState, TlpMeta};
use proxy_core::stamps::Stamps;
use proxy_core::time::Instant;
use std::hint::black_box;
use std::time::Duration;
use tlp_codec::ids::{BindingKey, Epoch, NodeId, OutstandingRef, SlotFunction, SlotId};
use tlp_codec::tlp::Class;

pub struct End {
    link: Link,
    stamps: Stamps,
}

pub struct Pair {
    ends: [End; 2],
    now: Instant,
    buffer: Vec<u8>,
    key: BindingKey,
    pub frames: usize,
}

impl Pair {
    pub fn new() -> Self {
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
        while link.take_received(channel, ClassSet::ALL, &mut self.buffer).is_some() {
            black_box(&self.buffer);
            count += 1;
        }
        count
    }

    fn timers(&mut self) {
        for end in &mut self.ends {
            end.link.handle_timeout(self.now);
        }
    }

    pub fn round_trip(&mut self, read: &[u8], completion: &[u8]) {
        assert!(self.send(0, Class::NonPosted, read));
        self.carry(0);
        assert_eq!(self.drain(1), 1);
        assert!(self.send(1, Class::Completion, completion));
        self.carry(1);
        assert_eq!(self.drain(0), 1);
        self.timers();
    }

    pub fn stream(&mut self, write: &[u8], count: usize) {
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
