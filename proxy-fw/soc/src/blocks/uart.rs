//! The console (`hw/regs/card.md`, "uart"): bytes go out.

use crate::board::Patience;
use card_regs::Bus;
use card_regs::uart::{Transmit, Uart as Block};
use core::fmt;

/// The console, at the bit rate that it has: 115200 bit/s after a reset.
#[derive(Clone, Copy, Debug)]
pub struct Console<'a, B> {
    block: Block<B>,
    patience: &'a Patience,
}

impl<'a, B: Bus + Copy> Console<'a, B> {
    /// The console of this block, with the patience of all who write to it: a logger has a byte at a
    /// time to say.
    pub const fn new(block: Block<B>, patience: &'a Patience) -> Self {
        Self { block, patience }
    }

    /// Sends bytes, and waits for room for each. Those for which none comes are lost.
    pub fn write_bytes(&self, bytes: &[u8]) {
        let Self { block, patience } = self;
        for byte in bytes {
            if patience.has_room(|| block.status().read().transmit_room() > 0) {
                block.transmit().write(Transmit::RESET.with_data(*byte));
            }
        }
    }
}

impl<B: Bus + Copy> fmt::Write for Console<'_, B> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for line in text.split_inclusive('\n') {
            match line.strip_suffix('\n') {
                Some(line) => {
                    self.write_bytes(line.as_bytes());
                    self.write_bytes(b"\r\n");
                }
                None => self.write_bytes(line.as_bytes()),
            }
        }
        Ok(())
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
        writeln!(Console::new(Block::at(&model, 0), &Patience::new()), "up").unwrap();
        assert_eq!(*model.sent.borrow(), b"up\r\n");
    }

    #[test]
    fn a_block_that_stands_still_holds_up_nobody() {
        let model = Model { stands_still: true, ..Model::default() };
        let patience = Patience::new();
        let say = |bytes: &[u8]| Console::new(Block::at(&model, 0), &patience).write_bytes(bytes);
        say(b"u");
        let once = model.asked.get();
        // As a logger does, a byte at a time.
        b"p, and more".iter().for_each(|byte| say(&[*byte]));
        assert_eq!(model.asked.get() - once, 11);
        assert_eq!(*model.sent.borrow(), b"");
    }
}
