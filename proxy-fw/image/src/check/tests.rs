//! Headers there and back, and every reason to refuse an image.

use std::string::ToString;
use std::vec::Vec;

use super::*;
use crate::header::{FORMAT_VERSION, crc32};
use crate::test_card::*;
use crate::{BoardName, ImageParts, seal};

const SLOT: u32 = 4 << 10;

fn check(image: &[u8]) -> Result<Header, Refusal> {
    Header::check_image(image, &requirements(&keys()), SLOT, SecurityVersion(1))
}

/// Changes bytes of an image, and makes the header's CRC right again.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut image = image(3, 100);
    image[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc32(&image[..188]);
    image[188..192].copy_from_slice(&crc.to_le_bytes());
    image
}

#[test]
fn a_good_image_passes() {
    let image = image(3, 100);
    let header = check(&image).unwrap();
    assert_eq!(header.emit()[..], image[..HEADER_LEN]);
    assert_eq!((header.version.major, header.payload_len), (3, 100));
    assert_eq!(header.image_len(), 356);
    // What follows in a slot does not matter.
    assert_eq!(check(&[&image[..], &[0xff; 50]].concat()), Ok(header));
}

#[test]
fn what_is_no_header_is_refused() {
    let image = image(3, 100);
    assert_eq!(check(&[]), Err(Refusal::Truncated { have: 0, need: 256 }));
    assert_eq!(check(&image[..255]), Err(Refusal::Truncated { have: 255, need: 256 }));
    assert_eq!(check(&image[..355]), Err(Refusal::Truncated { have: 355, need: 356 }));
    assert_eq!(check(&[0xff; 256]), Err(Refusal::NotAnImage));
    assert_eq!(check(&[0; 256]), Err(Refusal::NotAnImage));
    // A newer format may have its CRC elsewhere.
    let mut newer = image.clone();
    newer[8..10].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    assert_eq!(check(&newer), Err(Refusal::NewerFormat(2)));
    for at in (10..188).chain(188..192) {
        let mut damaged = image.clone();
        damaged[at] ^= 0x10;
        assert_eq!(check(&damaged), Err(Refusal::HeaderDamaged), "byte {at}");
    }
}

#[test]
fn malformed_headers_are_refused() {
    let malformed = |at, bytes: &[u8]| match check(&changed(at, bytes)) {
        Err(Refusal::Malformed(what)) => what,
        other => panic!("{at}: {other:?}"),
    };
    assert_eq!(malformed(8, &[0, 0]), "format version and header length");
    assert_eq!(malformed(10, &[0, 2]), "format version and header length");
    for at in [30, 31, 57, 59, 132, 187] {
        assert_eq!(malformed(at, &[1]), "reserved bytes, which are zero");
    }
    assert_eq!(malformed(40, b"A"), "board name");
    assert_eq!(malformed(40, &[0; 16]), "board name");
    assert_eq!(malformed(56, &[3]), "role");
    let addresses = "payload length, load address and entry";
    assert_eq!(malformed(12, &[0; 4]), addresses);
    assert_eq!(malformed(16, &[0xff; 4]), addresses);
    assert_eq!(malformed(20, &(MEMORY.start - 1).to_le_bytes()), addresses);
    assert_eq!(malformed(20, &(MEMORY.start + 100).to_le_bytes()), addresses);
}

#[test]
fn images_for_others_are_refused() {
    let payload = [5; 100];
    let check = |parts: ImageParts| check(&signed(parts, &payload));
    let other = BoardName::new("other").unwrap();
    assert_eq!(check(ImageParts { board: other, ..parts(1) }), Err(Refusal::OtherBoard(other)));
    let boxed = ImageParts { role: Role::Box, ..parts(1) };
    assert_eq!(check(boxed), Err(Refusal::OtherRole(Role::Box)));
    assert!(check(ImageParts { role: Role::Host, ..parts(1) }).is_ok());
    let load = MEMORY.start + MEMORY.len - 99;
    assert_eq!(
        check(ImageParts { load, entry: load, ..parts(1) }),
        Err(Refusal::NoMemory { load })
    );
    let old = ImageParts { security: SecurityVersion(0), ..parts(1) };
    let (has, lowest) = (SecurityVersion(0), SecurityVersion(1));
    assert_eq!(check(old), Err(Refusal::Downgrade { has, lowest }));
    let keys = keys();
    let off = Requirements { anti_downgrade: AntiDowngrade::Off, ..requirements(&keys) };
    assert!(Header::check_image(&signed(old, &payload), &off, SLOT, lowest).is_ok());
    let board = Requirements { lowest_security: SecurityVersion(2), ..requirements(&keys) };
    let (has, above) = (lowest, SecurityVersion(2));
    assert_eq!(
        Header::check_image(&signed(parts(1), &payload), &board, SLOT, lowest),
        Err(Refusal::Downgrade { has, lowest: above })
    );
}

