//! The guest's first file system: an initramfs of the tools and modules that it needs, uncompressed,
//! since unpacking costs an emulated processor more than copying.

use crate::cache::{Cache, MODULES};
use crate::guest::Options;
use anyhow::{Context, Result, bail};
use cpio::newc;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

const INIT: &str = include_str!("init.sh");
const AGENT: &str = include_str!("agent.sh");

/// Folders that things are mounted on or put in.
const FOLDERS: &[&str] =
    &["dev", "proc", "sys", "run", "tmp", "mnt", "root", "etc", "lib", "usr/bin", "usr/sbin"];

/// Where the programs' names lead. `lib` is no link: the modules are there.
const LINKS: &[(&str, &str)] =
    &[("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib64", "usr/lib64"), ("linuxrc", "init")];

/// Lists of modules that lspci asks for, and complains of when they are not there.
const INDICES: &[&str] = &[
    "modules.dep.bin",
    "modules.alias.bin",
    "modules.symbols.bin",
    "modules.builtin.bin",
    "modules.builtin.alias.bin",
];

/// Such a list with nothing in it: magic, version 2.1, and no root (kmod, libkmod/libkmod-index.c).
/// Modules are loaded by busybox, which reads the lists that are text.
const EMPTY_INDEX: [u8; 12] = [0xb0, 0x07, 0xf4, 0x57, 0, 2, 0, 1, 0, 0, 0, 0];

/// What the shell reads when a person comes.
const PROFILE: &str = "PS1='\\h:\\w# '\n";

/// Writes the initramfs of a guest.
///
/// # Errors
///
/// When one of its files cannot be read, or it asks for a module that is not kept.
pub(crate) fn write(cache: &Cache, options: &Options, place: &Path) -> Result<()> {
    let file =
        File::create(place).with_context(|| format!("{} cannot be made", place.display()))?;
    let mut image = Image { out: BufWriter::new(file), names: BTreeSet::new() };
    for folder in FOLDERS {
        image.folder(folder)?;
    }
    for (name, target) in LINKS {
        image.link(name, target)?;
    }
    image.text("init", INIT, 0o755)?;
    image.text("etc/agent.sh", AGENT, 0o755)?;
    image.text("etc/hostname", &format!("{}\n", options.name), 0o644)?;
    image.text("etc/profile", PROFILE, 0o644)?;
    image.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644)?;
    image.link("etc/mtab", "/proc/self/mounts")?;
    for (name, file) in &options.files {
        image.file(name.trim_start_matches('/'), file)?;
    }
    let kernel = cache.kernel(options.kernel).join("modules");
    image.text("etc/modules", &boot_modules(&kernel, &options.modules)?, 0o644)?;
    for version in std::fs::read_dir(&kernel)? {
        let version = version?.file_name();
        for list in INDICES {
            let name = format!("lib/modules/{}/{list}", version.to_string_lossy());
            image.entry(&name, REGULAR | 0o644, &EMPTY_INDEX)?;
        }
    }
    image.tree("lib/modules", &kernel)?;
    image.tree("", &cache.tools())?;
    newc::trailer(image.out)?.flush()?;
    Ok(())
}

/// The modules that are loaded at boot, a line each, less those that the kernel has built in.
fn boot_modules(kernel: &Path, modules: &[String]) -> Result<String> {
    if let Some(unknown) = modules.iter().find(|module| !MODULES.contains(&module.as_str())) {
        bail!("there is no module {unknown} in the guests; there are {}", MODULES.join(", "));
    }
    let mut text = String::new();
    for version in std::fs::read_dir(kernel)? {
        let version = version?.path();
        for module in modules {
            if version.join(format!("{}.ko", module.replace('-', "_"))).is_file() {
                text.push_str(module);
                text.push('\n');
            }
        }
    }
    Ok(text)
}

/// An archive that is being written. What comes first under a name stays.
struct Image<W: Write> {
    out: W,
    names: BTreeSet<String>,
}

