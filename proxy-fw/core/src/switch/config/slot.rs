//! Slot registers of a downstream port's PCI Express capability (PCIe 5.0 sections 7.5.3.9 to
//! 7.5.3.11 and 6.7).
//!
//! The slot has an attention button, both indicators and hot-plug surprise; no power controller,
//! no manually operated latch, no interlock, and no command-completed events, so that software
//! never waits for one.

use super::{Register, express};

const CAPABILITIES: u16 = express::AT + 0x14;
const ATTENTION_BUTTON: u32 = 1 << 0;
const ATTENTION_INDICATOR: u32 = 1 << 3;
const POWER_INDICATOR: u32 = 1 << 4;
const HOT_PLUG_SURPRISE: u32 = 1 << 5;
const HOT_PLUG_CAPABLE: u32 = 1 << 6;
/// What a x16 connector supplies, watts: the box's own slot tells the device its real limit.
const POWER_LIMIT: u32 = 75 << 7;
const NO_COMMAND_COMPLETED: u32 = 1 << 18;
/// Physical Slot Number.
pub(crate) const PHYSICAL_NUMBER: u32 = 0x1fff << 19;
/// Lowest bit of the Physical Slot Number.
pub(crate) const PHYSICAL_NUMBER_SHIFT: u32 = 19;
/// Slot Capabilities.
pub(crate) const SLOT_CAPABILITIES: u16 = CAPABILITIES;

/// Slot Control (lower half) and Slot Status (upper half).
pub(crate) const CONTROL: u16 = express::AT + 0x18;
/// Attention Button Pressed Enable.
pub(crate) const BUTTON_ENABLE: u32 = 1 << 0;
/// Presence Detect Changed Enable.
pub(crate) const PRESENCE_ENABLE: u32 = 1 << 3;
/// Hot-Plug Interrupt Enable.
pub(crate) const INTERRUPT_ENABLE: u32 = 1 << 5;
/// Attention Indicator Control.
pub(crate) const ATTENTION_CONTROL: u32 = 0b11 << 6;
/// Power Indicator Control.
pub(crate) const POWER_CONTROL: u32 = 0b11 << 8;
/// Lowest bit of Power Indicator Control.
pub(crate) const POWER_CONTROL_SHIFT: u32 = 8;
/// Lowest bit of Attention Indicator Control.
pub(crate) const ATTENTION_CONTROL_SHIFT: u32 = 6;
/// Data Link Layer State Changed Enable.
pub(crate) const LINK_STATE_ENABLE: u32 = 1 << 12;
/// Slot Status: Attention Button Pressed.
pub(crate) const BUTTON_PRESSED: u32 = 1 << 16;
/// Slot Status: Presence Detect Changed.
pub(crate) const PRESENCE_CHANGED: u32 = 1 << 19;
/// Slot Status: Presence Detect State.
pub(crate) const PRESENT: u32 = 1 << 22;
/// Slot Status: Data Link Layer State Changed.
pub(crate) const LINK_STATE_CHANGED: u32 = 1 << 24;

const BOTH_OFF: u32 = 0b11 << 6 | 0b11 << 8;

/// The slot registers.
pub(crate) const REGISTERS: &[Register] = &[
    Register::read_only(
        CAPABILITIES,
        ATTENTION_BUTTON
            | ATTENTION_INDICATOR
            | POWER_INDICATOR
            | HOT_PLUG_SURPRISE
            | HOT_PLUG_CAPABLE
            | POWER_LIMIT
            | NO_COMMAND_COMPLETED,
    ),
    Register::read_only(CONTROL, BOTH_OFF)
        .writable(
            BUTTON_ENABLE
                | PRESENCE_ENABLE
                | INTERRUPT_ENABLE
                | ATTENTION_CONTROL
                | POWER_CONTROL
                | LINK_STATE_ENABLE,
        )
        .clearable(BUTTON_PRESSED | PRESENCE_CHANGED | LINK_STATE_CHANGED),
];

/// What a slot's indicator shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Indicator {
    /// Lit.
    On,
    /// Blinking, at 1 to 2 Hz.
    Blink,
    /// Dark.
    Off,
}

impl Indicator {
    /// From the two bits; 00b is reserved.
    pub(crate) const fn from_bits(bits: u32) -> Option<Self> {
        match bits & 0b11 {
            0b01 => Some(Self::On),
            0b10 => Some(Self::Blink),
            0b11 => Some(Self::Off),
            _ => None,
        }
    }

    /// The two bits.
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::On => 0b01,
            Self::Blink => 0b10,
            Self::Off => 0b11,
        }
    }
}
