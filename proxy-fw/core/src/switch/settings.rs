//! What a switch is made to be.

use super::placeholder::Placeholder;
use crate::limits::{MAX_PAYLOAD_OFFERED, MAX_PORTS};
use core::fmt;

/// How a [`VirtualSwitch`](super::VirtualSwitch) presents itself.
#[derive(Clone, Debug)]
pub struct SwitchConfig {
    /// Downstream ports, 1 to [`MAX_PORTS`].
    pub ports: u8,
    /// Vendor ID of every port. The default, 0x1234, belongs to nobody who would mind in a
    /// laboratory; whoever ships a product sets their own.
    pub vendor_id: u16,
    /// Device ID of the upstream port.
    pub upstream_device_id: u16,
    /// Device ID of the downstream ports.
    pub downstream_device_id: u16,
    /// Revision of every port.
    pub revision: u8,
    /// Subsystem vendor and subsystem ID of every port.
    pub subsystem: (u16, u16),
    /// Largest payload that is offered (Max_Payload_Size Supported), in bytes: a power of two,
    /// 128 to 4096. The smallest of front-end, fabric and box port.
    pub max_payload: usize,
    /// Device serial number, EUI-64.
    pub serial: u64,
    /// Physical Slot Number of port 0; the others count up from it. Numbers have 13 bits and are
    /// to be unique in the chassis.
    pub first_slot_number: u16,
    /// What each port shows at boot, until its first device is plugged.
    pub placeholders: [Option<Placeholder>; MAX_PORTS],
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            ports: 8,
            vendor_id: 0x1234,
            upstream_device_id: 0xd0b0,
            downstream_device_id: 0xd0b1,
            revision: 1,
            subsystem: (0x1234, 0xd0b0),
            max_payload: MAX_PAYLOAD_OFFERED,
            serial: 0,
            first_slot_number: 1,
            placeholders: [None; MAX_PORTS],
        }
    }
}

/// Why a switch cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchConfigError {
    /// The number of ports is not 1 to [`MAX_PORTS`].
    Ports(u8),
    /// The payload size is not a power of two from 128 to 4096.
    MaxPayload(usize),
    /// A slot number does not fit 13 bits.
    SlotNumber(u16),
    /// A vendor ID of 0 or 0xffff means that nobody is there.
    VendorId(u16),
}

impl fmt::Display for SwitchConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ports(n) => {
                write!(f, "{n} downstream ports are not possible: choose 1 to {MAX_PORTS}")
            }
            Self::MaxPayload(n) => write!(
                f,
                "a payload size of {n} bytes is not possible: choose a power of two from 128 to 4096"
            ),
            Self::SlotNumber(n) => write!(
                f,
                "slot numbers from {n} on do not fit 13 bits: choose a smaller first slot number"
            ),
            Self::VendorId(id) => {
                write!(f, "vendor ID {id:#06x} means that no device is there: choose another")
            }
        }
    }
}

impl core::error::Error for SwitchConfigError {}

impl SwitchConfig {
    /// Checks what the types cannot.
    ///
    /// # Errors
    ///
    /// The first thing that is not possible.
    pub fn check(&self) -> Result<(), SwitchConfigError> {
        if self.ports == 0 || usize::from(self.ports) > MAX_PORTS {
            return Err(SwitchConfigError::Ports(self.ports));
        }
        if !(128..=4096).contains(&self.max_payload) || !self.max_payload.is_power_of_two() {
            return Err(SwitchConfigError::MaxPayload(self.max_payload));
        }
        if self.first_slot_number > 0x1fff - u16::from(self.ports) {
            return Err(SwitchConfigError::SlotNumber(self.first_slot_number));
        }
        if matches!(self.vendor_id, 0 | 0xffff) {
            return Err(SwitchConfigError::VendorId(self.vendor_id));
        }
        Ok(())
    }

    /// The payload size as Device Capabilities encodes it.
    pub(crate) fn payload_code(&self) -> u32 {
        self.max_payload.trailing_zeros().saturating_sub(7)
    }
}
