//! Outstanding non-posted requests: who asked, what is still owed, and until when.

use crate::canaries::{Canary, planted};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;
use tlp_codec::ids::{Bdf, OutstandingRef, Tag};
use tlp_codec::tlp::{Attributes, Class, CplStatus, EmitError, Kind, Packet, Repr, TlpType};

/// What is remembered of a non-posted request so that its completions can be checked, given back
/// their requester's identity, or made up when none comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// Requester ID as it came.
    pub requester: Bdf,
    /// Tag as it came.
    pub tag: Tag,
    traffic_class: u8,
    attributes: Attributes,
    locked: bool,
    retriable: bool,
    shape: Shape,
    remaining: u16,
    lower_address: u8,
}

/// What a request's completions look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Memory read: data, perhaps in several completions.
    Split,
    /// Data in one completion.
    Data,
    /// One completion without data.
    NoData,
}

/// Why a completion does not fit its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;

/// What a completion that fits does to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More completions are owed.
    Partial,
    /// This was the last.
    Final,
}

impl RequestInfo {
    /// From a request, or `None` if it is not a non-posted one.
    #[inline]
    pub fn of<T: AsRef<[u8]>>(request: &Packet<T>) -> Option<Self> {
        Self::of_borrowed(request.borrowed())
    }

    fn of_borrowed(request: Packet<&[u8]>) -> Option<Self> {
        let tlp_type = request.tlp_type();
        if tlp_type.class() != Some(Class::NonPosted) {
            return None;
        }
        let (shape, remaining, lower_address) = match tlp_type {
            TlpType::MRd | TlpType::MRdLk => {
                let (skip, count) = read_extent(&request);
                (Shape::Split, count, (request.address() as u8 & 0x7c) + skip)
            }
            TlpType::FetchAdd | TlpType::Swap => (Shape::Data, request.payload_len() as u16, 0),
            TlpType::Cas => (Shape::Data, request.payload_len() as u16 / 2, 0),
            TlpType::CfgRd0 | TlpType::CfgRd1 | TlpType::IORd => (Shape::Data, 4, 0),
            _ => (Shape::NoData, 4, 0),
        };
        Some(Self {
            requester: request.requester(),
            tag: request.tag(),
            traffic_class: request.traffic_class(),
            attributes: request.attributes(),
            locked: tlp_type == TlpType::MRdLk,
            retriable: matches!(
                tlp_type,
                TlpType::CfgRd0
                    | TlpType::CfgRd1
                    | TlpType::CfgWr0
                    | TlpType::CfgWr1
                    | TlpType::DMWr
            ),
            shape,
            remaining,
            lower_address: lower_address & 0x7f,
        })
    }

    /// Completions that are owed at most: a memory read's may end at each Read Completion Boundary.
    pub fn completions(&self) -> u16 {
        match self.shape {
            Shape::Split => {
                let behind = u16::from(self.lower_address) % BOUNDARY;
                (behind + self.byte_count()).div_ceil(BOUNDARY)
            }
            Shape::Data | Shape::NoData => 1,
        }
    }

    /// Checks a completion against what is owed and books it (PCIe 5.0 section 2.3.2).
    ///
    /// # Errors
    ///
    /// When it cannot belong to this request: data where none was asked for, other byte counts
    /// than are owed, or retry status for what is neither a configuration request nor a deferrable
    /// memory write (PCIe 6.0 section 2.3.1.1). Nothing is booked then.
    #[inline]
    pub fn accept<T: AsRef<[u8]>>(&mut self, completion: &Packet<T>) -> Result<Progress, Mismatch> {
        self.accept_borrowed(completion.borrowed())
    }

    fn accept_borrowed(&mut self, completion: Packet<&[u8]>) -> Result<Progress, Mismatch> {
        match completion.status() {
            CplStatus::Success => {}
            CplStatus::ConfigRetry if !self.retriable => return Err(Mismatch),
            // PCIe 5.0 section 2.2.9: data comes with success only.
            _ if completion.has_data() => return Err(Mismatch),
            _ => return Ok(Progress::Final),
        }
        match (self.shape, completion.has_data()) {
            (Shape::NoData, false) => Ok(Progress::Final),
            (Shape::Data, true) if completion.payload_len() == self.remaining as usize => {
                Ok(Progress::Final)
            }
            (Shape::Split, true) => self.accept_split(&completion),
            _ => Err(Mismatch),
        }
    }

