//! The debug module's registers (chapter 3), for one hart.

use super::System;
use super::abstract_command::Abstract;
use super::system_bus::SystemBus;
use crate::iss::{DebugCause, Hart};

const DATA0: u32 = 0x04;
const DATA_LAST: u32 = DATA0 + super::abstract_command::DATA as u32 - 1;
const DMCONTROL: u32 = 0x10;
const DMSTATUS: u32 = 0x11;
const HARTINFO: u32 = 0x12;
const ABSTRACTCS: u32 = 0x16;
const COMMAND: u32 = 0x17;
const ABSTRACTAUTO: u32 = 0x18;
const PROGBUF0: u32 = 0x20;
const PROGBUF_LAST: u32 = PROGBUF0 + super::abstract_command::PROGRAM as u32 - 1;
const SBCS: u32 = 0x38;
const SBADDRESS0: u32 = 0x39;
const SBDATA0: u32 = 0x3c;
const HALTSUM0: u32 = 0x40;

/// `dmcontrol`
const HALTREQ: u32 = 1 << 31;
const RESUMEREQ: u32 = 1 << 30;
const HARTRESET: u32 = 1 << 29;
const ACKHAVERESET: u32 = 1 << 28;
const SETRESETHALTREQ: u32 = 1 << 3;
const CLRRESETHALTREQ: u32 = 1 << 2;
const NDMRESET: u32 = 1 << 1;
const DMACTIVE: u32 = 1;

/// Two scratch registers (`dscratch0` and `dscratch1`), data registers that the hart does not see.
const HARTINFO_VALUE: u32 = 2 << 20;

/// The debug module. There is one hart, so that the bits that select one are always 0.
#[derive(Clone, Debug, Default)]
pub struct DebugModule {
    active: bool,
    halt_request: bool,
    /// The hart alone is held in reset.
    hart_reset: bool,
    /// Everything but this module is held in reset.
    system_reset: bool,
    reset_halt_request: bool,
    have_reset: bool,
    resume_ack: bool,
    commands: Abstract,
    bus: SystemBus,
}

impl DebugModule {
    /// Whether the hart is held in reset: it does nothing meanwhile.
    #[must_use]
    pub fn holds_reset(&self) -> bool {
        self.hart_reset || self.system_reset
    }

    /// The hart was reset by something else than this module.
    pub fn note_reset(&mut self, hart: &mut Hart) {
        self.have_reset = true;
        if self.reset_halt_request {
            hart.halt(DebugCause::ResetHaltRequest);
        } else if self.halt_request {
            hart.halt(DebugCause::HaltRequest);
        }
    }

    /// Reads a register. Those that are not there are 0.
    pub fn read(&mut self, address: u32, hart: &mut Hart, system: &mut impl System) -> u32 {
        match address {
            DMCONTROL => self.control(),
            DMSTATUS => self.status(hart),
            HARTINFO => HARTINFO_VALUE,
            ABSTRACTCS => self.commands.status(),
            ABSTRACTAUTO => self.commands.auto(),
            DATA0..=DATA_LAST => {
                let index = (address - DATA0) as usize;
                let value = self.commands.data(index);
                self.commands.data_accessed(index, hart, system);
                value
            }
            PROGBUF0..=PROGBUF_LAST => {
                let index = (address - PROGBUF0) as usize;
                let value = self.commands.program(index);
                self.commands.program_accessed(index, hart, system);
                value
            }
            SBCS => self.bus.status(),
            SBADDRESS0 => self.bus.address(),
            SBDATA0 => self.bus.read_data(system),
            HALTSUM0 => hart.is_halted().into(),
            _ => 0,
        }
    }

    /// Writes a register. While the module is not active only `dmcontrol.dmactive` can be.
    pub fn write(&mut self, address: u32, value: u32, hart: &mut Hart, system: &mut impl System) {
        if address == DMCONTROL {
            return self.set_control(value, hart, system);
        }
        if !self.active {
            return;
        }
        match address {
            ABSTRACTCS => self.commands.clear_errors(value),
            COMMAND => self.commands.start(value, hart, system),
            ABSTRACTAUTO => self.commands.set_auto(value),
            DATA0..=DATA_LAST => {
                let index = (address - DATA0) as usize;
                self.commands.set_data(index, value);
                self.commands.data_accessed(index, hart, system);
            }
            PROGBUF0..=PROGBUF_LAST => {
                let index = (address - PROGBUF0) as usize;
                self.commands.set_program(index, value);
                self.commands.program_accessed(index, hart, system);
            }
            SBCS => self.bus.set_control(value),
            SBADDRESS0 => self.bus.set_address(value, system),
            SBDATA0 => self.bus.write_data(value, system),
            _ => {}
        }
    }

    fn control(&self) -> u32 {
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        bit(self.hart_reset, HARTRESET)
            | bit(self.system_reset, NDMRESET)
            | bit(self.active, DMACTIVE)
    }

    fn status(&self, hart: &Hart) -> u32 {
        let halted = hart.is_halted();
        // Each of these is there for any hart and for all.
        let both = |set: bool, bit: u32| if set { 3 << bit } else { 0 };
        let reset = self.holds_reset();
        // Version 0.13, authenticated, it can halt out of reset, an ebreak is implied.
        2 | 1 << 7
            | 1 << 5
            | 1 << 22
            | both(halted && !reset, 8)
            | both(!halted && !reset, 10)
            | both(reset, 12)
            | both(self.resume_ack, 16)
            | both(self.have_reset, 18)
    }

    fn set_control(&mut self, value: u32, hart: &mut Hart, system: &mut impl System) {
        if value & DMACTIVE == 0 {
            // The module's own reset: the hart runs on, if it was not halted.
            let have_reset = self.have_reset;
            if self.holds_reset() {
                self.leave_reset(hart, system);
            }
            *self = Self { have_reset, ..Self::default() };
            return;
        }
        if !self.active {
            self.active = true;
        }
        if value & ACKHAVERESET != 0 {
            self.have_reset = false;
        }
        if value & SETRESETHALTREQ != 0 {
            self.reset_halt_request = true;
        }
        if value & CLRRESETHALTREQ != 0 {
            self.reset_halt_request = false;
        }
        self.halt_request = value & HALTREQ != 0;
        let held = self.holds_reset();
        let system_reset_before = self.system_reset;
        self.system_reset = value & NDMRESET != 0;
        self.hart_reset = value & HARTRESET != 0;
        if self.system_reset && !system_reset_before {
            system.reset();
        }
        match (held, self.holds_reset()) {
            (true, false) => self.leave_reset(hart, system),
            (_, true) => {}
            (false, false) => self.run_control(value, hart),
        }
    }

    fn leave_reset(&mut self, hart: &mut Hart, system: &mut impl System) {
        hart.reset(system.reset_vector());
        self.note_reset(hart);
    }

    fn run_control(&mut self, value: u32, hart: &mut Hart) {
        if self.halt_request {
            hart.halt(DebugCause::HaltRequest);
        } else if value & RESUMEREQ != 0 && hart.is_halted() {
            hart.resume();
            self.resume_ack = true;
        }
    }
}
