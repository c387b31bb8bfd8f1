//! What a proxy may put into frames, by the terms under which a binding was lent: no more than its
//! limit, and by its paths. It reads the frames themselves, and looks at what is sent for the first
//! time; what is sent again takes any path and counts for no limit.

use super::{Verdict, Violation};
use proxy_core::control::{PathSet, Share};
use proxy_core::limits::TLP_BUFFER;
use proxy_core::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;
use tlp_codec::fabric::{Frame, FrameKind, Record, RecordAddress, TLP_OVERHEAD};
use tlp_codec::ids::{BindingKey, SlotId};

/// What a binding did not send in this time it may send later, all at once (control.md, `Share`).
const BURST: Duration = Duration::from_millis(10);
/// The longest TLP's record, bytes: so much can be saved up at any rate, and be sent beyond that.
const LONGEST: u64 = (TLP_BUFFER + TLP_OVERHEAD) as u64;
const SECOND: u128 = 1_000_000_000;

/// What was seen, to tell whether a run has what it is for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// TLPs after which a binding had to wait for its limit.
    pub(crate) limited: u64,
    /// TLPs of bindings that may use some of the paths and not all; of those, the ones that took
    /// another path, with a cause.
    pub(crate) chosen: u64,
    pub(crate) astray: u64,
    /// Times that a node was told of another number of paths while its link was up.
    pub(crate) changes: u64,
}

/// A limit as a bucket that runs out at the limit's rate by its sender's clock, and may not overflow.
#[derive(Clone, Copy, Debug)]
struct Meter {
    /// Bytes a second; 0: no limit.
    rate: u64,
    /// Bytes, times 10^9.
    level: u128,
    at: Instant,
}

impl Meter {
    /// What fits, in bytes: what may be saved up.
    fn saved(&self) -> u64 {
        ((u128::from(self.rate) * BURST.as_nanos() / SECOND) as u64).max(LONGEST)
    }

    /// So many bytes are sent. Whether it has to wait after them; `None`: it should have before.
    fn sent(&mut self, now: Instant, bytes: u64) -> Option<bool> {
        if self.rate == 0 {
            return Some(false);
        }
        let passed = now.saturating_since(self.at).as_nanos();
        self.at = now;
        self.level = self.level.saturating_sub(u128::from(self.rate) * passed);
        self.level += u128::from(bytes) * SECOND;
        let over = |bytes: u64| self.level > u128::from(bytes) * SECOND;
        (!over(self.saved() + LONGEST)).then(|| over(self.saved()))
    }
}

/// The terms of a binding in one direction.
#[derive(Clone, Copy, Debug)]
struct Lent {
    meter: Meter,
    paths: PathSet,
}

/// The life of either end, and the number of their link.
type Session = (u32, Option<u32>, u32);

/// What one node sends another.
#[derive(Debug, Default)]
struct Way {
    /// The sequence of the first record that was never sent, in the session between these lives.
    next: Option<(Session, u32)>,
    /// By which path the last frame of the other node came.
    came_by: u8,
    /// Paths there are, and which of them carry something, by the node's own word.
    count: usize,
    good: u8,
    up: bool,
    lent: BTreeMap<BindingKey, Lent>,
}

/// What all nodes send.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    ways: BTreeMap<(usize, usize), Way>,
    paths: usize,
    pub(crate) counts: Counts,
}

impl Wire {
    /// Between nodes with so many paths.
    pub(crate) fn new(paths: usize) -> Self {
        Self { paths, ..Self::default() }
    }

    fn way(&mut self, from: usize, to: usize) -> &mut Way {
        self.ways.entry((from, to)).or_default()
    }

    /// A node was told how many paths there are to another one.
    pub(crate) fn introduced(&mut self, node: usize, other: usize, paths: usize) {
        let count = paths.min(self.paths);
        let way = self.way(node, other);
        // Whether a path that is added carries anything has to be found out.
        way.good &= PathSet::first(way.count.min(count)).0;
        let changes = way.up && way.count != count;
        way.count = count;
        self.counts.changes += u64::from(changes);
    }

    /// A node took a binding, for what it sends another one.
    pub(crate) fn lent(
        &mut self,
        (node, other): (usize, usize),
        key: BindingKey,
        share: Share,
        paths: PathSet,
    ) {
        let meter = Meter { rate: share.limit, level: 0, at: Instant::ZERO };
        self.way(node, other).lent.insert(key, Lent { meter, paths });
    }

    /// A node's proxy died.
    pub(crate) fn died(&mut self, node: usize) {
        self.ways.retain(|(from, _), _| *from != node);
    }

    /// A node says that its link to another one is up, or down.
    pub(crate) fn link(&mut self, node: usize, other: usize, up: bool) {
        let way = self.way(node, other);
        way.up = up;
        // What opened it came by a path that works.
        way.good = if up { 1 << way.came_by } else { 0 };
    }

    /// A node says that a path to another one carries something, or nothing.
    pub(crate) fn path(&mut self, node: usize, other: usize, path: u8, good: bool) {
        let way = self.way(node, other);
        let known = PathSet::first(way.count).0;
        way.good = if good { way.good | 1 << path & known } else { way.good & !(1 << path) };
    }

    /// Links that are up and of which not all paths carry something: from, to, the good ones.
    pub(crate) fn lame(&self) -> Vec<(usize, usize, u8)> {
        let lame = |way: &Way| way.up && way.count > 1 && way.good != PathSet::first(way.count).0;
        let ways = self.ways.iter().filter(|(_, way)| lame(way));
        ways.map(|(&(from, to), way)| (from, to, way.good)).collect()
    }

