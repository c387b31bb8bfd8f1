//! Models of real PCIe devices that speak only TLPs.
//!
//! - [`Device`]: what a box proxy sees of one;
//! - [`endpoint`]: what every PCI Express function shares;
//! - [`nvme`]: an NVM Express 1.4 controller over image files;
//! - [`accelerator`]: a DMA engine for measurements (`docs/accelerator.md` is its register map);
//! - [`faulty`]: a device that misbehaves on purpose, for tests of everything that it meets.

#![forbid(unsafe_code)]

pub mod accelerator;
mod device;
pub mod endpoint;
pub mod faulty;
pub mod nvme;
#[cfg(test)]
mod testing;

pub use device::{Classes, Device, ResetKind};
