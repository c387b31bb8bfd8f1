//! The manager's end of the control connections: proxies dial in, say who they are, and obey.
//!
//! [`wire`] reads and writes messages, [`handshake`] decides who is let in, [`session`] is one
//! connection with its requests, [`events`] turns what a proxy reports into records, [`server`]
//! holds it together. The messages themselves are `proxy_core::control`'s.

pub mod events;
pub mod flapping;
pub mod handshake;
pub mod heard;
pub mod registry;
pub mod server;
pub mod session;
pub mod wire;

pub use registry::Registry;
pub use session::{RequestError, Session};

/// Connections that have not been let in yet: as many as all proxies that come back together after
/// a restart. A further one is ended; it dials again.
pub const MAX_STRANGERS: usize = MAX_PROXIES;

/// Proxies that are connected at a time. A further one is refused.
pub const MAX_PROXIES: usize = 8192;

/// Requests to one proxy that wait to be written. Whoever has a further one waits.
pub const OUTGOING_QUEUE: usize = 64;

/// Pages of one table. A proxy that sends more is broken and is disconnected.
pub const MAX_PAGES: usize = 2048;

/// A table is to come within so many times what one of its pages has. One that does not is of a proxy
/// that answers each page slowly, which is disconnected: others wait for what it says.
pub const TABLE_BOUNDS: u32 = 3;
