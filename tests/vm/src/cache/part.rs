//! One part of the cache: a folder with a record of what it was made of.

use super::apt::{Apt, Fetched};
use super::{Kernel, News, Tell, elf, kernel, package};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Names of folders in which something is being made begin so.
pub(crate) const ASIDE: &str = ".making-";

/// The record's name in a part's folder.
const RECORD: &str = "record.json";

/// Counted up when parts are put together in another way, so that older ones are made again.
const FORMAT: u32 = 2;

/// Where QEMU's machines for x86-64 come from: the vfio-user client is in QEMU from 10.1 on, and
/// Debian 13 itself has 10.0.
const QEMU_RELEASES: &[&str] = &["trixie", "trixie-backports"];
const QEMU: &str = "usr/bin/qemu-system-x86_64";

/// What the guests have beside busybox: package, program.
const PROGRAMS: &[(&str, &str)] = &[
    ("pciutils", "usr/bin/lspci"),
    ("pciutils", "usr/bin/setpci"),
    ("e2fsprogs", "usr/sbin/mke2fs"),
    ("e2fsprogs", "usr/sbin/e2fsck"),
    ("fio", "usr/bin/fio"),
    ("nvme-cli", "usr/sbin/nvme"),
];

/// Files that these programs read, and other names of theirs.
const FILES: &[&str] =
    &["usr/share/misc/pci.ids", "etc/mke2fs.conf", "usr/sbin/mkfs.ext4", "usr/sbin/fsck.ext4"];

const BUSYBOX: &str = "usr/bin/busybox";

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// QEMU with its libraries and the guests' firmware.
    Qemu,
    /// The programs of a guest.
    Tools,
    /// A kernel and its modules.
    Kernel(Kernel),
}

/// What a part was made of.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// [`Part::recipe`] at that time.
    pub(crate) recipe: String,
    /// Packages and their versions.
    pub(crate) packages: Vec<(String, String)>,
}

impl Part {
    /// Every part that there can be.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [Self::Qemu, Self::Tools].into_iter().chain(Kernel::ALL.map(Self::Kernel))
    }

    /// Its folder's name.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Qemu => "qemu".to_owned(),
            Self::Tools => "tools".to_owned(),
            Self::Kernel(kernel) => format!("kernel-{kernel}"),
        }
    }

    /// What it is made of. A part that was made of something else is made again.
    pub(crate) fn recipe(self) -> String {
        match self {
            Self::Qemu => format!("{FORMAT} {QEMU_RELEASES:?} {QEMU}"),
            Self::Tools => format!("{FORMAT} {PROGRAMS:?} {FILES:?}"),
            Self::Kernel(kernel) => {
                format!("{FORMAT} {:?} {:?}", kernel.releases(), kernel::MODULES)
            }
        }
    }

    /// What it was made of.
    ///
    /// # Errors
    ///
    /// When it is not there.
    pub(crate) fn record(self, cache: &Path) -> Result<Record> {
        let text = std::fs::read(cache.join(self.name()).join(RECORD))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Makes it, in place of an older one.
    ///
    /// # Errors
    ///
    /// Those of [`Apt`], and when the cache cannot be written.
    pub(crate) fn make(self, cache: &Path, apt: &mut Apt, tell: Tell) -> Result<()> {
        let aside = tempfile::Builder::new().prefix(ASIDE).tempdir_in(cache)?;
        let folder = aside.path().join("part");
        std::fs::create_dir(&folder)?;
        let packages = match self {
            Self::Qemu => qemu(&folder, apt, tell)?,
            Self::Tools => tools(&folder, apt, tell)?,
            Self::Kernel(kernel) => kernel::make(kernel, &folder, apt, tell)?,
        };
        let record = Record { recipe: self.recipe(), packages };
        std::fs::write(folder.join(RECORD), serde_json::to_vec_pretty(&record)?)?;
        let place = cache.join(self.name());
        if place.exists() {
            std::fs::rename(&place, aside.path().join("old"))?;
        }
        std::fs::rename(&folder, &place)
            .with_context(|| format!("{} cannot be put in place", place.display()))?;
        tell(News::Step(&format!("{} is there", self.name())));
        Ok(())
    }
}

/// Removes what an earlier program was making when it was killed. To be called with the lock.
///
/// # Errors
///
/// When something cannot be removed.
pub(crate) fn remove_leftovers(cache: &Path) -> Result<()> {
    for entry in std::fs::read_dir(cache)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(ASIDE) {
            std::fs::remove_dir_all(entry.path())
                .with_context(|| format!("{} cannot be removed", entry.path().display()))?;
        }
    }
    Ok(())
}

fn unpack_all(packages: &[Fetched], into: &Path) -> Result<()> {
    // Documentation, translations, and configuration that only an installation reads.
    let dull = ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"];
    let wanted = |path: &Path| !dull.iter().any(|folder| path.starts_with(folder));
    std::fs::create_dir_all(into)?;
    for package in packages {
        package::unpack(&package.file, into, &wanted)?;
    }
    Ok(())
}

