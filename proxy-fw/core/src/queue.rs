//! A queue of whole TLPs with fixed storage.

use crate::limits::OWN_TLP;
use alloc::boxed::Box;
use alloc::vec;

/// First in, first out; [`TlpQueue::push`] says no when it is full. Each TLP has at most `LONGEST`
/// bytes: by default what a proxy says of itself.
pub struct TlpQueue<const LONGEST: usize = OWN_TLP> {
    bytes: Box<[[u8; LONGEST]]>,
    lengths: Box<[u16]>,
    head: usize,
    count: usize,
}

impl<const LONGEST: usize> TlpQueue<LONGEST> {
    /// Room for so many TLPs.
    #[inline(never)] // it is done once: short code counts
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a queue without room");
        Self {
            bytes: vec![[0; LONGEST]; capacity].into_boxed_slice(),
            lengths: vec![0; capacity].into_boxed_slice(),
            head: 0,
            count: 0,
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many more TLPs fit.
    pub fn room(&self) -> usize {
        self.lengths.len() - self.count
    }

    /// Appends a TLP; `false` when there is no room or it is too long for a buffer.
    #[must_use]
    pub fn push(&mut self, tlp: &[u8]) -> bool {
        if self.room() == 0 || tlp.len() > LONGEST {
            return false;
        }
        let at = (self.head + self.count) % self.lengths.len();
        self.bytes[at][..tlp.len()].copy_from_slice(tlp);
        self.lengths[at] = tlp.len() as u16;
        self.count += 1;
        true
    }

    /// The oldest TLP.
    pub fn front(&self) -> Option<&[u8]> {
        (self.count > 0).then(|| &self.bytes[self.head][..self.lengths[self.head] as usize])
    }

    /// Takes the oldest TLP into `buf`, and says how long it is. `buf` holds `LONGEST` bytes.
    pub fn pop(&mut self, buf: &mut [u8]) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let length = self.lengths[self.head] as usize;
        buf[..length].copy_from_slice(&self.bytes[self.head][..length]);
        self.head = (self.head + 1) % self.lengths.len();
        self.count -= 1;
        Some(length)
    }

    /// Forgets the oldest TLP, if there is one.
    pub fn drop_front(&mut self) {
        if self.count > 0 {
            self.head = (self.head + 1) % self.lengths.len();
            self.count -= 1;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.count = 0;
    }
}

impl<const LONGEST: usize> crate::switch::TlpSink for TlpQueue<LONGEST> {
    fn push(&mut self, tlp: &[u8]) -> bool {
        Self::push(self, tlp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_says_when_it_is_full() {
        let mut queue = TlpQueue::<8>::new(2);
        assert!(queue.push(&[1, 2, 3]));
        assert!(queue.push(&[4]));
        assert!(!queue.push(&[5]));
        let mut buf = [0; 8];
        assert_eq!(queue.pop(&mut buf), Some(3));
        assert_eq!(&buf[..3], [1, 2, 3]);
        assert!(queue.push(&[6, 7]));
        assert_eq!(queue.pop(&mut buf), Some(1));
        assert_eq!(queue.pop(&mut buf), Some(2));
        assert_eq!(queue.pop(&mut buf), None);
        assert!(!queue.push(&[0; 8 + 1]));
    }
}
