//! The SoC, with small programs.

use super::*;
use crate::card::Card;
use crate::iss::Step;

/// Instructions that load an address of a register into t0, and a number into t1 and store it there.
fn store(register: u32, value: u32) -> Vec<u32> {
    let high = value.wrapping_add(0x800) & 0xffff_f000;
    vec![
        (REGISTERS_BASE + (register & !0xfff)) | 0x2b7, // lui  t0
        (register & 0xfff) << 20 | 0x0002_8293,         // addi t0, t0
        high | 0x337,                                   // lui  t1
        (value & 0xfff) << 20 | 0x0003_0313,            // addi t1, t1
        0x0062_a023,                                    // sw   t1, 0(t0)
    ]
}

const WFI: u32 = 0x1050_0073;
const STAY: u32 = 0x6f;

/// A register's address in the map.
fn address(path: &str) -> u32 {
    let found = card_regs::REGISTERS.iter().find(|info| info.path == path);
    found.expect(path).address
}

/// A program as LiteX's BIOS starts it from flash.
fn in_flash(program: &[u32]) -> Vec<u8> {
    let mut program: Vec<u8> = program.iter().flat_map(|word| word.to_le_bytes()).collect();
    program.resize(program.len().max(32), 0);
    let front = [program.len() as u32, crc32fast::hash(&program)];
    [&front.map(u32::to_le_bytes).concat(), &program[..]].concat()
}

/// A card that starts this program.
fn card(program: &[u32]) -> Card {
    let mut card = Card::litex();
    card.board.nor(0).preload(0, &in_flash(program));
    card
}

fn soc(card: &mut Card) -> &mut Litex {
    match &mut card.board {
        crate::card::Board::Litex(soc) => soc,
        other => panic!("{other:?}"),
    }
}

fn word(card: &mut Card, at: u32) -> Option<u32> {
    card.board.read(at, Width::Word).ok()
}

#[test]
fn the_spi_block_is_where_the_map_has_it() {
    assert_eq!((address("spi.control"), address("spi.window_size") + 4), (SPI.start, SPI.end));
}

#[test]
fn what_the_bios_finds_in_flash_is_started() {
    let mut card = card(&[&store(address("uart.transmit"), b'x'.into())[..], &[STAY]].concat());
    card.run(1000);
    assert_eq!(card.board.take_console(), b"x");
    assert_eq!(word(&mut card, RAM_BASE + 4 * 5), Some(STAY), "it is in main memory");
}

#[test]
fn rings_and_ranges_that_cannot_be_are_errors() {
    let mut card = Card::litex();
    // Nowhere, of no size, and more than the ring has.
    for (base, size, tail, error) in
        [(0, 4, 1, 1), (SHARED_BASE, 40, 1, 4), (SHARED_BASE, 2, 5, 4), (u32::MAX - 7, 4, 1, 1)]
    {
        card.reset();
        write(&mut card, "mac[0].transmit.base", base);
        write(&mut card, "mac[0].transmit.size", size);
        write(&mut card, "mac[0].transmit.control", 1);
        write(&mut card, "mac[0].transmit.tail", tail);
        let soc = soc(&mut card);
        let found = ["error", "status", "head"]
            .map(|register| *soc.register(&format!("mac[0].transmit.{register}")));
        assert_eq!(found, [error, 0, 0], "{base:#x} {size} {tail}");
    }
    // Set up anew it begins at 0.
    write(&mut card, "mac[0].transmit.control", 0);
    write(&mut card, "mac[0].transmit.base", SHARED_BASE);
    for (register, value) in [("error", u32::MAX), ("size", 4), ("control", 1), ("tail", 16)] {
        write(&mut card, &format!("mac[0].transmit.{register}"), value);
    }
    write(&mut card, "mac[0].transmit.control", 0);
    write(&mut card, "mac[0].transmit.control", 1);
    let registers = |card: &mut Card| {
        let soc = soc(card);
        ["error", "status", "head", "tail"]
            .map(|register| *soc.register(&format!("mac[0].transmit.{register}")))
    };
    assert_eq!(registers(&mut card), [0, 1, 0, 0]);
    write(&mut card, "mac[0].transmit.tail", 1);
    assert_eq!(registers(&mut card), [0, 1, 1, 1]);
    // Positions have 16 bits.
    card.reset();
    write(&mut card, "mac[0].transmit.base", SHARED_BASE);
    write(&mut card, "mac[0].transmit.size", 4);
    for tail in (0..1 << 16).step_by(15).chain([3]) {
        write(&mut card, "mac[0].transmit.tail", tail);
        assert_eq!(*soc(&mut card).register("mac[0].transmit.head"), tail);
    }
    write(&mut card, "crc.source", 0);
    write(&mut card, "crc.start", 9);
    assert_eq!(*soc(&mut card).register("crc.status"), 2);
    card.load(RAM_BASE, b"123456789").unwrap();
    write(&mut card, "crc.source", RAM_BASE);
    write(&mut card, "crc.start", 9);
    let soc = soc(&mut card);
    assert_eq!((*soc.register("crc.status"), *soc.register("crc.result")), (0, 0xe306_9283));
}

