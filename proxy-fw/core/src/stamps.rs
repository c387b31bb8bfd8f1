//! Time stamps of each stage that a TLP goes through: the ground for the round-trip split of
//! DxPU's Table 6 (original, network, conversion).
//!
//! The core has no clock, so a stage that *ends* inside a call is stamped by the caller's next
//! [`Stamps::mark`]: `handle_tlp(now)` then `mark(later)` gives *arrived* and *encoded*. A record
//! on the wire carries a flag when its TLP is sampled, so that both ends stamp the same TLPs; the
//! key joins what the two ends recorded. No two clocks are compared: each end gives differences.
//!
//! A non-posted request and its completions are joined by the request's entry in the outstanding
//! table of the node that sent it. A posted request has no entry: the link's sequence of its
//! record joins what the two ends recorded.

use crate::control::StampEntry;
use crate::limits::{MAX_FRAME, STAMP_RING};
use crate::recorder::Recorder;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec;
use serde::{Deserialize, Serialize};
use tlp_codec::fabric::{MIN_TLP, TLP_OVERHEAD};
use tlp_codec::ids::{BindingKey, NodeId, OutstandingRef};

/// The stages, in the order in which a TLP meets them: three at the proxy that sends it, three
/// at the proxy that receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Stage {
    /// The PCIe side handed it to the sending proxy.
    Arrived = 0,
    /// It is looked up, rewritten and queued as a record.
    Encoded = 1,
    /// The frame that holds it is handed to the network.
    Sent = 2,
    /// The frame that holds it came in at the receiving proxy.
    Received = 3,
    /// It is checked, matched and stored.
    Decoded = 4,
    /// The PCIe side took it.
    Delivered = 5,
}

/// How many TLPs are stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Sampling {
    /// None.
    #[default]
    Off,
    /// One request in so many, and its completions.
    OneIn(u32),
    /// All.
    All,
}

/// Which of a binding's TLPs stamps are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StampedTlp {
    /// The non-posted request with this entry in the table of the node that sent it.
    Request(OutstandingRef),
    /// A completion for that request.
    Completion(OutstandingRef),
    /// The posted request whose record, or whose first one, has this sequence of the link; `None`
    /// as long as it is not sent.
    Posted(Option<u32>),
}

/// What joins the stamps that the two ends took of one TLP, and those of a request with those of
/// its completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StampKey {
    /// The other end's node: two boxes may have bindings with the same key.
    pub peer: NodeId,
    /// The binding.
    pub binding: BindingKey,
    /// Whether the request, posted or not, came from the host's end of the link (`true`: the
    /// host's, or that of another device of the same host) or from the device.
    pub from_host: bool,
    /// Which TLP.
    pub tlp: StampedTlp,
}

/// A handle to the stamps of a sampled TLP that is on its way through this proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampId {
    slot: u16,
    life: u16,
}

/// The stamps of one TLP at one proxy. Three of the six are set, according to whether it was sent
/// or received here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampRecord {
    /// What it belongs to.
    pub key: StampKey,
    /// When each [`Stage`] ended, by this proxy's clock.
    pub at: [Option<Instant>; 6],
}

impl StampRecord {
    /// As in a message.
    pub fn entry(&self) -> StampEntry {
        let StampKey { peer, binding, from_host, tlp } = self.key;
        let at = self.at.map(|at| at.map(Instant::as_nanos));
        StampEntry { peer, binding, from_host, tlp, at }
    }
}

impl StampId {
    /// As a number.
    fn bits(self) -> u32 {
        u32::from(self.life) << 16 | u32::from(self.slot)
    }
}

/// As many TLPs as a frame holds: their stages end in one call.
const PENDING: usize = MAX_FRAME / (MIN_TLP + TLP_OVERHEAD);

/// The ring of stamps of one proxy, and the recorder that they go to.
pub struct Stamps {
    /// The flight recorder.
    pub recorder: Recorder,
    sampling: Sampling,
    countdown: u32,
    ring: Box<[(u16, Option<StampRecord>)]>,
    next: usize,
    pending: heapless::Vec<(StampId, Stage), PENDING>,
    lost: u64,
}

impl Default for Stamps {
    fn default() -> Self {
        Self::new()
    }
}

impl Stamps {
    /// An empty ring, sampling off, and no recorder.
    pub fn new() -> Self {
        Self::with_recorder(0)
    }

