//! Board files: what a board is, where its flash has what, and how a probe gets at it.
//!
//! A file is YAML with two parts. `card` is ours; `target` is a target description of probe-rs
//! (its crate `probe-rs-target` says what may be in it) with one chip, whose core is RISC-V, and
//! the flash algorithm. `docs/boards.md` explains each line.

mod check;
pub(crate) use check::twice;
mod file;
mod place;

pub use place::Place;

use card_image::{
    AntiDowngrade, BoardName, Layout, Region, Requirements, Role, SecurityVersion, TrustedKey,
};
use probe_rs_target::{ChipFamily, CoreAccessOptions, MemoryRegion, RawFlashAlgorithm};

use crate::image::BootLoader;

/// Board files that the program has in it: name of the file, and text.
pub const BUILT_IN: [(&str, &str); 2] = [
    ("qemu-virt.yaml", include_str!("../../boards/qemu-virt.yaml")),
    ("litex.yaml", include_str!("../../boards/litex.yaml")),
];

/// A board, as its file has it; checked.
#[derive(Clone, Debug)]
pub struct Board {
    /// Its name, as in images.
    pub name: BoardName,
    /// What it is, in a line.
    pub description: String,
    /// IDCODE of the TAP that the core is behind (IEEE 1149.1, 12).
    pub idcode: u32,
    /// Clock of the JTAG port in kHz, where the person at the bench says nothing else.
    pub clock_khz: u32,
    /// Address of the SPI block (`hw/regs/card.md`, "spi").
    pub spi: u32,
    /// Address of the flash's first byte in its window in memory.
    pub window: u32,
    /// Memory that an image may be loaded to.
    pub memory: Region,
    /// Where in the flash things are.
    pub layout: Layout,
    /// How the flash has its boot loader.
    pub boot_loader: BootLoader,
    /// Keys whose images its boot loader starts.
    pub keys: Vec<TrustedKey>,
    /// The target as probe-rs has it: one chip, one algorithm.
    pub target: ChipFamily,
}

/// A file that is no board's: which, where in it, what is wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct BoardError {
    /// The file, and the line where there is one.
    pub place: Place,
    /// What is wrong, and what to do.
    pub what: String,
}

impl Board {
    /// The board of a file's text. `name` is the file's, for errors.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and where.
    pub fn parse(name: &str, text: &str) -> Result<Self, BoardError> {
        let file: file::File = yaml_serde::from_str(text).map_err(|error| BoardError {
            place: Place::new(name, error.location().map(|location| location.line())),
            what: format!("{error}; docs/boards.md says what a board file has"),
        })?;
        check::checked(file).map_err(|wrong| BoardError {
            place: Place::new(name, place::line_of(text, wrong.path)),
            what: wrong.what,
        })
    }

    /// Whether a program can be at that address on this board: in its flash's window, or in memory.
    #[must_use]
    pub fn has_place_for(&self, at: u32) -> bool {
        let at = u64::from(at);
        let window = u64::from(self.window);
        let flash = window..window + u64::from(self.layout.parts().flash);
        let maps = self.target.variants.iter().flat_map(|variant| &variant.memory_map);
        let mut memories = maps.filter_map(MemoryRegion::as_ram_region);
        flash.contains(&at) || memories.any(|memory| memory.range.contains(&at))
    }

    /// The boards that the program has in it.
    ///
    /// # Panics
    ///
    /// When one of them is wrong, which a test looks at.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        BUILT_IN
            .iter()
            .map(|(name, text)| Self::parse(name, text).expect("the program's own board files"))
            .collect()
    }

    /// What its boot loader demands of an image for this role, with these keys, where the card's
    /// settings have this policy.
    #[must_use]
    pub fn requirements<'a>(
        &self,
        role: Role,
        keys: &'a [TrustedKey],
        anti_downgrade: AntiDowngrade,
    ) -> Requirements<'a> {
        Requirements {
            board: self.name,
            role,
            memory: self.memory,
            keys,
            anti_downgrade,
            lowest_security: SecurityVersion(0),
        }
    }

    /// The flash algorithm.
    #[must_use]
    pub fn algorithm(&self) -> &RawFlashAlgorithm {
        &self.target.flash_algorithms[0]
    }

    /// The place of the core's TAP on the chain.
    #[must_use]
    pub fn jtag_tap(&self) -> usize {
        match &self.target.variants[0].cores[0].core_access_options {
            CoreAccessOptions::Riscv(options) => options.jtag_tap.unwrap_or(0),
            _ => 0,
        }
    }

    /// Whether the chain is taken from the file instead of asked for.
    #[must_use]
    pub fn forces_scan_chain(&self) -> bool {
        self.target.variants[0].jtag.as_ref().is_some_and(|jtag| jtag.force_scan_chain)
    }

    /// The name of the chip in the target description.
    #[must_use]
    pub fn chip(&self) -> &str {
        &self.target.variants[0].name
    }
}

#[cfg(test)]
mod tests;
