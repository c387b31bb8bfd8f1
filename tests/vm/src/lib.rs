//! Virtual machines with a distribution's own Linux, for tests and for people.
//!
//! [`Cache`] brings QEMU, kernels and the guest's tools from Debian into a private folder;
//! [`Options`] says what a machine has; [`Guest`] is one that runs; [`Fabric`] is what lends devices
//! to it. [`Stage`] is where tests have theirs. [`session`] and [`terminal`] are `./dx vm`.

mod cache;
mod fabric;
mod fio;
mod guest;
mod image;
pub mod session;
mod stage;
pub mod terminal;
mod tools;

pub use cache::{Cache, Kernel, News, Unavailable};
pub use fabric::{Fabric, items};
pub use fio::Verify;
pub use guest::{BOOT_BOUND, Guest, Mark, Message, Options, Output, Running, TALK_BOUND};
pub use stage::Stage;
pub use tools::guest_tools;
