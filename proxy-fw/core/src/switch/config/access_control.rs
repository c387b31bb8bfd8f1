//! Access Control Services of a downstream port (PCIe 5.0 sections 7.7.8 and 6.12).

use super::{Register, extended_capability};

/// Where it is.
pub(crate) const AT: u16 = 0x150;
const ID: u16 = 0x0d;

/// ACS Capability (lower half) and ACS Control (upper half).
pub(crate) const CONTROL: u16 = AT + 4;
const SUPPORTED: u32 = 0b1_1111;
/// Source Validation Enable.
pub(crate) const SOURCE_VALIDATION: u32 = 1 << 16;
/// Translation Blocking Enable.
pub(crate) const TRANSLATION_BLOCKING: u32 = 1 << 17;
/// P2P Request Redirect Enable.
pub(crate) const REQUEST_REDIRECT: u32 = 1 << 18;
/// P2P Completion Redirect Enable.
pub(crate) const COMPLETION_REDIRECT: u32 = 1 << 19;
/// Upstream Forwarding Enable.
pub(crate) const UPSTREAM_FORWARDING: u32 = 1 << 20;

/// The capability; the next one is at `next`. No egress control, no direct translated P2P.
pub(crate) const fn registers(next: u16) -> [Register; 2] {
    [
        Register::read_only(AT, extended_capability(ID, 1, next)),
        Register::read_only(CONTROL, SUPPORTED).writable(SUPPORTED << 16),
    ]
}
