//! The proxy, sans-IO: what a DxPU proxy *does*, written once.
//!
//! No clock, no socket, no thread, no `std`; nothing is allocated after construction. Everything
//! that the core needs to know arrives as an argument: the time, a TLP from the PCIe side, a frame
//! from the fabric, a control message from the manager. It gives back frames, TLPs, events and the
//! time of its next timer. The card's firmware, the software proxies and the simulator run this
//! same code.
//!
//! - [`host`]: the host role: mapping table, virtual switch, outstanding requests of the host.
//! - [`boxes`]: the box role: slot table, DMA windows, device-side tags, release sequence.
//! - [`link`]: the reliable link between two nodes that both roles stand on.
//! - [`switch`]: the virtual switch: configuration space, routing, hot-plug.
//! - [`config_space`]: configuration space as tables.
//! - [`root_port`]: the root port above it, for adapters that are a whole root complex.
//! - [`control`]: the messages between manager and proxies.
//! - [`stamps`]: time stamps of each stage that a TLP goes through.
//! - [`recorder`]: what bindings do, kept for the manager while they do it.
//! - [`limits`]: every limit, in one place.
//!
//! Methods are named by kind: `handle_*` takes something in, `poll_*` gives something out.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "std", feature = "canaries"))]
extern crate std;

mod answers;
mod bits;
pub mod boxes;
#[cfg(feature = "canaries")]
pub mod canaries;
#[cfg(not(feature = "canaries"))]
mod canaries;
pub mod config_space;
pub mod control;
mod counters;
pub mod host;
pub mod limits;
pub mod link;
mod malformed;
mod node;
pub mod outstanding;
pub mod queue;
pub mod recorder;
mod rewrite;
pub mod role;
pub mod root_port;
pub mod stamps;
pub mod switch;
pub mod time;
