//! The hart: its registers, and what happens between instructions.

use super::compressed::EXPANDED;
use super::execute::Trap;
use super::trigger::{Action, Triggers};
use super::{AccessFault, Bus, Width};

/// `mstatus`: interrupts are enabled.
pub(super) const MIE: u32 = 1 << 3;
/// `mstatus`: they were, before the trap.
pub(super) const MPIE: u32 = 1 << 7;

/// `dcsr`: ebreak enters debug mode.
const EBREAKM: u32 = 1 << 15;
/// `dcsr`: interrupts are taken while stepping.
const STEPIE: u32 = 1 << 11;
/// `dcsr`: one instruction, then debug mode again.
const STEP: u32 = 1 << 2;
/// `dcsr`: version 0.13 and machine mode.
const DCSR_FIXED: u32 = 4 << 28 | 3;

/// Where the program buffer seems to be while it is executed.
const PROGRAM_BASE: u32 = 0x400;
/// Instructions after which a program in the buffer is taken for endless.
const PROGRAM_LIMIT: usize = 10_000;

/// Lines that ask the hart for attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// Machine software interrupt.
    pub software: bool,
    /// Machine timer interrupt.
    pub timer: bool,
    /// Machine external interrupt.
    pub external: bool,
}

/// Why the hart is in debug mode (`dcsr.cause`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugCause {
    /// It came to an `ebreak`.
    Ebreak = 1,
    /// A trigger fired.
    Trigger = 2,
    /// The debugger asked.
    HaltRequest = 3,
    /// One step was done.
    Step = 4,
    /// It was to halt out of reset.
    ResetHaltRequest = 5,
}

/// What a step was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An instruction, or a trap instead of one.
    Done,
    /// Nothing: it waits for an interrupt.
    Waiting,
    /// Nothing: it is in debug mode.
    Halted,
}

/// Why a program in the program buffer did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// An instruction of it met an exception.
    #[error("an instruction in the program buffer met an exception")]
    Exception,
    /// It goes on and on.
    #[error("the program in the program buffer does not end")]
    Endless,
}

/// One hart. Debug mode is part of its state: [`Hart::halt`] enters it, [`Hart::resume`] leaves it.
#[derive(Clone, Debug)]
pub struct Hart {
    pub(super) x: [u32; 32],
    pub(super) pc: u32,
    pub(super) mstatus: u32,
    pub(super) mie: u32,
    pub(super) mip: u32,
    pub(super) mtvec: u32,
    pub(super) mscratch: u32,
    pub(super) mepc: u32,
    pub(super) mcause: u32,
    pub(super) mtval: u32,
    pub(super) dcsr: u32,
    pub(super) dpc: u32,
    pub(super) dscratch: [u32; 2],
    pub(super) triggers: Triggers,
    pub(super) retired: u64,
    /// What firmware wrote into the counters, as the difference to `retired`.
    pub(super) mcycle_offset: u64,
    pub(super) minstret_offset: u64,
    pub(super) reservation: Option<u32>,
    pub(super) waiting: bool,
    pub(super) debugging: bool,
    /// The line of external interrupts, before the mask.
    external: bool,
    /// VexRiscv's own mask of it, where the core has one.
    external_mask: Option<u32>,
}

/// The machine external interrupt in `mip`.
const EXTERNAL: u32 = 1 << 11;

impl Hart {
    /// A hart as a reset leaves it, about to execute what is at `pc`.
    #[must_use]
    pub fn new(pc: u32) -> Self {
        Self {
            x: [0; 32],
            pc: pc & !1,
            mstatus: 0,
            mie: 0,
            mip: 0,
            mtvec: 0,
            mscratch: 0,
            mepc: 0,
            mcause: 0,
            mtval: 0,
            dcsr: DCSR_FIXED,
            dpc: pc & !1,
            dscratch: [0; 2],
            triggers: Triggers::default(),
            retired: 0,
            mcycle_offset: 0,
            minstret_offset: 0,
            reservation: None,
            waiting: false,
            debugging: false,
            external: false,
            external_mask: None,
        }
    }

    /// The same core with a mask in front of the external interrupt, a bit for each of its lines, of
    /// which line 0 is connected: CSR 0xbc0, and 0xfc0 for what is asserted (VexRiscv,
    /// `ExternalInterruptArrayPlugin`, as LiteX has it). After a reset it lets nothing through.
    #[must_use]
    pub fn with_external_mask(self) -> Self {
        Self { external_mask: Some(0), ..self }
    }

