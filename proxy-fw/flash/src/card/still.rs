//! Stopping a card's program where it leaves the flash alone, so that the window reads what is in
//! the flash.
//!
//! A program that writes its flash, such as a boot loader that records a start, closes the window
//! or makes it give the part's status meanwhile. Whoever reads the window then gets no error, but
//! words that were never written. So the program is stopped before anything is read. Where it is
//! stopped in such a moment it is let run on and stopped again: to interfere would tear what it
//! writes.

use std::time::{Duration, Instant};

use card_regs::spi::{Control, Status, Window};
use probe_rs::{Core, MemoryInterface};

use super::held::Held;
use super::registers::{At, Registers};
use super::{FlashFault, HALT_TIMEOUT, stopped};
use crate::board::Board;

/// How long a program may take to leave the flash alone, or a part to do what it does: some blocks are
/// erased in that time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it runs on before it is stopped again.
const PAUSE: Duration = Duration::from_millis(2);

/// Words that are looked at in each region.
const SAMPLE: usize = 4;

/// What hinders whoever reads the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hindrance {
    /// The window is closed: the SPI block is used for commands.
    Closed,
    /// The window gives something else than what is in the flash.
    NoArray,
}

/// Stops the program where the flash can be read. A core that is halted already stays so.
pub(super) fn stop(
    core: &mut Core<'_>,
    is_halted: bool,
    board: &Board,
    held: &Held,
) -> Result<(), FlashFault> {
    let runs = !is_halted;
    let began = Instant::now();
    loop {
        if held.is_interrupted() {
            return Err(FlashFault::interrupted(is_halted));
        }
        if runs {
            stopped::stops();
            core.halt(HALT_TIMEOUT)?;
        }
        let is_late = began.elapsed() > IDLE_TIMEOUT;
        let failed = match (runs, hindrance(core, board)) {
            (_, Ok(None)) => return Ok(()),
            (_, Err(fault)) => Some(fault),
            (true, Ok(Some(_))) => is_late.then_some(FlashFault::InUse),
            // Nobody opens the window any more; what a part is busy with ends by itself.
            (false, Ok(Some(Hindrance::Closed))) => Some(FlashFault::StoppedInUse),
            (false, Ok(Some(Hindrance::NoArray))) => is_late.then_some(FlashFault::StoppedInUse),
        };
        let resumed = if runs { core.run().map(|()| stopped::runs()) } else { Ok(()) };
        if let Some(fault) = failed {
            return Err(fault);
        }
        resumed?;
        std::thread::sleep(PAUSE);
    }
}

/// What hinders whoever reads the window while the core is halted.
fn hindrance(core: &mut Core<'_>, board: &Board) -> Result<Option<Hindrance>, FlashFault> {
    check_place(core, board)?;
    let mut registers = Registers::new(core, board.spi);
    let window = Window::from_bits(registers.read(At::window()));
    let control = Control::from_bits(registers.read(At::control()));
    let status = Status::from_bits(registers.read(At::status()));
    registers.outcome()?;
    if !window.enable() || control.chip_select() != 0 || status.busy() {
        return Ok(Some(Hindrance::Closed));
    }
    Ok((!gives_array(core, board)?).then_some(Hindrance::NoArray))
}

/// Whether the SPI block is where the board file has it: it says itself where its window is.
fn check_place(core: &mut Core<'_>, board: &Board) -> Result<(), FlashFault> {
    let at = board.spi;
    let base = match core.read_word_32(u64::from(at + At::window_base())) {
        Ok(base) => base,
        // A card whose debug module answers is not lost.
        Err(_) if core.core_halted().is_ok() => {
            return Err(FlashFault::NoSpi { at, found: "nothing answers there".to_owned() });
        }
        Err(error) => return Err(error.into()),
    };
    if base == board.window {
        return Ok(());
    }
    let found = format!(
        "its window would be at {base:#010x}, the board file's is at {:#010x}",
        board.window
    );
    Err(FlashFault::NoSpi { at, found })
}

/// Whether the window gives the array. A part with Intel's command set, as the simulated card has
/// it, gives its status or its ID at every address while a command goes on; what is in the regions
/// differs, or is blank. Looked at twice: a part whose command ends while it is looked at has changed
/// its status between two regions, and has no more to change the other time.
fn gives_array(core: &mut Core<'_>, board: &Board) -> Result<bool, FlashFault> {
    Ok(looks_like_array(core, board)? && looks_like_array(core, board)?)
}

fn looks_like_array(core: &mut Core<'_>, board: &Board) -> Result<bool, FlashFault> {
    let layout = &board.layout;
    let [a, b] = layout.slots();
    let regions = [layout.boot_loader(), layout.boot_state(), layout.config(), a, b];
    let mut samples = [[0; SAMPLE]; 5];
    for (region, sample) in regions.iter().zip(&mut samples) {
        core.read_32(u64::from(board.window + region.start), sample)?;
    }
    let all_alike = samples.iter().all(|sample| *sample == samples[0]);
    Ok(!all_alike || samples[0] == [u32::MAX; SAMPLE])
}
