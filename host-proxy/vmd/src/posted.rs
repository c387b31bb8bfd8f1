//! Writes and interrupts that wait for the machine: those that go by message, and what comes
//! behind them.

use crate::guest::Guest;
use std::collections::VecDeque;

/// How many may wait. An adapter with no room for what one TLP may need takes no TLP.
pub const POSTED: usize = 256;

/// Room that one TLP may need: a write whose byte enables leave holes is several.
pub(crate) const RESERVE: usize = 8;

/// Bytes of one write.
const LONGEST: usize = proxy_core::limits::MAX_PAYLOAD_OFFERED;

enum Waiting {
    Write { address: u64, data: Vec<u8> },
    Signal(u16),
}

/// The queue. What is in it goes out in order.
#[derive(Default)]
pub(crate) struct Posted {
    waiting: VecDeque<Waiting>,
}

impl Posted {
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() + RESERVE <= POSTED
    }

    /// A write by message.
    pub(crate) fn write(&mut self, address: u64, data: &[u8], guest: &mut impl Guest) {
        assert!(data.len() <= LONGEST && self.waiting.len() < POSTED, "the caller saw room");
        if !self.flush(guest) || !guest.begin_write(address, data) {
            self.waiting.push_back(Waiting::Write { address, data: data.to_vec() });
        }
    }

    /// An interrupt that is a write: one that waits already need not wait twice, the machine
    /// would take both as one.
    pub(crate) fn interrupt(&mut self, address: u64, data: u32, guest: &mut impl Guest) {
        let bytes = data.to_le_bytes();
        let same = |waiting: &Waiting| matches!(waiting, Waiting::Write { address: at, data } if *at == address && data[..] == bytes);
        if self.waiting.back().is_none_or(|last| !same(last)) {
            self.write(address, &bytes, guest);
        }
    }

    /// One of the adapter's own vectors.
    pub(crate) fn signal(&mut self, vector: u16, guest: &mut impl Guest) {
        assert!(self.waiting.len() < POSTED, "the caller saw room");
        if self.flush(guest) {
            guest.signal(vector);
        } else {
            self.waiting.push_back(Waiting::Signal(vector));
        }
    }

    /// Sends what can be sent; whether nothing waits any more.
    pub(crate) fn flush(&mut self, guest: &mut impl Guest) -> bool {
        while let Some(first) = self.waiting.front() {
            match first {
                Waiting::Write { address, data } => {
                    if !guest.begin_write(*address, data) {
                        return false;
                    }
                }
                Waiting::Signal(vector) => guest.signal(*vector),
            }
            self.waiting.pop_front();
        }
        true
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }
}
