//! The card at a probe: attaching to it ([`Card::open`]), its memory, resets, and its flash
//! ([`flash`]).

mod algorithm;
pub mod flash;
mod held;
mod jedec;
mod registers;
mod reset;
mod scan;
mod still;
mod stopped;

use std::sync::Arc;
use std::time::Duration;

use probe_rs::config::{DebugSequence, Registry};
use probe_rs::probe::Probe;
use probe_rs::{Core, Permissions, Session};

use crate::board::Board;
use crate::failure::{Failure, Kind, Outcome};
use crate::probe::{self, ProbeName, told};
pub use flash::{CardFlash, FlashFault};
use reset::WholeReset;
pub use scan::{Tap, scan};
pub use stopped::or_left_halted;

/// What the same command does once more.
pub const GOES_ON: &str =
    "writing goes on where it was; with --erase-all it begins anew: leave that out to go on";

/// How long a core may take to halt.
const HALT_TIMEOUT: Duration = Duration::from_secs(2);

/// A card that is attached to.
#[derive(Debug)]
pub struct Card {
    session: Session,
    /// What it is.
    pub board: Board,
    /// The probe that it is behind.
    pub probe: ProbeName,
    /// Its chain of TAPs.
    pub taps: Vec<Tap>,
    /// Whether its program stood still already when its flash was read.
    was_halted: bool,
}

/// Which boards a card may be.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// The boards.
    pub boards: Vec<Board>,
    /// Whether a person has named the one that is there: then another IDCODE is an error that
    /// speaks of this board.
    pub named: bool,
}

impl Card {
    /// Attaches to the card behind a probe.
    ///
    /// # Errors
    ///
    /// When the probe cannot be opened, no card answers, or it is none of the candidates.
    pub fn open(
        name: Option<&ProbeName>,
        candidates: &Candidates,
        clock_khz: Option<u32>,
    ) -> Outcome<Self> {
        let (name, mut probe) = probe::open(name)?;
        set_clock(&mut probe, clock_khz.or_else(|| slowest(candidates)))?;
        let taps = scan(&name, &mut probe, candidates)?;
        let board = scan::choose(&name, candidates, &taps)?;
        scan::check_chain(&name, &board, &taps)?;
        scan::check_place(&board, &taps)?;
        let session = attach(&name, probe, &board)?;
        Ok(Self { session, board, probe: name, taps, was_halted: false })
    }

    /// The card's core.
    ///
    /// # Errors
    ///
    /// When it does not answer any more.
    pub fn core(&mut self) -> Outcome<Core<'_>> {
        let probe = self.probe.clone();
        self.session.core(0).map_err(|error| lost(&probe, "the core does not answer", &error))
    }

    /// Whether its program stood still already when its flash was read: somebody has halted it, or
    /// was cut off from it. It stays so.
    #[must_use]
    pub fn was_halted(&self) -> bool {
        self.was_halted
    }

    /// The card's flash as it is read through its window; it cannot be written. The card's program
    /// stands still until this is dropped, and then goes on where it was.
    ///
    /// # Errors
    ///
    /// When the card or its flash does not answer, or its program never leaves the flash alone.
    pub fn flash_to_read(&mut self) -> Outcome<CardFlash<'_>> {
        let (board, probe) = (self.board.clone(), self.probe.clone());
        let lose = |error| lost(&probe, "the core does not answer", &error);
        let mut core = self.session.core(0).map_err(lose)?;
        self.was_halted = core.core_halted().map_err(lose)?;
        CardFlash::reading(core, self.was_halted, &board).map_err(|fault| fault.told(&probe))
    }

    /// As [`flash_to_read`](Self::flash_to_read); none where that cannot be now and may be after a
    /// reset, such as of a program that was stopped while it used the flash.
    ///
    /// # Errors
    ///
    /// When the card does not answer any more, or a person has interrupted it.
    pub fn flash_to_look(&mut self) -> Outcome<Option<CardFlash<'_>>> {
        match self.flash_to_read() {
            Err(failure) if matches!(failure.kind, Kind::Lost | Kind::Other) => Err(failure),
            flash => Ok(flash.ok()),
        }
    }

    /// The card's flash, to be written. The card is reset and halted, and stays so.
    ///
    /// # Errors
    ///
    /// When the card does not answer any more, or has no flash that can be used.
    pub fn flash_to_write(&mut self) -> Outcome<CardFlash<'_>> {
        let (board, probe) = (self.board.clone(), self.probe.clone());
        let target = self.session.target().clone();
        let was_halted = self.was_halted;
        let core = self.core()?;
        CardFlash::writing(core, was_halted, &target, &board).map_err(|fault| fault.told(&probe))
    }

    /// Resets the card; it starts anew.
    ///
    /// # Errors
    ///
    /// When it does not answer any more.
    pub fn reset(&mut self) -> Outcome<()> {
        let probe = self.probe.clone();
        let reset = self.core()?.reset();
        reset.map_err(|error| lost(&probe, "the card cannot be reset", &error))?;
        stopped::runs();
        Ok(())
    }

    /// Resets the card and stops it before its first instruction.
    ///
    /// # Errors
    ///
    /// When it does not answer any more.
    pub fn reset_and_halt(&mut self) -> Outcome<()> {
        let probe = self.probe.clone();
        let mut core = self.core()?;
        stopped::stops();
        let halted = core.reset_and_halt(HALT_TIMEOUT);
        halted
            .map(drop)
            .map_err(|error| lost(&probe, "the card cannot be reset and halted", &error))
    }
}

