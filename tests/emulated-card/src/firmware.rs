//! Boot loader and images, as `cargo xtask firmware` builds them.

use crate::emulator::QEMU;
use anyhow::{Context, Result, bail};
use card_image::{Header, Role};
use processes::own_folder;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder that they are in, below cargo's target folder.
const FOLDER: &str = "bare-metal/riscv32imac-unknown-none-elf/card";

/// Boot loader and images, and which emulator runs them.
#[derive(Clone, Debug)]
pub struct Firmware {
    folder: PathBuf,
    emulator: String,
}

impl Firmware {
    /// Those that were built beside this program, or those in the folder that the environment names
    /// (`DXPU_FIRMWARE`).
    ///
    /// # Errors
    ///
    /// What is missing for an emulated card, and how to get it.
    pub fn find() -> Result<Self> {
        let found = Self::find_images()?;
        let Ok(output) = Command::new(QEMU).arg("--version").output() else {
            bail!("{QEMU} is not there: install the package qemu-system-misc");
        };
        let said = String::from_utf8_lossy(&output.stdout);
        Ok(Self { emulator: said.lines().next().unwrap_or(QEMU).to_owned(), ..found })
    }

    /// As [`find`](Self::find), for a card that needs no emulator, such as the simulated one.
    ///
    /// # Errors
    ///
    /// What is missing, and how to get it.
    pub fn find_images() -> Result<Self> {
        let folder = match std::env::var_os("DXPU_FIRMWARE") {
            Some(folder) => PathBuf::from(folder),
            None => built(&own_folder()?),
        };
        if !folder.join("boot.bin").exists() || !folder.join("fw-box.img").exists() {
            let folder = folder.display();
            bail!("there is no firmware in {folder}: `cargo xtask firmware` builds it");
        }
        Ok(Self { folder, emulator: String::new() })
    }

    /// The folder that all of it is in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the emulator says that it is, with its version; nothing where none was looked for.
    #[must_use]
    pub fn emulator(&self) -> &str {
        &self.emulator
    }

    /// The boot loader's file.
    #[must_use]
    pub fn boot_loader(&self) -> PathBuf {
        self.folder.join("boot.bin")
    }

    /// The image of a host or a box.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn image(&self, role: Role) -> Result<Vec<u8>> {
        let name = if role == Role::Host { "fw-host.img" } else { "fw-box.img" };
        let path = self.folder.join(name);
        std::fs::read(&path).with_context(|| path.display().to_string())
    }

    /// What the image of a host or a box says of itself: `fw-host 0.1.0+0 for qemu-virt`.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is no image.
    pub fn describe(&self, role: Role) -> Result<String> {
        let header = Header::parse(&self.image(role)?)?;
        Ok(format!("fw-{} {} for {}", header.role, header.version, header.board))
    }
}

/// Where firmware is built that goes with programs in a folder: those are one folder below cargo's
/// target folder, and tests two.
fn built(programs: &Path) -> PathBuf {
    let candidates = programs.ancestors().skip(1).take(2).map(|folder| folder.join(FOLDER));
    let found = candidates.clone().find(|folder| folder.exists());
    found.or_else(|| candidates.last()).unwrap_or_else(|| FOLDER.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_is_found_from_programs_and_from_tests() {
        let target = tempfile::tempdir().unwrap();
        let here = target.path().join(FOLDER);
        std::fs::create_dir_all(&here).unwrap();
        assert_eq!(built(&target.path().join("release")), here);
        assert_eq!(built(&target.path().join("debug/deps")), here);
    }
}