#[test]
fn without_a_program_in_flash_the_bios_waits() {
    let mut card = Card::litex();
    card.run(1000);
    assert!(card.hart.is_waiting() && card.hart.pc() < 8);
    let mut damaged = in_flash(&[STAY]);
    damaged[9] ^= 1;
    card.board.nor(0).preload(0, &damaged);
    card.reset();
    card.run(1000);
    assert!(card.hart.is_waiting() && card.hart.pc() < 8);
}

#[test]
fn main_memory_works_when_the_bios_has_set_it_up_and_block_ram_at_once() {
    let mut card = card(&[STAY]);
    let works = |card: &mut Card, at| {
        let written = card.board.write(at, Width::Word, STAY).is_ok();
        let read = word(card, at) == Some(STAY);
        let fetched = card.board.fetch(at).is_ok();
        assert_eq!((written, read), (fetched, fetched), "{at:#x}");
        fetched
    };
    let places = [RAM_BASE + 0x100, SHARED_BASE + 0x100];
    for _ in 0..2 {
        assert_eq!(places.map(|at| works(&mut card, at)), [false, true]);
        card.run(100);
        assert_eq!(places.map(|at| works(&mut card, at)), [true, true]);
        card.reset();
    }
    // A loader that is there instead of the BIOS.
    card.load(RAM_BASE, &[0; 4]).unwrap();
    assert_eq!(places.map(|at| works(&mut card, at)), [true, true]);
}

#[test]
fn memory_registers_and_window_are_at_their_places_and_nothing_else() {
    let mut card = Card::litex();
    card.board.nor(0).preload(0x1234, &[1, 2, 3, 4]);
    assert_eq!(word(&mut card, WINDOW_BASE + 0x1234), Some(0x0403_0201));
    assert_eq!(card.board.read(WINDOW_BASE + 0x1236, Width::Byte), Ok(3));
    assert_eq!(word(&mut card, REGISTERS_BASE), Some(0x5550_7844));
    assert_eq!(word(&mut card, REGISTERS_BASE + address("spi.window_base")), Some(WINDOW_BASE));
    for at in [8, RAM_BASE + RAM_SIZE, SHARED_BASE + SHARED_SIZE, WINDOW_BASE + PART.size] {
        assert_eq!(word(&mut card, at), None, "{at:#x}");
        assert!(card.board.write(at, Width::Word, 0).is_err(), "{at:#x}");
    }
    assert!(card.board.write(WINDOW_BASE, Width::Word, 0).is_err(), "it is only read");
    assert!(card.board.fetch(WINDOW_BASE).is_err(), "nothing runs from there");
    // The window is closed.
    card.board.write(REGISTERS_BASE + address("spi.window"), Width::Word, 0).unwrap();
    assert_eq!(word(&mut card, WINDOW_BASE), None);
}

#[test]
fn behind_the_open_window_the_spi_block_does_nothing() {
    let mut card = Card::litex();
    let register = |name| REGISTERS_BASE + address(name);
    let [control, transmit] = ["spi.control", "spi.transmit"].map(register);
    let [receive, window] = ["spi.receive", "spi.window"].map(register);
    let write = |card: &mut Card, at, value| card.board.write(at, Width::Word, value).unwrap();
    write(&mut card, control, 1);
    assert_eq!(word(&mut card, control), Some(0), "as it was");
    write(&mut card, window, 0);
    write(&mut card, control, 1);
    write(&mut card, transmit, 0);
    write(&mut card, window, 1);
    assert_eq!(word(&mut card, receive), Some(0), "nothing is taken");
    // What opens the window first stays enabled.
    write(&mut card, control, 0);
    write(&mut card, window, 0);
    assert_eq!(word(&mut card, control), Some(1));
    assert_eq!(word(&mut card, receive), Some(0x1ff), "the byte waited");
}

#[test]
fn an_interrupt_comes_through_both_masks() {
    let timer = Pending::from_bits(0).with_timer(true).bits();
    let program = [
        &store(address("irq.enable"), timer)[..],
        &store(address("timer.alarm_low"), 5000),
        &store(address("timer.alarm_high"), 0),
        // li t2, 1 << 11 by way of lui and srli; csrw mie, t2
        &[0x0080_03b7, 0x00c3_d393, 0x3043_9073, WFI, STAY],
    ]
    .concat();
    let mut card = card(&program);
    card.run(10_000);
    assert!(card.hart.is_waiting(), "the core's own mask lets nothing through after a reset");
    assert_eq!(card.hart.csr(0xfc0, &card.board), Some(1), "the line is asserted");
    assert!(card.hart.set_csr(0xbc0, 1));
    card.run(10);
    assert!(!card.hart.is_waiting());
    // A core of another kind has no such registers.
    let mut other = Card::new();
    assert_eq!(other.hart.csr(0xbc0, &other.board), None);
    assert!(!other.hart.set_csr(0xbc0, 1));
}

