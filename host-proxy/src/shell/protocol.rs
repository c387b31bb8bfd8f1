//! The commands and their answers.

use clap::{Subcommand, ValueEnum, ValueHint};
use host_model::MAX_OUTSTANDING;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Most reads of one round-trip measurement.
pub const MAX_READS: u32 = 1_000_000;

const fn one_at_a_time() -> u16 {
    1
}

/// What the model host can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Subcommand)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// List the PCI functions that the host sees, as a tree
    Lspci,
    /// Wait until so many devices are there, enumerated and ready
    Wait {
        /// How many endpoints
        #[arg(long, default_value_t = 1)]
        devices: usize,
        /// Give up after so many seconds
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// Read a register of a function's configuration space
    ConfigRead {
        /// Bus, device, function, as lspci prints it: 03:00.0
        device: String,
        /// Byte offset, a multiple of 4
        #[arg(value_parser = parse_number)]
        register: u64,
    },
    /// Write a register of a function's configuration space
    ConfigWrite {
        /// Bus, device, function, as lspci prints it: 03:00.0
        device: String,
        /// Byte offset, a multiple of 4
        #[arg(value_parser = parse_number)]
        register: u64,
        /// Value, 32 bits
        #[arg(value_parser = parse_number)]
        value: u64,
    },
    /// Read 32 bits of memory space
    MmioRead {
        /// Bus address, a multiple of 4
        #[arg(value_parser = parse_number)]
        address: u64,
    },
    /// Write 32 bits of memory space
    MmioWrite {
        /// Bus address, a multiple of 4
        #[arg(value_parser = parse_number)]
        address: u64,
        /// Value, 32 bits
        #[arg(value_parser = parse_number)]
        value: u64,
        /// Write it so often, each write right behind the other
        #[arg(long, default_value_t = 1)]
        times: u32,
    },
    /// Identify an NVMe drive
    NvmeIdentify {
        /// Bus, device, function of the drive
        device: String,
    },
    /// Write a file to an NVMe drive, from its first block on
    NvmeWrite {
        /// Bus, device, function of the drive
        device: String,
        /// The file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Commands in flight
        #[arg(long, default_value_t = 16)]
        depth: u16,
    },
    /// Read from the first block of an NVMe drive on into a file
    NvmeRead {
        /// Bus, device, function of the drive
        device: String,
        /// The file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// How many bytes
        #[arg(long)]
        bytes: u64,
        /// Commands in flight
        #[arg(long, default_value_t = 16)]
        depth: u16,
        /// Bytes of a command [default: 131072]
        #[arg(long)]
        chunk: Option<usize>,
    },
    /// Measure accelerators' DMA in both directions, and check every byte
    Bandwidth {
        /// Bus, device, function of the accelerator; several are measured at the same time
        #[arg(required = true)]
        devices: Vec<String>,
        /// Bytes in each direction [default: what takes about a second]
        #[arg(long)]
        bytes: Option<u64>,
        /// Only this direction
        #[arg(long)]
        only: Option<Way>,
        /// Tags of its reads [default: all that it has]
        #[arg(long)]
        tags: Option<u16>,
        /// Bytes of a TLP at most, a power of two: what a read request asks for, or a write brings;
        /// Max_Read_Request_Size and Max_Payload_Size limit it further [default: as the device is
        /// configured]
        #[arg(long)]
        request: Option<u16>,
    },
    /// Measure the round trip of a 4-byte register read
    Latency {
        /// Bus, device, function; its first memory BAR is read
        device: String,
        /// How many reads
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=MAX_READS as i64))]
        reads: u32,
        /// How many of them at a time
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=MAX_OUTSTANDING as i64))]
        #[serde(default = "one_at_a_time")]
        outstanding: u16,
    },
    /// Print the model host's counters
    Counters,
}

/// Direction of a device's DMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The device reads host memory.
    Read,
    /// The device writes host memory.
    Write,
}

/// A line from the model host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// How far the command has got.
    Progress {
        /// So much is done.
        done: u64,
        /// Of so much.
        total: u64,
    },
    /// The command's result; the last line.
    Result {
        /// For people.
        text: String,
        /// For programs.
        value: serde_json::Value,
    },
    /// Why the command failed; the last line.
    Error(String),
}

/// A number as people write them: decimal, or hexadecimal after 0x.
///
/// # Errors
///
/// A text that says what is allowed.
pub fn parse_number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a number, such as 16 or 0x10".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        assert_eq!(parse_number("16"), Ok(16));
        assert_eq!(parse_number("0xfee00000"), Ok(0xfee0_0000));
        assert!(parse_number("x").is_err());
    }

    #[test]
    fn a_command_reads_back_as_sent() {
        let (device, file) = ("03:00.0".into(), "a".into());
        let command = Command::NvmeRead { device, file, bytes: 7, depth: 2, chunk: None };
        let text = serde_json::to_string(&command).unwrap();
        assert!(text.contains("\"command\":\"nvme-read\""));
        assert_eq!(serde_json::from_str::<Command>(&text).unwrap(), command);
    }
}
