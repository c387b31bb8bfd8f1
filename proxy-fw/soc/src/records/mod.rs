//! A PCIe side at the other end of a wire: TLPs, and what is beside them, as typed records, one in
//! an Ethernet frame. The emulated card has it on a second network interface, where a real one has
//! its PCIe block; `docs/records.md` has the bytes.
//!
//! Both ends are the same but for what they may say: a host's side resets, a box's side has
//! devices that come and go, the card drives wires. Each end grants the other room for TLPs by
//! class, as PCI Express does with its credits, as cumulative limits, so that a TLP that may pass
//! others always can. What is granted is never lost: the wire is reliable.

mod format;
mod port;

pub use format::{Beside, Body, HEADER, Record, RecordError, VERSION};
// Its windows are those of every PCIe side.
pub use crate::board::Windows;
pub use port::RecordPort;
