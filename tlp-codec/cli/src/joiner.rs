//! Puts TLPs together that were split over several records.

use crate::recent::{Key, Recent};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use tlp_codec::crc;
use tlp_codec::fabric::{Header, SplitData, SplitHeader};

/// A TLP that is complete.
pub(crate) struct Joined {
    pub(crate) bytes: Vec<u8>,
    /// Where its first record was when it came first.
    pub(crate) from: Map<String, Value>,
}

/// TLPs of which not all has come, that are kept.
const PARTIAL: usize = 16 * 1024;

/// What there is of the TLPs that are not complete yet. Records may come in any order and more
/// than once, as a capture of a link with losses has them; each TLP is given once.
#[derive(Default)]
pub(crate) struct Joiner {
    partial: HashMap<Key, Partial>,
    /// Those that were begun, by their number.
    begun: BTreeMap<u64, Key>,
    /// The next one's number.
    next: u64,
    /// How many were given up, since too many others were begun and not completed either.
    given_up: u64,
    /// A part of one that comes again begins no other.
    complete: Recent,
}

#[derive(Default)]
struct Partial {
    /// Its number among those that were begun.
    number: u64,
    /// Total length, number of data records, CRC and place, once the header record was seen.
    start: Option<(usize, usize, u32, Map<String, Value>)>,
    /// Bytes by their offset; those of the header record at 0.
    pieces: BTreeMap<u16, Vec<u8>>,
}

impl Joiner {
    /// Takes in a header record.
    pub(crate) fn start(
        &mut self,
        header: &Header,
        sequence: u32,
        start: &SplitHeader<'_>,
        from: Map<String, Value>,
    ) -> Result<Option<Joined>, &'static str> {
        let key = Key::new(header, sequence);
        if self.complete.contains(&key) {
            return Ok(None);
        }
        let partial = self.begin(key);
        if partial.start.is_none() {
            partial.start = Some((start.total.into(), start.parts.into(), start.crc, from));
            partial.pieces.insert(0, start.bytes.to_vec());
        }
        self.complete(key)
    }

    /// Takes in a data record.
    pub(crate) fn more(
        &mut self,
        header: &Header,
        sequence: u32,
        more: &SplitData<'_>,
    ) -> Result<Option<Joined>, &'static str> {
        let key = Key::new(header, sequence.wrapping_sub(more.part.into()));
        if self.complete.contains(&key) {
            return Ok(None);
        }
        let partial = self.begin(key);
        partial.pieces.insert(more.offset, more.bytes.to_vec());
        self.complete(key)
    }

    /// What there is of one, and of no more than are kept: parts that a capture has not come never.
    fn begin(&mut self, key: Key) -> &mut Partial {
        if !self.partial.contains_key(&key) {
            if self.partial.len() == PARTIAL
                && let Some((_, oldest)) = self.begun.pop_first()
            {
                self.partial.remove(&oldest);
                self.given_up += 1;
            }
            self.begun.insert(self.next, key);
            self.partial.insert(key, Partial { number: self.next, ..Partial::default() });
            self.next += 1;
        }
        self.partial.entry(key).or_default()
    }

    /// What was never completed, for people.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let given_up = (self.given_up > 0).then(|| {
            format!("the capture has not all of {} split TLPs that came earlier", self.given_up)
        });
        let mut keys: Vec<&Key> = self.partial.keys().collect();
        keys.sort_unstable();
        let unfinished = keys.into_iter();
        let unfinished = unfinished
            .map(|key| format!("the capture has not all of the split TLP with {}", key.in_words()));
        given_up.into_iter().chain(unfinished).collect()
    }

    fn complete(&mut self, key: Key) -> Result<Option<Joined>, &'static str> {
        let Some(partial) = self.partial.get(&key) else { return Ok(None) };
        let Some((total, parts, crc, _)) = &partial.start else { return Ok(None) };
        let (total, parts, crc) = (*total, *parts, *crc);
        if partial.pieces.len() <= parts {
            return Ok(None);
        }
        let Some(Partial { number, start: Some((.., from)), pieces }) = self.partial.remove(&key)
        else {
            return Ok(None);
        };
        self.begun.remove(&number);
        // Right or not, it came.
        self.complete.remember(key);
        let mut bytes = Vec::with_capacity(total);
        for (offset, piece) in pieces {
            if usize::from(offset) != bytes.len() {
                return Err("the parts of a split TLP do not fit together");
            }
            bytes.extend_from_slice(&piece);
        }
        if bytes.len() != total {
            return Err("the parts of a split TLP are not as long as its header says");
        }
        if crc::tlp(&bytes) != crc {
            return Err("a split TLP's CRC is wrong in right frames");
        }
        Ok(Some(Joined { bytes, from }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recent::tests::key_of;

    #[test]
    fn what_never_ends_is_given_up_after_a_while() {
        let mut joiner = Joiner::default();
        for sequence in 0..=2 * PARTIAL as u32 {
            joiner.begin(key_of(5, sequence));
        }
        assert_eq!((joiner.partial.len(), joiner.begun.len()), (PARTIAL, PARTIAL));
        let said = joiner.unfinished();
        assert!(said[0].contains(&format!("{} split TLPs", PARTIAL + 1)), "{}", said[0]);
    }
}
