//! Python environments of our own, below the target folder, for programs from the package index.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::tools::{output, target_dir};

/// How long the package index may take, in seconds.
const INSTALL_BOUND: &str = "300";

/// The Python interpreter of an environment that has what the file `requirements` names, in the
/// folder `name` below the target folder. It is made once, and again when that file or the version of Python has changed.
///
/// # Errors
///
/// Where there is no Python with `venv`, or the package index is not reached: with what to install.
pub(crate) fn environment(name: &str, requirements: &Path) -> Result<PathBuf> {
    let requires = std::fs::read_to_string(requirements)
        .with_context(|| format!("{} cannot be read", requirements.display()))?;
    // What is installed is found only by the version of Python that it was installed for.
    let version = output(Command::new("python3").arg("--version"));
    let wanted = format!("# {}\n{requires}", version.unwrap_or_default().trim());
    let folder = target_dir().join(name).join("python");
    let (python, stamp) = (folder.join("bin/python"), folder.join("installed.txt"));
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    install(&folder, &python, requirements)?;
    std::fs::write(&stamp, wanted)
        .with_context(|| format!("{} cannot be written", stamp.display()))?;
    Ok(python)
}

/// Makes [`environment`] install anew what it has in the folder `name`.
///
/// # Errors
///
/// When the file that says what is installed cannot be removed.
pub(crate) fn forget(name: &str) -> Result<()> {
    let stamp = target_dir().join(name).join("python/installed.txt");
    match std::fs::remove_file(&stamp) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", stamp.display()))
        }
        _ => Ok(()),
    }
}

fn install(folder: &Path, python: &Path, requirements: &Path) -> Result<()> {
    println!("installing what {} names in {}", requirements.display(), folder.display());
    output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))
        .context("install the package python3-venv")?;
    let mut pip = Command::new("timeout");
    pip.arg(INSTALL_BOUND).arg(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    output(pip.arg(requirements)).context("pip needs the Python package index")?;
    Ok(())
}
