//! Firmware images from ELF files: [`from_elf`], [`Program::image`], and the keys that sign them.

mod boot_loader;
mod elf;
pub mod keys;
mod version;

pub use boot_loader::{BootLoader, NoBootLoader};
pub use elf::{ElfError, MAX_PAYLOAD, Purpose, from_elf, purpose};
pub use version::{BadVersion, parse_version};

use card_image::{
    BoardName, Header, ImageParts, KeyId, Refusal, Role, SecurityVersion, Version, seal,
};

/// A program as a boot loader has it: bytes in a row, and where they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Address of the first byte.
    pub load: u32,
    /// Address of the first instruction, within the payload.
    pub entry: u32,
    /// The bytes, not empty.
    pub payload: Vec<u8>,
}

/// What is to be said of a program in its image's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The board that it is for.
    pub board: BoardName,
    /// The role that it is for.
    pub role: Role,
    /// Version, for people.
    pub version: Version,
    /// Version, for anti-downgrade.
    pub security: SecurityVersion,
}

/// A key to sign with, and its number.
#[derive(Clone, Copy, Debug)]
pub struct Signer<'a> {
    /// The number, not 0.
    pub number: KeyId,
    /// The secret 32 bytes (RFC 8032, 5.1.5).
    pub secret: &'a [u8; 32],
}

impl Program {
    /// The program's image: header and payload; signed, where there is somebody to sign it.
    ///
    /// # Errors
    ///
    /// When the format has no such image: no payload, the entry outside of it, or a key's number
    /// that is 0.
    pub fn image(&self, label: &Label, signer: Option<&Signer<'_>>) -> Result<Vec<u8>, Refusal> {
        let Label { board, role, version, security } = *label;
        let parts =
            ImageParts { board, role, version, security, load: self.load, entry: self.entry };
        let header = parts.unsigned(&self.payload)?;
        let header = match signer {
            Some(Signer { number, secret }) => seal(header, *number, secret)?,
            None => header,
        };
        Ok([&header.emit()[..], &self.payload].concat())
    }
}

/// Signs an image, whatever signature it had before.
///
/// # Errors
///
/// When it is no image, its payload is not what the header says, or the key's number is 0.
pub fn sign(image: &[u8], signer: &Signer<'_>) -> Result<Vec<u8>, Refusal> {
    let header = whole(image)?;
    let signed = seal(header, signer.number, signer.secret)?;
    Ok([&signed.emit()[..], &image[card_image::HEADER_LEN..]].concat())
}

/// The header of an image that is whole and has no bytes too many. Whether it is to be trusted is
/// not looked at.
///
/// # Errors
///
/// When it is no image, or its payload is not what the header says.
pub fn whole(image: &[u8]) -> Result<Header, Refusal> {
    let header = Header::parse(image)?;
    header.check_payload(image)?;
    if header.image_len() < image.len() as u64 {
        return Err(Refusal::Malformed("bytes follow the payload"));
    }
    Ok(header)
}

#[cfg(test)]
pub(crate) mod tests;
