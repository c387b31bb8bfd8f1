//! Two links, a clock that jumps to whatever is next, and the network between.

use super::network::{Network, Rng, Trouble};
use super::oracle::Oracle;
use crate::limits::{MAX_FRAME, TLP_BUFFER};
use crate::link::*;
use crate::stamps::{StampKey, StampedTlp, Stamps};
use core::time::Duration;
use std::string::String;
use std::vec;
use std::vec::Vec;
use tlp_codec::fabric::Sideband;
use tlp_codec::ids::{BindingKey, Epoch, NodeId, OutstandingRef, SlotFunction, SlotId};
use tlp_codec::tlp::Class;

pub(super) fn key(slot: u8, counter: u32) -> BindingKey {
    BindingKey {
        slot: SlotId::new(slot).unwrap(),
        function: SlotFunction::ZERO,
        epoch: Epoch::new(0, counter).unwrap(),
    }
}

pub(super) fn node(end: usize) -> NodeId {
    NodeId::new(end as u16 + 1).unwrap()
}

/// End 0 is the host, end 1 the box.
pub(super) fn link(end: usize, incarnation: u32, config: LinkConfig) -> Link {
    Link::new(node(end), incarnation, node(1 - end), None, end == 0, config)
}

pub(super) struct Pair {
    pub(super) ends: [Link; 2],
    pub(super) stamps: [Stamps; 2],
    pub(super) network: Network,
    pub(super) oracle: Oracle,
    pub(super) rng: Rng,
    pub(super) now: Instant,
    pub(super) events: [Vec<LinkEvent>; 2],
    pub(super) sidebands: [Vec<(BindingKey, Sideband)>; 2],
    pub(super) dropped: [Vec<FrameDropped>; 2],
    /// Flushes on their way: who sent it, and how much it ends.
    flushes: Vec<(BindingKey, usize, usize)>,
    /// A sideband record that came and was not sent.
    stray: Option<String>,
    buffer: Vec<u8>,
}

impl Pair {
    pub(super) fn new(seed: u64, trouble: Trouble, config: LinkConfig) -> Self {
        Self {
            ends: [link(0, 100, config), link(1, 200, config)],
            stamps: [Stamps::new(), Stamps::new()],
            network: Network::new(trouble),
            oracle: Oracle::default(),
            rng: Rng(seed),
            now: Instant::from_nanos(1_000_000 + seed),
            events: [vec![], vec![]],
            sidebands: [vec![], vec![]],
            dropped: [vec![], vec![]],
            flushes: vec![],
            stray: None,
            buffer: vec![0; MAX_FRAME],
        }
    }

    /// Sequences that are about to wrap around.
    pub(super) fn start_sequences_at(&mut self, sequence: u32) {
        for end in &mut self.ends {
            end.flight.start_at(sequence);
            end.inbox.start_at(sequence);
        }
    }

    /// A quiet network, links up.
    pub(super) fn up() -> Self {
        Self::up_with(LinkConfig::default())
    }

    pub(super) fn up_with(config: LinkConfig) -> Self {
        let mut pair = Self::new(1, Trouble::default(), config);
        pair.run_for(Duration::from_millis(1));
        assert!(pair.both_up());
        pair
    }

    /// As [`Pair::up`], with one binding open at both ends.
    pub(super) fn bound() -> (Self, BindingKey) {
        Self::bound_with(LinkConfig::default())
    }

    pub(super) fn bound_with(config: LinkConfig) -> (Self, BindingKey) {
        let mut pair = Self::up_with(config);
        let key = key(3, 1);
        for end in [1, 0] {
            pair.ends[end].open_channel(key).unwrap();
        }
        pair.run_for(Duration::from_millis(1));
        (pair, key)
    }

    pub(super) fn both_up(&self) -> bool {
        self.ends.iter().all(|end| end.state() == LinkState::Up)
    }

