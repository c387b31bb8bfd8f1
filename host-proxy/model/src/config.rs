//! How the model host is set up.

use crate::interrupts::MSI_RANGE;
use crate::root::RootConfig;
use crate::topology::Range;
use nvme_driver::ControllerConfig;
use std::time::Duration;

/// Everything about a model host that a user may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// The root complex.
    pub root: RootConfig,
    /// Host memory's first bus address.
    pub memory_base: u64,
    /// Host memory in bytes.
    pub memory_size: usize,
    /// Addresses below 4 GB for devices.
    pub window32: Range,
    /// Addresses for 64-bit prefetchable memory of devices.
    pub window64: Range,
    /// Payload size that is set up in functions that can do it, 128 to 4096 bytes.
    pub max_payload: u16,
    /// Read request size that is set up in functions, 128 to 4096 bytes.
    pub max_read_request: u16,
    /// What a hot-plug port has ready for devices to come.
    pub hot_plug: HotPlugConfig,
    /// Whether drivers are bound to the devices that they know.
    pub bind_drivers: bool,
    /// How drives are driven.
    pub nvme: ControllerConfig,
}

/// What a hot-plug port has ready, and the waits of a hot-plug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPlugConfig {
    /// 32-bit addresses of each port (Linux's `pci=hpmmiosize`), bytes.
    pub memory: u64,
    /// 64-bit prefetchable addresses of each port (Linux's `pci=hpmmioprefsize`), bytes.
    pub prefetch: u64,
    /// Buses of each port (Linux's `pci=hpbussize`).
    pub buses: u8,
    /// How long the power indicator blinks after the attention button before anything happens
    /// (5 s, PCIe 5.0 section 6.7.1.5).
    pub button_delay: Duration,
    /// How long a link may take to come up.
    pub link_timeout: Duration,
    /// From link active to the first configuration request (100 ms, PCIe 5.0 section 6.6.1).
    pub settle: Duration,
    /// How long a port may take for a command, where it says when it is done.
    pub command_timeout: Duration,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            root: RootConfig::default(),
            memory_base: 1 << 32,
            memory_size: 64 << 20,
            window32: Range { base: 0xc000_0000, size: 0x3000_0000 },
            window64: Range { base: 0x80_0000_0000, size: 0x80_0000_0000 },
            max_payload: 512,
            max_read_request: 512,
            hot_plug: HotPlugConfig::default(),
            bind_drivers: true,
            nvme: ControllerConfig::default(),
        }
    }
}

impl Default for HotPlugConfig {
    fn default() -> Self {
        Self {
            memory: 16 << 20,
            prefetch: 4 << 30,
            buses: 4,
            button_delay: Duration::from_secs(5),
            link_timeout: Duration::from_secs(1),
            settle: Duration::from_millis(100),
            command_timeout: Duration::from_secs(1),
        }
    }
}

/// Why a configuration cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A size that has to be one of a few.
    #[error("{name} is {value}; it has to be {wanted}")]
    Value {
        /// The setting.
        name: &'static str,
        /// What was set.
        value: u64,
        /// What can be.
        wanted: &'static str,
    },
    /// Two ranges of bus addresses meet.
    #[error("{0} and {1} overlap; choose other bases or sizes")]
    Overlap(&'static str, &'static str),
    /// A range leaves the addresses that it is for.
    #[error("{0} reaches out of the addresses that it is for")]
    OutOfRange(&'static str),
    /// Host memory cannot be.
    #[error(transparent)]
    Memory(#[from] crate::memory::MemoryError),
}

impl HostConfig {
    /// Checks every setting.
    ///
    /// # Errors
    ///
    /// The first that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        power("max_payload", self.max_payload, 128)?;
        power("max_read_request", self.max_read_request, 128)?;
        power("root.max_payload", self.root.max_payload, 128)?;
        power("root.max_read_request", self.root.max_read_request, 64)?;
        if !matches!(self.root.read_completion_boundary, 64 | 128) {
            return Err(ConfigError::Value {
                name: "root.read_completion_boundary",
                value: self.root.read_completion_boundary.into(),
                wanted: "64 or 128",
            });
        }
        self.check_ranges()
    }

    fn check_ranges(&self) -> Result<(), ConfigError> {
        let (start, end) = (*MSI_RANGE.start(), *MSI_RANGE.end());
        let ranges = [
            ("host memory", self.memory_base, self.memory_size as u64),
            ("the 32-bit window", self.window32.base, self.window32.size),
            ("the 64-bit window", self.window64.base, self.window64.size),
            ("the interrupt range", start, end - start + 1),
        ];
        for (i, (name, base, size)) in ranges.into_iter().enumerate() {
            let end = base.checked_add(size).filter(|_| size > 0);
            let end = end.ok_or(ConfigError::OutOfRange(name))?;
            for (other, other_base, other_size) in ranges.into_iter().take(i) {
                if base < other_base + other_size && other_base < end {
                    return Err(ConfigError::Overlap(other, name));
                }
            }
        }
        let end = self.window32.base + self.window32.size;
        if end > 1 << 32 {
            return Err(ConfigError::OutOfRange("the 32-bit window"));
        }
        Ok(())
    }
}

fn power(name: &'static str, value: u16, least: u16) -> Result<(), ConfigError> {
    if value.is_power_of_two() && (least..=4096).contains(&value) {
        return Ok(());
    }
    let wanted = if least == 64 { "64, 128, … 4096" } else { "128, 256, … 4096" };
    Err(ConfigError::Value { name, value: value.into(), wanted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_right_and_errors_name_the_setting() {
        assert_eq!(HostConfig::default().check(), Ok(()));
        let odd = HostConfig { max_payload: 200, ..HostConfig::default() };
        assert!(odd.check().unwrap_err().to_string().starts_with("max_payload is 200"));
        let meets = HostConfig { memory_base: 0xfe00_0000, ..HostConfig::default() };
        assert_eq!(meets.check(), Err(ConfigError::Overlap("host memory", "the interrupt range")));
        let window32 = Range { base: u64::MAX, size: 2 };
        let wraps = HostConfig { window32, ..HostConfig::default() };
        assert!(matches!(wraps.check(), Err(ConfigError::OutOfRange(_))));
    }
}
