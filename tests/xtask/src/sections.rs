//! Sizes of code and data in a Rust library archive.

use anyhow::{Context, Result};
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSection, Section, SectionFlags, SectionKind};

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

    /// Those of a program, as it lies in memory.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub(crate) fn of_program(bytes: &[u8]) -> Result<Self> {
        let mut sizes = Self::default();
        let allocated = |flags| match flags {
            SectionFlags::Elf { sh_flags } => sh_flags & u64::from(object::elf::SHF_ALLOC) != 0,
            _ => false,
        };
        // The stack is all memory that is left over.
        sizes.add(bytes, |section| {
            allocated(section.flags()) && section.name().is_ok_and(|name| name != ".stack")
        })?;
        Ok(sizes)
    }

    fn add_object(&mut self, bytes: &[u8]) -> Result<()> {
        self.add(bytes, |_| true)
    }

    fn add(&mut self, bytes: &[u8], counts: impl Fn(&Section<'_, '_>) -> bool) -> Result<()> {
        let object = object::File::parse(bytes).context("a broken object file")?;
        for section in object.sections().filter(counts) {
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
