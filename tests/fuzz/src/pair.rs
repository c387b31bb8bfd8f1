//! Two links and a network between them that does what the input says.

use crate::frame::seal;
use crate::input::Input;
use core::time::Duration;
use proxy_core::control::{BindingFailure, LinkDownReason, PathSet, Share};
use proxy_core::limits::TLP_BUFFER;
use proxy_core::link::{
    ChannelId, ClassSet, Link, LinkConfig, LinkEvent, LinkState, TakenSideband, TlpMeta,
};
use proxy_core::stamps::Stamps;
use proxy_core::time::Instant;
use std::collections::BTreeMap;
use tlp_codec::fabric::{FrameKind, FrameWriter, Header, Sideband};
use tlp_codec::ids::{BindingKey, Epoch, NodeId, OutstandingRef, PathId, SlotFunction, SlotId};
use tlp_codec::tlp::Class;

const SLOTS: u8 = 2;
/// Frames under way, at most: further ones are lost.
const IN_TRANSIT: usize = 64;
/// A link that has not been told of trouble for so long has everything through, or is down.
const SETTLES: Duration = Duration::from_secs(3);

struct End {
    link: Link,
    stamps: Stamps,
    /// By slot: the binding that is open, or was.
    channels: [Option<ChannelId>; SLOTS as usize],
    /// By slot: it has failed, and takes nothing until it is closed.
    failed: [bool; SLOTS as usize],
    /// By slot and class: the TLPs that room is kept for.
    kept: [[u16; 3]; SLOTS as usize],
}

/// What became of a TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Sent,
    Delivered,
    /// A flush overtakes it, or its binding ends: it may come, in order, or not.
    Doubtful,
}

struct Tlp {
    class: Class,
    relaxed: bool,
    bytes: Vec<u8>,
    fate: Fate,
}

/// Two links, a host (end 0) and a box (end 1).
pub(crate) struct Pair {
    ends: [End; 2],
    now: Instant,
    /// Frames on their way, and to whom.
    transit: Vec<(usize, Vec<u8>)>,
    /// The frame that was sent last, for who makes up others.
    last: Vec<u8>,
    /// Counters of the epochs.
    epochs: [u32; SLOTS as usize],
    /// By slot, epoch and sender: what was sent.
    flows: BTreeMap<(u8, u32, usize), Vec<Tlp>>,
    /// Frames are made up, so that what comes need not have been sent.
    hostile: bool,
    next_entry: u16,
}

fn node(end: usize) -> NodeId {
    NodeId::new(end as u16 + 1).expect("a node")
}

fn life(end: usize) -> u32 {
    100 + end as u32
}

fn end(paths: usize, end: usize) -> End {
    let config = LinkConfig {
        paths,
        channels: 3,
        shared_receive: 16,
        shared_send: 16,
        max_frame: 700,
        ..LinkConfig::default()
    };
    End {
        link: Link::new(node(end), life(end), node(1 - end), None, end == 0, config),
        stamps: Stamps::new(),
        channels: [None; SLOTS as usize],
        failed: [false; SLOTS as usize],
        kept: [[0; 3]; SLOTS as usize],
    }
}

impl Pair {
    /// Links that are up, with a binding open at both ends.
    pub(crate) fn new(setting: u8, hostile: bool) -> Self {
        let paths = usize::from(setting & 3) + 1;
        let mut pair = Self {
            ends: [end(paths, 0), end(paths, 1)],
            now: Instant::from_nanos(1_000_000),
            transit: Vec::new(),
            last: Vec::new(),
            epochs: [1; SLOTS as usize],
            flows: BTreeMap::new(),
            hostile,
            next_entry: 0,
        };
        if setting & 4 == 0 {
            pair.calm(Duration::from_millis(1));
            for end in [1, 0] {
                assert_eq!(pair.ends[end].link.state(), LinkState::Up);
                pair.open(end, 0);
            }
            pair.calm(Duration::from_millis(1));
        }
        pair
    }

