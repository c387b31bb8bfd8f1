//! A card in software, for tests and for people without hardware.
//!
//! [`Card`] is a core ([`iss`]) with memory and devices ([`card`]), and a JTAG port that a probe
//! reaches ([`debug`]), in this process or over TCP ([`bitbang`]). Where firmware looks it is like
//! QEMU's riscv32 machine `virt`, so that one image runs on both, or a LiteX SoC with the card's blocks.

#![forbid(unsafe_code)]

pub mod bitbang;
pub mod card;
pub mod debug;
pub mod iss;

pub use card::{Card, Finish, Ran};
