//! Sizes of code and data in a Rust library archive.

use anyhow::{Context, Result};
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSection, SectionKind};

/// Bytes by kind of section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Machine code.
    pub(crate) text: u64,
    /// Constants.
    pub(crate) rodata: u64,
    /// Variables: with and without initial values.
    pub(crate) data: u64,
}

impl Sizes {
    /// Adds up the object files of an archive.
    ///
    /// # Errors
    ///
    /// When it is no archive, or an object file in it is broken.
    pub(crate) fn of_archive(bytes: &[u8]) -> Result<Self> {
        let archive = ArchiveFile::parse(bytes).context("it is no archive")?;
        let mut sizes = Self::default();
        for member in archive.members() {
            let member = member.context("a broken archive member")?;
            // The Rust metadata is a member, too, and no object file with code.
            if member.name().ends_with(b".o") {
                sizes.add_object(member.data(bytes).context("a broken archive member")?)?;
            }
        }
        Ok(sizes)
    }

    fn add_object(&mut self, bytes: &[u8]) -> Result<()> {
        let object = object::File::parse(bytes).context("a broken object file")?;
        for section in object.sections() {
            let size = section.size();
            match section.kind() {
                SectionKind::Text => self.text += size,
                SectionKind::ReadOnlyData | SectionKind::ReadOnlyString => self.rodata += size,
                SectionKind::Data | SectionKind::UninitializedData => self.data += size,
                _ => {}
            }
        }
        Ok(())
    }
}
