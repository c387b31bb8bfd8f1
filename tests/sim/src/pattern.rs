//! Contents that say which transfer they are of: each seed gives bytes like no other's.

use crate::random::mix;

/// Fills a buffer.
pub(crate) fn fill(seed: u64, at: usize, out: &mut [u8]) {
    each(seed, at, out.len(), |range, bytes| out[range].copy_from_slice(bytes));
}

/// Where a buffer first differs from what it should be.
pub(crate) fn differs(seed: u64, at: usize, data: &[u8]) -> Option<usize> {
    let mut wrong = None;
    each(seed, at, data.len(), |range, bytes| {
        if wrong.is_none() && data[range.clone()] != *bytes {
            wrong = Some(range.start);
        }
    });
    wrong
}

fn each(seed: u64, from: usize, length: usize, mut act: impl FnMut(std::ops::Range<usize>, &[u8])) {
    let mut done = 0;
    while done < length {
        let at = from + done;
        let word = mix(seed.wrapping_add((at / 8) as u64)).to_le_bytes();
        let part = &word[at % 8..];
        let count = part.len().min(length - done);
        act(done..done + count, &part[..count]);
        done += count;
    }
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
        whole[50] ^= 1;
        assert_eq!(differs(5, 3, &whole).map(|at| at <= 50 && at > 40), Some(true));
        assert_ne!(differs(6, 3, &whole), None);
    }
}
