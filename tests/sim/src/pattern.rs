//! Contents that say which transfer they are of: each seed gives bytes like no other's.

use crate::random::mix;

/// Bytes of a word.
const WORD: usize = 8;

/// A word of the contents by its number.
fn word(seed: u64, number: usize) -> [u8; WORD] {
    mix(seed.wrapping_add(number as u64)).to_le_bytes()
}

/// Bytes before the first whole word of so many that begin at `at`.
fn lead(at: usize, length: usize) -> usize {
    (at.wrapping_neg() % WORD).min(length)
}

/// Fills a buffer.
pub(crate) fn fill(seed: u64, at: usize, out: &mut [u8]) {
    let (first, rest) = out.split_at_mut(lead(at, out.len()));
    first.copy_from_slice(&word(seed, at / WORD)[at % WORD..][..first.len()]);
    let (words, last) = rest.as_chunks_mut::<WORD>();
    let number = (at + first.len()) / WORD;
    for (place, number) in words.iter_mut().zip(number..) {
        *place = word(seed, number);
    }
    last.copy_from_slice(&word(seed, number + words.len())[..last.len()]);
}

/// Where a buffer first differs from what it should be, to a word.
pub(crate) fn differs(seed: u64, at: usize, data: &[u8]) -> Option<usize> {
    let (first, rest) = data.split_at(lead(at, data.len()));
    if *first != word(seed, at / WORD)[at % WORD..][..first.len()] {
        return Some(0);
    }
    let (words, last) = rest.as_chunks::<WORD>();
    let number = (at + first.len()) / WORD;
    let wrong = words.iter().zip(number..).position(|(found, number)| *found != word(seed, number));
    if let Some(wrong) = wrong {
        return Some(first.len() + wrong * WORD);
    }
    let right = *last == word(seed, number + words.len())[..last.len()];
    (!right).then_some(data.len() - last.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_as_the_whole() {
        let mut whole = [0; 100];
        fill(5, 3, &mut whole);
        assert_eq!(differs(5, 3, &whole), None);
        assert_eq!(differs(5, 20, &whole[17..61]), None);
        for (from, to) in (0..20).flat_map(|from| (from..100).map(move |to| (from, to))) {
            let mut part = [0; 100];
            fill(5, 3 + from, &mut part[..to - from]);
            assert_eq!(part[..to - from], whole[from..to]);
            assert_eq!(differs(5, 3 + from, &whole[from..to]), None);
        }
        for at in [0, 4, 5, 60, 99] {
            let mut other = whole;
            other[at] ^= 1;
            let found = differs(5, 3, &other).unwrap();
            assert!(found <= at && at < found + WORD, "{found} for {at}");
        }
        whole[50] ^= 1;
        assert_eq!(differs(5, 3, &whole).map(|at| at <= 50 && at > 40), Some(true));
        assert_ne!(differs(6, 3, &whole), None);
    }
}
