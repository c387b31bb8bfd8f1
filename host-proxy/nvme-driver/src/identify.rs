//! Identify data structures (NVMe 1.4 section 5.15.2).

use serde::Serialize;

/// Bytes of an Identify data structure.
pub const IDENTIFY_BYTES: usize = 4096;

fn le<const N: usize>(data: &[u8; IDENTIFY_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&data[at..at + N]);
    bytes
}

/// ASCII, padded with spaces; what is not printable becomes `?`.
fn text(data: &[u8]) -> String {
    let text: String = data
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '?' })
        .collect();
    text.trim().to_owned()
}

/// Identify Controller (CNS 01h, figure 247): the fields that a driver acts on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdentifyController {
    /// VID.
    pub vendor_id: u16,
    /// SN.
    pub serial: String,
    /// MN.
    pub model: String,
    /// FR.
    pub firmware: String,
    /// MDTS in bytes, with the 4 KiB page; `None` is no limit.
    pub max_transfer: Option<u64>,
    /// CNTLID.
    pub controller_id: u16,
    /// VER, as major, minor, tertiary.
    pub version: (u16, u8, u8),
    /// ACL: how many Abort commands may be outstanding.
    pub abort_limit: u16,
    /// NN: highest namespace number.
    pub namespaces: u32,
    /// ONCS bit 2.
    pub dataset_management: bool,
    /// ONCS bit 3.
    pub write_zeroes: bool,
    /// VWC bit 0: a volatile write cache is present, so Flush matters.
    pub volatile_write_cache: bool,
    /// SUBNQN.
    pub subsystem_nqn: String,
}

impl IdentifyController {
    /// Reads the structure.
    pub fn parse(data: &[u8; IDENTIFY_BYTES]) -> Self {
        let version = u32::from_le_bytes(le(data, 80));
        let oncs = u16::from_le_bytes(le(data, 520));
        Self {
            vendor_id: u16::from_le_bytes(le(data, 0)),
            serial: text(&data[4..24]),
            model: text(&data[24..64]),
            firmware: text(&data[64..72]),
            max_transfer: match data[77] {
                0 => None,
                // More than 2^63 bytes is as good as no limit.
                shift => 4096_u64.checked_shl(shift.into()).filter(|bytes| *bytes >= 4096),
            },
            controller_id: u16::from_le_bytes(le(data, 78)),
            version: ((version >> 16) as u16, (version >> 8) as u8, version as u8),
            abort_limit: u16::from(data[258]) + 1,
            namespaces: u32::from_le_bytes(le(data, 516)),
            dataset_management: oncs & 1 << 2 != 0,
            write_zeroes: oncs & 1 << 3 != 0,
            volatile_write_cache: data[525] & 1 != 0,
            subsystem_nqn: text(&data[768..1024]),
        }
    }
}

/// Identify Namespace (CNS 00h, figure 245): the fields that a driver acts on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdentifyNamespace {
    /// NSZE, in logical blocks.
    pub blocks: u64,
    /// NCAP, in logical blocks.
    pub capacity: u64,
    /// NUSE, in logical blocks.
    pub used: u64,
    /// Bytes of a logical block in the format in use.
    pub block_size: u32,
    /// Bytes of metadata with each block in the format in use.
    pub metadata_size: u16,
    /// EUI64, 0 if there is none.
    pub eui64: u64,
    /// NGUID, 0 if there is none.
    pub nguid: u128,
}

impl IdentifyNamespace {
    /// Reads the structure; `None` when its block size is outside 512 bytes to 1 MB, which no
    /// usable format has.
    pub fn parse(data: &[u8; IDENTIFY_BYTES]) -> Option<Self> {
        let format = 128 + 4 * usize::from(data[26] & 0xf);
        let shift = data[format + 2];
        if !(9..=20).contains(&shift) {
            return None;
        }
        Some(Self {
            blocks: u64::from_le_bytes(le(data, 0)),
            capacity: u64::from_le_bytes(le(data, 8)),
            used: u64::from_le_bytes(le(data, 16)),
            block_size: 1 << shift,
            metadata_size: u16::from_le_bytes(le(data, format)),
            eui64: u64::from_be_bytes(le(data, 120)),
            nguid: u128::from_be_bytes(le(data, 104)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_read() {
        let mut data = [0; IDENTIFY_BYTES];
        data[4..24].copy_from_slice(b"S12                 ");
        data[24..30].copy_from_slice(b"DxPU\x01X");
        data[77] = 5;
        data[80..84].copy_from_slice(&0x0001_0400_u32.to_le_bytes());
        data[520] = 0b1100;
        let id = IdentifyController::parse(&data);
        assert_eq!((id.serial.as_str(), id.model.as_str()), ("S12", "DxPU?X"));
        assert_eq!(id.max_transfer, Some(128 * 1024));
        assert_eq!(id.version, (1, 4, 0));
        assert!(id.dataset_management && id.write_zeroes && !id.volatile_write_cache);
    }

    #[test]
    fn absurd_transfer_sizes_are_no_limit() {
        let mut data = [0; IDENTIFY_BYTES];
        for shift in [52, 63, 64, 255] {
            data[77] = shift;
            assert_eq!(IdentifyController::parse(&data).max_transfer, None);
        }
    }

    #[test]
    fn a_namespace_is_read_in_its_format() {
        let mut data = [0; IDENTIFY_BYTES];
        data[0] = 100;
        data[26] = 1;
        data[134] = 12;
        let ns = IdentifyNamespace::parse(&data).unwrap();
        assert_eq!((ns.blocks, ns.block_size), (100, 4096));
        data[26] = 0;
        assert_eq!(IdentifyNamespace::parse(&data), None);
    }
}
