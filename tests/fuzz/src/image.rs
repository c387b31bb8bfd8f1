//! Firmware images: what is read of a header is written the same, and only what was signed is run.

use card_image::{
    AntiDowngrade, BoardName, HEADER_LEN, Header, ImageParts, KeyId, Region, Requirements, Role,
    SecurityVersion, TrustedKey, Version, public_key, seal,
};
use std::sync::LazyLock;

pub(crate) const KEY: KeyId = KeyId(0x17);
pub(crate) const MEMORY: Region = Region { start: 0x8000_0000, len: 1 << 12 };
/// Bytes of a slot.
pub(crate) const SLOT: u32 = 4 << 10;

const SECRET: [u8; 32] = [7; 32];

/// The keys that are trusted.
pub(crate) static KEYS: LazyLock<[TrustedKey; 1]> =
    LazyLock::new(|| [TrustedKey { id: KEY, key: public_key(&SECRET) }]);

/// Three good images, of several lengths and security versions.
pub static IMAGES: LazyLock<[Vec<u8>; 3]> =
    LazyLock::new(|| [(1, 700, 1), (2, 1800, 1), (3, 256, 2)].map(|(n, len, s)| image(n, len, s)));

fn image(major: u16, length: usize, security: u32) -> Vec<u8> {
    let payload: Vec<u8> = (0..length).map(|n| (n * 31) as u8 ^ major as u8).collect();
    let parts = ImageParts {
        board: board(),
        role: Role::Any,
        version: Version { major, ..Version::default() },
        security: SecurityVersion(security),
        load: MEMORY.start,
        entry: MEMORY.start,
    };
    let header = parts.unsigned(&payload).and_then(|header| seal(header, KEY, &SECRET));
    [&header.expect("a right image").emit()[..], &payload].concat()
}

fn board() -> BoardName {
    BoardName::new("small").expect("a name")
}

pub(crate) fn requirements() -> Requirements<'static> {
    Requirements {
        board: board(),
        role: Role::Host,
        memory: MEMORY,
        keys: &*KEYS,
        anti_downgrade: AntiDowngrade::BySecurityVersion,
        lowest_security: SecurityVersion(0),
    }
}

/// Takes a byte that says whether the header's CRC is made right, and an image.
pub fn run(data: &[u8]) {
    let Some((which, image)) = data.split_first() else { return };
    let mut image = image.to_vec();
    if which & 1 != 0 && image.len() >= HEADER_LEN {
        let crc = tlp_codec::crc::tlp(&image[..188]);
        image[188..192].copy_from_slice(&crc.to_le_bytes());
    }
    let Ok(header) = Header::parse(&image) else { return };
    assert_eq!(header.emit()[..], image[..HEADER_LEN]);
    if let Ok(header) = Header::check_image(&image, &requirements(), SLOT, SecurityVersion(0)) {
        // Nobody finds a signature: it is one of those that were made.
        let length = header.image_len() as usize;
        assert!(IMAGES.iter().any(|good| image[..length] == good[..]));
    }
}
