use super::*;
use card_image::TrustedKey;
use proptest::prelude::*;

const SECRET: [u8; 32] = [9; 32];

/// A RISC-V ELF file with these segments: address, bytes in the file.
pub(crate) fn elf(entry: u32, segments: &[(u32, &[u8])]) -> Vec<u8> {
    let mut file = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([2, 0, 243, 0, 1, 0, 0, 0]);
    file.extend(entry.to_le_bytes());
    // Program headers follow; no section headers.
    file.extend([52, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 52, 0, 32, 0]);
    file.extend((segments.len() as u16).to_le_bytes());
    file.extend([40, 0, 0, 0, 0, 0]);
    let mut offset = 52 + 32 * segments.len() as u32;
    for (at, bytes) in segments {
        let length = bytes.len() as u32;
        // The virtual address is another one: what counts is where it is loaded.
        for word in [1, offset, at ^ 0x1000_0000, *at, length, length + 64, 7, 4] {
            file.extend(u32::to_le_bytes(word));
        }
        offset += length;
    }
    segments.iter().for_each(|(_, bytes)| file.extend_from_slice(bytes));
    file
}

#[test]
fn segments_are_joined_with_zeros() {
    let file =
        elf(0x8000_0004, &[(0x8000_0010, &[5, 6]), (0x8000_0000, &[1; 8]), (0x9000_0000, &[])]);
    let program = from_elf(&file).unwrap();
    assert_eq!((program.load, program.entry), (0x8000_0000, 0x8000_0004));
    assert_eq!(program.payload, [&[1; 8][..], &[0; 8], &[5, 6]].concat());
}

#[test]
fn a_program_may_say_for_what_it_is() {
    use object::write::Object;
    use object::{Architecture, BinaryFormat, Endianness, SectionKind};
    let with = |name: &[u8], text: &[u8]| {
        let mut file = Object::new(BinaryFormat::Elf, Architecture::Riscv32, Endianness::Little);
        let section = file.add_section(Vec::new(), name.to_vec(), SectionKind::Other);
        file.append_section_data(section, text, 1);
        purpose(&file.write().unwrap())
    };
    let says = Purpose { role: "host".into(), board: "qemu-virt".into() };
    assert_eq!(with(b".dxpu.program", b"host qemu-virt"), Some(says));
    for (name, text) in [(&b".other"[..], &b"host a"[..]), (b".dxpu.program", b"\xff a")] {
        assert_eq!(with(name, text), None);
    }
    assert_eq!(purpose(&elf(0, &[(0, &[1; 8])])), None);
    assert_eq!(purpose(b"no ELF"), None);
}

#[test]
fn what_is_no_program_is_refused() {
    let good = elf(0x8000_0000, &[(0x8000_0000, &[1; 8])]);
    let with = |at: usize, byte: u8| {
        let mut file = good.clone();
        file[at] = byte;
        from_elf(&file).unwrap_err()
    };
    assert!(matches!(from_elf(b"MZ"), Err(ElfError::NotElf(_))));
    assert!(matches!(with(4, 2), ElfError::NotElf(_)));
    assert_eq!(with(18, 62), ElfError::OtherProcessor(62));
    assert_eq!(with(16, 1), ElfError::NotExecutable(1));
    assert_eq!(with(16, 3), ElfError::NotExecutable(3));
    assert_eq!(with(27, 0x90), ElfError::NoEntry(0x9000_0000));
    assert_eq!(from_elf(&good[..good.len() - 1]), Err(ElfError::CutOff(0x8000_0000)));
    assert_eq!(from_elf(&elf(0, &[])), Err(ElfError::Empty));
    let overlap = elf(0x10, &[(0x10, &[1; 8]), (0x17, &[1])]);
    assert_eq!(from_elf(&overlap), Err(ElfError::Overlap(0x17)));
    let far = elf(0, &[(0, &[1]), (0xffff_fff0, &[1; 32])]);
    assert_eq!(from_elf(&far), Err(ElfError::TooLong(0x1_0000_0010)));
}

fn label() -> Label {
    Label {
        board: BoardName::new("small").unwrap(),
        role: Role::Box,
        version: parse_version("1.2.3+4").unwrap(),
        security: SecurityVersion(7),
    }
}

