//! The program, from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const BANK: usize = 32 << 20;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-sim-card"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Firmware that says "h" and ends with this word for the finisher.
fn firmware(word: u32) -> Vec<u8> {
    // lui, whose value an addi with a negative number takes from.
    let high = word.wrapping_add(0x800) & 0xffff_f000;
    let low = word.wrapping_sub(high) & 0xfff;
    [
        0x1000_00b7,
        0x0680_0113,
        0x0020_8023,
        0x0010_00b7,
        high | 0x137,
        low << 20 | 2 << 15 | 0x113,
        0x0020_a023,
        0x0000_006f,
    ]
    .iter()
    .flat_map(|word: &u32| word.to_le_bytes())
    .collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn wait_for(path: &Path, child: &mut Child) -> String {
    for _ in 0..3000 {
        if let Ok(text) = fs::read_to_string(path) {
            return text;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it does not get ready");
}

/// What a program says that has to end by itself, and soon.
fn ended(command: &mut Command) -> Output {
    let mut child = command.spawn().unwrap();
    for _ in 0..1500 {
        if child.try_wait().unwrap().is_some() {
            return child.wait_with_output().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    panic!("it does not end: {}", said(&child.wait_with_output().unwrap()));
}

#[test]
fn firmware_in_the_flash_runs_and_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let flash = dir.path().join("flash");
    for (word, code) in [(0x5555, 0), (0x0007_3333, 3)] {
        let mut cells = firmware(word);
        cells.resize(BANK, 0xff);
        fs::write(&flash, &cells).unwrap();
        let output = program().arg("--flash").arg(&flash).args(["--uart", "-"]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert_eq!(output.stdout, b"h");
        assert!(fs::read(&flash).unwrap() == cells, "nobody wrote the flash");
    }
}

#[test]
fn a_signal_ends_it_and_it_says_where_it_listens() {
    let dir = tempfile::tempdir().unwrap();
    let (ready, uart) = (dir.path().join("card.1"), dir.path().join("uart"));
    // What another card with the file `card.2` would write beside, were it not told apart.
    fs::create_dir(dir.path().join("card.part")).unwrap();
    let mut child = program()
        .arg("--flash")
        .arg(dir.path().join("flash"))
        .arg("--ready-file")
        .arg(&ready)
        .arg("--uart")
        .arg(&uart)
        .arg("--halted")
        .spawn()
        .unwrap();
    let address = wait_for(&ready, &mut child);
    std::net::TcpStream::connect(address.trim()).expect("it listens there");
    let killed = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read(uart).unwrap(), b"");
}

/// Of another board flash and banks are others.
#[test]
fn a_litex_card_is_one_with_its_own_flash() {
    let dir = tempfile::tempdir().unwrap();
    let (flash, ready) = (dir.path().join("flash"), dir.path().join("ready"));
    let mut child = program()
        .args(["--board", "litex", "--flash"])
        .arg(&flash)
        .arg("--ready-file")
        .arg(&ready)
        .spawn()
        .unwrap();
    wait_for(&ready, &mut child);
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(fs::read(&flash).unwrap() == vec![0xff; 16 << 20]);
    let two = ["--board", "litex", "--flash", "a", "--flash", "b"];
    let output = ended(program().current_dir(dir.path()).args(two));
    assert_eq!(output.status.code(), Some(1));
    let told = said(&output);
    assert!(told.contains("--flash was given 2 times, the card's flash has 1 bank"), "{told}");
    let output = ended(program().args(["--board", "abacus"]));
    assert_eq!(output.status.code(), Some(2));
}

/// A file that is no flash's, such as one that was meant for something else, is not made into one.
#[test]
fn a_file_of_another_length_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    for length in [1000, BANK - 1, BANK + 1] {
        let path = dir.path().join(length.to_string());
        fs::write(&path, vec![0x5a; length]).unwrap();
        let output = ended(program().arg("--flash").arg(&path));
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let told = said(&output);
        assert!(told.contains(&format!("has {length} bytes, a bank of the flash has")), "{told}");
        assert!(fs::read(&path).unwrap() == vec![0x5a; length], "{length}");
    }
}

/// A new flash is one whose file is not there, or empty.
#[test]
fn a_new_flash_is_empty_cells() {
    let dir = tempfile::tempdir().unwrap();
    let (there, absent) = (dir.path().join("there"), dir.path().join("absent"));
    fs::write(&there, b"").unwrap();
    for flash in [there, absent] {
        let ready = flash.with_extension("ready");
        let mut child =
            program().arg("--flash").arg(&flash).arg("--ready-file").arg(&ready).spawn().unwrap();
        wait_for(&ready, &mut child);
        let killed = Command::new("kill").arg(child.id().to_string()).status().unwrap();
        assert!(killed.success());
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert!(fs::read(&flash).unwrap() == vec![0xff; BANK]);
    }
}

#[test]
fn what_cannot_be_done_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let large = dir.path().join("large");
    fs::File::create(&large).unwrap().set_len(BANK as u64 + 1).unwrap();
    let text = dir.path().join("text");
    fs::write(&text, "no firmware").unwrap();
    let nowhere = dir.path().join("no/where");
    for (option, value, wanted) in [
        ("--flash", &large, "give the file of one bank"),
        ("--flash", &PathBuf::from("/dev/null"), "is no file"),
        ("--load", &text, "is no ELF file"),
        ("--flash", &nowhere, "cannot open flash file"),
        ("--uart", &nowhere, "is its folder there?"),
        ("--ready-file", &nowhere, "is its folder there?"),
    ] {
        let output = program().arg(option).arg(value).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(wanted), "{option}: {}", said(&output));
    }
    let flash = dir.path().join("flash");
    let output = ended(program().arg("--flash").arg(&flash).arg("--flash").arg(&flash));
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("is in use, by another card or by another bank"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = program().args(["--bitbang", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("give another address"), "{}", said(&output));
    assert_eq!(program().arg("--no-such").output().unwrap().status.code(), Some(2));
    for length in ["1", "33", "x"] {
        let output = program().args(["--tap-before", length]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{length}");
    }
    for (tunnel, why) in [
        ("6:0x23", "give three numbers"),
        ("6:x:5", "is no number"),
        ("6:0x40:5", "has more than 6 bits"),
        ("6:0x3f:5", "is IDCODE or BYPASS of the FPGA"),
        ("99:2:5", "an instruction register of 99 bits"),
    ] {
        let output = program().args(["--tunnel", tunnel]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{tunnel}");
        assert!(said(&output).contains(why), "{tunnel}: {}", said(&output));
    }
}
