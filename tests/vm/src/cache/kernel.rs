//! Debian's kernels, and the modules that the guests use.

use super::apt::Apt;
use super::{Tell, package};
use anyhow::{Context, Result, bail};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::io::Read;
use std::path::{Path, PathBuf};

/// One of Debian's generic kernels for x86-64, as the package `linux-image-amd64` of a release
/// brings it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kernel {
    /// Debian 12's.
    #[value(name = "6.1")]
    V6_1,
    /// Debian 13's.
    #[value(name = "6.12")]
    V6_12,
    /// The newest one that Debian 13 can be given.
    #[value(name = "backports")]
    Backports,
}

impl Kernel {
    /// All of them, the oldest first.
    pub const ALL: [Self; 3] = [Self::V6_1, Self::V6_12, Self::Backports];

    /// Its name on command lines and in the cache.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::Backports => "backports",
        }
    }

    /// The releases whose lists are read, and the one that it is taken from.
    pub(crate) fn releases(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::V6_1 => (&["bookworm"], "bookworm"),
            Self::V6_12 => (&["trixie", "trixie-backports"], "trixie"),
            Self::Backports => (&["trixie", "trixie-backports"], "trixie-backports"),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The modules that are kept, with those that they need. A name that a kernel has built in, or one
/// in [`NOT_ALL`] that it does not have, is left out.
pub(crate) const MODULES: &[&str] = &[
    "vmd",
    "nvme",
    "ext4",
    // For AER: errors that a device never reported.
    "aer_inject",
    // Other drivers to bind, and devices that QEMU has itself.
    "e1000e",
    "pci-stub",
    "uio_pci_generic",
    "vfio-pci",
    // Two guests and NVMe over TCP between them.
    "virtio_net",
    "virtio_pci",
    "nvme-tcp",
    "nvmet-tcp",
    "configfs",
    // What ext4's checksums ask for by another name.
    "crc32c_generic",
    "crc32c_intel",
];

/// Since Linux 6.14 these are no modules of their own.
const NOT_ALL: &[&str] = &["crc32c_generic", "crc32c_intel"];

/// Brings a kernel into a folder: `vmlinuz` and `modules/VERSION/`, with a `modules.dep`.
///
/// # Errors
///
/// Those of [`Apt`], and when a package is not as it is known.
pub(crate) fn make(
    kernel: Kernel,
    folder: &Path,
    apt: &mut Apt,
    tell: Tell,
) -> Result<Vec<(String, String)>> {
    let (releases, release) = kernel.releases();
    apt.update(releases, tell)?;
    let ours = |name: &str| name.starts_with("linux-");
    let packages = apt.fetch(release, &["linux-image-amd64"], &ours, tell)?;
    tell(super::News::Step(&format!("unpacking kernel {kernel}")));
    let aside = folder.join("unpacked");
    let wanted = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("vmlinuz") || name == "modules.builtin" || is_module(name)
    };
    std::fs::create_dir(&aside)?;
    for package in &packages {
        package::unpack(&package.file, &aside, &wanted)?;
    }
    arrange(&aside, folder)?;
    std::fs::remove_dir_all(&aside)?;
    Ok(packages.into_iter().map(|package| (package.name, package.version)).collect())
}

fn is_module(name: &str) -> bool {
    name.ends_with(".ko") || name.ends_with(".ko.xz")
}

