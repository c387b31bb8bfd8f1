//! Emulated cards: QEMU's riscv32 machine with the firmware in its flash.
//!
//! A card has two network interfaces. The first is on a network that all cards share, with a DHCP
//! server and the way to the manager, which is a QEMU without a machine. The second ends at a
//! program that is the card's PCIe side: `dxpu-card-devices` for a box card, `dxpu-card-host` for a
//! host card.

pub mod debugger;
pub mod emulator;
pub mod firmware;
pub mod flash;
