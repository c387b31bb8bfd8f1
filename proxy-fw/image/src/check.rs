//! Whether an image is one that a card runs.

use core::fmt;

use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest, Sha512};

use crate::header::{HEADER_LEN, Header, SIGNED, crc32_begin};
use crate::layout::Region;
use crate::names::{BoardName, KeyId, Role, SecurityVersion};

/// A key whose images a card runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedKey {
    /// Its number, not 0.
    pub id: KeyId,
    /// The public key (RFC 8032, 5.1.5).
    pub key: [u8; 32],
}

/// Whether images with a lower security version than one that was healthy are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AntiDowngrade {
    /// They are.
    Off,
    /// They are not.
    #[default]
    BySecurityVersion,
}

/// Who may have signed an image, for whoever looks at one.
pub trait Keys {
    /// Checks a header's signature as far as this side does.
    ///
    /// # Errors
    ///
    /// When it is not to be run.
    fn check(&self, header: &Header) -> Result<(), Refusal>;
}

impl Keys for &[TrustedKey] {
    fn check(&self, header: &Header) -> Result<(), Refusal> {
        header.check_signature(self)
    }
}

/// The keys are the boot loader's, which checks the signature at each start. Here an image must be
/// signed, by whomever: so a firmware that writes images needs no Ed25519.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeysOfBootLoader;

impl Keys for KeysOfBootLoader {
    fn check(&self, header: &Header) -> Result<(), Refusal> {
        if header.key == KeyId::NONE { Err(Refusal::Unsigned) } else { Ok(()) }
    }
}

/// What a card demands of an image, by whoever has the keys.
pub type Requirements<'a> = Demands<&'a [TrustedKey]>;

/// What a card demands of an image.
#[derive(Clone, Copy, Debug)]
pub struct Demands<K> {
    /// The card's board.
    pub board: BoardName,
    /// The card's role; [`Role::Any`] where it is not decided.
    pub role: Role,
    /// Memory that an image may be loaded to, all of it within.
    pub memory: Region,
    /// Keys that may have signed it. With none nothing is run.
    pub keys: K,
    /// The policy.
    pub anti_downgrade: AntiDowngrade,
    /// The lowest security version that the board's owner allows, whatever the boot state says.
    pub lowest_security: SecurityVersion,
}

/// Why an image is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It ends too early.
    Truncated {
        /// Bytes that are there.
        have: u64,
        /// Bytes of the whole.
        need: u64,
    },
    /// It does not begin as images do.
    NotAnImage,
    /// Its header is of a format that is newer than this code.
    NewerFormat(u16),
    /// The header's CRC is wrong.
    HeaderDamaged,
    /// The header's CRC is right, and this is not as the format has it.
    Malformed(&'static str),
    /// It is for this board.
    OtherBoard(BoardName),
    /// It is for this role.
    OtherRole(Role),
    /// It is larger than its slot.
    TooLarge {
        /// Bytes of the image.
        length: u64,
        /// Bytes of the slot.
        room: u64,
    },
    /// It would be loaded where the board has no memory for it.
    NoMemory {
        /// Where it wants to be.
        load: u32,
    },
    /// Nobody signed it.
    Unsigned,
    /// Signed with a key that is not trusted.
    UnknownKey(KeyId),
    /// The signature is wrong: changed by somebody, or another key under the same number.
    BadSignature,
    /// Anti-downgrade: its security version is too low.
    Downgrade {
        /// Its security version.
        has: SecurityVersion,
        /// The lowest that is run.
        lowest: SecurityVersion,
    },
    /// The payload's CRC is wrong: it was damaged.
    BadCrc,
    /// The payload's digest is wrong, under a right CRC: it was made to be taken for another.
    BadDigest,
    /// It is not the image that the boot state has for its slot.
    NotAsRecorded,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { have, need } => {
                write!(f, "the image is truncated: {have} of {need} bytes")
            }
            Self::NotAnImage => f.write_str("this is no firmware image"),
            Self::NewerFormat(version) => {
                write!(f, "the image has format {version}, which is newer than this program")
            }
            Self::HeaderDamaged => f.write_str("the image's header is damaged"),
            Self::Malformed(what) => write!(f, "the image's header is malformed: {what}"),
            Self::OtherBoard(board) => write!(f, "the image is for the board {board}"),
            Self::OtherRole(role) => write!(f, "the image is for the role {role}"),
            Self::TooLarge { length, room } => {
                write!(f, "the image has {length} bytes, a slot only {room}")
            }
            Self::NoMemory { load } => {
                write!(f, "the image would be loaded to {load:#010x}, outside the board's memory")
            }
            Self::Unsigned => f.write_str("the image is not signed"),
            Self::UnknownKey(key) => {
                write!(f, "the image is signed with key {key}, which the card does not trust")
            }
            Self::BadSignature => f.write_str("the image's signature is wrong"),
            Self::Downgrade { has, lowest } => write!(
                f,
                "the image has security version {}, the card runs none below {}",
                has.0, lowest.0
            ),
            Self::BadCrc => f.write_str("the image's payload is damaged"),
            Self::BadDigest => f.write_str("the image's payload is not the one that was signed"),
            Self::NotAsRecorded => f.write_str("the slot has another image than was recorded"),
        }
    }
}