fn set_clock(probe: &mut Probe, khz: Option<u32>) -> Outcome<()> {
    let Some(khz) = khz else { return Ok(()) };
    probe.set_speed(khz).map(drop).map_err(|error| {
        let what = format!("the probe does not clock at {khz} kHz: {}", told(&error));
        Failure::new(Kind::Input, what).check("give another clock with --clock KHZ")
    })
}

/// The clock that all boards bear that it may be.
fn slowest(candidates: &Candidates) -> Option<u32> {
    candidates.boards.iter().map(|board| board.clock_khz).min()
}

fn attach(name: &ProbeName, probe: Probe, board: &Board) -> Outcome<Session> {
    let mut registry = Registry::new();
    let added = registry.add_target_family(board.target.clone()).map(drop);
    let found = added.and_then(|()| registry.get_target_by_name(board.chip()));
    let mut target = found.map_err(|error| {
        let what =
            format!("the target description of {} is not usable: {}", board.name, told(&error));
        Failure::new(Kind::Input, what).check("correct the part `target` of its board file")
    })?;
    target.debug_sequence = DebugSequence::Riscv(Arc::new(WholeReset));
    probe.attach_with_registry(target, Permissions::default(), &registry).map_err(|error| {
        let what = format!("the TAP of {} answers, its debug module does not", board.name);
        if is_of_probe(&error) {
            return lost(name, &what, &error);
        }
        let jtag = board.target.variants[0].jtag.as_ref();
        let tunnel = match jtag.and_then(|jtag| jtag.riscv_tunnel.as_ref()) {
            Some(tunnel) => format!(
                "`riscv_tunnel` in the board file: is {:#x} the FPGA's instruction that leads to the core, \
                 and are {} the bits of the instruction register there (docs/boards.md)?",
                tunnel.ir_id, tunnel.ir_width
            ),
            None => "the board file has no `riscv_tunnel`, without which no core behind an FPGA's own TAP \
                     is reached (docs/boards.md)"
                .to_owned(),
        };
        Failure::new(Kind::Card, format!("{what} ({})", told(&error))).check(tunnel).checks(&[
            "is the FPGA configured, with the bitstream of this board? The debug module is part of that",
            "if the cable is long or noisy, try a slower clock: --clock 100",
        ])
    })
}

/// What an error is of, or comes from, as far as this is among it.
fn cause<'a, T: std::error::Error + 'static>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a T> {
    let mut all = std::iter::successors(Some(error), |error| error.source());
    all.find_map(|error| error.downcast_ref::<T>())
}

/// Whether it is the probe, or the way to it, that failed: what a card answers is no such error.
fn is_of_probe(error: &probe_rs::Error) -> bool {
    use probe_rs::probe::DebugProbeError::{ProbeSpecific, Usb};
    matches!(cause(error), Some(Usb(_) | ProbeSpecific(_)))
}

/// Whether there is no memory that works where something was read or written.
fn is_of_bus(error: &probe_rs::Error) -> bool {
    use probe_rs::architecture::riscv::communication_interface::RiscvError::SystemBusAccess;
    matches!(cause(error), Some(SystemBusAccess))
}

/// A card that does not answer any more.
pub(crate) fn lost(probe: &ProbeName, what: &str, error: &dyn std::error::Error) -> Failure {
    let failure = Failure::new(Kind::Lost, format!("{what} ({})", told(error)));
    let failure = match probe {
        ProbeName::Remote(address) => failure.check(format!(
            "does the simulated card at {address} still run? Start it again with the same flash \
             and give the same command: {GOES_ON}"
        )),
        ProbeName::Usb(_) => failure
            .check("do the card's power and the JTAG cable hold?")
            .check("try a slower clock: --clock 1000")
            .check(format!("give the same command again: {GOES_ON}")),
    };
    or_left_halted(failure)
}