    fn key(&self, slot: u8) -> BindingKey {
        BindingKey {
            slot: SlotId::new(slot + 1).expect("a slot"),
            function: SlotFunction::ZERO,
            epoch: Epoch::new(0, self.epochs[usize::from(slot)]).expect("an epoch"),
        }
    }

    fn open(&mut self, end: usize, slot: u8) {
        let key = self.key(slot);
        if let Ok(channel) = self.ends[end].link.open_channel(key) {
            self.ends[end].channels[usize::from(slot)] = Some(channel);
        }
    }

    /// A binding ends: what was under way may come, or not.
    fn end_of_flows(&mut self, slot: u8) {
        let epoch = self.epochs[usize::from(slot)];
        for end in 0..2 {
            for tlp in self.flows.entry((slot, epoch, end)).or_default() {
                if tlp.fate == Fate::Sent {
                    tlp.fate = Fate::Doubtful;
                }
            }
        }
    }

    fn close(&mut self, end: usize, slot: u8) {
        let Some(channel) = self.ends[end].channels[usize::from(slot)].take() else { return };
        self.ends[end].link.close_channel(channel);
        self.ends[end].failed[usize::from(slot)] = false;
        self.ends[end].kept[usize::from(slot)] = [0; 3];
        self.end_of_flows(slot);
    }

    /// Both ends close it, and it may be opened under a new epoch.
    fn next_epoch(&mut self, slot: u8) {
        for end in 0..2 {
            self.close(end, slot);
        }
        self.epochs[usize::from(slot)] += 1;
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let (how, len) = (input.u8(), input.u8());
        let (end, slot) = (usize::from(how & 1), how >> 1 & 1);
        let class = Class::ALL[usize::from(how >> 2 & 3).min(2)];
        let relaxed = how & 0x10 != 0 && class == Class::Completion;
        let Some(channel) = self.ends[end].channels[usize::from(slot)] else { return };
        let epoch = self.epochs[usize::from(slot)];
        let flow = self.flows.entry((slot, epoch, end)).or_default();
        let number = flow.len() as u32;
        // Long ones are split. The number tells which one it is.
        let len = match len {
            0..0x80 => 12,
            0x80..0xc0 => 12 + usize::from(len & 0x3f) * 8,
            0xc0.. => 12 + usize::from(len & 0x3f) * 64,
        };
        let mut bytes = vec![how; len];
        bytes[8..12].copy_from_slice(&number.to_le_bytes());
        let outstanding = (class != Class::Posted).then(|| {
            self.next_entry = self.next_entry.wrapping_add(1);
            OutstandingRef { index: self.next_entry % 64, generation: self.next_entry / 64 }
        });
        let meta = TlpMeta { class, outstanding, relaxed, stamp: None };
        let End { link, kept, .. } = &mut self.ends[end];
        let kept = &mut kept[usize::from(slot)][class as usize];
        let sent = if how & 0x20 != 0 && *kept > 0 {
            *kept -= 1;
            link.send_reserved(self.now, channel, meta, &bytes)
        } else {
            link.send_tlp(self.now, channel, meta, &bytes)
        };
        if sent.is_ok() {
            flow.push(Tlp { class, relaxed, bytes, fate: Fate::Sent });
        }
    }

    fn sideband(&mut self, input: &mut Input<'_>) {
        let (how, code) = (input.u8(), input.u8());
        let (end, slot) = (usize::from(how & 1), how >> 1 & 1);
        let Some(channel) = self.ends[end].channels[usize::from(slot)] else { return };
        let record = Sideband::from_code(code % 15, u16::from(how >> 4));
        if self.ends[end].link.send_sideband(self.now, channel, record).is_ok() && record.flushes()
        {
            self.end_of_flows(slot);
        }
    }

    /// Lets an end write its frames.
    fn transmit(&mut self, end: usize) {
        let mut buffer = [0; 9000];
        for frames in 0.. {
            assert!(frames < 5000, "an end does not come to an end");
            let End { link, stamps, .. } = &mut self.ends[end];
            let Some(transmit) = link.poll_transmit(self.now, &mut buffer, stamps) else { break };
            let frame = &buffer[..transmit.len];
            tlp_codec::fabric::Frame::new_checked(frame).expect("a right frame");
            self.last = frame.to_vec();
            if self.transit.len() < IN_TRANSIT {
                self.transit.push((1 - end, frame.to_vec()));
            }
        }
        self.events(end);
    }

