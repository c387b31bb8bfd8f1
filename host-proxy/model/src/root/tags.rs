//! The root complex's outstanding requests: 8-bit tags and what each waits for.

use std::time::Instant;
use tlp_codec::ids::Tag;
use tlp_codec::tlp::{CplStatus, Kind};

/// Tags in all (8-bit; a root complex that wants 10 bits has to know that every completer below
/// returns them, PCIe 5.0 section 2.2.6.2).
pub(crate) const TAGS: usize = 256;

/// What a request expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Data of a memory read: from this address on, so many bytes.
    Memory { address: u64, len: usize },
    /// One doubleword of a configuration or I/O read.
    Dword,
    /// No data.
    Nothing,
}

/// How a request ended, if not well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Unsupported,
    Abort,
    Retry,
    Poisoned,
    Malformed,
    Timeout,
}

enum Entry {
    Free,
    Pending {
        expect: Expect,
        data: Vec<u8>,
        deadline: Instant,
    },
    Done(Result<Vec<u8>, Failure>),
    /// Timed out: a late completion must not be taken for one of a later request.
    Quarantined {
        until: Instant,
    },
}

/// What a completion was to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matched {
    /// It belongs to a request.
    Yes,
    /// It came for a request that timed out.
    Late,
    /// Nothing waits for it.
    Unexpected,
}

pub(crate) struct TagTable {
    entries: Vec<Entry>,
    next: usize,
}

impl TagTable {
    pub(crate) fn new() -> Self {
        Self { entries: (0..TAGS).map(|_| Entry::Free).collect(), next: 0 }
    }

    /// A free tag for a request; tags are used in turn, so that one rests before it comes again.
    pub(crate) fn open(&mut self, expect: Expect, now: Instant, deadline: Instant) -> Option<Tag> {
        let start = self.next;
        let at = (0..TAGS).map(|n| (start + n) % TAGS).find(|at| match self.entries[*at] {
            Entry::Free => true,
            Entry::Quarantined { until } => until <= now,
            Entry::Pending { .. } | Entry::Done(_) => false,
        })?;
        self.next = (at + 1) % TAGS;
        self.entries[at] = Entry::Pending { expect, data: Vec::new(), deadline };
        Some(Tag::new(at as u16).expect("eight bits are a tag"))
    }

    fn entry(&mut self, tag: Tag) -> Option<&mut Entry> {
        self.entries.get_mut(usize::from(tag.get()))
    }

    /// Frees a tag whose request was never sent.
    pub(crate) fn cancel(&mut self, tag: Tag) {
        if let Some(entry) = self.entry(tag) {
            *entry = Entry::Free;
        }
    }

    /// When the request of a tag times out, if it is pending.
    pub(crate) fn deadline(&mut self, tag: Tag) -> Option<Instant> {
        match self.entry(tag) {
            Some(Entry::Pending { deadline, .. }) => Some(*deadline),
            _ => None,
        }
    }

    /// The request's end, if it has ended; the tag is free then.
    pub(crate) fn take(&mut self, tag: Tag) -> Option<Result<Vec<u8>, Failure>> {
        let entry = self.entry(tag)?;
        if !matches!(entry, Entry::Done(_)) {
            return None;
        }
        match std::mem::replace(entry, Entry::Free) {
            Entry::Done(result) => Some(result),
            _ => None,
        }
    }

    /// Gives a pending request up and keeps its tag out of use.
    pub(crate) fn time_out(&mut self, tag: Tag, until: Instant) {
        if let Some(entry @ Entry::Pending { .. }) = self.entry(tag) {
            *entry = Entry::Quarantined { until };
        }
    }

    /// Requests without an end.
    pub(crate) fn pending(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry, Entry::Pending { .. })).count()
    }

    /// Takes a completion that names this root complex as requester.
    pub(crate) fn complete(&mut self, completion: &Kind<'_>, poisoned: bool) -> Matched {
        let Kind::Completion { tag, status, byte_count, lower_address, data: part, .. } =
            *completion
        else {
            return Matched::Unexpected;
        };
        let Some(entry) = self.entry(tag) else { return Matched::Unexpected };
        let (expect, data) = match entry {
            Entry::Pending { expect, data, .. } => (*expect, data),
            // A completion that ends the request makes the tag safe again; one of several parts
            // may be followed by others, so the quarantine stays.
            Entry::Quarantined { .. } => {
                if part.is_empty() || usize::from(byte_count) <= part.len() {
                    *entry = Entry::Free;
                }
                return Matched::Late;
            }
            Entry::Free | Entry::Done(_) => return Matched::Unexpected,
        };
        let step = match failure(status, poisoned) {
            Some(failure) => Err(failure),
            None => append(expect, data, byte_count.into(), lower_address, part),
        };
        match step {
            Ok(false) => {}
            Ok(true) => {
                let data = std::mem::take(data);
                *entry = Entry::Done(Ok(data));
            }
            Err(failure) => *entry = Entry::Done(Err(failure)),
        }
        Matched::Yes
    }
}

