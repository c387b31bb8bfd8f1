//! The daemon beside devices: slots, device back-ends and the box role of proxy-core.
//!
//! Devices run on the data plane's thread, between receiving and sending: a request that came in
//! with a frame is answered in the same turn.

pub mod config;
pub mod daemon;
pub mod seat;