    /// A frame came to a node.
    pub(crate) fn came(&mut self, from: usize, to: usize, path: u8) {
        self.way(to, from).came_by = path;
    }

    /// A node sends a frame.
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        (from, to): (usize, usize),
        bytes: &[u8],
    ) -> Verdict {
        let Ok(frame) = Frame::new_checked(bytes) else {
            return Err(Violation::new(6, "a proxy sends what is no frame"));
        };
        let header = frame.header();
        if header.kind != FrameKind::Data {
            return Ok(());
        }
        let lives = (header.source_incarnation, header.destination_incarnation);
        let session = (lives.0, lives.1, header.session);
        let way = self.ways.entry((from, to)).or_default();
        let mut next = match way.next {
            Some((of, next)) if of == session => next,
            _ => header.sequence,
        };
        for (number, record) in frame.records().enumerate() {
            let sequence = header.sequence.wrapping_add(number as u32);
            if (sequence.wrapping_sub(next) as i32) < 0 {
                continue;
            }
            next = sequence.wrapping_add(1);
            let (address, length) = match record {
                Ok(Record::Tlp(tlp)) => (tlp.address, tlp.tlp.len()),
                Ok(Record::SplitHeader(split)) => (split.address, split.total.into()),
                Ok(_) => continue,
                Err(_) => return Err(Violation::new(6, "a proxy sends what is no record")),
            };
            way.first_sent(now, address, length, header.path.get(), &mut self.counts)?;
        }
        way.next = Some((session, next));
        Ok(())
    }
}

impl Way {
    /// A TLP is sent for the first time.
    fn first_sent(
        &mut self,
        now: Instant,
        address: RecordAddress,
        length: usize,
        path: u8,
        counts: &mut Counts,
    ) -> Verdict {
        let slot =
            if address.source == SlotId::HOST { address.destination } else { address.source };
        let key = BindingKey { slot, function: address.function, epoch: address.epoch };
        let Some(lent) = self.lent.get_mut(&key) else {
            return Err(Violation::new(4, format!("{key:?} is sent by who has not taken it")));
        };
        let Some(waits) = lent.meter.sent(now, (length + TLP_OVERHEAD) as u64) else {
            let what =
                format!("{key:?} sends more than its limit, {} bytes a second", lent.meter.rate);
            return Err(Violation::new(5, what));
        };
        counts.limited += u64::from(waits);
        let all = PathSet::first(self.count).0;
        let wanted = lent.paths.0 & all;
        counts.chosen += u64::from(wanted != all);
        if wanted >> path & 1 == 0 {
            counts.astray += 1;
            if wanted & self.good != 0 {
                let what = format!(
                    "{key:?} is sent by path {path}; it is for {wanted:#b}, of which {:#b} are good",
                    wanted & self.good
                );
                return Err(Violation::new(4, what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlp_codec::ids::{Epoch, SlotFunction};

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    #[test]
    fn a_meter_overflows_when_more_is_sent_than_was_saved_up() {
        let mut meter = Meter { rate: 100_000_000, level: 0, at: Instant::ZERO };
        let most = 1_000_000 + LONGEST;
        assert_eq!(meter.sent(at(5_000), 1_000_000), Some(false));
        assert_eq!(meter.sent(at(5_000), LONGEST), Some(true));
        assert_eq!(meter.sent(at(5_000), 1), None);
        let mut meter = Meter { rate: 100_000_000, level: 0, at: Instant::ZERO };
        assert_eq!(meter.sent(at(5_000), most), Some(true));
        assert_eq!(meter.sent(at(5_010), 1_000), Some(true), "10 us later");
        assert_eq!(meter.sent(at(5_020), 1_001), None);
        let mut none = Meter { rate: 0, level: 0, at: Instant::ZERO };
        assert_eq!(none.sent(at(0), u64::MAX), Some(false));
    }

    #[test]
    fn a_path_outside_of_the_set_needs_a_set_without_a_good_one() {
        let slot = SlotId::new(1).unwrap();
        let (function, epoch) = (SlotFunction::ZERO, Epoch::new(0, 1).unwrap());
        let key = BindingKey { slot, function, epoch };
        let address = RecordAddress::from_box(&key);
        let mut wire = Wire::new(3);
        wire.introduced(1, 0, 3);
        wire.came(0, 1, 1);
        wire.link(1, 0, true);
        wire.lent((1, 0), key, Share::EVEN, PathSet(0b011));
        let mut counts = Counts::default();
        let mut send = |wire: &mut Wire, path| {
            wire.way(1, 0).first_sent(at(0), address, 100, path, &mut counts)
        };
        assert_eq!(send(&mut wire, 1), Ok(()));
        assert_eq!(send(&mut wire, 0), Ok(()), "not proven, but its own");
        assert_eq!(send(&mut wire, 2).unwrap_err().promise, 4, "path 1 is good");
        wire.path(1, 0, 1, false);
        assert_eq!(send(&mut wire, 2), Ok(()));
        wire.path(1, 0, 0, true);
        assert_eq!(send(&mut wire, 2).unwrap_err().promise, 4);
        wire.introduced(1, 0, 1);
        wire.introduced(1, 0, 3);
        wire.path(1, 0, 0, false);
        assert_eq!(send(&mut wire, 2), Ok(()));
        assert_eq!(wire.lame(), [(1, 0, 0)]);
        assert_eq!((counts.chosen, counts.astray), (6, 4));
    }
}
