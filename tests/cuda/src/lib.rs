//! Runs CUDA programs on the stand-in for the driver, and reads what they did.
//!
//! The programs are C, compiled with `cc` in [`clients`](../clients), and Python packages that
//! `cargo xtask cuda-clients` installs below the target folder. The libraries are built by
//! `cargo build -p cuda-stand-in -p perf-shim`.

mod clients;
mod run;

pub use clients::{Binding, client, compile, compile_plugin, oracle, python, runtimes};
pub use run::{Called, LookUp, Row, Run, StandIn};

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// The shim, for `LD_PRELOAD`.
///
/// # Errors
///
/// When it is not built.
pub fn shim() -> Result<PathBuf> {
    built("libdxpu_perf.so", "perf-shim")
}

/// The command that runs and predicts.
///
/// # Errors
///
/// When it is not built.
pub fn dxpu_perf() -> Result<PathBuf> {
    built("dxpu-perf", "perf-model")
}

/// A library or program of the profile that this program is built with.
fn built(file: &str, package: &str) -> Result<PathBuf> {
    let path = profile_folder()?.join(file);
    if !path.exists() {
        bail!("{} is not there: cargo build -p {package}", path.display());
    }
    Ok(path)
}

/// Where cargo puts libraries: above the folder of test programs.
fn profile_folder() -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program has no path")?;
    let folder = own.ancestors().nth(2).context("a test program is two folders down")?;
    Ok(folder.to_owned())
}
