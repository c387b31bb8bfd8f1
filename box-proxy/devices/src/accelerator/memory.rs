//! Device memory: a ring of bytes.

use super::regs::pattern_word;

pub(super) struct Memory {
    bytes: Box<[u8]>,
}

impl Memory {
    pub(super) fn new(size: u64) -> Self {
        Self { bytes: vec![0; size as usize].into() }
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn clear(&mut self) {
        self.bytes.fill(0);
    }

    /// The bytes from `at` on (going around) up to `len` or the end of the memory.
    pub(super) fn run(&self, at: u64, len: u64) -> &[u8] {
        let at = at % self.len();
        let end = at.saturating_add(len).min(self.len());
        &self.bytes[at as usize..end as usize]
    }

    /// Writes from `at` on, going around.
    pub(super) fn put(&mut self, at: u64, mut data: &[u8]) {
        let mut at = (at % self.len()) as usize;
        while !data.is_empty() {
            let len = data.len().min(self.bytes.len() - at);
            self.bytes[at..at + len].copy_from_slice(&data[..len]);
            (data, at) = (&data[len..], 0);
        }
    }
}

/// Bytes `from..from + len` of the pattern.
pub(super) fn pattern(seed: u64, from: u64, len: usize) -> Vec<u8> {
    let skip = (from % 8) as usize;
    let words = (from / 8..).take((skip + len).div_ceil(8));
    let mut bytes: Vec<u8> = words.flat_map(|k| pattern_word(seed, k).to_le_bytes()).collect();
    bytes.drain(..skip);
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_splitmix64() {
        // Vigna's splitmix64.c with x = 0 gives these first.
        assert_eq!(pattern_word(0, 0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(pattern_word(0, 1), 0x6e78_9e6a_a1b9_65f4);
        let whole = pattern(7, 0, 100);
        for (from, len) in [(0, 1), (7, 2), (8, 8), (13, 50), (99, 1)] {
            assert_eq!(pattern(7, from as u64, len), whole[from..from + len]);
        }
    }

    #[test]
    fn memory_is_a_ring() {
        let mut m = Memory::new(16);
        m.put(14, &[1, 2, 3]);
        assert_eq!((m.run(14, 9), m.run(16, 2)), (&[1, 2][..], &[3, 0][..]));
        m.put(0, &[9; 40]);
        assert_eq!(m.run(32, 100), [9; 16]);
    }
}
