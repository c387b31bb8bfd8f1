//! Files that reports go into.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::tell;

/// Writes a file of a report. What was in it stays where the new one cannot be written.
///
/// # Errors
/// It cannot be written; names it.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    match regular(path) {
        Some(file) => replace(&file, bytes),
        None => fs::write(path, bytes),
    }
    .with_context(|| cannot(path))
}

/// Looks whether a file can be written, before a program runs for hours. What is in it stays until
/// there is something to write, and one that is not there is not there then either.
///
/// # Errors
/// It cannot; names it.
pub(super) fn probe(path: &Path) -> Result<()> {
    let is_new = !path.exists();
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(false);
    let opened = open.open(path).map(drop);
    let file = path.canonicalize();
    if let (true, Ok(()), Ok(file)) = (is_new, &opened, file) {
        // One that cannot go is empty, as it was said to be.
        let _ = fs::remove_file(file);
    }
    opened.with_context(|| cannot(path))
}

/// The regular file that a name leads to, or that there will be; none where the name leads to
/// something else, which is written to as it is.
fn regular(path: &Path) -> Option<PathBuf> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Some(path.to_owned()),
        _ => path.canonicalize().ok().filter(|file| file.is_file()),
    }
}

/// Writes a file beside one, which takes its name when it is whole.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(name);
    let permissions = match file.exists() {
        // One that must not be written is not replaced either.
        true => Some(OpenOptions::new().write(true).open(file)?.metadata()?.permissions()),
        false => None,
    };
    let mut new = match File::create_new(&partial) {
        Err(error) if has_no_room(&error) => return Err(error),
        // A folder that takes no new files, or none with so long a name, may have one that can be
        // written.
        Err(_) => return in_place(file, bytes),
        Ok(new) => new,
    };
    let written = permissions
        .map_or(Ok(()), |permissions| new.set_permissions(permissions))
        .and_then(|()| new.write_all(bytes));
    // A file that something is mounted on keeps its name.
    let is_in_place = written.is_ok() && fs::rename(&partial, file).is_err();
    if written.is_err() || is_in_place {
        let _ = fs::remove_file(&partial);
    }
    if is_in_place { in_place(file, bytes) } else { written }
}

/// Writes over a file. What is longer than it comes first: where there is no room for that, what was in
/// it stays.
fn in_place(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let out = OpenOptions::new().write(true).create(true).truncate(false).open(file)?;
    let length = out.metadata()?.len();
    let over = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
    if let Err(error) = out.write_all_at(&bytes[over..], over as u64) {
        let _ = out.set_len(length);
        return Err(error);
    }
    out.write_all_at(&bytes[..over], 0)?;
    out.set_len(bytes.len() as u64)
}

/// Whether there is no room for a file, so that what is there must stay.
fn has_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn cannot(path: &Path) -> String {
    format!("{} cannot be written", path.display())
}

/// The first error of things that were all done, one after the other; the others are said.
///
/// # Errors
/// That one.
pub(super) fn all(done: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let mut errors = done.into_iter().filter_map(Result::err);
    let first = errors.next();
    errors.for_each(|error| tell(&format!("{error:#}")));
    first.map_or(Ok(()), Err)
}

#[cfg(test)]
mod unit_tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<String> = entries.map(|entry| name(entry.unwrap())).collect();
        names.sort();
        names
    }

    #[test]
    fn a_probe_leaves_what_was_there_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, link] = ["old", "new", "link"].map(|name| folder.path().join(name));
        fs::write(&old, "old").unwrap();
        symlink("new", &link).unwrap();
        for path in [&old, &new, &link] {
            probe(path).unwrap();
        }
        assert_eq!(names(folder.path()), ["link", "old"]);
        assert_eq!(fs::read(&old).unwrap(), b"old");
        assert!(probe(&folder.path().join("no/such")).is_err());
    }

    #[test]
    fn what_was_probed_well_is_written_whatever_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("l".repeat(250));
        for text in ["one", "two", "longer", "short", ""] {
            probe(&long).unwrap();
            write(&long, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&long).unwrap(), text);
        }
        assert_eq!(names(folder.path()).len(), 1);
    }

    #[test]
    fn a_file_keeps_its_place_and_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, link] = ["old", "new", "link"].map(|name| folder.path().join(name));
        fs::write(&old, "old").unwrap();
        fs::set_permissions(&old, PermissionsExt::from_mode(0o640)).unwrap();
        symlink("old", &link).unwrap();
        for (path, leads_to) in [(&link, &old), (&new, &new), (&old, &old)] {
            let text = path.display().to_string();
            write(path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(leads_to).unwrap(), text);
        }
        assert!(link.is_symlink());
        assert_eq!(old.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        // A link to nothing is written through.
        fs::remove_file(&old).unwrap();
        write(&link, b"again").unwrap();
        assert_eq!((fs::read(&old).unwrap(), link.is_symlink()), (b"again".to_vec(), true));
        assert_eq!(names(folder.path()), ["link", "new", "old"]);
        assert!(write(folder.path(), b"").is_err());
    }
}
