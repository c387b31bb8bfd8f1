//! A store's file and those beside it.

use super::{SCHEMA_VERSION, StoreError, kept};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A name that begins like that of a file.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// How many links a name may lead over, as for the operating system.
const MOST_LINKS: usize = 40;

/// Where the file of a name is, or is to be made: the name may be a link, also to what is not there
/// yet. What takes the place of the file is made there, on its disk, and the name goes on leading there.
///
/// # Errors
///
/// When it leads over too many links, which is said of the name.
pub(crate) fn leads_to(named: &Path) -> io::Result<PathBuf> {
    let mut place = named.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(next) = place.read_link() else { return Ok(place) };
        place = place.parent().unwrap_or(Path::new("")).join(next);
    }
    Err(io::Error::other("it is a link that leads over too many others, or to itself"))
}

/// As [`leads_to`], of a store.
pub(super) fn place_of(store: &Path) -> Result<PathBuf, StoreError> {
    leads_to(store).map_err(|error| StoreError::io(store, "read", error))
}

/// A copy of a file that is worked on. It goes when this does, with what an upgrade kept of it; one
/// that has another name by then stays.
#[derive(Debug)]
pub(crate) struct WorkingCopy(PathBuf);

impl WorkingCopy {
    /// Copies a file, which this user need not be able to write.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is no regular file, or its copy cannot be written.
    pub(crate) fn of(from: &Path, to: PathBuf) -> Result<Self, StoreError> {
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
    pub(crate) fn path(&self) -> &Path {
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
    File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(written)
}

/// Puts a file in the place of a store, as whose that one was, or whose the folder is: who restores a
/// store is often root, and the manager somebody else.
///
/// # Errors
///
/// When the folder cannot be written.
pub(super) fn replace(new: &Path, path: &Path) -> Result<(), StoreError> {
    let like = fs::metadata(path).or_else(|_| fs::metadata(folder_of(path)));
    if let (Ok(own), Ok(like)) = (fs::metadata(new), like)
        && (own.uid(), own.gid()) != (like.uid(), like.gid())
    {
        // Nobody but root can, and else it stays with who made it.
        let _ = std::os::unix::fs::lchown(new, Some(like.uid()), Some(like.gid()));
    }
    rename(new, path)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::chown;

    #[test]
    fn what_takes_the_place_of_a_store_is_whose_that_was() {
        let folder = tempfile::tempdir().unwrap();
        let [store, new] = ["store", "new"].map(|name| folder.path().join(name));
        fs::write(&store, "old").unwrap();
        if chown(&store, Some(1234), Some(1235)).is_err() {
            println!("SKIPPED: only root can give a file to somebody else");
            return;
        }
        let owner = |path: &Path| {
            let metadata = fs::metadata(path).unwrap();
            (metadata.uid(), metadata.gid())
        };
        fs::write(&new, "new").unwrap();
        replace(&new, &store).unwrap();
        assert_eq!((owner(&store), fs::read(&store).unwrap()), ((1234, 1235), b"new".to_vec()));
        // Where there was none it is whose the folder is.
        fs::remove_file(&store).unwrap();
        chown(folder.path(), Some(4321), Some(4322)).unwrap();
        fs::write(&new, "new").unwrap();
        replace(&new, &store).unwrap();
        assert_eq!(owner(&store), (4321, 4322));
    }
}