#[test]
fn images_are_made_and_signed() {
    let program = from_elf(&elf(0x8000_0000, &[(0x8000_0000, &[1; 8])])).unwrap();
    let unsigned = program.image(&label(), None).unwrap();
    let header = whole(&unsigned).unwrap();
    assert_eq!(header.check_signature(&[]), Err(Refusal::Unsigned));
    let signer = Signer { number: KeyId(3), secret: &SECRET };
    let signed = sign(&unsigned, &signer).unwrap();
    assert_eq!(signed, program.image(&label(), Some(&signer)).unwrap());
    let header = whole(&signed).unwrap();
    let key = TrustedKey { id: KeyId(3), key: card_image::public_key(&SECRET) };
    header.check_signature(&[key]).unwrap();
    assert_eq!((header.role, header.security), (Role::Box, SecurityVersion(7)));
    assert!(matches!(sign(&signed[..260], &signer), Err(Refusal::Truncated { .. })));
    let long = [&signed[..], &[0]].concat();
    assert_eq!(whole(&long), Err(Refusal::Malformed("bytes follow the payload")));
    let nobody = Signer { number: KeyId::NONE, secret: &SECRET };
    assert_eq!(sign(&signed, &nobody), Err(Refusal::Unsigned));
}

#[test]
fn versions_are_read() {
    for (text, shown) in [("1.2.3", "1.2.3+0"), ("0.0.65535+4294967295", "0.0.65535+4294967295")] {
        assert_eq!(parse_version(text).unwrap().to_string(), shown);
    }
    for wrong in
        ["", "1", "1.2", "1.2.3.4", "1.2.x", "+1.2.3", "1.2.3+", "1.2.65536", "1.2.-3", " 1.2.3"]
    {
        assert_eq!(parse_version(wrong), Err(BadVersion), "{wrong:?}");
    }
}

#[test]
fn keys_are_read_and_made() {
    let hex = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    let public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    // RFC 8032, 7.1, test 1.
    assert_eq!(card_image::public_key(&keys::secret(hex).unwrap()), keys::public(public).unwrap());
    for wrong in ["", "zz", &hex[1..], &hex[2..], "-----BEGIN PRIVATE KEY-----\nnope"] {
        assert!(keys::secret(wrong).is_err(), "{wrong:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    let keys::Made { public: made, file } = keys::generate(&path).unwrap();
    assert_eq!(file, folder.path().join("key.pub"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), keys::digits(&made) + "\n");
    assert_eq!(keys::read_public(&file).unwrap(), made);
    assert_eq!(keys::read_public(&path).unwrap(), made);
    assert_eq!(card_image::public_key(&keys::read_secret(&path).unwrap()), made);
    let again = keys::generate(&path).unwrap_err().to_string();
    assert!(again.contains("never overwritten"), "{again}");
    // Of two keys that cannot both be written, none is.
    let beside = folder.path().join("other.pub");
    std::fs::write(&beside, "a key").unwrap();
    let taken = keys::generate(&folder.path().join("other")).unwrap_err().to_string();
    assert!(taken.contains("other.pub") && taken.contains("never overwritten"), "{taken}");
    assert!(!folder.path().join("other").exists());
    std::fs::remove_file(&file).unwrap();
    keys::generate(&path).unwrap_err();
    assert!(!file.exists(), "the public half of another key than the one that is there");
    assert!(keys::read_secret(folder.path()).is_err());
}

/// What is in the tree fits together.
#[test]
fn the_development_key_is_a_pair() {
    let secret = keys::secret(include_str!("../../keys/development.pem")).unwrap();
    let public = keys::public(include_str!("../../keys/development.pub")).unwrap();
    assert_eq!(card_image::public_key(&secret), public);
}

proptest! {
    #[test]
    fn any_bytes_are_a_program_or_not(mut bytes in prop::collection::vec(any::<u8>(), 0..400), as_elf in any::<bool>()) {
        if as_elf && bytes.len() >= 52 {
            let good = elf(0x8000_0000, &[]);
            bytes[..28].copy_from_slice(&good[..28]);
            bytes[28..52].iter_mut().for_each(|byte| *byte &= 0x3f);
            bytes[42] = 32;
        }
        if let Ok(program) = from_elf(&bytes) {
            prop_assert!((program.entry - program.load) < program.payload.len() as u32);
        }
    }

    #[test]
    fn damaged_elf_files_are_no_panic(at in 0_usize..200, byte in any::<u8>()) {
        let mut file = elf(0x8000_0004, &[(0x8000_0000, &[1; 40]), (0x8000_0100, &[2; 40])]);
        let at = at % file.len();
        file[at] = byte;
        if let Ok(program) = from_elf(&file) {
            prop_assert!(program.image(&label(), None).is_ok());
        }
    }

    #[test]
    fn versions_are_read_as_they_are_printed(a: u16, b: u16, c: u16, build: u32) {
        let version = Version { major: a, minor: b, patch: c, build };
        prop_assert_eq!(parse_version(&version.to_string()), Ok(version));
    }

    #[test]
    fn any_text_is_a_key_or_not(text in "(-----BEGIN )?[ -~\\n]{0,80}") {
        let _ = keys::secret(&text);
        let _ = keys::public(&text);
    }
}