fn versions(packages: Vec<Fetched>) -> Vec<(String, String)> {
    packages.into_iter().map(|package| (package.name, package.version)).collect()
}

fn qemu(folder: &Path, apt: &mut Apt, tell: Tell) -> Result<Vec<(String, String)>> {
    apt.update(QEMU_RELEASES, tell)?;
    let packages = apt.fetch("trixie-backports", &["qemu-system-x86"], &|_| true, tell)?;
    tell(News::Step("unpacking QEMU"));
    let aside = folder.join("unpacked");
    unpack_all(&packages, &aside)?;
    copy(&aside, folder, elf::closure(&aside, Path::new(QEMU))?)?;
    // The guests' firmware.
    for firmware in ["usr/share/qemu", "usr/share/seabios"] {
        let place = folder.join(firmware);
        std::fs::create_dir_all(place.parent().context("it is below usr/share")?)?;
        std::fs::rename(aside.join(firmware), &place)
            .with_context(|| format!("QEMU's packages have no {firmware}"))?;
    }
    std::fs::remove_dir_all(aside)?;
    Ok(versions(packages))
}

fn tools(folder: &Path, apt: &mut Apt, tell: Tell) -> Result<Vec<(String, String)>> {
    apt.update(QEMU_RELEASES, tell)?;
    let mut names: Vec<&str> = PROGRAMS.iter().map(|(package, _)| *package).collect();
    names.push("busybox-static");
    names.dedup();
    let packages = apt.fetch("trixie", &names, &|_| true, tell)?;
    tell(News::Step("unpacking the guests' tools"));
    let aside = folder.join("unpacked");
    unpack_all(&packages, &aside)?;
    for (_, program) in PROGRAMS {
        copy(&aside, folder, elf::closure(&aside, Path::new(program))?)?;
    }
    copy(&aside, folder, FILES.iter().map(PathBuf::from))?;
    copy(&aside, folder, [PathBuf::from(BUSYBOX)])?;
    std::fs::remove_dir_all(aside)?;
    applets(folder)?;
    Ok(versions(packages))
}

/// Gives busybox its other names, except where there is a program of that name.
fn applets(folder: &Path) -> Result<()> {
    let list = processes::output(std::process::Command::new(folder.join(BUSYBOX)).arg("--list"))?;
    for applet in list.lines().filter(|applet| *applet != "busybox") {
        let taken = ["usr/bin", "usr/sbin"]
            .iter()
            .any(|place| folder.join(place).join(applet).symlink_metadata().is_ok());
        if !taken {
            std::os::unix::fs::symlink("busybox", folder.join("usr/bin").join(applet))?;
        }
    }
    // The kernel itself calls this one, in /sbin.
    std::os::unix::fs::symlink("../bin/busybox", folder.join("usr/sbin/modprobe"))?;
    Ok(())
}

/// Copies files and links of one tree into another.
fn copy(from: &Path, to: &Path, files: impl IntoIterator<Item = PathBuf>) -> Result<()> {
    for file in files {
        let (source, target) = (from.join(&file), to.join(&file));
        std::fs::create_dir_all(target.parent().context("a file is in a folder")?)?;
        if target.symlink_metadata().is_ok() {
            continue;
        }
        let metadata = source.symlink_metadata().with_context(|| format!("no {file:?}"))?;
        if metadata.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&source)?, &target)?;
        } else {
            std::fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_being_made_is_removed_and_what_is_made_stays() {
        let cache = tempfile::tempdir().unwrap();
        let half = cache.path().join(format!("{ASIDE}x1/part"));
        let whole = cache.path().join(Part::Qemu.name());
        for folder in [&half, &whole] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("file"), "x").unwrap();
        }
        remove_leftovers(cache.path()).unwrap();
        assert!(!half.exists() && whole.join("file").exists());
    }

    #[test]
    fn a_part_is_there_with_its_record_only() {
        let cache = tempfile::tempdir().unwrap();
        assert!(Part::Tools.record(cache.path()).is_err());
        std::fs::create_dir(cache.path().join("tools")).unwrap();
        assert!(Part::Tools.record(cache.path()).is_err(), "it has no record");
        let packages = vec![("fio".to_owned(), "3.39-1".to_owned())];
        let record = Record { recipe: Part::Tools.recipe(), packages: packages.clone() };
        let text = serde_json::to_vec(&record).unwrap();
        std::fs::write(cache.path().join("tools").join(RECORD), text).unwrap();
        let read = Part::Tools.record(cache.path()).unwrap();
        assert_eq!((read.recipe, read.packages), (Part::Tools.recipe(), packages));
    }

    #[test]
    fn parts_have_names_of_their_own() {
        let mut names: Vec<String> = Part::all().map(Part::name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