    fn events(&mut self, end: usize) {
        while let Some(event) = self.ends[end].link.poll_event() {
            match event {
                LinkEvent::Down(reason) => {
                    self.check_down(end, reason);
                    (0..SLOTS).for_each(|slot| self.end_of_flows(slot));
                }
                LinkEvent::ChannelFailed { key, .. } => {
                    let slot = key.slot.get() - 1;
                    if self.key(slot) == key {
                        self.ends[end].failed[usize::from(slot)] = true;
                        self.end_of_flows(slot);
                    }
                }
                _ => {}
            }
        }
    }

    /// Both ends keep to the protocol and live on: one of them gives up, or is taken away, and the other
    /// one hears of it.
    fn check_down(&self, end: usize, reason: LinkDownReason) {
        if self.hostile {
            return;
        }
        let other = self.ends[1 - end].link.state();
        match reason {
            LinkDownReason::GaveUp | LinkDownReason::Removed => {}
            LinkDownReason::PeerClosed => {
                assert!(matches!(other, LinkState::Down(_)), "the other end is {other:?}");
            }
            LinkDownReason::PeerRestarted | LinkDownReason::Protocol => {
                panic!("end {end} went down: {reason:?}");
            }
        }
    }

    fn hand_over(&mut self, end: usize, frame: &[u8]) {
        let End { link, stamps, .. } = &mut self.ends[end];
        let before = link.state();
        let _ = link.handle_frame(self.now, frame, stamps);
        if let LinkState::Down(_) = before {
            assert_eq!(link.state(), before, "down is terminal");
        }
        // What a flush has ended is known before anything else happens.
        while let Some(taken) = self.ends[end].link.poll_sideband() {
            let TakenSideband { channel, record, .. } = taken;
            let slots = self.ends[end].channels;
            let slot = slots.iter().position(|open| *open == Some(channel));
            if let Some(slot) = slot.filter(|_| record.flushes()) {
                self.end_of_flows(slot as u8);
            }
        }
        self.events(end);
    }

    /// Takes what has come on a binding, at most `most` TLPs of these classes.
    fn drain(&mut self, end: usize, slot: u8, ready: ClassSet, most: usize) {
        let Some(channel) = self.ends[end].channels[usize::from(slot)] else { return };
        let mut tlp = [0; TLP_BUFFER];
        for _ in 0..most {
            let link = &mut self.ends[end].link;
            let Some(taken) = link.take_received(channel, ready, &mut tlp) else { break };
            assert!(ready.contains(taken.class));
            if !self.hostile {
                let epoch = self.epochs[usize::from(slot)];
                self.check((slot, epoch, 1 - end), taken.class, &tlp[..taken.length]);
            }
        }
    }

    /// At most once, with its own bytes, on its own binding, and in an order that PCIe allows
    /// (PCIe 5.0 table 2-40).
    fn check(&mut self, flow: (u8, u32, usize), class: Class, bytes: &[u8]) {
        let number = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
        let list = self.flows.entry(flow).or_default();
        let tlp = list.get(number).expect("what comes was sent on this binding");
        assert_eq!((tlp.class, &tlp.bytes[..]), (class, bytes), "{number} of {flow:?}");
        assert_ne!(tlp.fate, Fate::Delivered, "{number} of {flow:?} came twice");
        let holds_back = |earlier: &Tlp, later: &Tlp| {
            let relaxed = later.relaxed && later.class == Class::Completion;
            earlier.class == later.class || earlier.class == Class::Posted && !relaxed
        };
        for (n, other) in list.iter().enumerate() {
            let passed = n < number && other.fate == Fate::Sent && holds_back(other, tlp);
            let behind = n > number && other.fate == Fate::Delivered && holds_back(tlp, other);
            assert!(!passed && !behind, "{number} and {n} of {flow:?} changed places");
        }
        list[number].fate = Fate::Delivered;
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for end in &mut self.ends {
            if end.link.poll_timeout().is_some_and(|at| at <= self.now) {
                end.link.handle_timeout(self.now);
            }
        }
    }

