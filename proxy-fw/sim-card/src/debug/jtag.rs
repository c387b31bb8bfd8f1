//! The test access port (IEEE 1149.1) and the debug transport module (section 6.1), which may be behind
//! a tunnel.

use super::System;
use super::module::DebugModule;
use super::tunnel::{Tunnel, TunnelParts, Update};
use crate::iss::Hart;

/// Bits of the instruction register, without a tunnel.
const IR_BITS: u32 = 5;
/// What the instruction register captures: 01 in its lowest bits.
const IR_CAPTURE: u32 = 0b00001;

pub(super) const IR_IDCODE: u32 = 0x01;
const IR_DTMCS: u32 = 0x10;
const IR_DMI: u32 = 0x11;

/// IDCODE of a part: version 1, no manufacturer's, since JEDEC's bank 16, number 0x7e, is nobody's.
pub(crate) const fn idcode(part: u32) -> u32 {
    1 << 28 | part << 12 | 15 << 8 | 0x7e << 1 | 1
}

/// IDCODE of a card whose core has the port for itself.
pub(super) const IDCODE: u32 = idcode(0xdc5d);

/// Bits of a debug module's address.
const ABITS: u32 = 7;
/// Version 0.13; one clock in Run-Test/Idle between accesses.
const DTMCS: u32 = 1 | ABITS << 4 | 1 << 12;

/// DMI operations and answers.
const OP_READ: u64 = 1;
const OP_WRITE: u64 = 2;
const STATUS_FAILED: u32 = 2;

/// States of the port's controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TapState {
    TestLogicReset,
    RunTestIdle,
    SelectDr,
    CaptureDr,
    ShiftDr,
    Exit1Dr,
    PauseDr,
    Exit2Dr,
    UpdateDr,
    SelectIr,
    CaptureIr,
    ShiftIr,
    Exit1Ir,
    PauseIr,
    Exit2Ir,
    UpdateIr,
}

impl TapState {
    /// The next state, at a rising edge of the clock.
    #[must_use]
    pub fn next(self, tms: bool) -> Self {
        let (low, high) = match self {
            Self::TestLogicReset => (Self::RunTestIdle, Self::TestLogicReset),
            Self::RunTestIdle | Self::UpdateDr | Self::UpdateIr => {
                (Self::RunTestIdle, Self::SelectDr)
            }
            Self::SelectDr => (Self::CaptureDr, Self::SelectIr),
            Self::CaptureDr | Self::ShiftDr => (Self::ShiftDr, Self::Exit1Dr),
            Self::Exit1Dr => (Self::PauseDr, Self::UpdateDr),
            Self::PauseDr => (Self::PauseDr, Self::Exit2Dr),
            Self::Exit2Dr => (Self::ShiftDr, Self::UpdateDr),
            Self::SelectIr => (Self::CaptureIr, Self::TestLogicReset),
            Self::CaptureIr | Self::ShiftIr => (Self::ShiftIr, Self::Exit1Ir),
            Self::Exit1Ir => (Self::PauseIr, Self::UpdateIr),
            Self::PauseIr => (Self::PauseIr, Self::Exit2Ir),
            Self::Exit2Ir => (Self::ShiftIr, Self::UpdateIr),
        };
        if tms { high } else { low }
    }
}

/// What every port has: the controller, and the register that is shifted. The instruction after a
/// reset is IDCODE.
#[derive(Clone, Debug)]
pub(super) struct Tap {
    pub(super) state: TapState,
    pub(super) instruction: u32,
    pub(super) shift: u64,
    /// Bits of what is shifted.
    bits: u32,
    pub(super) tdo: bool,
}

impl Default for Tap {
    fn default() -> Self {
        let state = TapState::TestLogicReset;
        Self { state, instruction: IR_IDCODE, shift: 0, bits: 1, tdo: true }
    }
}

impl Tap {
    /// TRST# is asserted.
    pub(super) fn test_reset(&mut self) {
        self.state = TapState::TestLogicReset;
        self.instruction = IR_IDCODE;
        self.tdo = true;
    }

    /// What is shifted from now on: a register's value, and its length.
    pub(super) fn capture(&mut self, register: (u64, u32)) {
        (self.shift, self.bits) = register;
    }

    /// A rising edge of TCK, where something was captured that is to be: what is shifted, and the next
    /// state.
    pub(super) fn rising(&mut self, tms: bool, tdi: bool) {
        if matches!(self.state, TapState::ShiftDr | TapState::ShiftIr) {
            self.shift = self.shift >> 1 | u64::from(tdi) << (self.bits - 1);
        }
        self.state = self.state.next(tms);
        if self.state == TapState::TestLogicReset {
            self.instruction = IR_IDCODE;
        }
    }

    /// A falling edge of TCK: the instruction is updated, and TDO.
    pub(super) fn falling(&mut self) {
        if self.state == TapState::UpdateIr {
            self.instruction = self.shift as u32;
        }
        self.tdo = match self.state {
            TapState::ShiftDr | TapState::ShiftIr => self.shift & 1 != 0,
            _ => true,
        };
    }
}

/// The port, with the debug module behind it.
#[derive(Clone, Debug)]
pub struct Jtag {
    /// The debug module.
    pub module: DebugModule,
    tap: Tap,
    idcode: u32,
    /// The answer to the last access, as the next scan captures it: address and data.
    answer: u64,
    /// Sticky: an access failed.
    status: u32,
    /// The port is an FPGA's, and the debug transport behind this.
    tunnel: Option<Tunnel>,
}

