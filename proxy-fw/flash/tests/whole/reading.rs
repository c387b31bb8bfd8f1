//! What is read of a card while its program uses the flash.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use card_regs::spi::{Control, Window};
use sim_card::Card;
use sim_card::card::{FLASH_BASE, RAM_BASE, SPI_BASE};
use sim_card::iss::{Bus, DebugCause, Width};

use crate::sim::{Bench, Said, SimCard, board, label, pulled_cable, read, watched_cable};

/// Where the program writes its flash: behind all regions.
const WRITTEN: u32 = FLASH_BASE + 0x0100_0000;

/// Where it counts what it has written.
const COUNTER: u32 = RAM_BASE + 0x10_0000;

/// Instructions of the base set (RISC-V unprivileged specification, 2.2).
mod code {
    pub(super) fn lui(rd: u32, value: u32) -> u32 {
        value & 0xffff_f000 | rd << 7 | 0x37
    }

    pub(super) fn addi(rd: u32, rs: u32, value: i32) -> u32 {
        (value as u32) << 20 | rs << 15 | rd << 7 | 0x13
    }

    pub(super) fn andi(rd: u32, rs: u32, value: u32) -> u32 {
        value << 20 | rs << 15 | 7 << 12 | rd << 7 | 0x13
    }

    pub(super) fn lw(rd: u32, rs: u32) -> u32 {
        rs << 15 | 2 << 12 | rd << 7 | 0x03
    }

    pub(super) fn sw(value: u32, at: u32) -> u32 {
        value << 20 | at << 15 | 2 << 12 | 0x23
    }

    /// Back by so many bytes, less than 32, when the registers are alike (0) or not (1).
    pub(super) fn branch_back(kind: u32, one: u32, other: u32, bytes: u32) -> u32 {
        let offset = bytes.wrapping_neg();
        0x8000_0000
            | (offset >> 5 & 0x3f) << 25
            | other << 20
            | one << 15
            | kind << 12
            | (offset >> 1 & 0xf) << 8
            | 1 << 7
            | 0x63
    }

    /// Back by so many bytes.
    pub(super) fn jump_back(bytes: u32) -> u32 {
        let offset = bytes.wrapping_neg();
        0x8000_0000 | (offset >> 1 & 0x3ff) << 21 | 1 << 20 | 0xff << 12 | 0x6f
    }
}

/// A program that writes a word of its flash with Intel's commands again and again, and leaves the
/// flash alone for about a millisecond in between.
fn writer() -> Vec<u32> {
    use code::{addi, andi, branch_back, jump_back, lui, lw, sw};
    let mut program = vec![
        lui(1, WRITTEN),
        // Program, and back to the array, of two devices each.
        lui(2, 0x0040_0000),
        addi(2, 2, 0x40),
        lui(3, 0x00ff_0000),
        addi(3, 3, 0xff),
        lui(4, COUNTER),
    ];
    let again = program.len();
    program.extend([
        sw(2, 1),
        sw(0, 1),
        lw(6, 1),
        andi(6, 6, 0x80),
        branch_back(0, 6, 0, 8),
        sw(3, 1),
        addi(5, 5, 1),
        sw(5, 4),
        lui(7, 0xc000),
        addi(7, 7, -1),
        branch_back(1, 7, 0, 4),
    ]);
    let length = 4 * (program.len() - again);
    program.push(jump_back(length as u32));
    program
}

/// A card that runs a program in its memory.
fn running(program: &[u32]) -> Card {
    let mut card = Card::new();
    let bytes: Vec<u8> = program.iter().flat_map(|word| word.to_le_bytes()).collect();
    card.load(RAM_BASE, &bytes).unwrap();
    card.hart.set_pc(RAM_BASE);
    card
}

/// Something to be read in the boot loader's region.
fn boot_loader() -> Vec<u8> {
    (0..board().layout.boot_loader().len).map(|n| (n / 256 * 7 + n) as u8).collect()
}

