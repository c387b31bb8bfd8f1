//! Models of real PCIe devices that speak only TLPs.
//!
//! - [`Device`]: what a box proxy sees of one;
//! - [`accelerator`]: a DMA engine for measurements (`docs/accelerator.md` is its register map).

pub mod accelerator;
mod device;

pub use device::{Classes, Device, ResetKind};
