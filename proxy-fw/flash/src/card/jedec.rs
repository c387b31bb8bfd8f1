//! Who the flash is, asked by the probe itself through the card's SPI block: nothing is loaded into
//! the card's memory, and its program goes on where it was.

use card_regs::Bus;
use card_regs::spi::{Control, Spi, Status, Transmit, Window};
use flash_algorithm::Fault;
use flash_algorithm::flash::Flash;
use flash_algorithm::port::Port;
use probe_rs::{Core, MemoryInterface};

use super::FlashFault;
use super::HALT_TIMEOUT;

/// Offsets in the block. They are the map's; its values say what is in them.
struct At;

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

    fn control() -> u32 {
        Self::BLOCK.control().address()
    }

    fn transmit() -> u32 {
        Self::BLOCK.transmit().address()
    }

    fn receive() -> u32 {
        Self::BLOCK.receive().address()
    }

    fn status() -> u32 {
        Self::BLOCK.status().address()
    }

    fn window() -> u32 {
        Self::BLOCK.window().address()
    }
}

/// Asks for the flash's ID while the core is halted for a moment. `None` when the program was
/// using the flash, which is then left alone.
pub(super) fn jedec_id(core: &mut Core<'_>, spi: u32) -> Result<Option<[u8; 3]>, FlashFault> {
    let was_halted = core.core_halted()?;
    if !was_halted {
        core.halt(HALT_TIMEOUT)?;
    }
    let asked = ask(core, spi);
    if !was_halted {
        core.run()?;
    }
    asked
}

fn ask(core: &mut Core<'_>, spi: u32) -> Result<Option<[u8; 3]>, FlashFault> {
    let mut port = ProbePort { core, spi, failed: None };
    let window = Window::from_bits(port.read(At::window()));
    let control = Control::from_bits(port.read(At::control()));
    let status = Status::from_bits(port.read(At::status()));
    let idle = window.enable() && control.chip_select() == 0 && !status.busy();
    if port.failed.is_none() && !idle {
        return Ok(None);
    }
    // The size of blocks does not matter for this.
    let mut flash = Flash::new(port, 0);
    let id = flash.jedec_id();
    let mut port = flash.release();
    port.write(At::control(), control.bits());
    match port.failed {
        Some(fault) => Err(fault),
        None => id.map(Some).map_err(FlashFault::Part),
    }
}

/// The SPI block through the probe. A register is a round trip, so only for short commands.
struct ProbePort<'a, 'card> {
    core: &'a mut Core<'card>,
    spi: u32,
    /// The first thing that went wrong with the probe; registers read 0 from then on.
    failed: Option<FlashFault>,
}

impl ProbePort<'_, '_> {
    fn read(&mut self, register: u32) -> u32 {
        if self.failed.is_some() {
            return 0;
        }
        let word = self.core.read_word_32(u64::from(self.spi + register));
        word.unwrap_or_else(|error| {
            self.failed = Some(error.into());
            0
        })
    }

    fn write(&mut self, register: u32, value: u32) {
        if self.failed.is_some() {
            return;
        }
        if let Err(error) = self.core.write_word_32(u64::from(self.spi + register), value) {
            self.failed = Some(error.into());
        }
    }
}

impl Port for ProbePort<'_, '_> {
    fn close_window(&mut self) {
        let window = Window::from_bits(self.read(At::window()));
        self.write(At::window(), window.with_enable(false).bits());
        self.deselect();
    }

    fn open_window(&mut self) {
        let window = Window::from_bits(self.read(At::window()));
        self.write(At::control(), Control::RESET.bits());
        self.write(At::window(), window.with_enable(true).bits());
    }

    fn select(&mut self) {
        self.write(At::control(), Control::RESET.with_enable(true).with_chip_select(1).bits());
    }

    fn deselect(&mut self) {
        self.write(At::control(), Control::RESET.with_enable(true).bits());
    }

    fn exchange(&mut self, byte: u8) -> Result<u8, Fault> {
        self.write(At::transmit(), Transmit::from_bits(byte.into()).bits());
        // A byte is long there when a probe asks again.
        for _ in 0..100 {
            let received = card_regs::spi::Receive::from_bits(self.read(At::receive()));
            if received.valid() {
                return Ok(received.data());
            }
            if self.failed.is_some() {
                break;
            }
        }
        Err(Fault::Bus)
    }
}