#[test]
fn large_images_are_refused() {
    assert!(check(&image(1, 4096 - 256)).is_ok());
    let (length, room) = (4097, 4096);
    assert_eq!(check(&image(1, 4097 - 256)), Err(Refusal::TooLarge { length, room }));
}

#[test]
fn signatures_count() {
    let header = parts(1).unsigned(&[1, 2, 3, 4, 5]).unwrap();
    assert_eq!(header.check_signature(&keys()), Err(Refusal::Unsigned));
    assert_eq!(seal(header.clone(), KeyId::NONE, &SECRET), Err(Refusal::Unsigned));
    let strange = seal(header.clone(), KeyId(9), &SECRET).unwrap();
    assert_eq!(strange.check_signature(&keys()), Err(Refusal::UnknownKey(KeyId(9))));
    assert_eq!(strange.check_signature(&[]), Err(Refusal::UnknownKey(KeyId(9))));
    let forged = seal(header.clone(), KEY, &[8; 32]).unwrap();
    assert_eq!(forged.check_signature(&keys()), Err(Refusal::BadSignature));
    // Whatever is changed of what was signed, under a right CRC.
    for at in [12, 20, 24, 32, 36, 60, 64, 127] {
        let image = changed(at, &[0x08]);
        assert_eq!(check(&image), Err(Refusal::BadSignature), "byte {at}");
    }
    // A key that is no point of the curve.
    let good = seal(header, KEY, &SECRET).unwrap();
    let wrong = TrustedKey { id: KEY, key: [2; 32] };
    assert_eq!(good.check_signature(&[wrong]), Err(Refusal::BadSignature));
    assert_eq!(good.check_signature(&keys()), Ok(()));
}

/// RFC 8032, 7.1, test 2: the crate and its use are those of the standard.
#[test]
fn keys_are_those_of_the_standard() {
    let unhex = |text: &str| -> Vec<u8> {
        let digits = text.as_bytes().chunks(2);
        digits.map(|d| u8::from_str_radix(core::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
    };
    let secret = unhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb");
    let public = unhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
    assert_eq!(crate::public_key(&secret.try_into().unwrap())[..], public);
}

#[test]
fn payloads_are_checked_twice_over() {
    let good = image(3, 100);
    for at in [256, 300, 355] {
        let mut damaged = good.clone();
        damaged[at] ^= 1;
        assert_eq!(check(&damaged), Err(Refusal::BadCrc));
    }
    // A signed header whose CRC fits the payload and whose digest does not.
    let mut header = parts(1).unsigned(&[1; 50]).unwrap();
    header.payload_crc = crc32(&[2; 50]);
    let header = seal(header, KEY, &SECRET).unwrap();
    let image = [&header.emit()[..], &[2; 50]].concat();
    assert_eq!(check(&image), Err(Refusal::BadDigest));
}

#[test]
fn nothing_is_made_that_would_be_refused() {
    let wrong = Refusal::Malformed("payload length, load address and entry");
    assert_eq!(parts(1).unsigned(&[]), Err(wrong));
    let outside = ImageParts { entry: MEMORY.start + 3, ..parts(1) };
    assert_eq!(outside.unsigned(&[1, 2, 3]), Err(wrong));
    let high = ImageParts { load: u32::MAX, entry: u32::MAX, ..parts(1) };
    assert!(high.unsigned(&[1]).is_ok());
    assert_eq!(high.unsigned(&[1, 2]), Err(wrong));
}

#[test]
fn refusals_say_what_is_wrong() {
    let has = SecurityVersion(3);
    let text = Refusal::Downgrade { has, lowest: SecurityVersion(4) }.to_string();
    assert_eq!(text, "the image has security version 3, the card runs none below 4");
    assert_eq!(
        Refusal::UnknownKey(KeyId(0x1234)).to_string(),
        "the image is signed with key 0x00001234, which the card does not trust"
    );
}

proptest::proptest! {
    /// Any bytes are read or refused, and what is read is written the same.
    #[test]
    fn any_header(bytes: Vec<u8>, at in 0..HEADER_LEN, change: u8) {
        let _ = check(&bytes);
        let image = changed(at.min(187), &[change]);
        if let Ok(header) = Header::parse(&image) {
            proptest::prop_assert_eq!(&header.emit()[..], &image[..HEADER_LEN]);
            let _ = check(&image);
        }
    }
}