    /// Everything arrives and is drained, and time passes, for so long.
    fn calm(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..100_000 {
            for end in 0..2 {
                self.transmit(end);
            }
            let transit = core::mem::take(&mut self.transit);
            let idle = transit.is_empty();
            for (end, frame) in transit {
                self.hand_over(end, &frame);
            }
            for end in 0..2 {
                for slot in 0..SLOTS {
                    self.drain(end, slot, ClassSet::ALL, usize::MAX);
                }
            }
            let timers = self.ends.iter().filter_map(|end| end.link.poll_timeout());
            let next = timers.min().unwrap_or(Instant::FAR_FUTURE);
            if idle && next > until {
                self.now = until;
                return;
            }
            if idle {
                self.pass(next - self.now);
            } else {
                self.pass(Duration::from_micros(20));
            }
        }
        panic!("the links do not come to rest");
    }

    /// One step of the input.
    pub(crate) fn step(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let (end, n) = (usize::from(what >> 4 & 1), usize::from(what >> 5));
        match what & 0xf {
            0..=2 => self.send(input),
            3 => self.sideband(input),
            4 => self.transmit(end),
            5 => {
                if let Some(at) = self.transit.iter().position(|(to, _)| *to == end) {
                    let (_, frame) = self.transit.remove(at);
                    self.hand_over(end, &frame);
                }
            }
            6 => {
                for _ in 0..=n {
                    self.transmit(0);
                    self.transmit(1);
                    for (end, frame) in core::mem::take(&mut self.transit) {
                        self.hand_over(end, &frame);
                    }
                    self.pass(Duration::from_micros(50));
                }
            }
            7..=9 if !self.transit.is_empty() => self.trouble(what, input.u8()),
            10 => self.pass(Duration::from_micros(u64::from(input.u8()) << (2 * n))),
            11 => {
                let timers = self.ends.iter().filter_map(|end| end.link.poll_timeout());
                if let Some(next) = timers.min() {
                    self.pass(next - self.now);
                }
            }
            12 => {
                let how = input.u8();
                let ready = Class::ALL.into_iter().filter(|class| how >> *class as u8 & 1 == 0);
                let ready = ready.fold(ClassSet::NONE, ClassSet::with);
                self.drain(end, how >> 3 & 1, ready, n + 1);
            }
            14 => self.bindings(end, n, input.u8()),
            _ if self.hostile => self.make_up(end, n, input),
            _ => {}
        }
    }

    /// A frame is lost, comes twice, out of turn, or damaged.
    fn trouble(&mut self, what: u8, which: u8) {
        let at = usize::from(which) % self.transit.len();
        let (to, frame) = self.transit[at].clone();
        match (what & 0xf, what >> 4 & 3) {
            (7, _) => drop(self.transit.remove(at)),
            (8, 0 | 1) => self.hand_over(to, &frame),
            (8, _) => {
                self.transit.remove(at);
                self.hand_over(to, &frame);
            }
            _ => {
                let (_, frame) = &mut self.transit[at];
                let place = usize::from(which) * 7 % frame.len();
                frame[place] ^= 1 << (what >> 5);
            }
        }
    }

