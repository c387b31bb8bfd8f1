//! The flash at the SPI block: one part, at chip select 0.

use std::time::Duration;

use nor_model::{Nor, Part, SpiNor};

use super::super::TICK_NANOS;
use super::super::spi::Parts;

/// The part: 16 MB with sectors of 4 KB.
pub const PART: Part = Part::W25Q128;

#[derive(Debug)]
pub(super) struct Flash {
    part: SpiNor,
    /// Until when time has passed for it.
    ticks: u64,
}

impl Flash {
    pub(super) fn new() -> Self {
        Self { part: SpiNor::new(Nor::new(PART, 1)), ticks: 0 }
    }

    fn pass_until(&mut self, ticks: u64) {
        let passed = Duration::from_nanos((ticks - self.ticks) * TICK_NANOS);
        self.ticks = ticks;
        self.part.nor.advance(passed);
    }

    pub(super) fn nor(&mut self, ticks: u64) -> &mut Nor {
        self.pass_until(ticks);
        &mut self.part.nor
    }

    /// The part's reset: what goes on is torn.
    pub(super) fn reset(&mut self, ticks: u64) {
        self.pass_until(ticks);
        self.part.power_off();
        self.part.power_on();
    }

    /// A byte as the window has it. A part that is busy drives nothing.
    pub(super) fn byte(&mut self, offset: u32, ticks: u64) -> u8 {
        let mut byte = [0xff];
        let read = self.nor(ticks).read(offset, &mut byte);
        if read.is_ok() { byte[0] } else { 0xff }
    }
}

impl Parts for Flash {
    fn select(&mut self, before: u32, now: u32, ticks: u64) {
        if (before ^ now) & 1 == 0 {
            return;
        }
        self.pass_until(ticks);
        if now & 1 != 0 { self.part.select() } else { self.part.deselect() }
    }

    fn exchange(&mut self, selected: u32, byte: u8, ticks: u64) -> u8 {
        self.pass_until(ticks);
        if selected & 1 != 0 { self.part.exchange(byte) } else { 0xff }
    }
}