fn failure(status: CplStatus, poisoned: bool) -> Option<Failure> {
    match status {
        CplStatus::Success => poisoned.then_some(Failure::Poisoned),
        CplStatus::CompleterAbort => Some(Failure::Abort),
        CplStatus::ConfigRetry => Some(Failure::Retry),
        // A reserved status is handled as Unsupported Request (PCIe 5.0 section 2.2.9).
        CplStatus::UnsupportedRequest | CplStatus::Unknown(_) => Some(Failure::Unsupported),
    }
}

/// Adds a completion's data to what is there already; whether that was all.
fn append(
    expect: Expect,
    data: &mut Vec<u8>,
    byte_count: usize,
    lower_address: u8,
    part: &[u8],
) -> Result<bool, Failure> {
    match expect {
        Expect::Nothing if part.is_empty() => Ok(true),
        Expect::Dword if part.len() == 4 => {
            data.extend_from_slice(part);
            Ok(true)
        }
        Expect::Memory { address, len } => {
            let at = address + data.len() as u64;
            let remaining = len - data.len();
            // PCIe 5.0 section 2.3.1.1: byte count is what remains, lower address where it starts.
            if byte_count != remaining || u64::from(lower_address) != at & 0x7f {
                return Err(Failure::Malformed);
            }
            let skip = (at & 3) as usize;
            let here = part.len().saturating_sub(skip).min(remaining);
            if here == 0 {
                return Err(Failure::Malformed);
            }
            data.extend_from_slice(&part[skip..skip + here]);
            Ok(here == remaining)
        }
        Expect::Nothing | Expect::Dword => Err(Failure::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tlp_codec::ids::Bdf;

    fn completion(tag: Tag, byte_count: u16, lower_address: u8, data: &[u8]) -> Kind<'_> {
        let id = Bdf::default();
        let (bcm, locked, status) = (false, false, CplStatus::Success);
        Kind::Completion {
            completer: id,
            requester: id,
            tag,
            status,
            bcm,
            byte_count,
            lower_address,
            locked,
            data,
        }
    }

    fn open(table: &mut TagTable, address: u64, len: usize) -> Tag {
        let now = Instant::now();
        table.open(Expect::Memory { address, len }, now, now + Duration::from_secs(1)).unwrap()
    }

    #[test]
    fn split_completions_are_joined() {
        let mut table = TagTable::new();
        let tag = open(&mut table, 0x103e, 69);
        let first = [0xee, 0xee, 1, 2];
        assert_eq!(table.complete(&completion(tag, 69, 0x3e, &first), false), Matched::Yes);
        assert!(table.take(tag).is_none());
        let second = [7; 64];
        table.complete(&completion(tag, 67, 0x40, &second), false);
        assert!(table.take(tag).is_none());
        table.complete(&completion(tag, 3, 0x00, &[8, 9, 10, 0xee]), false);
        let data = table.take(tag).unwrap().unwrap();
        assert_eq!((data.len(), data[0], data[2], data[68]), (69, 1, 7, 10));
    }

    #[test]
    fn what_does_not_fit_ends_the_request_as_malformed() {
        for (byte_count, lower) in [(8, 0), (4, 4), (3, 0)] {
            let mut table = TagTable::new();
            let tag = open(&mut table, 0x1000, 4);
            table.complete(&completion(tag, byte_count, lower, &[0; 4]), false);
            assert_eq!(table.take(tag), Some(Err(Failure::Malformed)));
        }
    }

    #[test]
    fn nothing_completes_twice() {
        let mut table = TagTable::new();
        let tag = open(&mut table, 0, 4);
        assert_eq!(table.complete(&completion(tag, 4, 0, &[0; 4]), false), Matched::Yes);
        assert_eq!(table.complete(&completion(tag, 4, 0, &[9; 4]), false), Matched::Unexpected);
        assert_eq!(table.take(tag), Some(Ok(vec![0; 4])));
    }

    #[test]
    fn a_tag_that_timed_out_rests_until_its_completion_or_its_time() {
        let mut table = TagTable::new();
        let now = Instant::now();
        let later = now + Duration::from_secs(10);
        let tag = open(&mut table, 0, 4);
        table.time_out(tag, later);
        let others: Vec<Tag> =
            (0..TAGS - 1).map(|_| table.open(Expect::Nothing, now, later).unwrap()).collect();
        assert!(!others.contains(&tag));
        assert_eq!(table.open(Expect::Nothing, now, later), None);
        assert_eq!(table.complete(&completion(tag, 4, 0, &[0; 4]), false), Matched::Late);
        assert_eq!(table.open(Expect::Nothing, now, later), Some(tag));
        table.time_out(tag, later);
        assert_eq!(table.open(Expect::Nothing, later, later), Some(tag));
    }
}