    /// Sends what there is to send.
    pub(super) fn flush(&mut self) {
        for end in 0..2 {
            while let Some(transmit) =
                self.ends[end].poll_transmit(self.now, &mut self.buffer, &mut self.stamps[end])
            {
                let frame = &self.buffer[..transmit.len];
                self.network.send(&mut self.rng, self.now, transmit.path, 1 - end, frame);
            }
            self.stamps[end].mark(self.now);
            while let Some(event) = self.ends[end].poll_event() {
                self.events[end].push(event);
            }
        }
    }

    /// Frames that one end would send now, taken off the network.
    pub(super) fn frames_from(&mut self, end: usize) -> Vec<Vec<u8>> {
        let mut frames = vec![];
        while let Some(transmit) =
            self.ends[end].poll_transmit(self.now, &mut self.buffer, &mut self.stamps[end])
        {
            frames.push(self.buffer[..transmit.len].to_vec());
        }
        frames
    }

    /// The next frame that one end would send now, taken off the network.
    pub(super) fn one_frame(&mut self, end: usize) -> Option<Vec<u8>> {
        let transmit =
            self.ends[end].poll_transmit(self.now, &mut self.buffer, &mut self.stamps[end])?;
        Some(self.buffer[..transmit.len].to_vec())
    }

    pub(super) fn hand_over(&mut self, end: usize, frame: &[u8]) -> Result<(), FrameDropped> {
        self.ends[end].handle_frame(self.now, frame, &mut self.stamps[end])
    }

    /// Jumps to the next thing that happens, if it is before `until`, and lets it happen.
    pub(super) fn step(&mut self, until: Instant) -> bool {
        self.flush();
        let timers = self.ends.iter().filter_map(Link::poll_timeout);
        let next = timers.chain(self.network.next_at()).min();
        let Some(next) = next.filter(|&at| at <= until) else {
            self.now = until;
            return false;
        };
        assert!(next > self.now || self.network.next_at() == Some(next) || self.timer_is_due());
        self.now = self.now.max(next);
        while let Some((end, frame)) = self.network.arrive(self.now) {
            if let Err(dropped) = self.hand_over(end, &frame) {
                self.dropped[end].push(dropped);
            }
            // As a proxy does it: what a flush has ended is known before anything else is sent.
            self.poll_sidebands(end);
        }
        for end in &mut self.ends {
            end.handle_timeout(self.now);
        }
        self.flush();
        true
    }

    fn timer_is_due(&self) -> bool {
        self.ends.iter().any(|end| end.poll_timeout().is_some_and(|at| at <= self.now))
    }

