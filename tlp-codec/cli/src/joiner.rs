//! Puts TLPs together that were split over several records.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use tlp_codec::crc;
use tlp_codec::fabric::{Header, SplitData, SplitHeader};
use tlp_codec::ids::NodeId;

/// A TLP that is complete.
pub(crate) struct Joined {
    pub(crate) bytes: Vec<u8>,
    /// Where its first record was.
    pub(crate) from: Map<String, Value>,
}

/// Source, destination, session and link sequence of the header record.
type Key = (NodeId, NodeId, u32, u32);

/// What there is of the TLPs that are not complete yet. Records may come in any order and more
/// than once, as a capture of a link with losses has them.
#[derive(Default)]
pub(crate) struct Joiner {
    partial: HashMap<Key, Partial>,
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
        let key = (header.source, header.destination, header.session, sequence);
        let partial = self.partial.entry(key).or_default();
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
        let first = sequence.wrapping_sub(more.part.into());
        let key = (header.source, header.destination, header.session, first);
        let partial = self.partial.entry(key).or_default();
        partial.pieces.insert(more.offset, more.bytes.to_vec());
        self.complete(key)
    }

    /// What was never completed, for people.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let mut keys: Vec<&Key> = self.partial.keys().collect();
        keys.sort_unstable();
        keys.into_iter()
            .map(|(source, destination, _, sequence)| {
                format!(
                    "the capture has not all of the split TLP with sequence {sequence} from \
                     node {source} to node {destination}"
                )
            })
            .collect()
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
