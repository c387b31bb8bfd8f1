//! The machine's flash: bank 0, behind the driver for its command set.

use crate::clint;
use crate::layout::{BOARD, ERASE_BLOCK, FLASH, FLASH_BASE, LAYOUT, MEMORY};
use core::convert::Infallible;
use embedded_hal::delay::DelayNs;
use soc::board::wait_by;
use soc::flash::FlashError;
use soc::flash::cfi::{Bus32, CfiFlash};
use soc::slots::Images;

/// The images that it has.
pub(crate) const IMAGES: Images = Images { board: BOARD, layout: LAYOUT, memory: MEMORY };

/// The bank's wires. It is memory while it is only read.
pub(crate) struct Bank;

impl Bank {
    fn address(offset: u32) -> *mut u32 {
        assert!(offset < FLASH && offset.is_multiple_of(4), "the driver stays inside the bank");
        (FLASH_BASE + offset) as usize as *mut u32
    }
}

impl Bus32 for Bank {
    fn read(&mut self, offset: u32) -> u32 {
        // SAFETY: an aligned word of the bank, where nothing else than flash is.
        unsafe { Self::address(offset).read_volatile() }
    }

    fn write(&mut self, offset: u32, value: u32) {
        // SAFETY: as in `read`; no code runs from flash, and nothing of it is borrowed.
        unsafe { Self::address(offset).write_volatile(value) }
    }
}

/// Waits by the machine's timer.
pub(crate) struct Wait;

impl DelayNs for Wait {
    fn delay_ns(&mut self, ns: u32) {
        wait_by(clint::now, ns);
    }
}

/// The flash.
pub(crate) type Flash = CfiFlash<Bank, Wait, { ERASE_BLOCK as usize }>;

/// Why the flash does not do something.
pub(crate) type Error = FlashError<Infallible>;

/// Asks the flash what it is.
pub(crate) fn open() -> Result<Flash, Error> {
    CfiFlash::new(Bank, Wait)
}