impl<W: Write> Image<W> {
    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) -> Result<()> {
        if let Some((folder, _)) = name.rsplit_once('/') {
            self.folder(folder)?;
        }
        if !self.names.insert(name.to_owned()) {
            return Ok(());
        }
        let size = u32::try_from(data.len()).with_context(|| format!("{name} is above 4 GiB"))?;
        let inode = u32::try_from(self.names.len())?;
        let mut entry = newc::Builder::new(name).ino(inode).mode(mode).write(&mut self.out, size);
        entry.write_all(data)?;
        entry.finish()?;
        Ok(())
    }

    fn folder(&mut self, name: &str) -> Result<()> {
        self.entry(name, DIRECTORY | 0o755, &[])
    }

    fn link(&mut self, name: &str, target: &str) -> Result<()> {
        self.entry(name, LINK | 0o777, target.as_bytes())
    }

    fn text(&mut self, name: &str, text: &str, permissions: u32) -> Result<()> {
        self.entry(name, REGULAR | permissions, text.as_bytes())
    }

    fn file(&mut self, name: &str, file: &Path) -> Result<()> {
        let data =
            std::fs::read(file).with_context(|| format!("{} for a guest", file.display()))?;
        let permissions = std::fs::metadata(file)?.permissions().mode() & 0o777;
        self.entry(name, REGULAR | permissions, &data)
    }

    /// Everything below a folder, under a name.
    fn tree(&mut self, name: &str, folder: &Path) -> Result<()> {
        let mut entries = std::fs::read_dir(folder)
            .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
            .with_context(|| format!("{} cannot be read", folder.display()))?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let own = entry.file_name();
            let own = own.to_str().with_context(|| format!("the name {own:?} is not UTF-8"))?;
            let name = if name.is_empty() { own.to_owned() } else { format!("{name}/{own}") };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.folder(&name)?;
                self.tree(&name, &entry.path())?;
            } else if kind.is_symlink() {
                let target = std::fs::read_link(entry.path())?;
                let target = target.to_str().with_context(|| format!("the link {name}"))?;
                self.link(&name, target)?;
            } else {
                self.file(&name, &entry.path())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn read_back(archive: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut rest = archive;
        let mut entries = Vec::new();
        loop {
            let mut reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                return entries;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut data = Vec::new();
            reader.read_to_end(&mut data).unwrap();
            entries.push((name, mode, data));
            rest = reader.finish().unwrap();
        }
    }

    #[test]
    fn a_tree_is_what_was_put_in_and_the_first_of_a_name_stays() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("usr/bin")).unwrap();
        std::fs::write(tree.path().join("usr/bin/tool"), "binary").unwrap();
        std::os::unix::fs::symlink("tool", tree.path().join("usr/bin/name")).unwrap();
        let mut image = Image { out: Vec::new(), names: BTreeSet::new() };
        image.text("usr/bin/own", "first", 0o755).unwrap();
        image.tree("", tree.path()).unwrap();
        image.text("usr/bin/own", "second", 0o755).unwrap();
        let archive = newc::trailer(image.out).unwrap();
        let entries = read_back(&archive);
        let names: Vec<&str> = entries.iter().map(|(name, ..)| name.as_str()).collect();
        // A folder comes before what is in it, or the kernel drops that.
        assert_eq!(names, ["usr", "usr/bin", "usr/bin/own", "usr/bin/name", "usr/bin/tool"]);
        assert_eq!(entries[2].2, b"first");
        assert_eq!(entries[3].1, LINK | 0o777);
        assert_eq!(entries[3].2, b"tool");
        assert_eq!(entries[4].2, b"binary");
        assert_eq!(entries[0].1, DIRECTORY | 0o755);
    }

    #[test]
    fn a_module_that_is_not_kept_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let version = folder.path().join("6.1.0");
        std::fs::create_dir(&version).unwrap();
        std::fs::write(version.join("nvme_tcp.ko"), "").unwrap();
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let modules = boot_modules(folder.path(), &list(&["nvme-tcp", "ext4"])).unwrap();
        assert_eq!(modules, "nvme-tcp\n", "the others are built in");
        let error = boot_modules(folder.path(), &list(&["nvme_tpc"])).unwrap_err();
        assert!(error.to_string().contains("nvme_tpc"), "{error}");
    }
}
