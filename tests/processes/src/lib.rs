//! What the demo, the benchmark and tests have in common: other programs, each a process of its
//! own, network namespaces, and a network that misbehaves. All of it is gone when this program ends, also by a signal.

mod commands;
mod daemon;
pub mod namespaces;
pub mod random;
pub mod relay;
mod signals;
mod words;

pub use commands::{Said, output, run, watched, without_settings};
pub use daemon::Daemon;
pub use signals::{catch_signals, interrupt, interrupted, not_interrupted, wait_for};
pub use words::quoted;

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The folder that this program is in, which the others are in, too.
///
/// # Errors
///
/// When the system does not say.
pub fn own_folder() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    own.parent().map(Path::to_path_buf).context("this program has no folder")
}
