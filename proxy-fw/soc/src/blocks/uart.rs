//! The console (`hw/regs/card.md`, "uart"): bytes go out.

use card_regs::Bus;
use card_regs::uart::{Transmit, Uart as Block};
use core::fmt;

/// How often the block is asked for room for one byte. A byte takes less than a millisecond at any
/// bit rate in use; a UART without a clock must not hold up what has something to say.
const POLLS: u32 = 1_000_000;

/// The console, at the bit rate that it has: 115200 bit/s after a reset.
#[derive(Clone, Copy, Debug)]
pub struct Console<B>(Block<B>);

impl<B: Bus + Copy> Console<B> {
    /// The console of this block.
    pub const fn new(block: Block<B>) -> Self {
        Self(block)
    }

    /// Sends bytes, and waits for room for each. When none comes the rest is lost; whether all went.
    pub fn write_bytes(&self, bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| {
            let has_room = (0..POLLS).any(|_| self.0.status().read().transmit_room() > 0);
            if has_room {
                self.0.transmit().write(Transmit::RESET.with_data(*byte));
            }
            has_room
        })
    }
}

impl<B: Bus + Copy> fmt::Write for Console<B> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut went = true;
        for line in text.split_inclusive('\n') {
            // What stands still is waited for once.
            went = went
                && match line.strip_suffix('\n') {
                    Some(line) => self.write_bytes(line.as_bytes()) && self.write_bytes(b"\r\n"),
                    None => self.write_bytes(line.as_bytes()),
                };
        }
        if went { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};
    use core::fmt::Write;
    use std::vec::Vec;

    /// The block: it has room for a byte at every third question.
    #[derive(Default)]
    struct Model {
        asked: Cell<u32>,
        stands_still: bool,
        sent: RefCell<Vec<u8>>,
    }

    impl Bus for Model {
        fn read32(&self, offset: u32) -> u32 {
            assert_eq!(offset, 0x08);
            self.asked.set(self.asked.get() + 1);
            u32::from(self.asked.get().is_multiple_of(3) && !self.stands_still)
        }

        fn write32(&self, offset: u32, value: u32) {
            assert_eq!(offset, 0x00);
            assert!(self.asked.get().is_multiple_of(3), "lost: there is no room");
            self.sent.borrow_mut().push(value as u8);
        }
    }

    #[test]
    fn text_goes_out_as_there_is_room() {
        let model = Model::default();
        writeln!(Console::new(Block::at(&model, 0)), "up").unwrap();
        assert_eq!(*model.sent.borrow(), b"up\r\n");
    }

    #[test]
    fn a_block_that_stands_still_holds_up_nobody() {
        let model = Model { stands_still: true, ..Model::default() };
        Console::new(Block::at(&model, 0)).write_bytes(b"up");
        assert_eq!(*model.sent.borrow(), b"");
    }
}
