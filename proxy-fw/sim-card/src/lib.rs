//! A card in software, for tests and for people without hardware.
//!
//! [`Card`] is a core ([`iss`]) with memory and devices ([`card`]), and a JTAG port that a probe
//! reaches ([`debug`]), in this process or over TCP ([`bitbang`]). It is like QEMU's riscv32
//! machine `virt` where firmware looks, so that one image runs on both.

#![forbid(unsafe_code)]

pub mod bitbang;
pub mod card;
pub mod debug;
pub mod iss;

pub use card::{Card, Finish, Ran};
