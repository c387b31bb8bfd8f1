//! `dxpu-guest`, the program of ours that runs in guests.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `dxpu-guest`, linked statically so that a guest needs nothing else for it, and says where
/// it is: below the folder of the other programs, in a target folder of its own, since other flags
/// would have everything built anew there.
///
/// # Errors
///
/// When it cannot be built, with what cargo says.
pub fn guest_tools(programs: &Path) -> Result<PathBuf> {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let folder = programs.join("guest-tools");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--package", "guest-tools", "--target", TARGET])
        .arg("--target-dir")
        .arg(&folder)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTFLAGS", "-Ctarget-feature=+crt-static -Cstrip=symbols")
        .output()
        .context("cargo does not start")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "guest-tools cannot be built: {said}");
    Ok(folder.join(TARGET).join("debug/dxpu-guest"))
}
