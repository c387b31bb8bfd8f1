//! Who the switch is: Subsystem ID and Subsystem Vendor ID capability (PCI-to-PCI Bridge 1.2
//! section 3.2.6; PCIe 5.0 section 7.9.23) and Device Serial Number (PCIe 5.0 section 7.9.3).

use super::{Register, capability, extended_capability};

/// Where the subsystem capability is.
pub(crate) const SUBSYSTEM_AT: u16 = 0xb0;
const SUBSYSTEM_CAPABILITY: u8 = 0x0d;
/// Subsystem vendor ID (lower half) and subsystem ID (upper half).
pub(crate) const SUBSYSTEM: u16 = SUBSYSTEM_AT + 4;

/// The subsystem capability, last of its list.
pub(crate) const SUBSYSTEM_REGISTERS: &[Register] = &[
    Register::read_only(SUBSYSTEM_AT, capability(SUBSYSTEM_CAPABILITY, 0, 0)),
    Register::read_only(SUBSYSTEM, 0),
];

/// Where the serial number is.
pub(crate) const SERIAL_AT: u16 = 0x150;
const SERIAL_ID: u16 = 0x03;
/// Lower half of the serial number.
pub(crate) const SERIAL_LOWER: u16 = SERIAL_AT + 4;
/// Upper half of the serial number.
pub(crate) const SERIAL_UPPER: u16 = SERIAL_AT + 8;

/// The serial number; the next extended capability is at `next`.
pub(crate) const fn serial(next: u16) -> [Register; 3] {
    [
        Register::read_only(SERIAL_AT, extended_capability(SERIAL_ID, 1, next)),
        Register::read_only(SERIAL_LOWER, 0),
        Register::read_only(SERIAL_UPPER, 0),
    ]
}