    /// An empty ring, sampling off, and a recorder that keeps so many bytes.
    pub fn with_recorder(bytes: usize) -> Self {
        Self {
            recorder: Recorder::new(bytes),
            sampling: Sampling::Off,
            countdown: 0,
            ring: vec![(0, None); STAMP_RING].into_boxed_slice(),
            next: 0,
            pending: heapless::Vec::new(),
            lost: 0,
        }
    }

    /// Sets how many TLPs are stamped from now on.
    pub fn set_sampling(&mut self, sampling: Sampling) {
        self.sampling = sampling;
        self.countdown = 0;
    }

    /// Whether any request is stamped or recorded at present.
    #[inline]
    pub fn may_sample(&self) -> bool {
        self.sampling != Sampling::Off || self.recorder.wants_stamps()
    }

    /// Whether the next request is to be stamped. Counts it.
    pub fn sample(&mut self) -> bool {
        match self.sampling {
            Sampling::Off => false,
            Sampling::All => true,
            Sampling::OneIn(n) => {
                if self.countdown == 0 {
                    self.countdown = n.max(1);
                }
                self.countdown -= 1;
                self.countdown == 0
            }
        }
    }

    /// Starts the stamps of a sampled TLP that the PCIe side handed to this proxy at `now`, and
    /// that is encoded when the current call ends.
    pub fn arrived(&mut self, key: StampKey, now: Instant) -> StampId {
        let id = self.start(key, Stage::Arrived, now);
        self.ends(id, Stage::Encoded);
        id
    }

    /// Starts the stamps of a sampled TLP whose frame came in at `now`, and that is decoded when
    /// the current call ends.
    pub fn received(&mut self, key: StampKey, now: Instant) -> StampId {
        let id = self.start(key, Stage::Received, now);
        self.ends(id, Stage::Decoded);
        id
    }

    /// Says that the record of the TLP `tlp` goes out for the first time, under `sequence`, in the
    /// frame that the current call makes.
    pub fn sent(&mut self, id: StampId, sequence: u32, tlp: &[u8]) {
        if let Some(record) = self.record_mut(id)
            && let StampedTlp::Posted(unknown) = &mut record.key.tlp
        {
            *unknown = Some(sequence);
        }
        self.seen(id, tlp);
        self.ends(id, Stage::Sent);
    }

    /// Says that the TLP `tlp` was taken from the link, to be handed to the PCIe side if nothing
    /// speaks against it.
    pub fn taken(&mut self, id: StampId, tlp: &[u8]) {
        self.seen(id, tlp);
    }

    fn seen(&mut self, id: StampId, tlp: &[u8]) {
        if !self.recorder.wants_stamps() {
            return;
        }
        match self.record_mut(id).copied() {
            Some(record) => self.recorder.tlp(id.bits(), &record, tlp),
            None => self.recorder.lose(),
        }
    }

    fn start(&mut self, key: StampKey, stage: Stage, now: Instant) -> StampId {
        let slot = self.next;
        self.next = (slot + 1) % self.ring.len();
        let entry = &mut self.ring[slot];
        entry.0 = entry.0.wrapping_add(1);
        let mut at = [None; 6];
        at[stage as usize] = Some(now);
        entry.1 = Some(StampRecord { key, at });
        StampId { slot: slot as u16, life: entry.0 }
    }

    /// Says that `stage` of a TLP ends with the current call; the next [`Stamps::mark`] gives it
    /// its time. More in one call than TLPs fit a frame are not stamped, and counted: a full list
    /// loses a stamp, never a TLP.
    pub fn ends(&mut self, id: StampId, stage: Stage) {
        self.lost += u64::from(self.pending.push((id, stage)).is_err());
    }