#[test]
fn a_card_whose_program_writes_its_flash_is_read_right() {
    let bench = Bench::new();
    let image = bench.image("there.img", &label("1.0.0"), 60_000);
    let mut card = running(&writer());
    card.board.nor(0).preload(0, &boot_loader());
    card.board.nor(0).preload(board().layout.slots()[1].start, &image);
    let card = SimCard::start(card);
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    run(&["read", "boot-loader", "copy"]).fine();
    assert!(read(&bench.path("copy")) == boot_loader(), "what is in the flash was read");
    run(&["verify"]).fine();
    run(&["verify", "there.img"]).fine();
    let info = run(&["info", "--json"]).fine().json();
    assert_eq!((&info["flash_id"], &info["slots"][0]["image"]), (&"894019".into(), &().into()));
    assert_eq!(info["slots"][1]["image"]["version"], "1.0.0+0");
    // The program goes on where it was, and has written all that it wanted to.
    let mut card = card.stop();
    let counted = |card: &mut Card| card.board.read(COUNTER, Width::Word).unwrap();
    let before = counted(&mut card);
    card.run(10_000_000);
    assert!(!card.hart.is_halted() && before > 0 && counted(&mut card) > before);
    let word = WRITTEN - FLASH_BASE;
    assert_eq!(card.board.nor(0).cells()[word as usize..][..4], [0; 4]);
}

/// A card whose program writes its flash, and whether its flash is being read.
fn read_card() -> (SimCard, impl Fn() -> bool + Clone + Send + use<>) {
    let is_read = Arc::new(AtomicBool::new(false));
    let (seen, mut halted) = (Arc::clone(&is_read), 0);
    // To attach, a probe stops it for less than that.
    let card = SimCard::start_until(running(&writer()), move |card| {
        halted = if card.hart.is_halted() { halted + 1 } else { 0 };
        seen.fetch_or(halted > 300, Ordering::Relaxed);
        false
    });
    (card, move || is_read.load(Ordering::Relaxed))
}

/// Neither Ctrl-C nor a terminal that goes leaves a card halted that ran before.
#[test]
fn who_interrupts_a_reading_leaves_a_card_that_runs() {
    for signal in ["-INT", "-TERM", "-HUP", "-QUIT"] {
        let bench = Bench::new();
        let (card, reading) = read_card();
        let said = bench.interrupt(signal, card.address, &["read", "all", "copy"], reading);
        Said::new(said).failed(1, "it was interrupted; the card's program goes on");
        assert!(bench.files().is_empty() && !card.stop().hart.is_halted(), "{signal}");
    }
}

/// Who interrupts a writing is told how the card is left, and goes on later.
#[test]
fn who_interrupts_a_writing_is_told_how_the_card_is_left() {
    let bench = Bench::new();
    let image = bench.image("large.img", &label("1.0.0"), 60_000);
    let start = board().layout.slots()[0].start as usize;
    let is_written = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_written);
    let card = SimCard::start_until(Card::new(), move |card| {
        let written = card.board.nor(0).cells()[start..][..256].iter().any(|byte| *byte != 0xff);
        seen.fetch_or(written, Ordering::Relaxed);
        false
    });
    let writing = || is_written.load(Ordering::Relaxed);
    let said = bench.interrupt("-INT", card.address, &["write", "large.img"], writing);
    let said = Said::new(said);
    let anew = "writing goes on where it was; with --erase-all it begins anew: leave that out";
    assert!(said.error.contains(anew), "{}", said.error);
    said.failed(1, "it was interrupted; the card is left halted");
    bench.run(Some(card.address), &["write", "large.img", "--no-start"]).fine();
    let mut card = card.stop();
    assert!(card.hart.is_halted());
    assert!(card.board.nor(0).cells()[start..][..image.len()] == image);
}

/// What the next commands say of a card that somebody was cut off from, and what starts it.
fn is_told_that_it_is_halted(bench: &Bench, card: &SimCard) {
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let words =
        "the card's program stood still before this, and does: `dxpu-flash reset` starts it";
    assert_eq!(run(&["info", "--json"]).fine().json()["halted"], true);
    assert!(run(&["info"]).fine().out.contains(words));
    for command in [&["read", "config", "config"][..], &["config", "get"], &["verify"]] {
        let said = run(command).error;
        assert!(said.contains(words), "{command:?}: {said}");
    }
    // Who reads JSON is not told in plain words.
    assert_eq!(run(&["config", "get", "--json"]).fine().error, "");
    run(&["reset"]).fine();
    assert_eq!(run(&["info", "--json"]).fine().json()["halted"], false);
    assert!(!run(&["info"]).fine().out.contains(words));
    assert_eq!(run(&["config", "get"]).fine().error, "");
}

