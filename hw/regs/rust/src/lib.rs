//! The card's registers, as `hw/regs/card.rdl` describes them.
//!
//! [`Card`] is the whole map over a [`Bus`]: [`Mmio`] on the card, a model in tests. From it one
//! gets to blocks, and from those to a [`Register`], which has only the accesses that the map
//! allows. What is read and written are values with a getter and a `with_` setter for each field:
//!
//! ```
//! use card_regs::{Bus, Card, slot};
//!
//! fn power_on<B: Bus + Copy>(card: Card<B>, index: usize) -> Option<()> {
//!     let slot = card.tlp().slot(index)?;
//!     slot.control().modify(|control| control.with_power(true).with_link_disable(false));
//!     Some(())
//! }
//! ```
//!
//! A read-only register cannot be written:
//!
//! ```compile_fail,E0599
//! # use card_regs::{Bus, Card, timer};
//! # fn no<B: Bus + Copy>(card: Card<B>) {
//! card.timer().frequency().write(timer::Frequency::from_bits(1));
//! # }
//! ```
//!
//! One whose writes do something of their own, such as clearing what is written as 1, cannot be
//! modified, since that would do it to what was only read:
//!
//! ```compile_fail,E0599
//! # use card_regs::{Bus, Card, irq};
//! # fn no<B: Bus + Copy>(card: Card<B>) {
//! card.irq().pending().modify(|pending| pending.with_timer(true));
//! # }
//! ```
//!
//! All but this file, `bus.rs` and `register.rs` is made by `cargo xtask regs`.

#![no_std]

mod bus;
mod map;
mod register;

pub use bus::{Bus, Mmio};
pub use map::*;
pub use register::{
    Access, Bits, ReadOnly, ReadWrite, ReadWriteEffect, Readable, Register, RegisterInfo, Value,
    Writable, WriteOnly,
};
