//! The log on a card's console.

use object::write::{Object, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::sim::Bench;

/// An ELF file of a firmware that logs one text.
fn elf() -> Vec<u8> {
    let mut file = Object::new(BinaryFormat::Elf, Architecture::Riscv32, Endianness::Little);
    let section = file.add_section(Vec::new(), b".defmt".to_vec(), SectionKind::ReadOnlyData);
    file.append_section_data(section, &[0; 64], 1);
    let text =
        r#"{"package":"fw","tag":"defmt_info","data":"up","disambiguator":"1","crate_name":"fw"}"#;
    for (name, value, section) in [
        ("_defmt_version_ = 4", 0, SymbolSection::Absolute),
        ("_defmt_encoding_ = rzcobs", 0, SymbolSection::Absolute),
        (text, 1, SymbolSection::Section(section)),
    ] {
        file.add_symbol(Symbol {
            name: name.into(),
            value,
            size: 1,
            kind: SymbolKind::Data,
            scope: SymbolScope::Linkage,
            weak: false,
            section,
            flags: SymbolFlags::None,
        });
    }
    file.write().unwrap()
}

fn bench() -> Bench {
    let bench = Bench::new();
    std::fs::write(bench.path("elf"), elf()).unwrap();
    bench
}

#[test]
fn who_has_read_enough_of_a_log_ends_it() {
    let bench = bench();
    let console = bench.path("console");
    std::fs::write(&console, b"slot a: the slot is empty\r\n").unwrap();
    let mut command = bench.command(None, &["log", "--elf", "elf", "--uart", "console"]);
    let mut program = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "slot a: the slot is empty\n");
    let until = Instant::now() + Duration::from_secs(60);
    let ended = loop {
        let mut more = OpenOptions::new().append(true).open(&console).unwrap();
        more.write_all(b"recovery: nothing to start\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        if let Some(ended) = program.try_wait().unwrap() {
            break ended;
        }
        assert!(Instant::now() < until, "it goes on for nobody");
    };
    assert!(ended.success(), "{ended}");
}

/// What a hung-up terminal reads as is what this device does.
#[test]
fn a_console_that_is_hung_up_is_gone() {
    let said = bench().run(None, &["log", "--elf", "elf", "--uart", "/dev/null"]);
    said.failed(7, "the console at /dev/null is gone");
}

#[test]
fn a_log_that_is_no_log_is_told_where_a_person_looks() {
    let bench = bench();
    std::fs::write(bench.path("console"), [0x7f, 0xff, 0].repeat(40)).unwrap();
    let log = ["log", "--elf", "elf", "--uart", "console", "--no-follow"];
    let said = bench.run(None, &log).fine();
    assert!(said.error.contains("nothing of the log can be decoded"), "{}", said.error);
    let said = bench.run(None, &[&log[..], &["--json"]].concat()).fine();
    assert_eq!((said.out.as_str(), said.error.as_str()), ("", ""));
    // A few are enough where nothing follows; a boot loader's words are no frames.
    let short = [b"\nslot a: the slot is empty\r\n\0".to_vec(), [0x7f, 0xff, 0].repeat(3)].concat();
    std::fs::write(bench.path("console"), short).unwrap();
    let said = bench.run(None, &log).fine();
    assert!(said.out.starts_with("slot a: the slot is empty"), "{}", said.out);
    assert!(said.error.contains("nothing of the log can be decoded"), "{}", said.error);
}
