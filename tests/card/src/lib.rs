//! Emulated cards: QEMU's riscv32 machine with the firmware in it, and what is at their PCIe side.
//!
//! A card has two network interfaces. The first is on a network that all cards share, with a DHCP
//! server and the way to the manager, which is a QEMU without a machine. The second ends at a
//! program of this crate: models of devices for a box card, the model host for a host card.

pub mod devices;
pub mod emulator;
pub mod flash;
pub mod root;
pub mod stream;