    /// As a reset leaves it, about to execute what is at `pc`. It stays the same kind of core.
    pub fn reset(&mut self, pc: u32) {
        let external_mask = self.external_mask.map(|_| 0);
        *self = Self { external_mask, ..Self::new(pc) };
    }

    /// Register x0 to x31.
    ///
    /// # Panics
    ///
    /// When there is no such register.
    #[must_use]
    pub fn register(&self, index: usize) -> u32 {
        self.x[index]
    }

    /// Sets a register; x0 stays 0.
    ///
    /// # Panics
    ///
    /// When there is no such register.
    pub fn set_register(&mut self, index: usize, value: u32) {
        self.x[index] = value;
        self.x[0] = 0;
    }

    /// Where the next instruction is; in debug mode where the hart resumes.
    #[must_use]
    pub fn pc(&self) -> u32 {
        if self.debugging { self.dpc } else { self.pc }
    }

    /// Continues elsewhere. The lowest bit is dropped.
    pub fn set_pc(&mut self, pc: u32) {
        self.pc = pc & !1;
        self.dpc = pc & !1;
    }

    /// Instructions carried out since the reset.
    #[must_use]
    pub fn retired(&self) -> u64 {
        self.retired
    }

    /// Whether it is in debug mode.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.debugging
    }

    /// Whether it waits for an interrupt.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Sets the interrupt lines.
    pub fn set_interrupts(&mut self, lines: Interrupts) {
        self.mip = u32::from(lines.software) << 3 | u32::from(lines.timer) << 7;
        self.external = lines.external;
        self.mask_external();
    }

    /// What the mask lets through of the external interrupt.
    fn mask_external(&mut self) {
        let asserted = self.external && self.external_mask.is_none_or(|mask| mask & 1 != 0);
        self.mip = self.mip & !EXTERNAL | if asserted { EXTERNAL } else { 0 };
    }

    /// The mask, where there is one.
    pub(super) fn external_mask(&self) -> Option<u32> {
        self.external_mask
    }

    /// Lines that are asserted before the mask, where there is one.
    pub(super) fn external_lines(&self) -> Option<u32> {
        self.external_mask.map(|_| self.external.into())
    }

    /// `None` where there is no mask.
    pub(super) fn set_external_mask(&mut self, mask: u32) -> Option<()> {
        *self.external_mask.as_mut()? = mask;
        self.mask_external();
        Some(())
    }

    /// Enters debug mode.
    pub fn halt(&mut self, cause: DebugCause) {
        if self.debugging {
            return;
        }
        self.debugging = true;
        self.waiting = false;
        self.reservation = None;
        self.dpc = self.pc;
        self.dcsr = self.dcsr & !(7 << 6) | (cause as u32) << 6;
    }

    /// Leaves debug mode, for one instruction if `dcsr.step` is set.
    pub fn resume(&mut self) {
        if !self.debugging {
            return;
        }
        self.debugging = false;
        self.pc = self.dpc;
    }

    /// One instruction, or one interrupt or exception.
    #[inline]
    pub fn step(&mut self, bus: &mut impl Bus) -> Step {
        if self.debugging {
            return Step::Halted;
        }
        let stepping = self.dcsr & STEP != 0;
        if self.mip & self.mie != 0 {
            self.waiting = false;
            if self.mstatus & MIE != 0 && (!stepping || self.dcsr & STEPIE != 0) {
                self.interrupt();
            }
        }
        if self.waiting {
            return Step::Waiting;
        }
        if self.triggers.armed && self.trigger() {
            if stepping && !self.debugging {
                // Before the handler's first instruction (debug specification, section 4.4).
                self.halt(DebugCause::Step);
            }
            return Step::Done;
        }
        if let Err(trap) = self.instruction(bus) {
            if trap == Trap::Breakpoint && self.dcsr & EBREAKM != 0 {
                self.halt(DebugCause::Ebreak);
                return Step::Done;
            }
            self.exception(trap);
        }
        if stepping {
            // A wait for interrupts is a nop in a step (debug specification, section 4.4).
            self.waiting = false;
            self.halt(DebugCause::Step);
        }
        Step::Done
    }

    /// Whether a trigger fired at the next instruction.
    fn trigger(&mut self) -> bool {
        match self.triggers.matches(self.pc, self.mstatus & MIE != 0) {
            None => false,
            Some(Action::Debug) => {
                self.halt(DebugCause::Trigger);
                true
            }
            Some(Action::Exception) => {
                self.exception(Trap::Breakpoint);
                true
            }
        }
    }

    fn instruction(&mut self, bus: &mut impl Bus) -> Result<(), Trap> {
        let pc = self.pc;
        let low = bus.fetch(pc).map_err(|AccessFault| Trap::FetchFault(pc))?;
        let next = if low & 3 == 3 {
            let upper = pc.wrapping_add(2);
            let high = bus.fetch(upper).map_err(|AccessFault| Trap::FetchFault(upper))?;
            self.execute(u32::from(high) << 16 | u32::from(low), 4, bus)?
        } else {
            let expanded = EXPANDED[usize::from(low)];
            self.execute(expanded, 2, bus).map_err(|trap| match trap {
                Trap::Illegal(_) => Trap::Illegal(low.into()),
                trap => trap,
            })?
        };
        self.pc = next;
        self.retired = self.retired.wrapping_add(1);
        Ok(())
    }

    fn exception(&mut self, trap: Trap) {
        let (cause, value) = trap.cause_and_value(self.pc);
        self.enter_handler(cause, value, self.mtvec & !3);
    }

    /// External before software before timer (volume II, section 3.1.9).
    fn interrupt(&mut self) {
        let pending = self.mip & self.mie;
        let number = *[11, 3, 7].iter().find(|bit| pending & 1 << **bit != 0).unwrap_or(&7);
        let vectored = self.mtvec & 1 != 0;
        let handler = (self.mtvec & !3).wrapping_add(if vectored { 4 * number } else { 0 });
        self.enter_handler(1 << 31 | number, 0, handler);
    }

    fn enter_handler(&mut self, cause: u32, value: u32, handler: u32) {
        self.mepc = self.pc;
        self.mcause = cause;
        self.mtval = value;
        let before = if self.mstatus & MIE != 0 { MPIE } else { 0 };
        self.mstatus = before;
        self.reservation = None;
        self.pc = handler;
    }

    /// Executes the program buffer, in debug mode, until its `ebreak`.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] when it does not come to its end.
    ///
    /// # Panics
    ///
    /// Outside debug mode.
    pub fn run_program(&mut self, program: &[u32], bus: &mut impl Bus) -> Result<(), ProgramError> {
        assert!(self.debugging, "the program buffer is executed in debug mode");
        self.pc = PROGRAM_BASE;
        let mut buffer = ProgramBuffer { program, bus };
        for _ in 0..PROGRAM_LIMIT {
            match self.instruction(&mut buffer) {
                Ok(()) => self.waiting = false,
                Err(Trap::Breakpoint) => return Ok(()),
                Err(_) => return Err(ProgramError::Exception),
            }
        }
        Err(ProgramError::Endless)
    }

    /// Reads a control and status register as an abstract command does; `None` when it is not
    /// there or the hart is not in debug mode where it must be.
    pub fn csr(&self, number: u32, bus: &impl Bus) -> Option<u32> {
        self.read_csr(number, bus)
    }

    /// Writes one; says whether it is there and can be written.
    pub fn set_csr(&mut self, number: u32, value: u32) -> bool {
        self.write_csr(number, value).is_some()
    }

    pub(super) fn set_dcsr(&mut self, value: u32) {
        self.dcsr = DCSR_FIXED | self.dcsr & 7 << 6 | value & (EBREAKM | STEPIE | STEP);
    }
}

/// The bus with the program buffer in front, from where instructions come.
struct ProgramBuffer<'a, B> {
    program: &'a [u32],
    bus: &'a mut B,
}

impl<B: Bus> Bus for ProgramBuffer<'_, B> {
    fn read(&mut self, at: u32, width: Width) -> Result<u32, AccessFault> {
        self.bus.read(at, width)
    }

    fn write(&mut self, at: u32, width: Width, value: u32) -> Result<(), AccessFault> {
        self.bus.write(at, width, value)
    }

    /// Behind the buffer an `ebreak` is implied.
    fn fetch(&mut self, at: u32) -> Result<u16, AccessFault> {
        let offset = at.checked_sub(PROGRAM_BASE).ok_or(AccessFault)?;
        let index = (offset / 4) as usize;
        let word = match self.program.get(index) {
            Some(word) => *word,
            None if index == self.program.len() => 0x0010_0073,
            None => return Err(AccessFault),
        };
        Ok((word >> (8 * (offset & 2))) as u16)
    }

    fn time(&self) -> u64 {
        self.bus.time()
    }
}
