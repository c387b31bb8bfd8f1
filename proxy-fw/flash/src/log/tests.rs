use super::*;
use object::write::{Object as Writer, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};
use proptest::prelude::*;

/// An ELF file with these texts, as defmt 1 puts them there: by index, tag and text.
fn elf(texts: &[(u64, &str, &str)]) -> Vec<u8> {
    let mut file = Writer::new(BinaryFormat::Elf, Architecture::Riscv32, Endianness::Little);
    let section = file.add_section(Vec::new(), b".defmt".to_vec(), SectionKind::ReadOnlyData);
    file.append_section_data(section, &[0; 64], 1);
    let mut add = |name: String, value: u64, section: SymbolSection| {
        file.add_symbol(Symbol {
            name: name.into_bytes(),
            value,
            size: 1,
            kind: SymbolKind::Data,
            scope: SymbolScope::Linkage,
            weak: false,
            section,
            flags: SymbolFlags::None,
        });
    };
    add("_defmt_version_ = 4".into(), 0, SymbolSection::Absolute);
    add("_defmt_encoding_ = rzcobs".into(), 0, SymbolSection::Absolute);
    for (index, tag, text) in texts {
        let name = format!(
            r#"{{"package":"fw","tag":"{tag}","data":"{text}","disambiguator":"{index}","crate_name":"fw"}}"#
        );
        add(name, *index, SymbolSection::Section(section));
    }
    file.write().unwrap()
}

/// rzCOBS of a short frame: what is not zero, then how many, for frames without zeros in groups of
/// seven and a rest.
fn frame(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = defmt_encoder(bytes);
    encoder.push(0);
    encoder
}

/// The encoding (github.com/Dirbaio/rzcobs): each group of up to seven bytes is followed by a byte
/// whose bit n says that the nth byte of the group is zero and left out.
fn defmt_encoder(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let groups: Vec<&[u8]> = bytes.chunks(7).collect();
    for group in groups {
        let mut zeros = 0_u8;
        for (n, byte) in group.iter().enumerate() {
            if *byte == 0 {
                zeros |= 1 << n;
            } else {
                out.push(*byte);
            }
        }
        // What the last group lacks reads as zeros, which nobody looks at.
        for missing in group.len()..7 {
            zeros |= 1 << missing;
        }
        out.push(zeros);
    }
    out
}

fn texts() -> Texts {
    Texts::parse(&elf(&[(1, "defmt_info", "up with {=u8} places"), (2, "defmt_error", "gone")]))
        .unwrap()
}

fn said(lines: &[Line]) -> Vec<(Option<&str>, &str)> {
    lines.iter().map(|line| (line.level.as_deref(), line.text.as_str())).collect()
}

#[test]
fn frames_and_plain_words_are_told_apart() {
    let texts = texts();
    let mut decoder = texts.decoder();
    let mut bytes = b"\nDxPU boot loader: slot a\r\n".to_vec();
    bytes.push(0);
    bytes.extend(frame(&[1, 0, 4]));
    bytes.extend(frame(&[2, 0]));
    // Byte by byte, as a console gives it.
    let lines: Vec<Line> = bytes.iter().flat_map(|byte| decoder.take(&[*byte])).collect();
    let wanted = [
        (None, "DxPU boot loader: slot a"),
        (Some("info"), "up with 4 places"),
        (Some("error"), "gone"),
    ];
    assert_eq!(said(&lines), wanted);
    assert_eq!((decoder.damaged(), decoder.decoded()), (0, 2));
    // A damaged one, and the next is right again.
    bytes.extend([0xff, 0xff, 0]);
    bytes.extend(frame(&[2, 0]));
    assert_eq!(said(&decoder.take(&bytes[bytes.len() - 6..])), [(Some("error"), "gone")]);
    assert_eq!(decoder.damaged(), 1);
}

/// The line makes up a byte when power comes, and power that goes cuts a frame short.
#[test]
fn words_behind_a_damaged_byte_are_shown() {
    let words = b"\xf0\r\n\r\nDxPU boot loader, start 1\r\nrecovery: nothing\r\n";
    let wanted = [(None, "DxPU boot loader, start 1"), (None, "recovery: nothing")];
    let texts = texts();
    let mut decoder = texts.decoder();
    assert_eq!(said(&decoder.take(words)), wanted);
    assert_eq!(decoder.damaged(), 1);
    // Before the next frame's zero, and with no end of a line.
    let mut decoder = texts.decoder();
    let cut = [&words[..words.len() - 2], &[0]].concat();
    assert_eq!(said(&decoder.take(&cut)), wanted);
    assert_eq!(decoder.damaged(), 1);
}

#[test]
fn the_last_words_need_no_end() {
    let texts = texts();
    let mut decoder = texts.decoder();
    assert!(decoder.take(b"\nslot a: the slot is empty\r\nrecovery").is_empty());
    let wanted = [(None, "slot a: the slot is empty"), (None, "recovery")];
    assert_eq!(said(&decoder.finish()), wanted);
    // Half a frame is none.
    decoder.take(&frame(&[1, 0, 4])[..2]);
    assert!(decoder.finish().is_empty());
}

#[test]
fn files_without_a_log_are_refused() {
    assert!(matches!(Texts::parse(b"no ELF"), Err(TextsError::Unreadable(_))));
    let file = Writer::new(BinaryFormat::Elf, Architecture::Riscv32, Endianness::Little);
    assert_eq!(Texts::parse(&file.write().unwrap()).err(), Some(TextsError::None));
}

proptest! {
    #[test]
    fn any_bytes_are_lines_or_damaged(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1_usize..50) {
        let texts = texts();
        let mut decoder = texts.decoder();
        for part in bytes.chunks(cut) {
            decoder.take(part);
        }
        decoder.take(&[0]);
        prop_assert!(decoder.pending.is_empty());
        let lines = decoder.take(&frame(&[2, 0]));
        prop_assert_eq!(said(&lines), [(Some("error"), "gone")]);
    }
}
