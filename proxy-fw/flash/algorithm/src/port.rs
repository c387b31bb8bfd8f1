//! The card's SPI block, and the flash's window in memory.

use card_regs::Mmio;
use card_regs::spi::{Control, SIZE, Spi, Transmit};

use crate::Fault;

/// How often the block is asked for a byte that it was given to send: a byte takes 8 bits of at
/// most 65535 clocks.
const BYTE_POLLS: u32 = 1 << 20;

/// Moves bytes to a part and back.
pub trait Port {
    /// Takes the flash from its window in memory, for commands.
    fn close_window(&mut self);

    /// Gives it back.
    fn open_window(&mut self);

    /// Selects the part.
    fn select(&mut self);

    /// Deselects it.
    fn deselect(&mut self);

    /// Sends a byte and gives the one that came meanwhile.
    ///
    /// # Errors
    ///
    /// When none comes.
    fn exchange(&mut self, byte: u8) -> Result<u8, Fault>;
}

/// The SPI block of the register map (`hw/regs/card.md`, "spi"); the flash is at chip select 0.
#[derive(Debug)]
pub struct SpiPort(Spi<Mmio<SIZE>>);

impl SpiPort {
    /// The block at an address.
    ///
    /// # Safety
    ///
    /// The block is there, and nobody else uses it while this lives.
    #[must_use]
    pub unsafe fn new(address: usize) -> Self {
        // SAFETY: as the caller says; the block reads and writes no memory.
        Self(Spi::at(unsafe { Mmio::new(address) }, 0))
    }

    fn chip_select(&mut self, lines: u8) {
        // Chip selects change while no byte is under way.
        for _ in 0..BYTE_POLLS {
            if !self.0.status().read().busy() {
                break;
            }
        }
        self.0.control().write(Control::RESET.with_enable(true).with_chip_select(lines));
    }
}

impl Port for SpiPort {
    fn close_window(&mut self) {
        self.0.window().modify(|window| window.with_enable(false));
        // What another program has left in the FIFOs.
        self.0.control().write(Control::RESET);
        self.chip_select(0);
    }

    fn open_window(&mut self) {
        self.0.control().write(Control::RESET);
        self.0.window().modify(|window| window.with_enable(true));
    }

    fn select(&mut self) {
        self.chip_select(1);
    }

    fn deselect(&mut self) {
        self.chip_select(0);
    }

    fn exchange(&mut self, byte: u8) -> Result<u8, Fault> {
        self.0.transmit().write(Transmit::from_bits(byte.into()));
        for _ in 0..BYTE_POLLS {
            let received = self.0.receive().read();
            if received.valid() {
                return Ok(received.data());
            }
        }
        Err(Fault::Bus)
    }
}

/// Whether a range of memory has nothing but ones: whole words.
///
/// # Errors
///
/// When it has something else.
///
/// # Safety
///
/// The range is memory that nobody writes.
pub unsafe fn check_blank(address: u32, length: u32) -> Result<(), Fault> {
    let start = core::ptr::with_exposed_provenance::<u32>(address as usize);
    for word in 0..length as usize / 4 {
        // SAFETY: within the range; volatile, since what is there was just erased.
        if unsafe { start.add(word).read_volatile() } != u32::MAX {
            return Err(Fault::NotBlank);
        }
    }
    Ok(())
}
