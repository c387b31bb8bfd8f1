//! The flight recorder's end at the manager: what the proxies record is drained, joined and written
//! for other programs to read.
//!
//! [`tap`] drains one proxy for everybody who wants to know something of it: two readers never
//! take anything from each other. [`collect`] keeps what one of them gets, and [`clock`] dates it. [`join`] puts the two
//! ends' stamps together, and `carried` finds
//! those of a frame's records. [`recordings`] are what people start and fetch, as [`pcapng`] or as a
//! [`perfetto`] trace; [`latency`] is a look at all devices for a moment.

mod carried;
pub mod clock;
pub mod collect;
mod end;
pub mod join;
pub mod latency;
mod network;
pub mod pcapng;
pub mod perfetto;
pub mod recordings;
pub mod tap;

/// Bytes of a TLP that say what it is: prefixes and header.
const HEADER: u16 = 36;