    fn accept_split(&mut self, completion: &Packet<&[u8]>) -> Result<Progress, Mismatch> {
        if completion.byte_count() != self.remaining {
            return Err(Mismatch);
        }
        let skip = completion.lower_address() as usize & 3;
        let room = completion.payload_len().saturating_sub(skip);
        if room >= self.remaining as usize {
            // Trailing bytes fill up the last doubleword, never a further one.
            if room - self.remaining as usize >= 4 {
                return Err(Mismatch);
            }
            self.remaining = 0;
            return Ok(Progress::Final);
        }
        if room == 0 {
            return Err(Mismatch);
        }
        if planted(Canary::EndSplitEarly) {
            return Ok(Progress::Final);
        }
        self.remaining -= room as u16;
        self.lower_address = self.lower_address.wrapping_add(room as u8) & 0x7f;
        Ok(Progress::Partial)
    }

    /// The completion without data that ends this request: three doublewords (PCIe 5.0 section
    /// 2.2.9).
    pub fn completion(&self, completer: Bdf, status: CplStatus) -> [u8; 12] {
        let mut tlp = [0; 12];
        // How an error would be printed is kept out of a card this way.
        let Ok(12) = self.write_completion(completer, status, &[], &mut tlp) else {
            unreachable!("a completion without data has three doublewords")
        };
        tlp
    }

    /// Bytes that are still owed, 1 to 4096.
    pub fn byte_count(&self) -> u16 {
        self.remaining.max(1)
    }

    /// Writes a completion with all data that is owed, in whole doublewords.
    ///
    /// # Errors
    ///
    /// When `buf` is too short, or the data no whole doublewords.
    pub fn completion_with(
        &self,
        completer: Bdf,
        data: &[u8],
        buf: &mut [u8],
    ) -> Result<usize, EmitError> {
        self.write_completion(completer, CplStatus::Success, data, buf)
    }

    fn write_completion(
        &self,
        completer: Bdf,
        status: CplStatus,
        data: &[u8],
        buf: &mut [u8],
    ) -> Result<usize, EmitError> {
        let mut repr = Repr::new(Kind::Completion {
            completer,
            requester: if planted(Canary::RefuseAsNobody) {
                Bdf::from_bits(0)
            } else {
                self.requester
            },
            tag: self.tag,
            status,
            bcm: false,
            byte_count: self.byte_count(),
            lower_address: self.lower_address,
            locked: self.locked,
            data,
        });
        if !planted(Canary::ForgetClass) {
            repr.traffic_class = self.traffic_class;
        }
        repr.attributes = self.attributes;
        repr.emit(buf)
    }
}

/// The boundary at which a root complex may split completions that is the smallest one, in bytes
/// (Read Completion Boundary, PCIe 5.0 section 2.3.1.1).
const BOUNDARY: u16 = 64;

/// The most completions that any request has.
pub const MOST_COMPLETIONS: usize = 4096 / BOUNDARY as usize + 1;

/// Completions that a request has at most, wherever it begins; quicker than to know it.
pub fn completions_at_most(request: &[u8]) -> usize {
    match Packet::new_checked(request) {
        Ok(packet) if matches!(packet.tlp_type(), TlpType::MRd | TlpType::MRdLk) => {
            usize::from(packet.length_dw() * 4).div_ceil(BOUNDARY.into()) + 1
        }
        _ => 1,
    }
}

/// Bytes skipped at the front, and the byte count of a memory read's completions (PCIe 5.0
/// section 2.3.1.1, tables 2-43 and 2-44). A read of no bytes counts one.
fn read_extent(request: &Packet<&[u8]>) -> (u8, u16) {
    let total = request.length_dw() * 4;
    if request.has_hints() && !planted(Canary::IgnoreHints) {
        // The steering tag is in the byte enables' place; all bytes are enabled.
        return (0, total);
    }
    let enables = request.byte_enables();
    if enables.first == 0 {
        return (0, 1);
    }
    let front = enables.first.trailing_zeros() as u16;
    let last = if request.length_dw() == 1 { enables.first } else { enables.last };
    let back = (last << 4).leading_zeros() as u16;
    (front as u8, total.saturating_sub(front + back).max(1))
}

#[derive(Clone, Copy, Debug)]
enum State<T> {
    Free {
        next: Option<u16>,
    },
    Live {
        deadline: Instant,
        entry: T,
    },
    /// Given up on; the index is not used again until all that was owed came late, or until
    /// [`Table::release_quarantine`].
    Quarantined {
        entry: T,
    },
}

