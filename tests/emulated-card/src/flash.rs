//! What is in an emulated card's flash.

use anyhow::{Context, Result, ensure};
use board_qemu_virt::layout::{ERASE_BLOCK, LAYOUT};
use card_image::{BootState, BootStore, Header, Journal, STATE_RECORD, SlotEvent, SlotId};
use nor_model::{Direct, Nor, Part};
use soc::settings;
use std::path::Path;

/// The board's flash as the programs on a card see it.
pub type Flash = Direct<4, { ERASE_BLOCK as usize }>;

/// The contents of a card's flash.
#[derive(Debug)]
pub struct CardFlash(pub Flash);

impl CardFlash {
    /// A new card's, with a boot loader and nothing else.
    ///
    /// # Errors
    ///
    /// When the boot loader cannot be read.
    pub fn new(boot_loader: &Path) -> Result<Self> {
        let mut nor = Nor::new(Part::QEMU_VIRT, 1);
        let bytes = read(boot_loader)?;
        let room = LAYOUT.boot_loader();
        ensure!(bytes.len() <= room.len as usize, "the boot loader is larger than its place");
        nor.preload(room.start, &bytes);
        Ok(Self(Direct(nor)))
    }

    /// That of a card that is off.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        let mut nor = Nor::new(Part::QEMU_VIRT, 1);
        nor.preload(0, &read(path)?);
        Ok(Self(Direct(nor)))
    }

    /// Writes the card's settings.
    ///
    /// # Errors
    ///
    /// When they are too long.
    pub fn set_settings(&mut self, text: &str) -> Result<()> {
        Ok(settings::store(&mut self.0, LAYOUT.config(), text)?)
    }

    /// Writes an image to a slot and has it started next, as `dxpu-flash` does.
    ///
    /// # Errors
    ///
    /// When it is no image, does not fit the slot, or the boot state cannot be recorded.
    pub fn write_image(&mut self, slot: SlotId, image: &[u8]) -> Result<()> {
        let header = Header::parse(image)?;
        let room = LAYOUT.slot(slot).len as usize;
        ensure!(image.len() <= room, "the image is larger than its slot");
        self.put_image(slot, image);
        let state = self.store()?.state().after(slot, SlotEvent::Adopt(header.id()))?;
        let state = BootState { wanted: slot, ..state };
        let mut journal: Journal<STATE_RECORD> =
            Journal::open(&mut self.0, LAYOUT.boot_state(), |_| true)?;
        Ok(journal.append(&mut self.0, &state.emit())?)
    }

    /// Puts an image into a slot, as a probe does that tells nobody.
    ///
    /// # Panics
    ///
    /// When it does not fit the slot.
    pub fn put_image(&mut self, slot: SlotId, image: &[u8]) {
        let region = LAYOUT.slot(slot);
        assert!(image.len() <= region.len as usize, "it fits its slot");
        self.0.0.preload(region.start, image);
    }

    /// The boot state.
    ///
    /// # Errors
    ///
    /// When the flash has lost its power.
    pub fn store(&mut self) -> Result<BootStore> {
        Ok(BootStore::open(&mut self.0, LAYOUT)?)
    }

    /// Writes the file that the emulator takes.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.0.0.cells()).with_context(|| path.display().to_string())
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}
