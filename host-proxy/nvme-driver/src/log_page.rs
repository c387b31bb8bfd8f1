//! Log pages (NVMe 1.4 section 5.14.1).

use crate::status::Status;
use serde::Serialize;

/// Log identifier of Error Information.
pub const ERROR_INFORMATION: u8 = 0x01;
/// Log identifier of SMART / Health Information.
pub const SMART_HEALTH: u8 = 0x02;
/// Log identifier of Firmware Slot Information.
pub const FIRMWARE_SLOT: u8 = 0x03;

/// Bytes of the SMART / Health Information log.
pub const SMART_BYTES: usize = 512;
/// Bytes of one Error Information entry.
pub const ERROR_ENTRY_BYTES: usize = 64;

/// SMART / Health Information (figure 194): the fields that people ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SmartLog {
    /// Critical warning bits.
    pub critical_warning: u8,
    /// Composite temperature in kelvins.
    pub temperature_kelvin: u16,
    /// Available spare, per cent.
    pub available_spare: u8,
    /// Percentage used.
    pub percentage_used: u8,
    /// Data units (1000 × 512 bytes) read.
    pub data_units_read: u128,
    /// Data units written.
    pub data_units_written: u128,
    /// Read commands completed.
    pub host_reads: u128,
    /// Write commands completed.
    pub host_writes: u128,
    /// Power cycles.
    pub power_cycles: u128,
    /// Unsafe shutdowns.
    pub unsafe_shutdowns: u128,
    /// Media and data integrity errors.
    pub media_errors: u128,
    /// Error Information entries over the life of the controller.
    pub error_entries: u128,
}

impl SmartLog {
    /// Reads the log.
    pub fn parse(data: &[u8; SMART_BYTES]) -> Self {
        let wide = |at: usize| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&data[at..at + 16]);
            u128::from_le_bytes(bytes)
        };
        Self {
            critical_warning: data[0],
            temperature_kelvin: u16::from_le_bytes([data[1], data[2]]),
            available_spare: data[3],
            percentage_used: data[5],
            data_units_read: wide(32),
            data_units_written: wide(48),
            host_reads: wide(64),
            host_writes: wide(80),
            power_cycles: wide(112),
            unsafe_shutdowns: wide(144),
            media_errors: wide(160),
            error_entries: wide(176),
        }
    }
}

/// One Error Information entry (figure 193).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorEntry {
    /// Counts errors over the life of the controller; 0 is an unused entry.
    pub count: u64,
    /// Submission queue of the command.
    pub queue: u16,
    /// Command identifier.
    pub command: u16,
    /// Its status.
    pub status: Status,
    /// First logical block that had the error.
    pub lba: u64,
    /// Namespace.
    pub nsid: u32,
}

impl ErrorEntry {
    /// Reads an entry.
    pub fn parse(data: &[u8; ERROR_ENTRY_BYTES]) -> Self {
        let half = |at: usize| u16::from_le_bytes([data[at], data[at + 1]]);
        let wide = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&data[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        Self {
            count: wide(0),
            queue: half(8),
            command: half(10),
            status: Status::from_bits(half(12) >> 1),
            lba: wide(16),
            nsid: u32::from(half(24)) | u32::from(half(26)) << 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_read() {
        let mut data = [0; SMART_BYTES];
        data[1] = 0x2c;
        data[2] = 1;
        data[64] = 9;
        let log = SmartLog::parse(&data);
        assert_eq!((log.temperature_kelvin, log.host_reads), (300, 9));

        let mut entry = [0; ERROR_ENTRY_BYTES];
        entry[0] = 3;
        entry[12] = 0x00;
        entry[13] = 0x01;
        entry[16] = 7;
        let entry = ErrorEntry::parse(&entry);
        assert_eq!((entry.count, entry.status.code(), entry.lba), (3, 0x80, 7));
    }
}
