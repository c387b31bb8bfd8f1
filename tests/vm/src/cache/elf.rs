//! Which files a program needs to run: its interpreter and its libraries, and theirs.

use anyhow::{Context, Result};
use object::Endianness;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Where Debian's libraries are, relative to `/`.
pub(crate) const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// What an ELF file says that it needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    interpreter: Option<String>,
    libraries: Vec<String>,
    /// Folders to look in first.
    paths: Vec<String>,
}

/// The files of a tree that a program of it needs, itself included, and the symbolic links on the
/// way to them; relative to the tree.
///
/// # Errors
///
/// When one of them is not in the tree, or is not an ELF file.
pub(crate) fn closure(root: &Path, program: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut open = vec![program.to_path_buf()];
    let mut seen = BTreeSet::new();
    while let Some(path) = open.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let file = follow(root, &path, &mut found)?;
        let data = std::fs::read(root.join(&file))?;
        // A script needs an interpreter that the caller asks for, too.
        if data.starts_with(b"#!") {
            continue;
        }
        let needs = needs(&data).with_context(|| format!("{} is no ELF file", file.display()))?;
        if let Some(interpreter) = &needs.interpreter {
            open.push(merged(Path::new(interpreter)));
        }
        let origin = file.parent().unwrap_or(Path::new(""));
        for library in &needs.libraries {
            let place = place(root, origin, &needs.paths, library);
            open.push(place.with_context(|| format!("{} needs {library}", file.display()))?);
        }
    }
    Ok(found)
}

/// Follows symbolic links within a tree; each name on the way is noted.
fn follow(root: &Path, path: &Path, found: &mut BTreeSet<PathBuf>) -> Result<PathBuf> {
    let mut path = path.to_path_buf();
    // As many as the kernel follows.
    for _ in 0..40 {
        let full = root.join(&path);
        let metadata = full.symlink_metadata().with_context(|| format!("no {}", path.display()))?;
        found.insert(path.clone());
        if !metadata.is_symlink() {
            return Ok(path);
        }
        let target = std::fs::read_link(full)?;
        path = match target.strip_prefix("/") {
            Ok(absolute) => merged(absolute),
            Err(_) => plain(&path.parent().unwrap_or(Path::new("")).join(target)),
        };
    }
    anyhow::bail!("{} is a circle of links", path.display())
}

/// Without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    out
}

/// Where a path is on a system whose `/lib` and `/lib64` are links into `/usr`.
fn merged(path: &Path) -> PathBuf {
    let path = plain(path);
    if path.starts_with("usr") || path.starts_with("etc") {
        path
    } else {
        Path::new("usr").join(path)
    }
}

fn place(root: &Path, origin: &Path, paths: &[String], library: &str) -> Option<PathBuf> {
    let own = paths.iter().map(|path| match path.strip_prefix("$ORIGIN") {
        Some(rest) => plain(&origin.join(rest.trim_start_matches('/'))),
        None => merged(Path::new(path)),
    });
    let usual = [LIBRARIES, "usr/lib", "usr/lib64"].map(PathBuf::from);
    own.chain(usual)
        .map(|folder| folder.join(library))
        .find(|path| root.join(path).symlink_metadata().is_ok())
}

fn needs(data: &[u8]) -> object::read::Result<Needs> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let mut needs = Needs::default();
    for segment in header.program_headers(endian, data)? {
        if let Some(interpreter) = segment.interpreter(endian, data)? {
            needs.interpreter = Some(String::from_utf8_lossy(interpreter).into_owned());
        }
    }
    let sections = header.sections(endian, data)?;
    let Some((entries, strings)) = sections.dynamic(endian, data)? else { return Ok(needs) };
    let strings = sections.strings(endian, data, strings)?;
    for entry in entries {
        let tag = entry.d_tag(endian);
        if [DT_NEEDED, DT_RUNPATH, DT_RPATH].iter().all(|known| i64::from(*known) != tag as i64) {
            continue;
        }
        let text = String::from_utf8_lossy(entry.string(endian, strings)?).into_owned();
        if tag as i64 == i64::from(DT_NEEDED) {
            needs.libraries.push(text);
        } else {
            needs.paths.extend(text.split(':').map(str::to_owned));
        }
    }
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_what_it_was_linked_with() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = needs(&own).unwrap();
        assert!(needs.libraries.iter().any(|library| library == "libc.so.6"), "{needs:?}");
        assert!(needs.interpreter.unwrap().contains("ld-linux"));
        assert!(super::needs(b"not an ELF file").is_err());
    }

    #[test]
    fn links_are_followed_within_the_tree() {
        let tree = tempfile::tempdir().unwrap();
        let lib = tree.path().join(LIBRARIES);
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(lib.join("libx.so.1.2"), "#!").unwrap();
        std::os::unix::fs::symlink("libx.so.1.2", lib.join("libx.so.1")).unwrap();
        std::os::unix::fs::symlink("/lib/x86_64-linux-gnu/libx.so.1", lib.join("libx.so")).unwrap();
        let found = closure(tree.path(), &Path::new(LIBRARIES).join("libx.so")).unwrap();
        let names = ["libx.so", "libx.so.1", "libx.so.1.2"].map(|n| Path::new(LIBRARIES).join(n));
        assert_eq!(found, BTreeSet::from(names));
        std::os::unix::fs::symlink("a", lib.join("a")).unwrap();
        let circle = closure(tree.path(), &Path::new(LIBRARIES).join("a")).unwrap_err();
        assert!(circle.to_string().contains("circle"), "{circle}");
        assert!(closure(tree.path(), Path::new("usr/bin/none")).is_err());
    }

    #[test]
    fn paths_lose_their_dots() {
        assert_eq!(plain(Path::new("a/b/../c/./d")), Path::new("a/c/d"));
        assert_eq!(merged(Path::new("/lib64/ld.so")), Path::new("usr/lib64/ld.so"));
        assert_eq!(merged(Path::new("/usr/lib/x")), Path::new("usr/lib/x"));
    }
}
