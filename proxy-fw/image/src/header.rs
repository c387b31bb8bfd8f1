//! The 256 bytes in front of an image's payload (`docs/image.md`, "Header").

use core::fmt;

use crc::{Crc, NoTable};
use sha2::{Digest, Sha512};

use crate::check::Refusal;
use crate::names::{BoardName, KeyId, Role, SecurityVersion, Version};

/// Bytes of a header; the payload follows at once.
pub const HEADER_LEN: usize = 256;

/// What every header begins with.
pub const MAGIC: [u8; 8] = *b"DxPU-img";

/// The version of the format that is written and read.
pub const FORMAT_VERSION: u16 = 1;

/// Bytes that the signature is over.
pub(crate) const SIGNED: usize = 192;

/// Bytes that the header's own CRC is over.
const COVERED: usize = 188;

/// Without tables: a card has no kilobyte left for them, and an image's SHA-512 takes longer.
static CRC: Crc<u32, NoTable> = Crc::<u32, NoTable>::new(&crc::CRC_32_ISO_HDLC);

/// CRC-32 (ISO-HDLC) of some bytes.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    CRC.checksum(bytes)
}

/// One that goes on.
pub(crate) fn crc32_begin() -> crc::Digest<'static, u32, NoTable> {
    CRC.digest()
}

/// Which image it is, among all: the first bytes of the SHA-512 of its header.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageId(pub [u8; 16]);

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A header's meaning. What is read is well-formed; whether it is to be trusted says
/// [`Header::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the payload, not 0.
    pub payload_len: u32,
    /// Address that the payload runs at; the boot loader copies it there unless it is its own
    /// place in flash.
    pub load: u32,
    /// Address of the first instruction, within the payload.
    pub entry: u32,
    /// Version, for people.
    pub version: Version,
    /// Version, for anti-downgrade.
    pub security: SecurityVersion,
    /// The board that it is for.
    pub board: BoardName,
    /// The role that it is for.
    pub role: Role,
    /// CRC-32 (ISO-HDLC) of the payload.
    pub payload_crc: u32,
    /// SHA-512 of the payload.
    pub payload_digest: [u8; 64],
    /// The key that signed it.
    pub key: KeyId,
    /// Ed25519 signature (RFC 8032, 5.1) of the header's first 192 bytes.
    pub signature: [u8; 64],
}

impl Header {
    /// Reads a header from the beginning of an image.
    ///
    /// # Errors
    ///
    /// Why it is no header of this format.
    pub fn parse(image: &[u8]) -> Result<Self, Refusal> {
        let have = image.len() as u64;
        let Some(bytes) = image.first_chunk::<HEADER_LEN>() else {
            return Err(Refusal::Truncated { have, need: HEADER_LEN as u64 });
        };
        if bytes[..8] != MAGIC {
            return Err(Refusal::NotAnImage);
        }
        let format = u16_at(bytes, 8);
        if format > FORMAT_VERSION {
            return Err(Refusal::NewerFormat(format));
        }
        if crc32(&bytes[..COVERED]) != u32_at(bytes, COVERED) {
            return Err(Refusal::HeaderDamaged);
        }
        if format != FORMAT_VERSION || u16_at(bytes, 10) as usize != HEADER_LEN {
            return Err(Refusal::Malformed("format version and header length"));
        }
        let reserved = [30..32, 57..60, 132..COVERED];
        if reserved.into_iter().any(|range| bytes[range].iter().any(|&byte| byte != 0)) {
            return Err(Refusal::Malformed("reserved bytes, which are zero"));
        }
        let header = Self {
            payload_len: u32_at(bytes, 12),
            load: u32_at(bytes, 16),
            entry: u32_at(bytes, 20),
            version: Version {
                major: u16_at(bytes, 24),
                minor: u16_at(bytes, 26),
                patch: u16_at(bytes, 28),
                build: u32_at(bytes, 32),
            },
            security: SecurityVersion(u32_at(bytes, 36)),
            board: BoardName::from_padded(&array_at(bytes, 40))
                .map_err(|_| Refusal::Malformed("board name"))?,
            role: Role::from_number(bytes[56]).ok_or(Refusal::Malformed("role"))?,
            payload_crc: u32_at(bytes, 60),
            payload_digest: array_at(bytes, 64),
            key: KeyId(u32_at(bytes, 128)),
            signature: array_at(bytes, SIGNED),
        };
        if !header.addresses_are_right() {
            return Err(Refusal::Malformed("payload length, load address and entry"));
        }
        Ok(header)
    }

    /// Whether the payload is not empty, ends within the address space, and has the entry.
    pub(crate) fn addresses_are_right(&self) -> bool {
        let end = u64::from(self.load) + u64::from(self.payload_len);
        self.payload_len > 0
            && end <= 1 << 32
            && (u64::from(self.load)..end).contains(&self.entry.into())
    }

    /// The header's bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &FORMAT_VERSION.to_le_bytes());
        put(10, &(HEADER_LEN as u16).to_le_bytes());
        put(12, &self.payload_len.to_le_bytes());
        put(16, &self.load.to_le_bytes());
        put(20, &self.entry.to_le_bytes());
        put(24, &self.version.major.to_le_bytes());
        put(26, &self.version.minor.to_le_bytes());
        put(28, &self.version.patch.to_le_bytes());
        put(32, &self.version.build.to_le_bytes());
        put(36, &self.security.0.to_le_bytes());
        put(40, self.board.padded());
        put(56, &[self.role as u8]);
        put(60, &self.payload_crc.to_le_bytes());
        put(64, &self.payload_digest);
        put(128, &self.key.0.to_le_bytes());
        put(SIGNED, &self.signature);
        let covered = crc32(&bytes[..COVERED]);
        bytes[COVERED..SIGNED].copy_from_slice(&covered.to_le_bytes());
        bytes
    }

    /// Which image it is.
    #[must_use]
    pub fn id(&self) -> ImageId {
        ImageId(array_at(&Sha512::digest(self.emit()), 0))
    }

    /// Bytes of header and payload.
    #[must_use]
    pub fn image_len(&self) -> u64 {
        HEADER_LEN as u64 + u64::from(self.payload_len)
    }
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}
