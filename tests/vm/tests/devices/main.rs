//! What an unmodified Linux does with devices that are lent to it, in its own words: errors and
//! resets, device memory of a gigabyte, DMA without a driver or a mapping, and a guest that misbehaves.

mod accelerator;
mod bench;
mod errors;
mod faults;
mod force;
mod hostile;
mod memory;
mod removal;