    /// Lets things happen for so long, without draining anything.
    pub(super) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        let mut steps = 0;
        while self.step(until) {
            steps += 1;
            assert!(steps < 1_000_000, "the links do not come to rest");
        }
    }

    /// As [`Pair::run_for`], and drains everything at both ends at once.
    pub(super) fn drain_for(&mut self, time: Duration) -> Result<(), String> {
        let until = self.now + time;
        loop {
            for end in 0..2 {
                self.drain(end, ClassSet::ALL, usize::MAX)?;
            }
            if !self.step(until) {
                return Ok(());
            }
        }
    }

    /// Bytes that name their flow and their number, and are like no others.
    pub(super) fn tlp_bytes(&mut self, key: BindingKey, end: usize, length: usize) -> Vec<u8> {
        let number = self.oracle.next_number((key, end));
        let mut bytes = vec![0; length];
        bytes[0] = key.slot.get();
        bytes[1] = end as u8;
        bytes[4..8].copy_from_slice(&key.epoch.bits().to_le_bytes());
        bytes[8..12].copy_from_slice(&number.to_le_bytes());
        for byte in &mut bytes[12..] {
            *byte = self.rng.next() as u8;
        }
        bytes
    }

    /// Sends a TLP from an end, if its queue has room.
    pub(super) fn send(
        &mut self,
        end: usize,
        key: BindingKey,
        class: Class,
        relaxed: bool,
        length: usize,
    ) -> bool {
        let Some(channel) = self.ends[end].channel_of(&key) else { return false };
        if !self.ends[end].can_send(channel, class) {
            return false;
        }
        let bytes = self.tlp_bytes(key, end, length);
        let outstanding = (class != Class::Posted)
            .then_some(OutstandingRef { index: bytes[8].into(), generation: 1 });
        let tlp = outstanding.map_or(StampedTlp::Posted(None), StampedTlp::Request);
        let peer = self.ends[end].peer();
        let stamp = self.stamps[end].sample().then(|| {
            let key = StampKey { peer, binding: key, from_host: end == 0, tlp };
            self.stamps[end].arrived(key, self.now)
        });
        let meta = TlpMeta { class, outstanding, relaxed, stamp };
        self.ends[end].send_tlp(self.now, channel, meta, &bytes).unwrap();
        self.oracle.sent((key, end), class, relaxed, &bytes);
        true
    }

    /// Sends a sideband record, if there is room for it.
    pub(super) fn send_sideband(&mut self, end: usize, key: BindingKey, record: Sideband) -> bool {
        let Some(channel) = self.ends[end].channel_of(&key) else { return false };
        if self.ends[end].send_sideband(self.now, channel, record).is_err() {
            return false;
        }
        if record.flushes() {
            self.oracle.doubtful((key, end));
            self.flushes.push((key, end, self.oracle.len((key, end))));
        }
        true
    }

    /// Closes a binding at one end: nothing more comes out there, and what it sent may be lost.
    pub(super) fn close(&mut self, end: usize, key: BindingKey) {
        let channel = self.ends[end].channel_of(&key).expect("open");
        self.ends[end].close_channel(channel);
        self.oracle.doubtful((key, end));
        self.oracle.dead((key, 1 - end), usize::MAX);
    }

    /// Takes what has come to an end, up to `most` TLPs of the classes that are ready.
    pub(super) fn drain(
        &mut self,
        end: usize,
        ready: ClassSet,
        most: usize,
    ) -> Result<usize, String> {
        self.poll_sidebands(end);
        if let Some(stray) = self.stray.take() {
            return Err(stray);
        }
        let channels: Vec<ChannelId> = self.ends[end].channels_with_received().collect();
        let mut count = 0;
        for channel in channels {
            while count < most
                && let Some((taken, bytes)) = self.take(end, channel, ready)
            {
                let binding = self.ends[end].channels.get(channel).and_then(|c| c.key).unwrap();
                self.oracle.delivered((binding, 1 - end), taken.class, &bytes)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Takes a binding's next TLP of some classes at one end.
    pub(super) fn take(
        &mut self,
        end: usize,
        channel: ChannelId,
        ready: ClassSet,
    ) -> Option<(Taken, Vec<u8>)> {
        let mut bytes = vec![0; TLP_BUFFER];
        let taken = self.ends[end].take_received(channel, ready, &mut bytes)?;
        bytes.truncate(taken.length);
        Some((taken, bytes))
    }

    fn poll_sidebands(&mut self, end: usize) {
        while let Some(taken) = self.ends[end].poll_sideband() {
            let TakenSideband { channel, record: sideband, .. } = taken;
            let binding = self.ends[end].channels.get(channel).and_then(|c| c.key).unwrap();
            self.sidebands[end].push((binding, sideband));
            if sideband.flushes() {
                let flush =
                    self.flushes.iter().position(|(k, e, _)| (*k, *e) == (binding, 1 - end));
                let Some(flush) = flush else {
                    self.stray = Some(std::format!("{sideband:?} of {binding:?} was not sent"));
                    continue;
                };
                let (_, _, count) = self.flushes.remove(flush);
                self.oracle.dead((binding, 1 - end), count);
                self.oracle.doubtful((binding, end));
            }
        }
    }

    pub(super) fn counter(&self, end: usize, name: &str) -> u64 {
        let mut all = self.ends[end].counters();
        all.find(|(n, _)| n.strip_prefix("link.") == Some(name)).expect("a counter's name").1
    }
}