    /// Stages that were not stamped because too many ended in one call.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether [`Stamps::mark`] has anything to do: lets the caller not read its clock.
    pub fn wants_mark(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Gives every stage that ended since the last mark the time `now`.
    pub fn mark(&mut self, now: Instant) {
        for index in 0..self.pending.len() {
            let (id, stage) = self.pending[index];
            let record = self.record_mut(id).map(|record| {
                record.at[stage as usize] = Some(now);
                *record
            });
            if self.recorder.wants_stamps() && matches!(stage, Stage::Sent | Stage::Delivered) {
                match record {
                    Some(record) => self.recorder.stamps(id.bits(), &record),
                    None => self.recorder.lose(),
                }
            }
        }
        self.pending.clear();
    }

    /// The record of a handle, as long as no other TLP has its place in the ring.
    fn record_mut(&mut self, id: StampId) -> Option<&mut StampRecord> {
        let (life, record) = &mut self.ring[id.slot as usize];
        record.as_mut().filter(|_| *life == id.life)
    }

    /// As many places as there may be stamps, and what is in each: a stamp keeps its place as long as it
    /// is there.
    pub fn places(&self) -> impl Iterator<Item = Option<&StampRecord>> {
        self.ring.iter().map(|(_, record)| record.as_ref())
    }

    /// Forgets all stamps.
    pub fn clear(&mut self) {
        for entry in &mut self.ring {
            entry.1 = None;
        }
        self.pending.clear();
    }
}

const _: () = assert!(STAMP_RING <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use tlp_codec::ids::{Epoch, SlotFunction, SlotId};

    fn key(index: u16) -> StampKey {
        StampKey {
            peer: NodeId::new(1).unwrap(),
            binding: BindingKey {
                slot: SlotId::new(1).unwrap(),
                function: SlotFunction::ZERO,
                epoch: Epoch::new(0, 1).unwrap(),
            },
            from_host: true,
            tlp: StampedTlp::Request(OutstandingRef { index, generation: 0 }),
        }
    }

    fn posted(sequence: Option<u32>) -> StampKey {
        StampKey { tlp: StampedTlp::Posted(sequence), ..key(0) }
    }

    #[test]
    fn a_stage_gets_the_time_of_the_next_mark() {
        let mut stamps = Stamps::new();
        assert!(!stamps.wants_mark());
        stamps.arrived(key(7), Instant::from_nanos(10));
        assert!(stamps.wants_mark());
        stamps.mark(Instant::from_nanos(25));
        let record = stamps.places().flatten().next().unwrap();
        assert_eq!(record.at[0], Some(Instant::from_nanos(10)));
        assert_eq!(record.at[1], Some(Instant::from_nanos(25)));
        assert_eq!(record.at[2], None);
    }

    #[test]
    fn an_overwritten_entry_is_not_stamped_for_its_predecessor() {
        let mut stamps = Stamps::new();
        let old = stamps.arrived(posted(None), Instant::ZERO);
        for _ in 0..STAMP_RING {
            stamps.arrived(posted(None), Instant::ZERO);
        }
        stamps.mark(Instant::from_nanos(1));
        stamps.sent(old, 5, &[0; 12]);
        stamps.mark(Instant::from_nanos(99));
        assert!(stamps.places().flatten().all(|r| r.at[2].is_none() && r.key == posted(None)));
        assert_eq!(stamps.places().flatten().count(), STAMP_RING);
    }

    /// So that what is read in pages has each that is there all the time.
    #[test]
    fn a_stamp_keeps_its_place() {
        let mut stamps = Stamps::new();
        for index in 0..STAMP_RING {
            stamps.arrived(key(index as u16), Instant::ZERO);
        }
        let last = STAMP_RING - 1;
        stamps.arrived(posted(None), Instant::ZERO);
        let is_last =
            |record: Option<&StampRecord>| record.is_some_and(|r| r.key == key(last as u16));
        assert_eq!(stamps.places().position(is_last), Some(last));
        assert_eq!(stamps.places().count(), STAMP_RING);
    }

    #[test]
    fn a_posted_request_is_known_by_the_sequence_of_its_record() {
        let mut stamps = Stamps::new();
        let id = stamps.arrived(posted(None), Instant::ZERO);
        stamps.mark(Instant::from_nanos(1));
        stamps.sent(id, u32::MAX, &[0; 12]);
        stamps.mark(Instant::from_nanos(2));
        let record = stamps.places().flatten().next().unwrap();
        assert_eq!(record.key, posted(Some(u32::MAX)));
        assert_eq!(record.at[2], Some(Instant::from_nanos(2)));
    }

    #[test]
    fn one_in_n_samples_every_nth() {
        let mut stamps = Stamps::new();
        stamps.set_sampling(Sampling::OneIn(3));
        let hits: alloc::vec::Vec<bool> = (0..6).map(|_| stamps.sample()).collect();
        assert_eq!(hits, [false, false, true, false, false, true]);
    }
}
