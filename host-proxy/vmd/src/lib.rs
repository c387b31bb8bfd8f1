//! The adapter that a virtual machine gets: from outside an Intel Volume Management Device (VMD),
//! inside a root complex of one root port, with a TLP port below it.
//!
//! Linux's in-tree `vmd` driver opens a PCI domain behind such a device: configuration accesses of
//! that domain arrive as accesses to its first BAR (laid out as ECAM), memory accesses at two
//! others, whose addresses are the domain's windows. The adapter makes TLPs of all of them and
//! gives the answers back, and it does with the TLPs from below what a root complex does: DMA to
//! the machine's memory, interrupts, error messages.
//!
//! Sans-IO: accesses, TLPs and the time go in by `handle_*`, answers and TLPs come out by
//! `poll_*`; the machine's memory and interrupts are a [`Guest`]. Which process the machine is in,
//! and how accesses come from there, is the caller's business.
//!
//! | file | what |
//! |---|---|
//! | `settings` | what the adapter is: sizes, identity, kind of interrupts |
//! | `endpoint` | its own configuration space |
//! | `adapter` | accesses in, answers out, the domain's configuration space |
//! | `access` | one access as the requests that it takes |
//! | `inbound` | requests of devices |
//! | `posted` | writes and interrupts that wait for the machine |
//!
//! Registers are those that Linux's `drivers/pci/controller/vmd.c` uses; Intel has published no
//! data sheet of the device.

mod access;
mod adapter;
mod counters;
mod endpoint;
mod guest;
mod inbound;
mod posted;
mod settings;

#[cfg(test)]
mod tests;

pub use access::{ANSWER_BOUND, COMPLETION_TIMEOUT, REQUEST_BOUND, RETRY_BOUND};
pub use adapter::{Adapter, Answer, READS};
pub use counters::Counters;
pub use guest::{Guest, MemoryFault, NoMessage, Token};
pub use inbound::LONGEST_READ;
pub use posted::POSTED;
pub use settings::{Interrupts, Region, VmdConfig, VmdConfigError};
