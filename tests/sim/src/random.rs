//! Pseudorandom numbers: one seed, and from it a stream of its own for each thing that draws.
//!
//! Streams are named, not handed out in turn: taking one fault or one burst of work out of a
//! schedule leaves every other draw as it was. That is what makes a failing schedule shrink.

/// SplitMix64 (Steele, Lea, Flood: *Fast splittable pseudorandom number generators*, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// The finaliser of SplitMix64: every bit of the argument reaches every bit of the result.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A hash of a hash and bytes; not one that resists somebody who wants two to be the same. Four
/// words at a time do not wait for each other.
pub(crate) fn fold(hash: u64, bytes: &[u8]) -> u64 {
    const LANES: usize = 4;
    let step = |hash: u64, word: &[u8; 8]| {
        (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let (blocks, words) = words.as_chunks::<LANES>();
    let mut lanes = [hash, !hash, hash.rotate_left(16), hash.rotate_left(48)];
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block) {
            *lane = step(*lane, word);
        }
    }
    let [mut hash, others @ ..] = lanes;
    if !blocks.is_empty() {
        hash = others.iter().fold(hash, |hash, lane| step(hash, &lane.to_le_bytes()));
    }
    hash = words.iter().fold(hash, step);
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    step(hash ^ (bytes.len() as u64) << 56, &last)
}

/// What draws numbers. The discriminant is part of the stream's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawer {
    Schedule = 1,
    Port,
    Burst,
    Root,
    Stall,
    Manager,
    Answer,
    Attributes,
    Terms,
    RootStall,
    RootAnswers,
    Clock,
    Layout,
    Hold,
    Access,
    Dress,
    Leases,
}

impl Random {
    /// The stream of one drawer in the run of one seed.
    pub(crate) fn stream(seed: u64, drawer: Drawer, index: u64) -> Self {
        let named =
            mix(seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_add(mix((drawer as u64) << 48 ^ index));
        Self(mix(named))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True so many times in a million.
    pub(crate) fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// One of them, by weight; nothing when all weigh nothing.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(T, u32)]) -> Option<T> {
        let total: u64 = choices.iter().map(|c| u64::from(c.1)).sum();
        if total == 0 {
            return None;
        }
        let mut at = self.below(total);
        for &(choice, weight) in choices {
            if at < u64::from(weight) {
                return Some(choice);
            }
            at -= u64::from(weight);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_do_not_depend_on_each_other_and_differ() {
        let first: Vec<u64> = {
            let mut stream = Random::stream(7, Drawer::Port, 3);
            (0..8).map(|_| stream.next()).collect()
        };
        let mut other = Random::stream(7, Drawer::Port, 4);
        let mut again = Random::stream(7, Drawer::Port, 3);
        let mut otherwise = Random::stream(8, Drawer::Port, 3);
        let mut kind = Random::stream(7, Drawer::Burst, 3);
        other.next();
        assert!(first.iter().all(|n| *n == again.next()));
        assert!(first.iter().all(|n| *n != other.next()));
        assert!(first.iter().all(|n| *n != otherwise.next() && *n != kind.next()));
    }

    #[test]
    fn draws_are_within_their_bounds() {
        let mut stream = Random::stream(1, Drawer::Root, 0);
        for _ in 0..10_000 {
            assert!(stream.below(7) < 7);
            assert!((3..=5).contains(&stream.between(3, 5)));
            assert!(!stream.chance(0) && stream.chance(1_000_000));
            assert_ne!(stream.weighted(&[('a', 0), ('b', 3), ('c', 1)]), Some('a'));
        }
        assert_eq!(stream.weighted(&[('a', 0)]), None);
    }
}