#[test]
fn a_card_that_was_left_halted_is_told() {
    let bench = Bench::new();
    let (card, reading) = read_card();
    let killed = bench.interrupt("-KILL", card.address, &["read", "all", "copy"], reading);
    assert_eq!(killed.status.code(), None);
    is_told_that_it_is_halted(&bench, &card);
    // Its half is in nobody's way.
    assert_eq!(bench.files(), ["config", "copy.part"]);
    bench.run(Some(card.address), &["read", "config", "copy"]).fine();
    assert_eq!(bench.files(), ["config", "copy"]);
}

#[test]
fn who_loses_a_card_that_stands_still_is_told_so() {
    let bench = Bench::new();
    let (card, reading) = read_card();
    let cable = pulled_cable(card.address, reading);
    let said = bench.run(Some(cable), &["read", "all", "copy"]);
    let left = "may stand still: `dxpu-flash reset` starts it";
    assert!(said.error.contains(left), "{}", said.error);
    said.failed(7, "the card does not answer any more");
    is_told_that_it_is_halted(&bench, &card);
    // One that runs has nothing to be started.
    let cable = pulled_cable(card.address, || true);
    let said = bench.run(Some(cable), &["read", "all", "copy"]);
    assert!(said.code != 0 && !said.error.contains(left), "{}", said.error);
}

/// It asks for its flash's status and never goes back to the array.
#[test]
fn a_program_that_never_leaves_the_flash_alone_is_told() {
    let bench = Bench::new();
    let card = running(&[
        code::lui(1, FLASH_BASE),
        code::lui(2, 0x0070_0000),
        code::addi(2, 2, 0x70),
        code::sw(2, 1),
        // To itself.
        0x6f,
    ]);
    let card = SimCard::start(card);
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    run(&["read", "config", "copy"]).failed(6, "uses the flash all the time");
    assert!(!bench.path("copy").exists(), "nothing is left of what was not read");
    // What it says helps.
    run(&["reset", "--halt"]).fine();
    run(&["read", "config", "copy"]).fine();
    assert!(read(&bench.path("copy")).iter().all(|byte| *byte == 0xff));
    assert!(card.stop().hart.is_halted(), "who was halted stays so");
}

#[test]
fn a_card_that_was_halted_while_it_used_its_flash_is_told() {
    let bench = Bench::new();
    bench.image("good.img", &label("1.0.0"), 3000);
    let halted = |address, value| {
        let mut card = Card::new();
        card.board.write(address, Width::Word, value).unwrap();
        card.hart.halt(DebugCause::HaltRequest);
        SimCard::start(card)
    };
    // It reads its flash's status, or has closed the window.
    for card in [halted(FLASH_BASE, 0x0070_0070), halted(SPI_BASE + 0x18, 0)] {
        let said = bench.run(Some(card.address), &["info"]);
        said.failed(6, "was halted while its program used the flash");
        // Who writes resets it.
        let write = ["write", "good.img", "--no-start", "--json"];
        let wrote = bench.run(Some(card.address), &write).fine().json();
        assert_eq!(wrote["slot"], "a", "{wrote}");
        assert!(card.stop().hart.is_halted());
    }
}

/// A part that refuses a few times in a row leaves as many places blank, and then keeps the record.
#[test]
fn settings_behind_places_that_stayed_blank_are_found() {
    let bench = Bench::new();
    let place = soc::settings::RECORD as u32;
    let journal = board().layout.config();
    let card = SimCard::start(Card::new());
    for name in ["name=old", "name=new"] {
        let set = ["config", "set", name, "manager=10.0.0.1:7781", "--no-start"];
        bench.run(Some(card.address), &set).fine();
    }
    let mut card = card.stop();
    let written = card.board.nor(0).cells()[journal.start as usize..].to_vec();
    let [old, new] = [0, 1].map(|at| &written[(at * place) as usize..][..place as usize]);
    let block = board().layout.erase_block();
    // As many as there may be, at the beginning of a block and in it.
    let blank = card_image::JOURNAL_TRIES as u32 - 1;
    for (old_at, new_at) in [(0, 1 + blank), (3, 4 + blank), (block / place, blank)] {
        let mut card = Card::new();
        card.board.nor(0).preload(journal.start + old_at * place, old);
        card.board.nor(0).preload(journal.start + new_at * place, new);
        let card = SimCard::start(card);
        let got = bench.run(Some(card.address), &["config", "get"]).fine().out;
        assert!(got.contains("name = new"), "places {old_at} and {new_at}: {got}");
    }
}

