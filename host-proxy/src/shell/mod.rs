//! A person's (or a script's) hand on the model host: commands over a Unix socket, which
//! `dxpu-host` sends. One JSON object a line each way.

mod bandwidth;
pub mod exec;
pub mod protocol;
pub mod server;

/// A root port that counts what passes.
pub trait CountingPort: host_model::TlpPort {
    /// What it counted, by name.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
