//! Power management capability (PCIe 5.0 section 7.5.2; PCI Power Management 1.2 chapter 3).

use super::{Register, capability};

/// Where it is.
pub(crate) const AT: u16 = 0x40;
const ID: u8 = 0x01;
/// Version 3, PME from D0 and D3hot; no D1, no D2.
const CAPABILITIES: u16 = 3 | 1 << 11 | 1 << 14;

/// Power Management Control/Status.
pub(crate) const CONTROL: u16 = AT + 4;
/// PowerState: 0 is D0, 3 is D3hot.
pub(crate) const STATE: u32 = 0b11;
const D3_HOT: u32 = 0b11;
const NO_SOFT_RESET: u32 = 1 << 3;
/// PME_En.
pub(crate) const PME_ENABLE: u32 = 1 << 8;
/// PME_Status.
pub(crate) const PME_STATUS: u32 = 1 << 15;

/// Whether a control value asks for a state that is there: D0 or D3hot.
pub(crate) const fn is_supported(control: u32) -> bool {
    matches!(control & STATE, 0 | D3_HOT)
}

/// The capability; the next one is at `next`.
pub(crate) const fn registers(next: u16) -> [Register; 2] {
    [
        Register::read_only(AT, capability(ID, next, CAPABILITIES)),
        Register::read_only(CONTROL, NO_SOFT_RESET)
            .writable(STATE | PME_ENABLE)
            .clearable(PME_STATUS),
    ]
}