/// The name of a module as the kernel has it.
fn plain(name: &str) -> String {
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

fn arrange(aside: &Path, folder: &Path) -> Result<()> {
    let mut files = Vec::new();
    files_below(aside, &mut files)?;
    let name = |path: &PathBuf| -> String {
        path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let image = files.iter().find(|path| name(path).starts_with("vmlinuz"));
    let image = image.context("the kernel's packages have no vmlinuz")?;
    std::fs::rename(image, folder.join("vmlinuz"))?;
    let builtin = files.iter().find(|path| name(path) == "modules.builtin");
    let builtin = builtin.context("the kernel's packages have no modules.builtin")?;
    // .../modules/VERSION/modules.builtin
    let version = builtin.parent().and_then(Path::file_name).context("a folder has a name")?;
    let built_in = std::fs::read_to_string(builtin)?;
    let built_in: BTreeSet<String> =
        built_in.lines().map(|line| plain(line.rsplit('/').next().unwrap_or(line))).collect();
    let modules: BTreeMap<String, PathBuf> = files
        .iter()
        .filter(|path| is_module(&name(path)))
        .map(|path| (plain(&name(path)), path.clone()))
        .collect();
    let into = folder.join("modules").join(version);
    std::fs::create_dir_all(&into)?;
    let mut kept = BTreeMap::new();
    for module in MODULES {
        keep(&plain(module), &modules, &built_in, &into, &mut kept)?;
    }
    write_lists(&into, &kept)
}

/// Writes what depmod(8) would: which modules a module needs, and under which other names the
/// kernel asks for it.
fn write_lists(into: &Path, kept: &BTreeMap<String, Information>) -> Result<()> {
    let (mut needs, mut aliases) = (String::new(), String::new());
    for (module, information) in kept {
        let all = all_needed(module, kept);
        let files: Vec<String> = all.iter().map(|needed| format!("{needed}.ko")).collect();
        let _ = writeln!(needs, "{module}.ko: {}", files.join(" "));
        for alias in &information.aliases {
            let _ = writeln!(aliases, "alias {alias} {module}");
        }
    }
    std::fs::write(into.join("modules.dep"), needs)?;
    std::fs::write(into.join("modules.alias"), aliases)?;
    Ok(())
}

/// What a module says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Information {
    needs: Vec<String>,
    aliases: Vec<String>,
}

/// Keeps a module, uncompressed, and those that it needs.
fn keep(
    module: &str,
    modules: &BTreeMap<String, PathBuf>,
    built_in: &BTreeSet<String>,
    into: &Path,
    kept: &mut BTreeMap<String, Information>,
) -> Result<()> {
    if kept.contains_key(module) {
        return Ok(());
    }
    let Some(path) = modules.get(module) else {
        if built_in.contains(module) || NOT_ALL.contains(&module) {
            return Ok(());
        }
        bail!("the kernel's packages have no module {module}");
    };
    let data = read(path).with_context(|| format!("module {}", path.display()))?;
    let information = information(&data).with_context(|| format!("module {}", path.display()))?;
    std::fs::write(into.join(format!("{module}.ko")), &data)?;
    kept.insert(module.to_owned(), information.clone());
    for needed in information.needs {
        keep(&needed, modules, built_in, into, kept)?;
    }
    Ok(())
}

/// What has to be there before a module, as `modules.dep` has it: what is needed last comes first
/// of what is loaded last.
fn all_needed(module: &str, kept: &BTreeMap<String, Information>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let needs = kept.get(module).map(|information| &information.needs[..]).unwrap_or_default();
    for needed in needs.iter().filter(|needed| kept.contains_key(*needed)) {
        let below = all_needed(needed, kept);
        for name in std::iter::once(needed.clone()).chain(below) {
            // What several need moves behind all of them.
            all.retain(|have| *have != name);
            all.push(name);
        }
    }
    all
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let data = std::fs::read(path)?;
    if path.extension().is_none_or(|extension| extension != "xz") {
        return Ok(data);
    }
    let mut plain = Vec::new();
    lzma_rust2::XzReader::new(&data[..], true).read_to_end(&mut plain)?;
    Ok(plain)
}

fn information(module: &[u8]) -> Result<Information> {
    let file = ElfFile64::<Endianness>::parse(module)?;
    let text = file.section_by_name(".modinfo").context("it has no .modinfo")?.data()?;
    let mut information = Information::default();
    for field in text.split(|byte| *byte == 0) {
        let field = String::from_utf8_lossy(field);
        match field.split_once('=') {
            Some(("depends", list)) => {
                information.needs =
                    list.split(',').filter(|name| !name.is_empty()).map(plain).collect();
            }
            Some(("alias", alias)) => information.aliases.push(alias.to_owned()),
            _ => {}
        }
    }
    Ok(information)
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files_below(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_modules_are_the_kernels() {
        assert_eq!(
            plain("kernel/drivers/nvme-core.ko.xz".rsplit('/').next().unwrap()),
            "nvme_core"
        );
        assert_eq!(plain("vmd.ko"), "vmd");
        assert_eq!(plain("pci-stub"), "pci_stub");
    }

    #[test]
    fn what_is_needed_is_loaded_first() {
        let list = |names: &[&str]| Information {
            needs: names.iter().map(|name| (*name).to_owned()).collect(),
            aliases: Vec::new(),
        };
        let needs = BTreeMap::from([
            ("ext4".to_owned(), list(&["jbd2", "mbcache", "crc16"])),
            ("jbd2".to_owned(), list(&["crc16", "built_in"])),
            ("mbcache".to_owned(), list(&[])),
            ("crc16".to_owned(), list(&[])),
        ]);
        // modprobe loads such a list from its end.
        let all = all_needed("ext4", &needs);
        let at = |name: &str| all.iter().position(|n| n == name).unwrap();
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(at("crc16") > at("jbd2"), "{all:?}");
        assert_eq!(all_needed("crc16", &needs), [""; 0]);
    }

    #[test]
    fn what_is_no_module_is_refused() {
        assert!(information(b"").is_err());
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(information(&own).unwrap_err().to_string().contains(".modinfo"));
    }

    #[test]
    fn each_kernel_has_a_release_of_its_own() {
        for kernel in Kernel::ALL {
            let (lists, release) = kernel.releases();
            assert!(lists.contains(&release));
            let twins = Kernel::ALL.iter().filter(|other| other.releases().1 == release);
            assert_eq!(twins.count(), 1, "{kernel}");
        }
    }
}