/// Whether a process keeps Ctrl-C for itself (proc_pid_status(5)).
fn holds_signals(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0) >> 1 & 1 != 0
}

/// What a halted card's flash is busy with is waited for, and whoever does not want to is told at once.
#[test]
fn who_interrupts_the_wait_for_a_halted_card_is_told_that_it_is_halted() {
    for arguments in [&["read", "all", "copy"][..], &["config", "set", "name=card-1"]] {
        let bench = Bench::new();
        let mut card = Card::new();
        card.board.write(FLASH_BASE, Width::Word, 0x0070_0070).unwrap();
        card.hart.halt(DebugCause::HaltRequest);
        let card = SimCard::start(card);
        // The next answer that it asks for once it holds signals is of the wait: those before it had.
        let (program, waits) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (process, seen) = (Arc::clone(&program), Arc::clone(&waits));
        let cable = watched_cable(card.address, move |bytes| {
            let asks = bytes.contains(&b'R') && holds_signals(process.load(Ordering::Relaxed));
            seen.fetch_or(asks, Ordering::Relaxed);
            false
        });
        let said = bench.interrupt_at("-INT", cable, arguments, |process| {
            program.store(process, Ordering::Relaxed);
            waits.load(Ordering::Relaxed)
        });
        Said::new(said).failed(1, "it was interrupted; the card is halted, as it was");
        assert!(bench.files().is_empty() && card.stop().hart.is_halted());
    }
}

/// Somebody has reset the card while its flash erased a block, which it then does to the end.
#[test]
fn a_part_that_is_busy_is_waited_for() {
    let bench = Bench::new();
    let mut card = Card::new();
    card.hart.halt(DebugCause::HaltRequest);
    card.board.nor(0).preload(0, &boot_loader());
    let last = board().layout.parts().flash - board().layout.erase_block();
    card.board.nor(0).erase(last, board().layout.erase_block()).unwrap();
    assert!(card.board.nor(0).is_busy());
    let card = SimCard::start(card);
    bench.run(Some(card.address), &["read", "boot-loader", "copy"]).fine();
    assert!(read(&bench.path("copy")) == boot_loader());
}

/// A part takes no notice of an erase where its block protection bits are set, and says nothing.
#[test]
fn a_flash_whose_protection_bits_are_set_is_told_so() {
    let bench = Bench::new();
    let mut card = Card::new();
    let config = board().layout.config();
    card.board.nor(0).preload(config.start, &[0x5a; 256]);
    let mut write =
        |offset, value| card.board.write(SPI_BASE + offset, Width::Word, value).unwrap();
    let enabled = Control::RESET.with_enable(true);
    write(0x18, 0);
    // Write enable, and the status register with all three bits.
    for command in [&[0x06][..], &[0x01, 0b1_1100]] {
        write(0x00, enabled.with_chip_select(1).bits());
        command.iter().for_each(|byte| write(0x08, *byte));
        write(0x00, enabled.bits());
    }
    write(0x18, Window::RESET.with_enable(true).bits());
    card.run(10_000_000);
    let card = SimCard::start(card);
    let said = bench.run(Some(card.address), &["erase", "config"]);
    assert!(said.error.contains("block protection bits"), "{}", said.error);
    said.failed(6, "the flash is write-protected");
}

/// A board file that has the SPI block at another place: nothing is there, memory, or another device.
#[test]
fn a_wrong_address_of_the_spi_block_is_told() {
    let bench = Bench::new();
    let card = SimCard::start(Card::new());
    for (address, words) in [
        ("0x10020000", "not at 0x10020000, where the board file has it (nothing answers there)"),
        ("0x80000000", "its window would be at 0x00000000, the board file's is at 0x20000000"),
        ("0x10000000", "not at 0x10000000"),
    ] {
        let file = bench.board_file("spi: 0x10010000", &format!("spi: {address}"));
        let began = std::time::Instant::now();
        let said = bench.run(Some(card.address), &["--board-file", &file, "info"]);
        said.failed(2, words);
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    bench.run(Some(card.address), &["info"]).fine();
}
