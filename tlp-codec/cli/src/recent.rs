//! Which records of a capture came lately, for each link.

use std::collections::HashMap;
use tlp_codec::fabric::Header;
use tlp_codec::ids::NodeId;

/// One direction of one link. An end that restarts may take the session of its last life again, and
/// begins with the same sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Direction {
    source: NodeId,
    destination: NodeId,
    incarnations: (u32, Option<u32>),
    session: u32,
}

/// One record of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    direction: Direction,
    sequence: u32,
}

impl Key {
    /// The record with this sequence in a frame with this header.
    pub(crate) fn new(header: &Header, sequence: u32) -> Self {
        let direction = Direction {
            source: header.source,
            destination: header.destination,
            incarnations: (header.source_incarnation, header.destination_incarnation),
            session: header.session,
        };
        Self { direction, sequence }
    }

    /// Which record it is, for people.
    pub(crate) fn in_words(&self) -> String {
        let Self { direction: Direction { source, destination, .. }, sequence } = self;
        format!("sequence {sequence} from node {source} to node {destination}")
    }
}

/// Directions of links that are remembered, of 16 KB each. A node has 32 peers at most: these are all
/// links of 16 boxes.
const DIRECTIONS: usize = 1024;

/// Records that came last, of each direction of each link: what others do meanwhile makes none of them
/// forgotten.
#[derive(Default)]
pub(crate) struct Recent {
    directions: HashMap<Direction, Sequences>,
    /// How many were remembered.
    count: u64,
}

impl Recent {
    /// Remembers one, and says whether it was there already.
    pub(crate) fn came_before(&mut self, key: Key) -> bool {
        let there = self.contains(&key);
        self.remember(key);
        there
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        let sequences = self.directions.get(&key.direction);
        sequences.is_some_and(|sequences| sequences.contains(key.sequence))
    }

    pub(crate) fn remember(&mut self, key: Key) {
        if self.directions.len() == DIRECTIONS && !self.directions.contains_key(&key.direction) {
            self.forget_the_most_silent();
        }
        self.count += 1;
        let sequences = self.directions.entry(key.direction);
        let sequences = sequences.or_insert_with(|| Sequences::before(key.sequence));
        sequences.insert(key.sequence);
        sequences.last = self.count;
    }

    fn forget_the_most_silent(&mut self) {
        let silent = self.directions.iter().min_by_key(|(_, sequences)| sequences.last);
        if let Some(silent) = silent.map(|(direction, _)| *direction) {
            self.directions.remove(&silent);
        }
    }
}

/// How far behind the last sequence one is still remembered. What is sent again is within the
/// receiver's window, of 65535 records at most, and a split TLP's first record may be as many behind
/// its others.
const REMEMBERED: u32 = 1 << 17;

/// The sequences of one direction of a link that came last.
struct Sequences {
    /// The one that is ahead of the others.
    foremost: u32,
    /// A bit for each that came, at its remainder.
    bits: Box<[u64]>,
    /// When the last one came: its number among all.
    last: u64,
}

impl Sequences {
    /// None yet, and the next one is this.
    fn before(sequence: u32) -> Self {
        Self { foremost: sequence, bits: vec![0; REMEMBERED as usize / 64].into(), last: 0 }
    }

    fn place(sequence: u32) -> (usize, u64) {
        ((sequence % REMEMBERED / 64) as usize, 1 << (sequence % 64))
    }

    /// Whether it is one of those that are remembered, or would be if it had come.
    fn is_near(&self, sequence: u32) -> bool {
        self.foremost.wrapping_sub(sequence) < REMEMBERED
    }

    fn contains(&self, sequence: u32) -> bool {
        let (word, bit) = Self::place(sequence);
        self.is_near(sequence) && self.bits[word] & bit != 0
    }

    fn insert(&mut self, sequence: u32) {
        if !self.is_near(sequence) {
            self.go_to(sequence);
        }
        let (word, bit) = Self::place(sequence);
        self.bits[word] |= bit;
    }

    /// Forgets those whose places are for the ones up to this now. What is far away begins anew, also
    /// far behind: a capture may be put together of others, the later one first.
    fn go_to(&mut self, sequence: u32) {
        let ahead = sequence.wrapping_sub(self.foremost);
        if ahead < REMEMBERED {
            for passed in 1..=ahead {
                let (word, bit) = Self::place(self.foremost.wrapping_add(passed));
                self.bits[word] &= !bit;
            }
        } else {
            self.bits.fill(0);
        }
        self.foremost = sequence;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Of a direction that has the number of its session.
    pub(crate) fn key_of(session: u32, sequence: u32) -> Key {
        let [source, destination] = [1, 2].map(|number| NodeId::new(number).unwrap());
        let direction = Direction { source, destination, incarnations: (1, Some(2)), session };
        Key { direction, sequence }
    }

    #[test]
    fn what_came_is_known_across_the_end_of_the_sequences() {
        let (mut recent, mut came) = (Recent::default(), HashSet::new());
        let mut random = 1_u32;
        for at in 0..4 * REMEMBERED {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let sequence = at.wrapping_sub(2 * REMEMBERED).wrapping_sub((random >> 8) % 100_000);
            assert_eq!(recent.came_before(key_of(5, sequence)), !came.insert(sequence), "{at}");
        }
        assert!(came.len() < 3 * REMEMBERED as usize, "many came again");
    }

    #[test]
    fn a_capture_may_go_back_and_begin_anew() {
        let mut recent = Recent::default();
        for sequence in [10_000_000, 10_000_001, 20, 21, 3_000_000_000] {
            assert!(!recent.came_before(key_of(5, sequence)), "{sequence}");
            assert!(recent.came_before(key_of(5, sequence)), "{sequence}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut recent = Recent::default();
        let links = DIRECTIONS as u32;
        (0..links).for_each(|session| recent.remember(key_of(session, 7)));
        // The first one goes on.
        recent.remember(key_of(0, 8));
        recent.remember(key_of(links, 7));
        assert_eq!(recent.directions.len(), DIRECTIONS);
        assert!(recent.contains(&key_of(0, 7)) && recent.contains(&key_of(links, 7)));
        assert!(!recent.contains(&key_of(1, 7)));
    }
}
