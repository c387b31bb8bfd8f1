//! Making images: what the build says of one becomes a signed header.

use ed25519_dalek::{Signer, SigningKey};

use crate::check::{PayloadCheck, Refusal};
use crate::header::{Header, SIGNED};
use crate::names::{BoardName, KeyId, Role, SecurityVersion, Version};

/// What is to be said of a payload; the rest of its header follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageParts {
    /// The board.
    pub board: BoardName,
    /// The role.
    pub role: Role,
    /// Version, for people.
    pub version: Version,
    /// Version, for anti-downgrade.
    pub security: SecurityVersion,
    /// Address that it runs at.
    pub load: u32,
    /// Address of its first instruction.
    pub entry: u32,
}

impl ImageParts {
    /// The header of a payload, not signed.
    ///
    /// # Errors
    ///
    /// When the payload is empty or too long for its address, or the entry not in it.
    pub fn unsigned(&self, payload: &[u8]) -> Result<Header, Refusal> {
        let Self { board, role, version, security, load, entry } = *self;
        let wrong = Refusal::Malformed("payload length, load address and entry");
        let mut sums = PayloadCheck::new();
        sums.update(payload);
        let (payload_crc, payload_digest) = sums.sums();
        let header = Header {
            payload_len: u32::try_from(payload.len()).map_err(|_| wrong)?,
            load,
            entry,
            version,
            security,
            board,
            role,
            payload_crc,
            payload_digest,
            key: KeyId::NONE,
            signature: [0; 64],
        };
        if header.addresses_are_right() { Ok(header) } else { Err(wrong) }
    }
}

/// Signs a header with a key's secret 32 bytes (RFC 8032, 5.1.5), under its number.
///
/// # Errors
///
/// When the number is that of no key.
pub fn seal(header: Header, key: KeyId, secret: &[u8; 32]) -> Result<Header, Refusal> {
    if key == KeyId::NONE {
        return Err(Refusal::Unsigned);
    }
    let mut header = Header { key, ..header };
    let signature = SigningKey::from_bytes(secret).sign(&header.emit()[..SIGNED]);
    header.signature = signature.to_bytes();
    Ok(header)
}

/// The public key of a secret one.
#[must_use]
pub fn public_key(secret: &[u8; 32]) -> [u8; 32] {
    SigningKey::from_bytes(secret).verifying_key().to_bytes()
}
