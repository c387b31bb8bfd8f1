//! Abstract commands and the program buffer (sections 3.6 and 3.7).

use super::System;
use crate::iss::Hart;

/// Data registers.
pub(super) const DATA: usize = 2;
/// Words of the program buffer; an `ebreak` behind them is implied.
pub(super) const PROGRAM: usize = 8;

/// `cmderr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Error {
    #[default]
    None = 0,
    NotSupported = 2,
    Exception = 3,
    HaltResume = 4,
}

/// `command`, for an access to a register.
const SIZE_32: u32 = 2;
const POSTINCREMENT: u32 = 1 << 19;
const POSTEXEC: u32 = 1 << 18;
const TRANSFER: u32 = 1 << 17;
const WRITE: u32 = 1 << 16;

/// Commands, their data and their program.
#[derive(Clone, Debug, Default)]
pub(super) struct Abstract {
    data: [u32; DATA],
    program: [u32; PROGRAM],
    error: Error,
    /// The last command, which accesses may start again.
    command: u32,
    auto_data: u32,
    auto_program: u32,
}

impl Abstract {
    pub(super) fn status(&self) -> u32 {
        (PROGRAM as u32) << 24 | (self.error as u32) << 8 | DATA as u32
    }

    /// The error is cleared by ones.
    pub(super) fn clear_errors(&mut self, value: u32) {
        self.error = match self.error as u32 & !(value >> 8) {
            0 => Error::None,
            2 => Error::NotSupported,
            3 => Error::Exception,
            4 => Error::HaltResume,
            // A part of an exception's bits.
            _ => Error::NotSupported,
        };
    }

    pub(super) fn data(&self, index: usize) -> u32 {
        self.data[index]
    }

    pub(super) fn set_data(&mut self, index: usize, value: u32) {
        self.data[index] = value;
    }

    pub(super) fn program(&self, index: usize) -> u32 {
        self.program[index]
    }

    pub(super) fn set_program(&mut self, index: usize, value: u32) {
        self.program[index] = value;
    }

    pub(super) fn auto(&self) -> u32 {
        self.auto_program << 16 | self.auto_data
    }

    pub(super) fn set_auto(&mut self, value: u32) {
        self.auto_data = value & ((1 << DATA) - 1);
        self.auto_program = value >> 16 & ((1 << PROGRAM) - 1);
    }

    pub(super) fn data_accessed(
        &mut self,
        index: usize,
        hart: &mut Hart,
        system: &mut impl System,
    ) {
        if self.auto_data & 1 << index != 0 {
            self.start(self.command, hart, system);
        }
    }

    pub(super) fn program_accessed(
        &mut self,
        index: usize,
        hart: &mut Hart,
        system: &mut impl System,
    ) {
        if self.auto_program & 1 << index != 0 {
            self.start(self.command, hart, system);
        }
    }

    /// Starts a command, which does nothing while an error stands.
    pub(super) fn start(&mut self, command: u32, hart: &mut Hart, system: &mut impl System) {
        if self.error != Error::None {
            return;
        }
        self.command = command;
        if let Err(error) = self.access_register(command, hart, system) {
            self.error = error;
        }
    }

    fn access_register(
        &mut self,
        command: u32,
        hart: &mut Hart,
        system: &mut impl System,
    ) -> Result<(), Error> {
        if command >> 24 != 0 {
            return Err(Error::NotSupported);
        }
        if !hart.is_halted() {
            return Err(Error::HaltResume);
        }
        if command & TRANSFER != 0 {
            if command >> 20 & 7 != SIZE_32 {
                return Err(Error::NotSupported);
            }
            self.transfer(command & 0xffff, command & WRITE != 0, hart, system)?;
        }
        if command & POSTINCREMENT != 0 {
            self.command = command & !0xffff | command.wrapping_add(1) & 0xffff;
        }
        if command & POSTEXEC != 0 {
            let program = self.program;
            hart.run_program(&program, system).map_err(|_| Error::Exception)?;
        }
        Ok(())
    }

    /// Control and status registers are at 0, x0 to x31 at 0x1000. Others are exceptions.
    fn transfer(
        &mut self,
        number: u32,
        write: bool,
        hart: &mut Hart,
        system: &impl System,
    ) -> Result<(), Error> {
        match (number, write) {
            (0..0x1000, true) => {
                hart.set_csr(number, self.data[0]).then_some(()).ok_or(Error::Exception)
            }
            (0..0x1000, false) => {
                self.data[0] = hart.csr(number, system).ok_or(Error::Exception)?;
                Ok(())
            }
            (0x1000..0x1020, true) => {
                hart.set_register((number - 0x1000) as usize, self.data[0]);
                Ok(())
            }
            (0x1000..0x1020, false) => {
                self.data[0] = hart.register((number - 0x1000) as usize);
                Ok(())
            }
            _ => Err(Error::Exception),
        }
    }
}
