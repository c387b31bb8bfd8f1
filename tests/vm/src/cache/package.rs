//! Unpacks Debian packages, or some files of them.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};
use tar::Archive;

/// Unpacks what `wanted` says of a package into a folder. Paths are relative to `/`.
///
/// # Errors
///
/// When the package is damaged or the folder cannot be written.
pub(crate) fn unpack(file: &Path, into: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<()> {
    processes::not_interrupted()?;
    let mut child = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("dpkg-deb does not start")?;
    let mut archive = Archive::new(child.stdout.take().context("it was piped")?);
    archive.set_preserve_ownerships(false);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let path = path.strip_prefix(".").unwrap_or(&path);
        if !entry.header().entry_type().is_dir() && wanted(path) {
            entry.unpack_in(into).with_context(|| format!("{} of {file:?}", path.display()))?;
        }
    }
    drop(archive);
    let status = child.wait()?;
    if !status.success() {
        bail!("dpkg-deb --fsys-tarfile {} ended with {status}", file.display());
    }
    Ok(())
}
