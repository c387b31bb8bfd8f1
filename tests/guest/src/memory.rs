//! Memory that a device can reach: a huge page, which is one piece of the machine's memory.

use anyhow::{Context, Result, ensure};
use memmap2::{MmapMut, MmapOptions};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes of a huge page.
pub(crate) const HUGE: usize = 2 << 20;
const PAGE: u64 = 4096;
const COUNT: &str = "/proc/sys/vm/nr_hugepages";

/// A huge page and where it is.
pub(crate) struct HugePage {
    map: MmapMut,
    physical: u64,
}

impl HugePage {
    /// Takes a huge page; makes the kernel have one more, if it has none left.
    pub(crate) fn take() -> Result<Self> {
        let map = || MmapOptions::new().len(HUGE).huge(Some(21)).map_anon();
        let mut map = match map() {
            Ok(map) => map,
            Err(_) => {
                let count = std::fs::read_to_string(COUNT).context(COUNT)?;
                let count: u64 = count.trim().parse().context(COUNT)?;
                std::fs::write(COUNT, (count + 1).to_string()).context(COUNT)?;
                map().context("a huge page; the machine may have too little memory")?
            }
        };
        // It is there when it was touched.
        map.fill(0);
        let physical = physical(map.as_ptr() as u64)?;
        Ok(Self { map, physical })
    }

    /// Its bus address, where no IOMMU translates.
    pub(crate) fn physical(&self) -> u64 {
        self.physical
    }

    pub(crate) fn write(&mut self, data: &[u8]) {
        self.map[..data.len()].copy_from_slice(data);
    }

    /// What is there now: a device may have written since.
    pub(crate) fn read(&self, len: usize) -> Vec<u8> {
        let start = self.map[..len].as_ptr();
        // SAFETY: `len` bytes from the mapping's start; a device writes there, so each byte is read
        // once and not assumed to stay.
        (0..len).map(|at| unsafe { start.add(at).read_volatile() }).collect()
    }
}

/// Where a page of this process is (Linux, Documentation/admin-guide/mm/pagemap.rst).
fn physical(address: u64) -> Result<u64> {
    let mut entry = [0; 8];
    File::open("/proc/self/pagemap")
        .and_then(|file| file.read_exact_at(&mut entry, address / PAGE * 8))
        .context("/proc/self/pagemap")?;
    let entry = u64::from_le_bytes(entry);
    ensure!(entry >> 63 == 1, "the huge page is not in memory");
    let frame = entry & ((1 << 55) - 1);
    ensure!(frame != 0, "the kernel does not tell where memory is: be root");
    Ok(frame * PAGE)
}
