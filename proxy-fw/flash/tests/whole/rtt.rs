//! The log in a card's memory, through the probe.

use dxpu_flash::card::{Candidates, Card};
use dxpu_flash::log::source::{RttSource, Source};
use object::write::{Object, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SymbolFlags, SymbolKind, SymbolScope};

use crate::sim::{SimCard, board};

/// Where the control block is.
const BLOCK: u32 = 0x8000_1000;

/// An ELF file that says so.
fn elf() -> Vec<u8> {
    let mut file = Object::new(BinaryFormat::Elf, Architecture::Riscv32, Endianness::Little);
    file.add_symbol(Symbol {
        name: b"_SEGGER_RTT".to_vec(),
        value: BLOCK.into(),
        size: 48,
        kind: SymbolKind::Data,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Absolute,
        flags: SymbolFlags::None,
    });
    file.write().unwrap()
}

/// A card whose memory has a log in it, as SEGGER's RTT has it: name, up and down channels, and
/// for the one channel its name, buffer, size, write and read offset, and flags.
fn card_with_log(log: &[u8]) -> sim_card::Card {
    let mut card = sim_card::Card::new();
    let buffer = BLOCK + 256;
    let mut block = b"SEGGER RTT\0\0\0\0\0\0".to_vec();
    for word in [1, 0, 0, buffer, 1024, log.len() as u32, 0, 0] {
        block.extend(u32::to_le_bytes(word));
    }
    card.load(BLOCK, &block).unwrap();
    card.load(buffer, log).unwrap();
    card
}

fn open(card: &SimCard) -> Card {
    let name = format!("remote-bitbang:{}", card.address).parse().unwrap();
    let candidates = Candidates { boards: vec![board()], named: true };
    Card::open(Some(&name), &candidates, None).unwrap()
}

#[test]
fn a_log_in_memory_is_read() {
    let card = SimCard::start(card_with_log(b"frames of the log"));
    let mut source = RttSource::attach(open(&card), &elf()).unwrap();
    let (mut bytes, mut read) = ([0; 8], Vec::new());
    while read.len() < 17 {
        let some = source.next(&mut bytes).unwrap();
        read.extend_from_slice(&bytes[..some]);
    }
    assert_eq!(read, b"frames of the log");
    // The card is gone.
    drop(card);
    let failure = source.next(&mut bytes).unwrap_err();
    assert_eq!(failure.kind.exit_code(), 7, "{failure}");
}

#[test]
fn firmware_without_such_a_log_is_told() {
    let card = SimCard::start(sim_card::Card::new());
    let failure = RttSource::attach(open(&card), b"no ELF file").unwrap_err();
    assert!(failure.what.contains("_SEGGER_RTT"), "{failure}");
    // It should have one, and never sets it up.
    let failure = RttSource::attach(open(&card), &elf()).unwrap_err();
    assert!(failure.what.contains("log is not there"), "{failure}");
}
