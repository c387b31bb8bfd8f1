//! What the machines are made of, brought from Debian into a private folder: QEMU, kernels, tools.
//!
//! Each part is a folder that is built aside and then renamed, so it is there whole or not at all.
//! Nothing is installed, and root is not needed.

mod apt;
mod elf;
mod kernel;
mod mirror;
mod package;
mod part;

use anyhow::{Context, Result};
use apt::Apt;
use part::Part;
use std::fs::File;
use std::path::{Path, PathBuf};

pub use kernel::Kernel;
pub(crate) use kernel::MODULES;

/// Environment variable that names the cache's folder.
pub(crate) const CACHE_VARIABLE: &str = "DXPU_VM_CACHE";

/// Why there can be no machines here, and what to do about it. Every error that has another cause
/// is a mistake in this program.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub(crate) String);

/// What is told while the cache is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News<'a> {
    /// Something begins or is done.
    Step(&'a str),
    /// How far it has got; replaces what was told before of this kind.
    Progress(&'a str),
}

/// Takes [`News`].
pub(crate) type Tell<'a> = &'a mut dyn FnMut(News<'_>);

/// A cache in which everything is that was asked for.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The cache's folder: `DXPU_VM_CACHE`, else `vm` in cargo's target folder.
    ///
    /// # Errors
    ///
    /// When this program is not in a target folder and the variable is not set.
    pub fn default_folder() -> Result<PathBuf> {
        if let Some(folder) = std::env::var_os(CACHE_VARIABLE).filter(|folder| !folder.is_empty()) {
            return Ok(std::path::absolute(folder)?);
        }
        let own = std::env::current_exe()?;
        // Cargo writes the tag only into a folder that it has made itself.
        let signs = ["CACHEDIR.TAG", ".rustc_info.json"];
        let is_target = |folder: &Path| signs.iter().any(|sign| folder.join(sign).is_file());
        let target = own.ancestors().find(|folder| is_target(folder));
        let target = target.with_context(|| {
            format!(
                "{} is not in cargo's target folder: set {CACHE_VARIABLE} to a folder for QEMU \
                 and the kernels",
                own.display()
            )
        })?;
        Ok(target.join("vm"))
    }

    /// Sees to it that QEMU, the guest's tools and these kernels are in the folder. What is there
    /// already is left as it is, and no network is touched for it.
    ///
    /// # Errors
    ///
    /// [`Unavailable`], with what to do, when something cannot be had here; others when the folder
    /// cannot be written.
    pub fn make(folder: &Path, kernels: &[Kernel], tell: Tell) -> Result<Self> {
        let cache = Self { folder: folder.to_path_buf() };
        let mut parts = vec![Part::Qemu, Part::Tools];
        parts.extend(kernels.iter().copied().map(Part::Kernel));
        if parts.iter().all(|part| cache.has(*part)) {
            return Ok(cache);
        }
        std::fs::create_dir_all(folder)
            .with_context(|| format!("{} cannot be made", folder.display()))?;
        // Several tests may want it at the same time.
        let lock = File::create(folder.join("lock"))?;
        if lock.try_lock().is_err() {
            tell(News::Step("waiting for another program that fills the cache"));
            lock.lock()?;
        }
        part::remove_leftovers(folder)?;
        let mut apt = Apt::new(folder)?;
        for part in parts {
            if !cache.has(part) {
                part.make(folder, &mut apt, tell)?;
            }
        }
        Ok(cache)
    }

    /// As [`make`](Self::make), in the default folder.
    ///
    /// # Errors
    ///
    /// Those of [`make`](Self::make) and [`default_folder`](Self::default_folder).
    pub fn open(kernels: &[Kernel], tell: &mut dyn FnMut(News<'_>)) -> Result<Self> {
        Self::make(&Self::default_folder()?, kernels, tell)
    }

    /// What is in it: package and version, in the parts' order.
    ///
    /// # Errors
    ///
    /// When a part's record cannot be read.
    pub fn versions(&self) -> Result<Vec<(String, String)>> {
        let mut versions = Vec::new();
        for part in Part::all() {
            if self.has(part) {
                versions.extend(part.record(&self.folder)?.packages);
            }
        }
        Ok(versions)
    }

    fn has(&self, part: Part) -> bool {
        part.record(&self.folder).is_ok_and(|record| record.recipe == part.recipe())
    }

    /// The folder of QEMU: what Debian's packages have below `/`.
    pub(crate) fn qemu(&self) -> PathBuf {
        self.folder.join(Part::Qemu.name())
    }

    /// The folder of the guest's tools: what is below the guest's `/`.
    pub(crate) fn tools(&self) -> PathBuf {
        self.folder.join(Part::Tools.name())
    }

    /// The folder of a kernel: `vmlinuz` and `modules/`.
    pub(crate) fn kernel(&self, kernel: Kernel) -> PathBuf {
        self.folder.join(Part::Kernel(kernel).name())
    }
}
