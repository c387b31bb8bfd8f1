//! A host's memory: a region for each downstream port, below and above 4 GB, that its device may
//! reach, and nothing else.

use super::port_name;
use crate::oracle::{Verdict, Violation};

/// Buffers of a port.
pub(crate) const BUFFERS: u64 = 16;
/// Bytes from one buffer to the next: the buffer, and room that nobody writes to.
pub(crate) const STRIDE: u64 = 8192;
/// Where, in a region, the counters for atomics are.
pub(crate) const COUNTERS: u64 = BUFFERS * STRIDE;
/// Where a device that floods may write.
pub(crate) const FLOODED: u64 = COUNTERS + 4096;
pub(crate) const LENGTH: u64 = FLOODED + 4096;
/// Where nobody has memory, for devices that stray.
pub(crate) const NOWHERE: u64 = 0x7000_0000;
const LOW: u64 = 0x1000_0000;
const HIGH: u64 = 0x20_0000_0000;
const REGION: u64 = 0x10_0000;

/// Where interrupts are written to: 4 KB for each port's device, and the first for the ports.
pub(crate) const INTERRUPTS: u64 = 0xfee0_0000;

/// Where the device behind a port writes its interrupt of that number.
pub(crate) fn interrupt(port: usize, number: u64) -> u64 {
    INTERRUPTS + (port as u64 + 1) * 4096 + number * 4
}

/// Whether it is where devices stray.
pub(crate) fn is_nowhere(address: u64) -> bool {
    (NOWHERE..NOWHERE + REGION).contains(&address)
}

/// What is at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A port's region, and where in it.
    Memory { port: usize, high: bool, offset: usize },
    /// The interrupt of a port of the switch (`None`) or of the device behind that port.
    Interrupt { device: Option<usize> },
    /// Nothing.
    Nowhere,
}

/// Whether devices that flood write there.
pub(crate) fn is_flooded(place: Place) -> bool {
    matches!(place, Place::Memory { offset, .. } if offset as u64 >= FLOODED)
}

/// The memory of one host.
pub(crate) struct Memory {
    regions: Vec<[Vec<u8>; 2]>,
}

impl Memory {
    pub(crate) fn new(ports: usize) -> Self {
        let region = || vec![0; LENGTH as usize];
        Self { regions: (0..ports).map(|_| [region(), region()]).collect() }
    }

    pub(crate) fn address(port: usize, high: bool, offset: u64) -> u64 {
        (if high { HIGH } else { LOW }) + port as u64 * REGION + offset
    }

    pub(crate) fn place(&self, address: u64) -> Place {
        if address & !0xf_ffff == INTERRUPTS {
            let page = (address >> 12 & 0xff) as usize;
            return Place::Interrupt { device: page.checked_sub(1) };
        }
        let (base, high) = if address >= HIGH { (HIGH, true) } else { (LOW, false) };
        let Some(at) = address.checked_sub(base) else { return Place::Nowhere };
        let (port, offset) = ((at / REGION) as usize, at % REGION);
        if port >= self.regions.len() || offset >= LENGTH {
            return Place::Nowhere;
        }
        Place::Memory { port, high, offset: offset as usize }
    }

    /// Bytes of a port's region.
    pub(crate) fn bytes(&mut self, port: usize, high: bool, at: usize, length: usize) -> &mut [u8] {
        &mut self.regions[port][usize::from(high)][at..at + length]
    }

    /// What the device behind a port wants to reach; `None` when nothing is there.
    pub(crate) fn reach(
        &mut self,
        device: usize,
        address: u64,
        length: usize,
    ) -> Verdict<Option<&mut [u8]>> {
        match self.place(address) {
            Place::Memory { port, .. } if port != device => {
                let [device, port] = [device, port].map(port_name);
                let what = format!("the device behind {device} reached memory of {port}'s device");
                Err(Violation::new(2, what))
            }
            Place::Memory { port, high, offset } if offset + length <= LENGTH as usize => {
                Ok(Some(self.bytes(port, high, offset, length)))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_again() {
        let mut memory = Memory::new(3);
        for (port, high) in [(0, false), (2, true), (1, true)] {
            let address = Memory::address(port, high, 77);
            assert_eq!(memory.place(address), Place::Memory { port, high, offset: 77 });
            assert!(memory.reach(port, address, 4).unwrap().is_some());
            assert!(memory.reach(port + 1, address, 4).is_err());
        }
        assert_eq!(memory.place(INTERRUPTS), Place::Interrupt { device: None });
        assert_eq!(memory.place(INTERRUPTS + 0x2004), Place::Interrupt { device: Some(1) });
        for nowhere in [0, LOW - 1, Memory::address(3, false, 0), HIGH - 1, LOW + LENGTH] {
            assert_eq!(memory.place(nowhere), Place::Nowhere, "{nowhere:#x}");
        }
    }
}