impl Default for Jtag {
    fn default() -> Self {
        let (module, tap) = (DebugModule::default(), Tap::default());
        Self { module, tap, idcode: IDCODE, answer: 0, status: 0, tunnel: None }
    }
}

impl Jtag {
    /// A port with another IDCODE.
    pub(crate) fn with_idcode(idcode: u32) -> Self {
        Self { idcode, ..Self::default() }
    }

    /// Puts the debug transport behind a tunnel: the port is an FPGA's from then on, with its length of
    /// instructions and the same IDCODE.
    ///
    /// # Panics
    ///
    /// When there can be no such tunnel ([`TunnelParts::check`]).
    pub(crate) fn set_tunnel(&mut self, parts: TunnelParts) {
        if let Err(wrong) = parts.check() {
            panic!("{wrong}");
        }
        self.tunnel = Some(Tunnel::new(parts));
    }

    /// The tunnel, while an instruction of the FPGA's reaches it.
    fn reached(&mut self) -> Option<&mut Tunnel> {
        let instruction = self.tap.instruction;
        self.tunnel.as_mut().filter(|tunnel| tunnel.parts().instruction == instruction)
    }

    /// State of the controller.
    #[must_use]
    pub fn state(&self) -> TapState {
        self.tap.state
    }

    /// What the port drives: changes at falling edges. High while nothing is shifted, as a line
    /// with a pull-up is.
    #[must_use]
    pub fn tdo(&self) -> bool {
        self.tap.tdo
    }

    /// TRST# is asserted.
    pub fn test_reset(&mut self) {
        self.tap.test_reset();
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.reset();
        }
    }

    /// A rising edge of TCK: what is captured and shifted, and the next state.
    pub fn rising(&mut self, tms: bool, tdi: bool) {
        match self.tap.state {
            TapState::CaptureDr => self.capture_data(),
            TapState::CaptureIr => {
                let bits = self.tunnel.map_or(IR_BITS, |tunnel| tunnel.parts().ir_length);
                self.tap.capture((IR_CAPTURE.into(), bits));
            }
            TapState::ShiftDr => {
                if let Some(tunnel) = self.reached() {
                    tunnel.shift(tdi);
                }
            }
            _ => {}
        }
        self.tap.rising(tms, tdi);
        if let (TapState::TestLogicReset, Some(tunnel)) = (self.tap.state, &mut self.tunnel) {
            tunnel.reset();
        }
    }

    /// A falling edge of TCK: what is updated, and TDO.
    pub fn falling(&mut self, hart: &mut Hart, system: &mut impl System) {
        let state = self.tap.state;
        if state == TapState::UpdateDr {
            self.update_data(hart, system);
        }
        self.tap.falling();
        if state == TapState::ShiftDr
            && let Some(tdo) = self.reached().map(|tunnel| tunnel.tdo())
        {
            self.tap.tdo = tdo;
        }
    }

    /// The data register of the port's instruction, or of that behind the tunnel, is captured.
    fn capture_data(&mut self) {
        let register = match (self.tap.instruction, self.tunnel) {
            (instruction, None) => self.capture(instruction),
            (IR_IDCODE, Some(_)) => self.capture(IR_IDCODE),
            // BYPASS; of the tunnel's register nothing but what is behind it is to be seen.
            (_, Some(_)) => (0, 1),
        };
        self.tap.capture(register);
        if let Some(instruction) = self.reached().map(|tunnel| tunnel.instruction) {
            let register = self.capture(instruction);
            self.reached().expect("it was").capture(register);
        }
    }

    /// The same, that it is written.
    fn update_data(&mut self, hart: &mut Hart, system: &mut impl System) {
        if self.tunnel.is_none() {
            self.update(self.tap.instruction, self.tap.shift, hart, system);
        } else if let Some(tunnel) = self.reached()
            && let Update::Data(value) = tunnel.update()
        {
            let instruction = tunnel.instruction;
            self.update(instruction, value, hart, system);
        }
    }

    /// What an instruction's data register shows, and its length. Unknown instructions are BYPASS.
    fn capture(&self, instruction: u32) -> (u64, u32) {
        match instruction {
            IR_IDCODE => (self.idcode.into(), 32),
            IR_DTMCS => ((DTMCS | self.status << 10).into(), 32),
            IR_DMI => (self.answer | u64::from(self.status), 34 + ABITS),
            _ => (0, 1),
        }
    }

    /// An instruction's data register is written.
    fn update(&mut self, instruction: u32, value: u64, hart: &mut Hart, system: &mut impl System) {
        match instruction {
            // dmireset and dmihardreset
            IR_DTMCS if value & (1 << 16 | 1 << 17) != 0 => self.status = 0,
            IR_DMI if self.status == 0 => self.access(value, hart, system),
            _ => {}
        }
    }

    fn access(&mut self, value: u64, hart: &mut Hart, system: &mut impl System) {
        let (operation, data) = (value & 3, (value >> 2) as u32);
        let address = (value >> 34) as u32 & ((1 << ABITS) - 1);
        let data = match operation {
            0 => return,
            OP_READ => self.module.read(address, hart, system),
            OP_WRITE => {
                self.module.write(address, data, hart, system);
                data
            }
            _ => {
                self.status = STATUS_FAILED;
                return;
            }
        };
        self.answer = u64::from(address) << 34 | u64::from(data) << 2;
    }
}
