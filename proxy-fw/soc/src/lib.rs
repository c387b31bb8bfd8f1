//! The card's firmware without a board.
//!
//! What a card does is [`proxy_core`]'s; this crate is what is around it where there is no
//! operating system: the traits that a board implements ([`board`]), the talk with the manager
//! over a TCP connection of the card's own ([`manage`]), and the loop that turns it all
//! ([`card`]). Nothing is allocated after construction, and nothing here knows a board, so all of
//! it is tested on any computer.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod blocks;
pub mod board;
pub mod boot;
pub mod card;
pub mod ethernet;
pub mod flash;
pub mod log;
pub mod manage;
pub mod peripherals;
pub mod records;
pub mod reset;
pub mod settings;
pub mod slots;
pub mod start;
#[cfg(any(test, feature = "std"))]
pub mod testing;
pub mod update;
mod waiting;
