//! A further test access port on the card's chain, as a board has it of an FPGA or a bridge: it has
//! an IDCODE, and is passed by with BYPASS.

use super::jtag::{IR_IDCODE, Tap, TapState, idcode};

/// What the instruction register captures: 01 in its lowest bits. In those above FPGAs show their state,
/// so that who looks at the chain alone does not know where a register begins.
const IR_CAPTURE: u64 = 0b01_0101;

/// Bits that the instruction register may have.
pub const IR_LENGTHS: std::ops::RangeInclusive<u32> = 2..=32;

/// Where on the chain it is. Data go from TDI to TDO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Between TDI and the card's own port.
    Before,
    /// Between the card's own port and TDO.
    After,
}

impl Place {
    /// IDCODE of the port there: version and manufacturer are those of the card's own.
    #[must_use]
    pub const fn idcode(self) -> u32 {
        match self {
            Self::Before => idcode(0xdc5e),
            Self::After => idcode(0xdc5f),
        }
    }
}

/// The port.
#[derive(Clone, Debug)]
pub struct OtherTap {
    place: Place,
    ir_length: u32,
    tap: Tap,
}

impl OtherTap {
    /// A port with so many bits of instruction register.
    ///
    /// # Panics
    ///
    /// When they are not of [`IR_LENGTHS`].
    #[must_use]
    pub fn new(place: Place, ir_length: u32) -> Self {
        assert!(IR_LENGTHS.contains(&ir_length), "{ir_length} bits of instruction register");
        Self { place, ir_length, tap: Tap::default() }
    }

    /// What it drives.
    #[must_use]
    pub fn tdo(&self) -> bool {
        self.tap.tdo
    }

    /// TRST# is asserted.
    pub fn test_reset(&mut self) {
        self.tap.test_reset();
    }

    /// A rising edge of TCK.
    pub fn rising(&mut self, tms: bool, tdi: bool) {
        match self.tap.state {
            TapState::CaptureDr if self.tap.instruction == IR_IDCODE => {
                self.tap.capture((self.place.idcode().into(), 32));
            }
            // All other instructions are BYPASS.
            TapState::CaptureDr => self.tap.capture((0, 1)),
            TapState::CaptureIr => {
                let capture = IR_CAPTURE & ((1 << self.ir_length) - 1);
                self.tap.capture((capture, self.ir_length));
            }
            _ => {}
        }
        self.tap.rising(tms, tdi);
    }

    /// A falling edge of TCK.
    pub fn falling(&mut self) {
        self.tap.falling();
    }
}
