//! An accelerator for measurements.

pub mod regs;
