//! The SPI bus to the NOR flash (`hw/regs/card.md`, "spi"): one device on one chip select.

use card_regs::Bus;
use card_regs::spi::{Control, Divider, Spi as Block, Transmit};
use embedded_hal::delay::DelayNs;
use embedded_hal::spi::{ErrorKind, ErrorType, Operation, SpiDevice};

/// How often the block is asked whether a byte is over: 8 bits at a thousandth of its clock, many
/// times over.
const POLLS: u32 = 1_000_000;

/// Bytes that are under way at most: what the least receive FIFO has room for (`spi.status`).
const UNDER_WAY: usize = 16;

/// The block does not come to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpiStuck;

impl embedded_hal::spi::Error for SpiStuck {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

impl core::fmt::Display for SpiStuck {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the SPI block does not come to an end")
    }
}

/// A device on the bus, in SPI mode 0.
///
/// While it lives the window in memory through which the flash is read is closed: nothing may run
/// from there. When it is dropped the window is as it was before.
#[derive(Debug)]
pub struct SpiPort<B: Bus + Copy, D> {
    block: Block<B>,
    delay: D,
    select: u8,
    window: card_regs::spi::Window,
}

impl<B: Bus + Copy, D> SpiPort<B, D> {
    /// The device on chip select `number`, at the peripherals' clock divided by `ratio`, an even
    /// number from 2 on.
    ///
    /// # Panics
    ///
    /// When there is no such chip select, or no such ratio: the board's constants are wrong.
    pub fn new(block: Block<B>, delay: D, number: u8, ratio: u16) -> Self {
        assert!(number < 8, "there are 8 chip selects");
        assert!(ratio >= 2 && ratio.is_multiple_of(2), "an even number from 2 on");
        let window = block.window().read();
        block.window().write(window.with_enable(false));
        block.divider().write(Divider::RESET.with_ratio(ratio));
        block.control().write(Control::RESET.with_enable(true));
        Self { block, delay, select: 1 << number, window }
    }

    fn chip_select(&self, selected: bool) {
        let select = if selected { self.select } else { 0 };
        let control = Control::RESET.with_enable(true).with_chip_select(select);
        self.block.control().write(control);
    }

    /// Sends `length` bytes, of which `out` gives each, and hands each that comes to `back`.
    fn pass(
        &self,
        length: usize,
        mut out: impl FnMut(usize) -> u8,
        mut back: impl FnMut(usize, u8),
    ) -> Result<(), SpiStuck> {
        let (mut sent, mut came, mut idle) = (0, 0, 0);
        while came < length {
            let status = self.block.status().read();
            let room = usize::from(status.transmit_room()).min(UNDER_WAY - (sent - came));
            let more = room.min(length - sent);
            for at in sent..sent + more {
                self.block.transmit().write(Transmit::RESET.with_data(out(at)));
            }
            sent += more;
            let there = usize::from(status.receive_level()).min(length - came);
            for at in came..came + there {
                back(at, self.block.receive().read().data());
            }
            came += there;
            idle = if more + there == 0 { idle + 1 } else { 0 };
            if idle == POLLS {
                return Err(SpiStuck);
            }
        }
        Ok(())
    }

    /// Chip select changes only while no byte is under way.
    fn settle(&self) -> Result<(), SpiStuck> {
        let over = (0..POLLS).any(|_| !self.block.status().read().busy());
        over.then_some(()).ok_or(SpiStuck)
    }
}

impl<B: Bus + Copy, D> Drop for SpiPort<B, D> {
    fn drop(&mut self) {
        self.block.control().write(Control::RESET);
        self.block.window().write(self.window);
    }
}

impl<B: Bus + Copy, D> ErrorType for SpiPort<B, D> {
    type Error = SpiStuck;
}

impl<B: Bus + Copy, D: DelayNs> SpiDevice for SpiPort<B, D> {
    fn transaction(&mut self, operations: &mut [Operation<'_, u8>]) -> Result<(), SpiStuck> {
        self.chip_select(true);
        let mut ended = Ok(());
        for operation in operations {
            ended = match operation {
                Operation::Read(bytes) => {
                    self.pass(bytes.len(), |_| 0, |at, byte| bytes[at] = byte)
                }
                Operation::Write(bytes) => self.pass(bytes.len(), |at| bytes[at], |_, _| {}),
                Operation::Transfer(read, write) => {
                    let length = read.len().max(write.len());
                    let out = |at: usize| write.get(at).copied().unwrap_or(0);
                    self.pass(length, out, |at, byte| {
                        if let Some(to) = read.get_mut(at) {
                            *to = byte;
                        }
                    })
                }
                Operation::TransferInPlace(bytes) => {
                    let bytes = core::cell::Cell::from_mut(&mut **bytes).as_slice_of_cells();
                    let out = |at: usize| bytes[at].get();
                    self.pass(bytes.len(), out, |at, byte| bytes[at].set(byte))
                }
                Operation::DelayNs(ns) => {
                    let settled = self.settle();
                    self.delay.delay_ns(*ns);
                    settled
                }
            };
            if ended.is_err() {
                break;
            }
        }
        let ended = ended.and_then(|()| self.settle());
        if ended.is_err() {
            // Both FIFOs are empty behind this.
            self.block.control().write(Control::RESET);
        }
        self.chip_select(false);
        ended
    }
}

#[cfg(test)]
mod tests;
