//! What is at the PCIe side of emulated cards: models of devices for a box card; for a host card the
//! model host, or a virtual machine.

pub mod below;
pub mod devices;
pub mod root;
pub mod stream;