impl core::error::Error for Refusal {}

impl Header {
    /// Checks a header against what a card demands, and its signature as far as [`Keys`] do: the
    /// payload is then what its digest says, or not an image that was signed. `slot` is the room for header and
    /// payload in bytes, `lowest` what the boot state demands.
    ///
    /// # Errors
    ///
    /// The first reason not to run it.
    pub fn check<K: Keys>(
        &self,
        requirements: &Demands<K>,
        slot: u32,
        lowest: SecurityVersion,
    ) -> Result<(), Refusal> {
        if self.board != requirements.board {
            return Err(Refusal::OtherBoard(self.board));
        }
        if !self.role.runs_on(requirements.role) {
            return Err(Refusal::OtherRole(self.role));
        }
        if self.image_len() > u64::from(slot) {
            return Err(Refusal::TooLarge { length: self.image_len(), room: slot.into() });
        }
        if !requirements.memory.contains(self.load, self.payload_len) {
            return Err(Refusal::NoMemory { load: self.load });
        }
        requirements.keys.check(self)?;
        let lowest = lowest.max(requirements.lowest_security);
        let allowed = requirements.anti_downgrade == AntiDowngrade::Off || self.security >= lowest;
        if allowed { Ok(()) } else { Err(Refusal::Downgrade { has: self.security, lowest }) }
    }

    /// Checks the signature alone.
    ///
    /// # Errors
    ///
    /// When there is none, by none of these keys, or a wrong one.
    pub fn check_signature(&self, keys: &[TrustedKey]) -> Result<(), Refusal> {
        if self.key == KeyId::NONE {
            return Err(Refusal::Unsigned);
        }
        let trusted = keys.iter().find(|trusted| trusted.id == self.key);
        let trusted = trusted.ok_or(Refusal::UnknownKey(self.key))?;
        let key = VerifyingKey::from_bytes(&trusted.key).map_err(|_| Refusal::BadSignature)?;
        // Strict: no signature passes that other implementations of RFC 8032 may refuse.
        key.verify_strict(&self.emit()[..SIGNED], &Signature::from_bytes(&self.signature))
            .map_err(|_| Refusal::BadSignature)
    }

    /// Checks a whole image in memory, as [`check`](Self::check) does its header, and its payload.
    ///
    /// # Errors
    ///
    /// The first reason not to run it.
    pub fn check_image(
        image: &[u8],
        requirements: &Requirements<'_>,
        slot: u32,
        lowest: SecurityVersion,
    ) -> Result<Self, Refusal> {
        let header = Self::parse(image)?;
        header.check(requirements, slot, lowest)?;
        header.check_payload(image)?;
        Ok(header)
    }

    /// Checks the payload of a whole image in memory, of which this is the header.
    ///
    /// # Errors
    ///
    /// When it is too short, or not the payload. Bytes that follow it do not matter.
    pub fn check_payload(&self, image: &[u8]) -> Result<(), Refusal> {
        let need = self.image_len();
        let have = image.len() as u64;
        if have < need {
            return Err(Refusal::Truncated { have, need });
        }
        let mut payload = PayloadCheck::new();
        payload.update(&image[HEADER_LEN..need as usize]);
        payload.finish(self)
    }
}

/// A payload that is checked in pieces.
pub struct PayloadCheck {
    crc: crc::Digest<'static, u32, crc::NoTable>,
    digest: Sha512,
    length: u64,
}

impl Default for PayloadCheck {
    fn default() -> Self {
        Self::new()
    }
}

impl PayloadCheck {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { crc: crc32_begin(), digest: Sha512::new(), length: 0 }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        self.digest.update(bytes);
        self.length += bytes.len() as u64;
    }

    /// The CRC and the digest of all there was.
    pub(crate) fn sums(self) -> (u32, [u8; 64]) {
        (self.crc.finalize(), self.digest.finalize().into())
    }

    /// Whether that was the payload of this header.
    ///
    /// # Errors
    ///
    /// When its length, CRC or digest is another.
    pub fn finish(self, header: &Header) -> Result<(), Refusal> {
        let (have, need) = (self.length, header.payload_len.into());
        if have != need {
            return Err(Refusal::Truncated { have, need });
        }
        let (crc, digest) = self.sums();
        if crc != header.payload_crc {
            return Err(Refusal::BadCrc);
        }
        // Neither is a secret: no need for constant time.
        if digest != header.payload_digest { Err(Refusal::BadDigest) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
