//! Puts TLPs together that were split over several records.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use tlp_codec::crc;
use tlp_codec::fabric::{Header, SplitData, SplitHeader};
use tlp_codec::ids::NodeId;

/// A TLP that is complete.
pub(crate) struct Joined {
    pub(crate) bytes: Vec<u8>,
    /// Where its first record was.
    pub(crate) from: Map<String, Value>,
}

/// One record of one link. An end that restarts may take the session of its last life again, and
/// begins with the same sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    source: NodeId,
    destination: NodeId,
    incarnations: (u32, Option<u32>),
    session: u32,
    sequence: u32,
}

impl Key {
    /// The record with this sequence in a frame with this header.
    pub(crate) fn new(header: &Header, sequence: u32) -> Self {
        Self {
            source: header.source,
            destination: header.destination,
            incarnations: (header.source_incarnation, header.destination_incarnation),
            session: header.session,
            sequence,
        }
    }
}

/// TLPs that are remembered of a kind, some 50 bytes each. A link repeats what it sent a moment ago, and no link has half
/// as many records on their way.
const REMEMBERED: usize = 16 * 1024;

/// What there is of the TLPs that are not complete yet. Records may come in any order and more
/// than once, as a capture of a link with losses has them; each TLP is given once.
#[derive(Default)]
pub(crate) struct Joiner {
    partial: HashMap<Key, Partial>,
    /// Those that were begun, the oldest first; some of them are complete.
    begun: VecDeque<Key>,
    /// How many were given up, since so many came after them.
    given_up: u64,
    /// A part of one that comes again begins no other.
    complete: Recent,
}

/// The TLPs that came last.
#[derive(Default)]
pub(crate) struct Recent {
    keys: HashSet<Key>,
    in_order: VecDeque<Key>,
}

impl Recent {
    /// Remembers one, and says whether it was there already.
    pub(crate) fn came_before(&mut self, key: Key) -> bool {
        if self.keys.contains(&key) {
            return true;
        }
        self.remember(key);
        false
    }

    fn remember(&mut self, key: Key) {
        if self.in_order.len() == REMEMBERED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        self.keys.insert(key);
        self.in_order.push_back(key);
    }
}

#[derive(Default)]
struct Partial {
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
        if self.complete.keys.contains(&key) {
            return Ok(None);
        }
        let partial = self.begin(key);
        partial.start = Some((start.total.into(), start.parts.into(), start.crc, from));
        partial.pieces.insert(0, start.bytes.to_vec());
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
        if self.complete.keys.contains(&key) {
            return Ok(None);
        }
        let partial = self.begin(key);
        partial.pieces.insert(more.offset, more.bytes.to_vec());
        self.complete(key)
    }

    /// What there is of one, and of no more than are remembered: parts that a capture has not come never.
    fn begin(&mut self, key: Key) -> &mut Partial {
        if !self.partial.contains_key(&key) {
            self.begun.push_back(key);
            if self.begun.len() > REMEMBERED
                && let Some(oldest) = self.begun.pop_front()
                && self.partial.remove(&oldest).is_some()
            {
                self.given_up += 1;
                self.complete.remember(oldest);
            }
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
        let unfinished = unfinished.map(|Key { source, destination, sequence, .. }| {
            format!(
                "the capture has not all of the split TLP with sequence {sequence} from \
                     node {source} to node {destination}"
            )
        });
        given_up.into_iter().chain(unfinished).collect()
    }

    fn complete(&mut self, key: Key) -> Result<Option<Joined>, &'static str> {
        let Some(partial) = self.partial.get(&key) else { return Ok(None) };
        let Some((total, parts, crc, _)) = &partial.start else { return Ok(None) };
        let (total, parts, crc) = (*total, *parts, *crc);
        if partial.pieces.len() <= parts {
            return Ok(None);
        }
        let Some(Partial { start: Some((.., from)), pieces }) = self.partial.remove(&key) else {
            return Ok(None);
        };
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

    fn key(sequence: u32) -> Key {
        let [source, destination] = [1, 2].map(|number| NodeId::new(number).unwrap());
        Key { source, destination, incarnations: (1, Some(2)), session: 5, sequence }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut complete = Recent::default();
        let last = 3 * REMEMBERED as u32;
        (0..=last).for_each(|sequence| complete.remember(key(sequence)));
        assert_eq!((complete.keys.len(), complete.in_order.len()), (REMEMBERED, REMEMBERED));
        assert!(complete.keys.contains(&key(last)) && !complete.keys.contains(&key(0)));
    }

    #[test]
    fn what_never_ends_is_given_up_after_a_while() {
        let mut joiner = Joiner::default();
        for sequence in 0..=2 * REMEMBERED as u32 {
            joiner.begin(key(sequence));
        }
        assert_eq!((joiner.partial.len(), joiner.begun.len()), (REMEMBERED, REMEMBERED));
        let said = joiner.unfinished();
        assert!(said[0].contains(&format!("{} split TLPs", REMEMBERED + 1)), "{}", said[0]);
    }
}
