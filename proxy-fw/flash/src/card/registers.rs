//! The registers of the card's SPI block, through the probe. Each is a round trip.

use card_regs::Bus;
use card_regs::spi::Spi;
use probe_rs::{Core, MemoryInterface};

use super::FlashFault;

/// Offsets in the block. They are the map's; its values say what is in them.
pub(super) struct At;

/// Only tells where registers are: nothing is accessed through it.
#[derive(Clone, Copy)]
struct Nowhere;

impl Bus for Nowhere {
    fn read32(&self, _: u32) -> u32 {
        unreachable!("only addresses are asked for")
    }

    fn write32(&self, _: u32, _: u32) {
        unreachable!("only addresses are asked for")
    }
}

impl At {
    const BLOCK: Spi<Nowhere> = Spi::at(Nowhere, 0);

    pub(super) fn control() -> u32 {
        Self::BLOCK.control().address()
    }

    pub(super) fn transmit() -> u32 {
        Self::BLOCK.transmit().address()
    }

    pub(super) fn receive() -> u32 {
        Self::BLOCK.receive().address()
    }

    pub(super) fn status() -> u32 {
        Self::BLOCK.status().address()
    }

    pub(super) fn window() -> u32 {
        Self::BLOCK.window().address()
    }

    pub(super) fn window_base() -> u32 {
        Self::BLOCK.window_base().address()
    }
}

/// The block of a card.
pub(super) struct Registers<'a, 'card> {
    core: &'a mut Core<'card>,
    spi: u32,
    /// The first thing that went wrong with the probe; registers read 0 from then on.
    failed: Option<FlashFault>,
}

impl<'a, 'card> Registers<'a, 'card> {
    /// The block at an address.
    pub(super) fn new(core: &'a mut Core<'card>, spi: u32) -> Self {
        Self { core, spi, failed: None }
    }

    /// Whether something went wrong with the probe.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// What went wrong with the probe.
    pub(super) fn outcome(self) -> Result<(), FlashFault> {
        self.failed.map_or(Ok(()), Err)
    }

    pub(super) fn read(&mut self, register: u32) -> u32 {
        if self.failed.is_some() {
            return 0;
        }
        let word = self.core.read_word_32(u64::from(self.spi + register));
        word.unwrap_or_else(|error| {
            self.failed = Some(error.into());
            0
        })
    }

    pub(super) fn write(&mut self, register: u32, value: u32) {
        if self.failed.is_some() {
            return;
        }
        if let Err(error) = self.core.write_word_32(u64::from(self.spi + register), value) {
            self.failed = Some(error.into());
        }
    }
}
