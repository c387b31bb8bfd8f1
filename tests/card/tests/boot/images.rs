//! Images that are right, and images that are not.

use anyhow::{Context, Result};
use board_qemu_virt::layout::{BOARD, MEMORY};
use card_image::{
    AntiDowngrade, BoardName, Header, ImageParts, KeyId, Requirements, Role, SecurityVersion,
    TrustedKey, Version, public_key, seal,
};

/// The secret key that everybody has.
pub(crate) fn development_key() -> [u8; 32] {
    let pem = include_str!("../../../../proxy-fw/flash/keys/development.pem");
    dxpu_flash::image::keys::secret(pem).expect("it is a key")
}

/// What the boot loader trusts.
pub(crate) fn trusted() -> [TrustedKey; 1] {
    [TrustedKey { id: KeyId(1), key: public_key(&development_key()) }]
}

/// What the boot loader demands.
pub(crate) fn requirements(keys: &[TrustedKey]) -> Requirements<'_> {
    Requirements {
        board: BOARD,
        role: Role::Any,
        memory: MEMORY,
        keys,
        anti_downgrade: AntiDowngrade::BySecurityVersion,
        lowest_security: SecurityVersion(0),
    }
}

/// What an image says of itself.
#[derive(Clone, Copy)]
pub(crate) struct Label {
    pub(crate) board: BoardName,
    pub(crate) major: u16,
    pub(crate) security: u32,
}

impl Label {
    /// For this board.
    pub(crate) const fn version(major: u16) -> Self {
        Self { board: BOARD, major, security: 0 }
    }
}

/// A signed image of a payload that is entered at its first instruction.
pub(crate) fn image(label: Label, payload: &[u8]) -> Result<Vec<u8>> {
    image_by(KeyId(1), &development_key(), label, payload)
}

/// The same, signed with another key.
pub(crate) fn image_by(
    key: KeyId,
    secret: &[u8; 32],
    label: Label,
    payload: &[u8],
) -> Result<Vec<u8>> {
    let parts = ImageParts {
        board: label.board,
        role: Role::Any,
        version: Version { major: label.major, ..Version::default() },
        security: SecurityVersion(label.security),
        load: MEMORY.start,
        entry: MEMORY.start,
    };
    let header = seal(parts.unsigned(payload)?, key, secret)?;
    Ok([&header.emit()[..], payload].concat())
}

/// The same firmware under another label.
pub(crate) fn relabelled(firmware: &[u8], label: Label) -> Result<Vec<u8>> {
    let header = Header::parse(firmware)?;
    let payload = firmware.get(header.image_len() as usize - header.payload_len as usize..);
    image(label, payload.context("a whole image")?)
}

/// Instructions, as bytes.
fn program(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Sends a letter on the UART, and sleeps.
pub(crate) fn says(letter: u8) -> Vec<u8> {
    program(&[
        0x1000_02b7,                           // lui  t0, 0x10000
        0x0000_0313 | u32::from(letter) << 20, // li   t1, letter
        0x0062_8023,                           // sb   t1, 0(t0)
        0x3040_1073,                           // csrw mie, zero
        0x1050_0073,                           // wfi
        0xffdf_f06f,                           // j    .-4
    ])
}

/// Meets an instruction at once that there is not.
pub(crate) fn crashes() -> Vec<u8> {
    program(&[0xc000_1073]) // unimp
}

/// Does nothing for ever, and lets nobody know.
pub(crate) fn hangs() -> Vec<u8> {
    program(&[0x0000_006f]) // j .
}
