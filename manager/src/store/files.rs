//! A store's file and those beside it.

use super::{SCHEMA_VERSION, StoreError, kept};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A name that begins like that of a file.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// A copy of a file that is worked on. It goes when this does, with what an upgrade kept of it; one
/// that has another name by then stays.
#[derive(Debug)]
pub(super) struct WorkingCopy(PathBuf);

impl WorkingCopy {
    /// Copies a file, which this user need not be able to write.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is no regular file, or its copy cannot be written.
    pub(super) fn of(from: &Path, to: PathBuf) -> Result<Self, StoreError> {
        let metadata = fs::metadata(from).map_err(|e| StoreError::io(from, "read", e))?;
        if !metadata.is_file() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
            return Err(StoreError::io(from, "read", error));
        }
        // One that is there is of somebody who did not come to an end.
        let _ = fs::remove_file(&to);
        let copy = Self(to);
        let written = |error| StoreError::io(&copy.0, "written", error);
        fs::copy(from, &copy.0).map_err(written)?;
        let mut permissions = metadata.permissions();
        permissions.set_mode(permissions.mode() | 0o600);
        fs::set_permissions(&copy.0, permissions).map_err(written)?;
        Ok(copy)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for WorkingCopy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        for version in 1..SCHEMA_VERSION {
            let _ = fs::remove_file(kept(&self.0, version));
        }
    }
}

/// Gives a store a second name, with `.before` added, or `.before.1` and so on.
///
/// # Errors
///
/// When it cannot be written.
pub(super) fn keep(path: &Path) -> Result<PathBuf, StoreError> {
    let mut names = (0..).map(|n| match n {
        0 => beside(path, ".before"),
        n => beside(path, &format!(".before.{n}")),
    });
    let name = names.find(|name| !name.exists()).expect("one of all is free");
    let kept = fs::hard_link(path, &name).or_else(|_| fs::copy(path, &name).map(drop));
    kept.map_err(|e| StoreError::io(&name, "written", e))?;
    Ok(name)
}

/// Puts a file in the place of another, and on the disk.
///
/// # Errors
///
/// When the folder cannot be written.
pub(crate) fn rename(new: &Path, path: &Path) -> Result<(), StoreError> {
    let written = |error| StoreError::io(path, "written", error);
    fs::rename(new, path).map_err(written)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(written)
}