    fn bindings(&mut self, end: usize, what: usize, how: u8) {
        let slot = how & 1;
        let channel = self.ends[end].channels[usize::from(slot)];
        let path = PathId::new(how >> 4 & 3).expect("a path");
        match (what, channel) {
            (0 | 1, _) => self.open(end, slot),
            (2, _) => self.close(end, slot),
            (3, _) => self.next_epoch(slot),
            (4, _) if how & 8 != 0 => {
                self.ends[end].link.set_peer_paths(self.now, usize::from(path.get()) + 1);
            }
            (4, _) => self.ends[end].link.handle_congestion_mark(path),
            (5, Some(channel)) if how & 8 != 0 => {
                let rate = |bit: u8| if how & bit != 0 { 1_000_000 } else { 0 };
                let share = Share { weight: how >> 6, limit: rate(0x10), guarantee: rate(0x20) };
                self.ends[end].link.set_share(channel, share);
            }
            (5, Some(channel)) => self.ends[end].link.set_paths(channel, PathSet(how)),
            (6, Some(channel)) if how > 0xf0 => {
                self.ends[end].link.fail_channel(channel, BindingFailure::DeviceGone);
                self.end_of_flows(slot);
            }
            (6, Some(channel)) => {
                let class = Class::ALL[usize::from(how >> 1 & 3).min(2)];
                let End { link, kept, .. } = &mut self.ends[end];
                let kept = &mut kept[usize::from(slot)][class as usize];
                if how & 8 != 0 {
                    *kept += link.reserve(channel, class, u16::from(how >> 4));
                } else {
                    link.unreserve(channel, class, core::mem::take(kept));
                }
            }
            (7, _) if how == 0xff => {
                self.ends[end].link.close(self.now, LinkDownReason::Removed);
            }
            _ => {}
        }
    }

    /// A frame that nobody sent: the last one with bytes changed, or a header that is right and
    /// anything behind it.
    fn make_up(&mut self, end: usize, n: usize, input: &mut Input<'_>) {
        let mut frame = if n & 1 == 0 {
            let mut frame = self.last.clone();
            for _ in 0..=n {
                let at = usize::from(input.u16());
                let value = input.u8();
                if let Some(byte) = frame.get_mut(at % 128) {
                    *byte = value;
                }
            }
            frame
        } else {
            let kinds = [FrameKind::Data, FrameKind::Data, FrameKind::Close, FrameKind::Open];
            let mut body = [0; 9000];
            let header = Header {
                kind: kinds[n >> 1],
                destination: node(end),
                source: node(1 - end),
                source_incarnation: life(1 - end),
                destination_incarnation: Some(life(end)),
                session: self.last_session(end),
                path: PathId::new(input.u8() & 3).expect("a path"),
                packet: input.u16().into(),
                sequence: input.u8().into(),
                ack: None,
            };
            let mut writer = FrameWriter::new(&mut body, &header).expect("room");
            let len = usize::from(input.u8()) * 4;
            writer.body(input.bytes(len)).expect("room");
            let length = writer.finish();
            body[..length].to_vec()
        };
        if frame.is_empty() {
            return;
        }
        seal(&mut frame, false);
        self.hand_over(end, &frame);
    }

    /// The session that frames to an end name, if one was sent to it lately.
    fn last_session(&self, end: usize) -> u32 {
        let to = self.transit.iter().rev().find(|(to, _)| *to == end);
        let frame = to.map_or(&self.last[..], |(_, frame)| &frame[..]);
        frame.get(16..20).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
    }

    /// The trouble is over: all that was sent comes, unless the link or its binding went down.
    pub(crate) fn settle(&mut self) {
        self.calm(SETTLES);
        let up = self.ends.iter().all(|end| end.link.state() == LinkState::Up);
        if self.hostile || !up {
            return;
        }
        for slot in 0..SLOTS {
            let open = |end: &End| {
                end.channels[usize::from(slot)].filter(|_| !end.failed[usize::from(slot)])
            };
            let [Some(one), Some(other)] = self.ends.each_ref().map(open) else { continue };
            for (end, channel) in [one, other].into_iter().enumerate() {
                let knows = self.ends[end].link.is_peer_open(channel);
                assert!(knows, "end {end} does not know that slot {slot} is open at the other");
            }
            let epoch = self.epochs[usize::from(slot)];
            for end in 0..2 {
                let flow = self.flows.entry((slot, epoch, end)).or_default();
                let missing = flow.iter().filter(|tlp| tlp.fate == Fate::Sent).count();
                assert_eq!(missing, 0, "of slot {slot}, sent by end {end}, never came");
            }
        }
    }
}
