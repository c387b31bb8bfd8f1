//! What the tests of CUDA programs use that is not ours: Python packages, and NVIDIA's driver.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::report::Done;
use crate::tools::{output, root, target_dir};

/// Sets of packages: files in `tests/cuda/requirements`.
const SETS: [&str; 4] = ["tinygrad", "bindings-12", "bindings-13", "numba"];

/// The keys that Debian's packages are signed with.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The release that has driver 535.
const SOURCE: &str = "http://deb.debian.org/debian bookworm non-free";

/// Installs all of it below the target folder. What cannot be installed is said; its tests then
/// are skipped.
pub(crate) fn install() -> Result<Done> {
    let mut missing = Vec::new();
    for set in SETS {
        let requirements = root().join("tests/cuda/requirements").join(format!("{set}.txt"));
        if let Err(error) =
            crate::python::environment(&format!("cuda-clients/{set}"), &requirements)
        {
            missing.push(format!("{set}: {error:#}"));
        }
    }
    if let Err(error) = oracle() {
        missing.push(format!("Debian's libcuda1: {error:#}"));
    }
    if missing.is_empty() {
        return Ok(Done::with(format!("{} sets of packages, Debian's libcuda1", SETS.len())));
    }
    Ok(Done::skipped(missing.join("; ")))
}

/// Fetches Debian's package of NVIDIA's driver and takes the library out of it. It is not
/// installed: nothing but a test loads it.
fn oracle() -> Result<()> {
    let folder = target_dir().join("cuda-clients/oracle");
    let library = folder.join("libcuda.so.1");
    if library.exists() {
        return Ok(());
    }
    for name in ["lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(folder.join(name))
            .with_context(|| format!("{} cannot be made", folder.display()))?;
    }
    let sources = folder.join("sources.list");
    std::fs::write(&sources, format!("deb [signed-by={KEYS}] {SOURCE}\n"))
        .with_context(|| format!("{} cannot be written", sources.display()))?;
    output(apt(&folder).arg("update"))?;
    output(apt(&folder).args(["download", "libcuda1"]))?;
    let package = found(&folder, |name| name.ends_with(".deb"))?;
    output(Command::new("dpkg").arg("-x").arg(&package).arg(folder.join("package")))?;
    let files = folder.join("package/usr/lib/x86_64-linux-gnu/nvidia/current");
    let real = found(&files, |name| name.starts_with("libcuda.so.") && name.len() > 13)?;
    std::fs::rename(&real, &library)
        .with_context(|| format!("{} cannot be moved", real.display()))?;
    Ok(())
}

/// A package manager with lists and packages of its own below `folder`.
fn apt(folder: &Path) -> Command {
    let mut apt = Command::new("timeout");
    apt.args(["120", "apt-get", "-qq"]).current_dir(folder);
    for (option, path) in [
        ("Dir::Etc::SourceList", "sources.list"),
        ("Dir::Etc::SourceParts", "none"),
        ("Dir::State::Lists", "lists"),
        ("Dir::Cache", "cache"),
    ] {
        apt.arg("-o").arg(format!("{option}={}", folder.join(path).display()));
    }
    apt.args(["-o", "APT::Sandbox::User=root"]);
    apt
}

fn found(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let is_wanted = |path: &std::path::PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(&wanted)
    };
    files.find(is_wanted).with_context(|| format!("{} has not what it should", folder.display()))
}
