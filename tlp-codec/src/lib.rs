//! PCIe transaction layer packets, DxPU fabric frames and records, and both CRCs.
//!
//! Four modules, each usable alone:
//!
//! - [`crc`]: the CRC of frames and the CRC of TLPs;
//! - [`ids`]: the numbers everything is addressed by, as types that cannot hold a wrong value;
//! - [`tlp`]: transaction layer packets of PCIe 5.0's non-flit mode, as views over bytes
//!   ([`tlp::Packet`]) and as their meaning ([`tlp::Repr`]);
//! - [`fabric`]: frames and records, the wire between two proxies. `docs/wire.md` is normative.
//!
//! Nothing here allocates or panics on input; bytes from outside give a `Result` with a reason.

#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]

/// Debug of an error that says what Display says. A derived one would escape the texts in it, and
/// what it takes to escape text is kilobytes of a card's code.
macro_rules! debug_as_display {
    ($($error:ty),+) => {$(
        impl core::fmt::Debug for $error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    )+};
}
pub(crate) use debug_as_display;

pub mod crc;
pub mod fabric;
pub mod ids;
pub mod tlp;