/// A program that starts the watchdog with a period and a warning in microseconds, and sleeps.
fn watched(period: u32, warning: u32) -> Card {
    let program = [
        &store(address("watchdog.period"), period)[..],
        &store(address("watchdog.warning"), warning),
        &store(address("watchdog.control"), 3),
        // Locked: these do nothing.
        &store(address("watchdog.period"), 1),
        &store(address("watchdog.control"), 0),
        &[WFI, STAY],
    ]
    .concat();
    card(&program)
}

#[test]
fn the_watchdog_warns_and_then_resets() {
    let mut card = watched(1000, 100);
    card.run(89_000);
    assert_eq!(soc(&mut card).pending, 0);
    card.run(2000);
    assert_eq!(soc(&mut card).pending, Pending::from_bits(0).with_watchdog(true).bits());
    assert_eq!(card.resets(), 0);
    card.run(10_000);
    assert_eq!(card.resets(), 1);
    assert_eq!(*soc(&mut card).register("reset.status"), 1 << 8 | 2);
    // Begun anew, and so it comes again.
    card.run(100_000);
    assert_eq!(card.resets(), 2);
}

#[test]
fn a_debugger_that_halts_the_core_stops_the_watchdog() {
    let mut card = watched(1000, 0);
    card.run(50_000);
    card.hart.halt(crate::iss::DebugCause::HaltRequest);
    card.run(1_000_000);
    assert_eq!(card.resets(), 0);
    card.hart.resume();
    card.run(49_000);
    assert_eq!(card.resets(), 0);
    card.run(2000);
    assert_eq!(card.resets(), 1);
}

#[test]
fn a_reset_keeps_memory_and_says_why_it_came() {
    let mut card = Card::litex();
    card.board.write(SHARED_BASE, Width::Word, 7).unwrap();
    let scratch = address("reset.scratch[3]");
    card.board.write(REGISTERS_BASE + scratch, Width::Word, 9).unwrap();
    card.run(1000);
    card.reset();
    assert_eq!(*soc(&mut card).register("reset.status"), 1 << 8 | ResetCause::Pin.bits());
    crate::debug::System::reset(&mut card.board);
    assert_eq!(*soc(&mut card).register("reset.status"), 2 << 8 | ResetCause::Debug.bits());
    let request = REGISTERS_BASE + address("reset.request");
    card.board.write(request, Width::Word, 3).unwrap();
    card.run(10);
    assert_eq!(card.resets(), 1, "without the key nothing happens");
    card.board.write(request, Width::Word, 0xd0ff << 16 | 4).unwrap();
    card.run(10);
    assert_eq!(*soc(&mut card).register("reset.status"), 3 << 8 | ResetCause::Panic.bits());
    assert_eq!((word(&mut card, SHARED_BASE), card.resets()), (Some(7), 2));
    assert_eq!(word(&mut card, REGISTERS_BASE + scratch), Some(9));
}

/// Writes a register of the card's.
fn write(card: &mut Card, path: &str, value: u32) {
    card.board.write(REGISTERS_BASE + address(path), Width::Word, value).unwrap();
}

#[test]
fn nothing_holds_the_lines_of_a_bus_when_a_transfer_is_over() {
    let mut card = Card::litex();
    let lines = |card: &mut Card| *soc(card).register("i2c[0].status") >> 16 & 3;
    assert_eq!(lines(&mut card), 3, "after the reset");
    for address in [IDENTITY, IDENTITY + 1] {
        // Start, write, stop.
        write(&mut card, "i2c[0].command", 1 << 12 | 1 << 9 | 1 << 8 | u32::from(address) << 1);
        assert_eq!(lines(&mut card), 3, "{address:#x}");
    }
}

#[test]
fn the_low_half_of_an_alarm_disarms_it() {
    let mut card = Card::litex();
    let timer = Pending::from_bits(0).with_timer(true).bits();
    for (disarmed, pending) in [(false, timer), (true, 0)] {
        card.reset();
        write(&mut card, "timer.alarm_low", 5000);
        write(&mut card, "timer.alarm_high", 0);
        if disarmed {
            write(&mut card, "timer.alarm_low", 5000);
        }
        card.run(10_000);
        assert_eq!(soc(&mut card).pending, pending, "disarmed: {disarmed}");
    }
}

#[test]
fn software_asks_for_a_reset_as_software_or_panic_only() {
    for cause in 0..8 {
        let mut card = Card::litex();
        write(&mut card, "reset.request", 0xd0ff << 16 | cause);
        card.run(10);
        let asked = [ResetCause::Software, ResetCause::Panic].map(|cause| cause.bits());
        assert_eq!(card.resets() == 1, asked.contains(&cause), "{cause}");
    }
}

#[test]
fn a_step_of_a_core_with_a_mask_is_as_any() {
    let mut card = card(&[WFI, STAY]);
    assert_eq!(card.hart.step(&mut card.board), Step::Done);
    assert_eq!(card.hart.pc(), 4);
}
