//! The firmware with a fault in it, and what it logs.

use anyhow::{Context, Result, bail};
use card_image::Header;
use defmt_decoder::{DecodeError, Table};
use object::{Object, ObjectSection, ObjectSymbol};
use std::path::PathBuf;

/// The firmware as the linker left it.
pub(crate) struct Program(Vec<u8>);

impl Program {
    pub(crate) fn new(elf: Vec<u8>) -> Self {
        Self(elf)
    }

    /// Where the function is that turns the card.
    pub(crate) fn turn(&self) -> Result<u32> {
        self.named("soc4card", "4turn").context("the firmware has no `soc::card::Card::turn`")
    }

    /// Where the function is that looks for a network interface, before the loop.
    pub(crate) fn interface(&self) -> Result<u32> {
        self.named("virtio9VirtioMac", "2at").context("the firmware has no `virtio::VirtioMac::at`")
    }

    /// Where a function is, of whose name these are parts as the compiler writes them.
    fn named(&self, path: &str, name: &str) -> Result<u32> {
        let elf = object::File::parse(&self.0[..])?;
        let names = elf.symbols().filter(|symbol| {
            symbol.name().is_ok_and(|found| found.contains(path) && found.contains(name))
        });
        // Closures in it have longer names.
        let shortest = names.min_by_key(|symbol| symbol.name().map_or(0, str::len));
        Ok(shortest.context("there is no such function")?.address() as u32)
    }

    /// Where something is.
    pub(crate) fn address(&self, name: &str) -> Result<u32> {
        let elf = object::File::parse(&self.0[..])?;
        let symbol = elf.symbol_by_name(name).with_context(|| name.to_owned())?;
        Ok(symbol.address() as u32)
    }

    /// Where a function is, and its code.
    pub(crate) fn function(&self, name: &str) -> Result<(u32, Vec<u8>)> {
        let elf = object::File::parse(&self.0[..])?;
        let symbol = elf.symbol_by_name(name).with_context(|| name.to_owned())?;
        let section = symbol.section_index().context("a function is in a section")?;
        let section = elf.section_by_index(section)?;
        let code = section.data_range(symbol.address(), symbol.size())?;
        Ok((symbol.address() as u32, code.context("it has code")?.to_vec()))
    }

    /// An image's payload, with another instruction at an address.
    pub(crate) fn spoiled(&self, image: &[u8], address: u32, instruction: u32) -> Result<Vec<u8>> {
        let header = Header::parse(image)?;
        let mut payload = image[image.len() - header.payload_len as usize..].to_vec();
        let at = (address - header.load) as usize;
        payload[at..at + 4].copy_from_slice(&instruction.to_le_bytes());
        Ok(payload)
    }

    /// The sources that log something, a path for each text.
    pub(crate) fn places(&self) -> Result<Vec<PathBuf>> {
        let table = Table::parse(&self.0)?.context("the firmware has a table of what it logs")?;
        let places = table.get_locations(&self.0)?;
        Ok(places.into_values().map(|place| place.file).collect())
    }

    /// What the firmware logged on the console, without the boot loader's words.
    pub(crate) fn log(&self, console: &[u8]) -> Result<Vec<String>> {
        let table = Table::parse(&self.0)?.context("the firmware has a table of what it logs")?;
        let mut decoder = table.new_stream_decoder();
        decoder.received(console);
        let mut lines = Vec::new();
        loop {
            match decoder.decode() {
                Ok(frame) => lines.push(frame.display_message().to_string()),
                Err(DecodeError::UnexpectedEof) => return Ok(lines),
                // The boot loader's words are no frame.
                Err(DecodeError::Malformed) if table.encoding().can_recover() => {}
                Err(DecodeError::Malformed) => bail!("the encoding cannot be found again"),
            }
        }
    }
}
