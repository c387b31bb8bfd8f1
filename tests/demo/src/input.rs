//! What is written to the remote drive: a file of the user's, or the repository's own files.

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes that the repository's files have together at least.
const AT_LEAST: u64 = 1 << 20;

/// Room for everything else that the demo writes: logs and the manager's store.
const SPARE: u64 = 16 << 20;

/// SHA-256 of a file, in hexadecimal.
pub(crate) fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut hash = Sha256::new();
    let mut buf = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buf).with_context(|| path.display().to_string())?;
        if n == 0 {
            break;
        }
        hash.update(&buf[..n]);
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}

/// The user's file, after a look whether it can be used.
pub(crate) fn users(path: &Path) -> Result<(PathBuf, u64)> {
    let name = path.display();
    let data = std::fs::metadata(path)
        .with_context(|| format!("FILE {name}: give one that is there and that you may read"))?;
    if !data.is_file() {
        bail!("FILE {name} is not a file; give one whose bytes are to be written to the drive");
    }
    if data.len() == 0 {
        bail!("FILE {name} is empty; give one with something in it");
    }
    let mut file = File::open(path)
        .with_context(|| format!("FILE {name}: give one that is there and that you may read"))?;
    file.read_exact(&mut [0])
        .with_context(|| format!("FILE {name} cannot be read; give another one"))?;
    Ok((std::path::absolute(path)?, data.len()))
}

/// Checks that a folder has room for the drive's image and for what is read back.
pub(crate) fn check_room(bytes: u64, folder: &Path) -> Result<()> {
    let needed = bytes.saturating_mul(2).saturating_add(SPARE);
    let free = free_bytes(folder)?;
    if free < needed {
        bail!(
            "{bytes} bytes do not fit: the drive's image and the copy read back need {} MiB in {}, \
             where {} MiB are free; give a smaller FILE, or set TMPDIR to a folder with more room",
            needed.div_ceil(1 << 20),
            folder.display(),
            free >> 20
        );
    }
    Ok(())
}

/// Bytes that a user may still write into a folder.
fn free_bytes(folder: &Path) -> Result<u64> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    let mut data = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is a string that ends with a zero byte; `data` has room for the answer.
    if unsafe { libc::statvfs(path.as_ptr(), data.as_mut_ptr()) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(error).with_context(|| folder.display().to_string());
    }
    // SAFETY: statvfs(3) returned 0, so it filled `data`.
    let data = unsafe { data.assume_init() };
    Ok(data.f_bavail.saturating_mul(data.f_frsize))
}

/// The repository's files, one after the other in one file.
pub(crate) fn repository(root: &Path, into: &Path) -> Result<(PathBuf, u64)> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let mut out = File::create(into)?;
    let mut bytes = 0;
    for file in &files {
        let content = std::fs::read(file).with_context(|| file.display().to_string())?;
        out.write_all(&content)?;
        bytes += content.len() as u64;
    }
    if bytes < AT_LEAST {
        bail!("{} holds {bytes} bytes of files; name a FILE", root.display());
    }
    Ok((into.to_path_buf(), bytes))
}

/// Files below a folder, without what was built and what git keeps.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name();
        if name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_hash() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(file.path()).unwrap(), expected);
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let error = format!("{:#}", users(Path::new("/nowhere")).unwrap_err());
        assert!(error.contains("/nowhere"));
        let folder = tempfile::tempdir().unwrap();
        assert!(users(folder.path()).unwrap_err().to_string().contains("not a file"));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        check_room(1, folder.path()).unwrap();
        for bytes in [1 << 60, u64::MAX] {
            let error = check_room(bytes, folder.path()).unwrap_err().to_string();
            assert!(error.contains("TMPDIR") && error.contains("smaller FILE"), "{error}");
        }
    }
}
