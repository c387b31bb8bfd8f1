//! What is written to the remote drive: a file of the user's, or the repository's own files.

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Bytes that the repository's files have together at least.
const AT_LEAST: u64 = 1 << 20;

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
    let data = std::fs::metadata(path).with_context(|| format!("FILE {name}"))?;
    if !data.is_file() {
        bail!("FILE {name} is not a file; give one whose bytes are to be written to the drive");
    }
    if data.len() == 0 {
        bail!("FILE {name} is empty; give one with something in it");
    }
    File::open(path).with_context(|| format!("FILE {name}"))?;
    Ok((std::path::absolute(path)?, data.len()))
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
}