/// What becomes of an entry whose time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterExpiry {
    /// Its index may be used again: the generation tells late answers from new ones.
    Free,
    /// Its index is a tag that a late answer could still carry.
    Quarantine,
}

/// A table of outstanding requests with fixed room. The index of an entry is also the tag or the
/// wire index of the request; the generation changes with each use.
///
/// The index that was free for longest is used first, so that an answer that comes twice finds
/// nobody waiting under its tag for as long as can be.
pub struct Table<T> {
    entries: Box<[(u16, State<T>)]>,
    /// First and last of the free indexes.
    free: Option<(u16, u16)>,
    live: usize,
    quarantined: usize,
    earliest: Instant,
}

impl<T: Copy> Table<T> {
    /// Room for so many requests, at most 65535.
    #[inline(never)] // it is done once: short code counts
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0 && capacity < u16::MAX as usize);
        let mut entries = Vec::with_capacity(capacity);
        for index in 0..capacity {
            let next = (index + 1 < capacity).then_some(index as u16 + 1);
            entries.push((0, State::Free { next }));
        }
        Self {
            entries: entries.into_boxed_slice(),
            free: Some((0, capacity as u16 - 1)),
            live: 0,
            quarantined: 0,
            earliest: Instant::FAR_FUTURE,
        }
    }

    /// Whether there is room for one more.
    pub fn has_room(&self) -> bool {
        self.free.is_some()
    }

    /// How many more requests fit.
    pub fn room(&self) -> usize {
        self.entries.len() - self.live - self.quarantined
    }

    /// How many requests are outstanding.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Indexes that are out of use until [`Table::release_quarantine`].
    pub fn quarantined(&self) -> usize {
        self.quarantined
    }

    /// Puts a request in; `None` when the table is full.
    pub fn insert(&mut self, deadline: Instant, entry: T) -> Option<OutstandingRef> {
        let (index, last) = self.free?;
        let slot = &mut self.entries[index as usize];
        let State::Free { next } = slot.1 else { panic!("free list holds an entry in use") };
        self.free = next.map(|next| (next, last));
        slot.0 = slot.0.wrapping_add(1);
        slot.1 = State::Live { deadline, entry };
        self.live += 1;
        self.earliest = self.earliest.min(deadline);
        Some(OutstandingRef { index, generation: slot.0 })
    }

    /// The request that `reference` means, if it is still outstanding.
    pub fn get_mut(&mut self, reference: OutstandingRef) -> Option<&mut T> {
        match self.entries.get_mut(reference.index as usize)? {
            (generation, State::Live { entry, .. }) if *generation == reference.generation => {
                Some(entry)
            }
            _ => None,
        }
    }

    /// When the time of the request that `reference` means is over, if it is still outstanding.
    pub fn deadline(&self, reference: OutstandingRef) -> Option<Instant> {
        match self.entries.get(reference.index as usize)? {
            (generation, State::Live { deadline, .. }) if *generation == reference.generation => {
                Some(*deadline)
            }
            _ => None,
        }
    }

    /// Goes through all requests, also those that are in quarantine.
    pub fn for_each(&mut self, mut change: impl FnMut(&mut T)) {
        for (_, state) in &mut self.entries {
            match state {
                State::Live { entry, .. } | State::Quarantined { entry } => change(entry),
                State::Free { .. } => {}
            }
        }
    }

    /// The outstanding request at `index`, whatever its generation: for tags, which have none.
    pub fn at_index(&self, index: u16) -> Option<(OutstandingRef, &T)> {
        match self.entries.get(index as usize)? {
            (generation, State::Live { entry, .. }) => {
                Some((OutstandingRef { index, generation: *generation }, entry))
            }
            _ => None,
        }
    }

    /// Takes a request out; its index is free again.
    pub fn remove(&mut self, reference: OutstandingRef) -> Option<T> {
        let entry = *self.get_mut(reference)?;
        self.put_back(reference.index);
        self.live -= 1;
        Some(entry)
    }

    fn put_back(&mut self, index: u16) {
        self.entries[index as usize].1 = State::Free { next: None };
        let first = match self.free {
            None => index,
            Some((first, last)) => {
                self.entries[last as usize].1 = State::Free { next: Some(index) };
                first
            }
        };
        self.free = Some((first, index));
    }

    /// When the next entry may run out. May be early, never late.
    pub fn earliest_deadline(&self) -> Option<Instant> {
        (self.live > 0).then_some(self.earliest)
    }

    /// Takes out one entry whose time is over at `now`.
    pub fn pop_expired(&mut self, now: Instant, after: AfterExpiry) -> Option<(OutstandingRef, T)> {
        if self.live == 0 || now < self.earliest || planted(Canary::DropCompletionTimer) {
            return None;
        }
        let mut earliest = Instant::FAR_FUTURE;
        for index in 0..self.entries.len() {
            let (generation, State::Live { deadline, entry }) = self.entries[index] else {
                continue;
            };
            if deadline > now {
                earliest = earliest.min(deadline);
                continue;
            }
            let reference = OutstandingRef { index: index as u16, generation };
            self.give_up(reference, after);
            return Some((reference, entry));
        }
        self.earliest = earliest;
        None
    }

    /// Takes out any one entry that `which` wants.
    pub fn pop_where(
        &mut self,
        after: AfterExpiry,
        mut which: impl FnMut(&T) -> bool,
    ) -> Option<(OutstandingRef, T)> {
        if self.live == 0 {
            return None;
        }
        for index in 0..self.entries.len() {
            let (generation, State::Live { entry, .. }) = self.entries[index] else { continue };
            if which(&entry) {
                let reference = OutstandingRef { index: index as u16, generation };
                self.give_up(reference, after);
                return Some((reference, entry));
            }
        }
        None
    }

    fn give_up(&mut self, reference: OutstandingRef, after: AfterExpiry) {
        self.live -= 1;
        let after = if planted(Canary::ReuseQuarantinedTag) { AfterExpiry::Free } else { after };
        match after {
            AfterExpiry::Free => self.put_back(reference.index),
            AfterExpiry::Quarantine => {
                let state = &mut self.entries[reference.index as usize].1;
                if let State::Live { entry, .. } = *state {
                    *state = State::Quarantined { entry };
                    self.quarantined += 1;
                }
            }
        }
    }

    /// A request that is outstanding is given up on: its index is out of use until what is owed has
    /// come late.
    pub fn quarantine(&mut self, reference: OutstandingRef) {
        self.give_up(reference, AfterExpiry::Quarantine);
    }

    /// The request at `index` that was given up on: what comes for it is late, and tells how much
    /// more may come.
    pub fn late_mut(&mut self, index: u16) -> Option<&mut T> {
        match &mut self.entries.get_mut(index as usize)?.1 {
            State::Quarantined { entry } => Some(entry),
            _ => None,
        }
    }

    /// Takes one quarantined index back into use, because the last of its late answers has come.
    /// Nothing happens when it is not quarantined.
    pub fn release_one(&mut self, index: u16) {
        if self.is_quarantined(index) {
            self.put_back(index);
            self.quarantined -= 1;
        }
    }

    /// Lets one entry run out at `now`.
    pub fn expire(&mut self, reference: OutstandingRef, now: Instant) {
        self.earliest = self.earliest.min(now);
        if self.get_mut(reference).is_some()
            && let State::Live { deadline, .. } = &mut self.entries[reference.index as usize].1
        {
            *deadline = (*deadline).min(now);
        }
    }

    /// Lets every entry run out at `now` that `which` wants: nobody is left to answer.
    pub fn expire_where(&mut self, now: Instant, mut which: impl FnMut(&T) -> bool) {
        for (_, state) in &mut self.entries {
            if let State::Live { deadline, entry } = state
                && which(entry)
            {
                *deadline = (*deadline).min(now);
                self.earliest = self.earliest.min(now);
            }
        }
    }

    /// Whether `index` is quarantined: an answer that carries it is late.
    pub fn is_quarantined(&self, index: u16) -> bool {
        matches!(self.entries.get(index as usize), Some((_, State::Quarantined { .. })))
    }

    /// Forgets every entry, quarantined ones too.
    pub fn clear(&mut self) {
        while self.pop_where(AfterExpiry::Free, |_| true).is_some() {}
        self.release_quarantine();
        self.earliest = Instant::FAR_FUTURE;
    }

    /// Makes all quarantined indexes usable again: whoever could have answered late was reset.
    pub fn release_quarantine(&mut self) {
        self.release_quarantine_where(|_| true);
    }

    /// The same, of those that `which` wants.
    pub fn release_quarantine_where(&mut self, mut which: impl FnMut(&T) -> bool) {
        for index in 0..self.entries.len() as u16 {
            if let State::Quarantined { entry } = &self.entries[index as usize].1
                && which(entry)
            {
                self.put_back(index);
                self.quarantined -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlp_codec::tlp::ByteEnables;

    /// A completion of this status, with so many doublewords, for a read of two.
    fn answered(status: CplStatus, dwords: usize) -> Result<Progress, Mismatch> {
        let mut buf = [0; 64];
        let (requester, tag) = (Bdf::from_bits(0x300), Tag::new(5).unwrap());
        let enables = ByteEnables::all(2);
        let (hint, locked) = (None, false);
        let read =
            Kind::MemRead { requester, tag, address: 64, length_dw: 2, enables, hint, locked };
        let length = Repr::new(read).emit(&mut buf).unwrap();
        let read = Packet::new_checked(&buf[..length]).unwrap();
        let mut info = RequestInfo::of(&read).unwrap();
        let mut buf = [0; 64];
        let data = &[7; 8][..dwords.min(2) * 4];
        info.write_completion(requester, status, data, &mut buf).unwrap();
        // Nobody writes what is too long for its byte count.
        buf[3] = dwords as u8;
        info.accept(&Packet::new_checked(&buf[..12 + dwords * 4]).unwrap())
    }

    #[test]
    fn data_comes_with_success_and_failure_without() {
        assert_eq!(answered(CplStatus::Success, 2), Ok(Progress::Final));
        assert_eq!(answered(CplStatus::Success, 0), Err(Mismatch));
        assert_eq!(answered(CplStatus::Success, 3), Err(Mismatch), "a doubleword too much");
        for status in [CplStatus::UnsupportedRequest, CplStatus::CompleterAbort] {
            assert_eq!(answered(status, 0), Ok(Progress::Final));
            assert_eq!(answered(status, 2), Err(Mismatch));
        }
    }

    #[test]
    fn configuration_and_deferrable_writes_may_be_asked_for_again() {
        let (requester, tag, data) = (Bdf::from_bits(0x300), Tag::new(5).unwrap(), &[0; 64][..]);
        let (hint, enables, first_be) = (None, ByteEnables::all(16), 0xf);
        let deferrable =
            Kind::DeferrableMemWrite { requester, tag, address: 64, enables, hint, data };
        let plain = Kind::IoWrite { requester, tag, address: 64, first_be, data: &data[..4] };
        for (kind, expected) in [(deferrable, Ok(Progress::Final)), (plain, Err(Mismatch))] {
            let (mut buf, mut answer) = ([0; 96], [0; 96]);
            let length = Repr::new(kind).emit(&mut buf).unwrap();
            let mut info = RequestInfo::of(&Packet::new_checked(&buf[..length]).unwrap()).unwrap();
            let retry = CplStatus::ConfigRetry;
            let length = info.write_completion(requester, retry, &[], &mut answer).unwrap();
            let answer = Packet::new_checked(&answer[..length]).unwrap();
            assert_eq!(info.accept(&answer), expected);
        }
    }

    #[test]
    fn an_index_comes_round_as_late_as_can_be() {
        let mut table = Table::new(3);
        let at = Instant::FAR_FUTURE;
        let first = table.insert(at, 'a').unwrap();
        assert_eq!(table.remove(first), Some('a'));
        let next: alloc::vec::Vec<u16> =
            core::iter::from_fn(|| table.insert(at, 'b')).map(|r| r.index).collect();
        assert_eq!(next, [1, 2, 0]);
        assert!(!table.has_room());
        let two = table.at_index(2).unwrap().0;
        table.remove(two);
        assert_eq!((table.room(), table.insert(at, 'c').unwrap().index), (1, 2));
        assert!(!table.has_room());
    }

    #[test]
    fn some_of_what_is_out_of_use_comes_back() {
        let mut table = Table::new(4);
        for entry in 0..4 {
            let given = table.insert(Instant::ZERO, entry).unwrap();
            table.quarantine(given);
        }
        table.release_quarantine_where(|entry| entry % 2 == 1);
        assert_eq!((table.quarantined(), table.room()), (2, 2));
        assert_eq!(
            [0, 1, 2, 3].map(|index| table.is_quarantined(index)),
            [true, false, true, false]
        );
        let again = [4, 5].map(|entry| table.insert(Instant::ZERO, entry).unwrap().index);
        assert_eq!((again, table.has_room()), ([1, 3], false));
        table.release_quarantine();
        assert_eq!((table.quarantined(), table.room()), (0, 2));
    }
}
