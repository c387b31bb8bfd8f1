//! The daemon beside a host: front-ends and the host role of proxy-core.
//!
//! A front-end is where the host's root complex is: the model host in this process
//! ([`front::model`]), or any other root complex on a Unix socket ([`front::socket`]).

pub mod config;
pub mod daemon;
pub mod front;
pub mod shell;
mod socket_folder;
