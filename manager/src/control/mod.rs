//! The manager's end of the control connections: proxies dial in, say who they are, and obey.
//!
//! [`wire`] reads and writes messages, [`handshake`] decides who is let in, [`session`] is one
//! connection with its requests, [`events`] turns what a proxy reports into records, [`server`]
//! holds it together. The messages themselves are `proxy_core::control`'s.

pub mod events;
pub mod handshake;
pub mod registry;
pub mod server;
pub mod session;
pub mod wire;

pub use registry::Registry;
pub use session::{RequestError, Session};

/// Connections that have not said Hello yet. Further ones wait to be accepted.
pub const MAX_STRANGERS: usize = 256;

/// Proxies that are connected at a time. A further one is refused.
pub const MAX_PROXIES: usize = 8192;

/// Requests to one proxy that wait to be written. Whoever has a further one waits.
pub const OUTGOING_QUEUE: usize = 64;

/// Pages of one table. A proxy that sends more is broken and is disconnected.
pub const MAX_PAGES: usize = 2048;
