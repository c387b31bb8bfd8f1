//! A PCIe function in sysfs.

use anyhow::{Context, Result, ensure};
use memmap2::{MmapMut, MmapOptions};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const COMMAND: u64 = 4;
const MEMORY_AND_BUS_MASTER: u16 = 0b110;

/// A function, by its folder.
pub(crate) struct Function {
    folder: PathBuf,
    config: File,
}

impl Function {
    /// The function with this address, such as 10000:04:00.0.
    pub(crate) fn open(address: &str) -> Result<Self> {
        let folder = PathBuf::from("/sys/bus/pci/devices").join(address);
        let config = folder.join("config");
        let config =
            OpenOptions::new().read(true).write(true).open(&config).with_context(|| {
                format!("{} (is {address} there, and are you root?)", config.display())
            })?;
        Ok(Self { folder, config })
    }

    /// Turns memory space and bus mastering on.
    pub(crate) fn enable(&self) -> Result<()> {
        std::fs::write(self.folder.join("enable"), "1").context("enabling the function")?;
        let mut command = [0; 2];
        self.config.read_exact_at(&mut command, COMMAND).context("reading Command")?;
        let command = u16::from_le_bytes(command) | MEMORY_AND_BUS_MASTER;
        self.config.write_all_at(&command.to_le_bytes(), COMMAND).context("writing Command")
    }

    /// Configuration space.
    pub(crate) fn config(&self) -> &File {
        &self.config
    }

    /// A BAR as memory.
    pub(crate) fn bar(&self, number: u8) -> Result<Bar> {
        let path = self.folder.join(format!("resource{number}"));
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.with_context(|| path.display().to_string())?;
        // SAFETY: the kernel maps the device's registers, which no Rust object lives in; they are
        // reached by volatile accesses only.
        let map = unsafe { MmapOptions::new().map_mut(&file) };
        Ok(Bar(map.with_context(|| format!("mapping {}", path.display()))?))
    }

    /// The BARs that have memory.
    pub(crate) fn bars(&self) -> Vec<Bar> {
        (0..6).filter_map(|number| self.bar(number).ok()).collect()
    }
}

/// A BAR.
pub(crate) struct Bar(MmapMut);

impl Bar {
    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn at<T>(&self, offset: u64) -> *mut T {
        let offset = offset as usize;
        let fits = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.0.len());
        assert!(fits && offset.is_multiple_of(size_of::<T>()), "register {offset:#x} in its BAR");
        self.0.as_ptr().wrapping_add(offset).cast::<T>().cast_mut()
    }

    pub(crate) fn read32(&self, offset: u64) -> u32 {
        // SAFETY: `at` checked that it is in the mapping and aligned.
        unsafe { self.at::<u32>(offset).read_volatile() }
    }

    pub(crate) fn write32(&self, offset: u64, value: u32) {
        // SAFETY: as above; the mapping is writable.
        unsafe { self.at::<u32>(offset).write_volatile(value) }
    }

    pub(crate) fn read64(&self, offset: u64) -> u64 {
        // SAFETY: as in `read32`.
        unsafe { self.at::<u64>(offset).read_volatile() }
    }

    pub(crate) fn write64(&self, offset: u64, value: u64) {
        // SAFETY: as in `write32`.
        unsafe { self.at::<u64>(offset).write_volatile(value) }
    }

    pub(crate) fn read8(&self, offset: u64) -> u8 {
        // SAFETY: as in `read32`.
        unsafe { self.at::<u8>(offset).read_volatile() }
    }

    pub(crate) fn write8(&self, offset: u64, value: u8) {
        // SAFETY: as in `write32`.
        unsafe { self.at::<u8>(offset).write_volatile(value) }
    }
}

/// Checks that an address is one of sysfs, before anything is done with it.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let well_formed = || {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        let hex = |part: &str, digits: std::ops::RangeInclusive<usize>| {
            digits.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit())
        };
        (hex(domain, 4..=8) && hex(bus, 2..=2) && hex(device, 2..=2) && hex(function, 1..=1))
            .then_some(())
    };
    match well_formed() {
        Some(()) => Ok(text.to_string()),
        None => Err("a function is named as sysfs names it, such as 10000:04:00.0".into()),
    }
}

/// Checks a register's value.
pub(crate) fn expect(what: &str, found: u32, wanted: u32) -> Result<()> {
    ensure!(found == wanted, "{what} is {found:#010x}, not {wanted:#010x}");
    Ok(())
}
