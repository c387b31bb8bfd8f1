//! Who the flash is and what it says of itself, asked by the probe itself through the card's SPI
//! block: nothing is loaded into the card's memory, and its program goes on where it was.

use std::time::{Duration, Instant};

use card_regs::spi::{Control, Receive, Transmit, Window};
use flash_algorithm::Fault;
use flash_algorithm::flash::Flash;
use flash_algorithm::port::Port;
use probe_rs::Core;

use super::FlashFault;
use super::registers::{At, Registers};

/// How long a part may be busy with what it was doing: longer than any erases a block.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks for the flash's ID, and before waits for what the part was doing: a reset of the card need
/// not be one of the part. The core is halted, and its program does not use the flash.
pub(super) fn jedec_id(core: &mut Core<'_>, spi: u32) -> Result<[u8; 3], FlashFault> {
    ask(core, spi, Flash::jedec_id)
}

/// Whether block protection bits of it are set; otherwise as [`jedec_id`].
pub(super) fn is_protected(core: &mut Core<'_>, spi: u32) -> Result<bool, FlashFault> {
    ask(core, spi, Flash::is_protected)
}

fn ask<'a, 'card, T>(
    core: &'a mut Core<'card>,
    spi: u32,
    what: impl FnOnce(&mut Flash<ProbePort<'a, 'card>>) -> Result<T, Fault>,
) -> Result<T, FlashFault> {
    let registers = Registers::new(core, spi);
    // The size of blocks does not matter for this.
    let mut flash = Flash::new(ProbePort { registers, began: Instant::now() }, 0);
    let answer = what(&mut flash);
    flash.release().registers.outcome()?;
    answer.map_err(FlashFault::Part)
}

/// The SPI block through the probe: only for short commands.
struct ProbePort<'a, 'card> {
    registers: Registers<'a, 'card>,
    began: Instant,
}

impl Port for ProbePort<'_, '_> {
    fn close_window(&mut self) {
        let window = Window::from_bits(self.registers.read(At::window()));
        self.registers.write(At::window(), window.with_enable(false).bits());
        self.deselect();
    }

    fn open_window(&mut self) {
        let window = Window::from_bits(self.registers.read(At::window()));
        self.registers.write(At::control(), Control::RESET.bits());
        self.registers.write(At::window(), window.with_enable(true).bits());
    }

    fn select(&mut self) {
        let control = Control::RESET.with_enable(true).with_chip_select(1);
        self.registers.write(At::control(), control.bits());
    }

    fn deselect(&mut self) {
        self.registers.write(At::control(), Control::RESET.with_enable(true).bits());
    }

    fn exchange(&mut self, byte: u8) -> Result<u8, Fault> {
        if self.began.elapsed() > BUSY_TIMEOUT {
            return Err(Fault::Busy);
        }
        self.registers.write(At::transmit(), Transmit::from_bits(byte.into()).bits());
        // A byte is long there when a probe asks again.
        for _ in 0..100 {
            let received = Receive::from_bits(self.registers.read(At::receive()));
            if received.valid() {
                return Ok(received.data());
            }
            if self.registers.has_failed() {
                break;
            }
        }
        Err(Fault::Bus)
    }
}
