//! What is at the PCIe side of emulated cards: models of devices for a box card; for a host card the
//! model host, or a virtual machine.

/// Bytes of the longest TLP that a card takes (the record port's page, `soc/docs/records.md`): fewer
/// than the programs here would.
const LONGEST: usize = 552;

pub mod below;
pub mod devices;
pub mod root;
pub mod stream;
