//! What is at the PCIe side of emulated cards: models of devices for a box card, the model host for
//! a host card.

pub mod devices;
pub mod root;
pub mod stream;
