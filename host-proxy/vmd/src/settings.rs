//! What the adapter is made to be.

use proxy_core::limits::MAX_PAYLOAD_OFFERED;
use thiserror::Error;

/// How interrupts of the devices behind the adapter reach the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Interrupts {
    /// As the memory writes that they are (device 28c0, whose driver can turn remapping off).
    #[default]
    MemoryWrites,
    /// By the adapter's own MSI-X vectors (device a77f).
    Remapped,
}

/// A region of the adapter, by its number in VFIO: BARs and configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// BAR 0: the domain's configuration space.
    Configuration,
    /// BAR 2: the domain's 32-bit window.
    Memory,
    /// BAR 4: the adapter's MSI-X table, and the domain's prefetchable window.
    Prefetchable,
    /// The adapter's own configuration space.
    Own,
}

impl Region {
    /// From VFIO's number.
    pub const fn from_index(index: u8) -> Option<Self> {
        Some(match index {
            0 => Self::Configuration,
            2 => Self::Memory,
            4 => Self::Prefetchable,
            7 => Self::Own,
            _ => return None,
        })
    }
}

/// How an adapter presents itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmdConfig {
    /// How interrupts go.
    pub interrupts: Interrupts,
    /// Bus numbers of the domain: a power of two, 32 to 256. Each takes 1 MB of BAR 0.
    pub buses: u16,
    /// Bytes of BAR 2, the 32-bit window: a power of two, 1 MB to 2 GB.
    pub memory: u64,
    /// Bytes of BAR 4, the prefetchable window: a power of two, 1 MB to 2^44.
    pub prefetchable: u64,
    /// Max_Payload_Size of the root port as firmware would have left it, in bytes: a power of two,
    /// 128 to 4096. Linux gives it to what is below.
    pub payload: usize,
}

impl Default for VmdConfig {
    /// Room for 32 ports.
    fn default() -> Self {
        Self {
            interrupts: Interrupts::default(),
            buses: 256,
            memory: 256 << 20,
            prefetchable: 16 << 30,
            payload: 128,
        }
    }
}

/// Why there is no such adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VmdConfigError {
    /// The number of buses.
    #[error("{0} buses are not possible: choose a power of two from 32 to 256")]
    Buses(u16),
    /// The 32-bit window.
    #[error("a 32-bit window of {0} bytes is not possible: choose a power of two from 1M to 2G")]
    Memory(u64),
    /// The prefetchable window.
    #[error(
        "a prefetchable window of {0} bytes is not possible: choose a power of two from 1M to 16T"
    )]
    Prefetchable(u64),
    /// The payload size.
    #[error("a payload of {0} bytes is not possible: choose a power of two from 128 to 4096")]
    Payload(usize),
}

impl VmdConfig {
    /// Checks what the types cannot.
    ///
    /// # Errors
    ///
    /// The first thing that is not possible.
    pub fn check(&self) -> Result<(), VmdConfigError> {
        if !(32..=256).contains(&self.buses) || !self.buses.is_power_of_two() {
            return Err(VmdConfigError::Buses(self.buses));
        }
        if !(1 << 20..=2 << 30).contains(&self.memory) || !self.memory.is_power_of_two() {
            return Err(VmdConfigError::Memory(self.memory));
        }
        let prefetchable = self.prefetchable;
        if !(1 << 20..=1 << 44).contains(&prefetchable) || !prefetchable.is_power_of_two() {
            return Err(VmdConfigError::Prefetchable(prefetchable));
        }
        let payloads = 128..=MAX_PAYLOAD_OFFERED;
        if !payloads.contains(&self.payload) || !self.payload.is_power_of_two() {
            return Err(VmdConfigError::Payload(self.payload));
        }
        Ok(())
    }

    /// Bytes of a region.
    pub const fn size(&self, region: Region) -> u64 {
        match region {
            Region::Configuration => (self.buses as u64) << 20,
            Region::Memory => self.memory,
            Region::Prefetchable => self.prefetchable,
            Region::Own => 4096,
        }
    }

    /// MSI-X vectors of the adapter.
    pub const fn vectors(&self) -> u16 {
        crate::endpoint::VECTORS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_in_their_ranges() {
        let good = VmdConfig::default();
        assert_eq!(good.check(), Ok(()));
        assert_eq!(good.size(Region::Configuration), 256 << 20);
        for buses in [0, 16, 48, 512] {
            let config = VmdConfig { buses, ..good.clone() };
            assert_eq!(config.check(), Err(VmdConfigError::Buses(buses)));
        }
        for memory in [0, 3 << 20, 4 << 30] {
            let config = VmdConfig { memory, ..good.clone() };
            assert_eq!(config.check(), Err(VmdConfigError::Memory(memory)));
        }
        for prefetchable in [0, 1 << 19, 5 << 20, 1 << 45] {
            let config = VmdConfig { prefetchable, ..good.clone() };
            assert_eq!(config.check(), Err(VmdConfigError::Prefetchable(prefetchable)));
        }
        for payload in [0, 64, 300, 8192] {
            let config = VmdConfig { payload, ..good.clone() };
            assert_eq!(config.check(), Err(VmdConfigError::Payload(payload)));
        }
    }

    #[test]
    fn regions_are_vfio_s_numbers() {
        let known: Vec<u8> = (0..=255).filter(|n| Region::from_index(*n).is_some()).collect();
        assert_eq!(known, [0, 2, 4, 7]);
    }
}
