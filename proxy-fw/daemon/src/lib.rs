//! What both daemons share: the data-plane loop around a role of proxy-core, the connection to
//! the manager, configuration and logs.
//!
//! The data plane runs on its own thread: it spins for a while, then polls, because a wake across
//! cores costs more than the whole round trip. The connection to the manager has another thread.

pub mod clock;
pub mod config;
pub mod control;
pub mod fabric;
mod hold;
pub mod idle;
pub mod logs;
pub mod plane;
pub mod program;
pub mod stop;

pub use clock::Clock;
pub use idle::{Idle, Spin};
pub use plane::Plane;
