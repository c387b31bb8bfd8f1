//! Programs on the card, and its flash by both ways.

use std::time::Duration;

use super::{
    CLINT_BASE, Card, FINISHER_BASE, FLASH_BASE, FLASH_PART, Finish, PLIC_BASE, RAM_BASE, Ran,
    SPI_BASE, UART_BASE, UART_OUTPUT_LIMIT, VIRTIO_BASE,
};
use crate::iss::{Bus, Width};

const STAY: u32 = 0x6f;
const WFI: u32 = 0x1050_0073;

fn addi(rd: u32, rs1: u32, imm: u32) -> u32 {
    imm << 20 | rs1 << 15 | rd << 7 | 0x13
}

fn lui(rd: u32, high: u32) -> u32 {
    high << 12 | rd << 7 | 0x37
}

/// Store with the width `funct3` at offset 0.
fn store(funct3: u32, rs2: u32, rs1: u32) -> u32 {
    rs2 << 20 | rs1 << 15 | funct3 << 12 | 0x23
}

fn bytes(program: &[u32]) -> Vec<u8> {
    program.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Says "hi" and tells the finisher what is in x3.
fn hello(finish: [u32; 2]) -> Vec<u8> {
    let [high, low] = finish;
    bytes(&[
        lui(1, UART_BASE >> 12),
        addi(2, 0, b'h'.into()),
        store(0, 2, 1),
        addi(2, 0, b'i'.into()),
        store(0, 2, 1),
        lui(1, FINISHER_BASE >> 12),
        lui(3, high),
        addi(3, 3, low),
        store(2, 3, 1),
        STAY,
    ])
}

fn word(card: &mut Card, at: u32) -> u32 {
    card.board.read(at, Width::Word).unwrap()
}

fn put(card: &mut Card, at: u32, value: u32) {
    card.board.write(at, Width::Word, value).unwrap();
}

#[test]
fn a_card_boots_from_its_flash() {
    let mut card = Card::new();
    card.board.nor(0).preload(0, &hello([0x5, 0x555]));
    assert_eq!(card.run(1000), Ran::Finished(Finish::Pass));
    assert_eq!(card.board.take_console(), b"hi");
    // It is over.
    assert_eq!(card.run(1000), Ran::Finished(Finish::Pass));
}

#[test]
fn firmware_can_fail_and_can_ask_for_a_reset() {
    let mut card = Card::new();
    card.board.nor(0).preload(0, &hello([0x73, 0x333]));
    assert_eq!(card.run(1000), Ran::Finished(Finish::Fail(7)));
    let mut card = Card::new();
    card.board.nor(0).preload(0, &hello([0x7, 0x777]));
    card.run(1000);
    assert!(card.resets() > 10);
    assert!(card.board.take_console().starts_with(b"hihi"));
}

#[test]
fn a_card_with_empty_flash_stays_alive() {
    let mut card = Card::new();
    assert_eq!(card.run(10_000), Ran::Busy);
    assert_eq!(card.board.ticks(), 10_000);
}

#[test]
fn the_timer_wakes_the_core() {
    let mut card = Card::new();
    card.load(RAM_BASE, &bytes(&[WFI, addi(5, 0, 1), STAY])).unwrap();
    card.hart.set_pc(RAM_BASE);
    card.hart.set_csr(0x304, 1 << 7);
    put(&mut card, CLINT_BASE + 0x4004, 0);
    put(&mut card, CLINT_BASE + 0x4000, 500);
    assert_eq!(card.run(4_999), Ran::Idle);
    assert_eq!(card.hart.register(5), 0);
    card.run(10);
    assert_eq!(card.hart.register(5), 1);
    assert_eq!(word(&mut card, CLINT_BASE + 0xbff8), 500);
    // Setting the time moves the alarm with it.
    put(&mut card, CLINT_BASE + 0xbff8, 0);
    assert_eq!(word(&mut card, CLINT_BASE + 0xbff8), 0);
    card.run(10);
    assert_eq!(card.hart.csr(0x344, &card.board), Some(0));
}

#[test]
fn the_console_interrupts_by_the_controller() {
    let mut card = Card::new();
    card.load(RAM_BASE, &bytes(&[STAY])).unwrap();
    card.hart.set_pc(RAM_BASE);
    put(&mut card, PLIC_BASE + 40, 1);
    put(&mut card, PLIC_BASE + 0x2000, 1 << 10);
    card.board.write(UART_BASE + 1, Width::Byte, 1).unwrap();
    card.run(10);
    assert_eq!(card.hart.csr(0x344, &card.board), Some(0));
    assert_eq!(card.board.type_at_console(&[b'x'; 20]), 16);
    card.run(10);
    assert_eq!(card.hart.csr(0x344, &card.board), Some(1 << 11));
    // Claimed, it is not there until it is completed.
    assert_eq!(word(&mut card, PLIC_BASE + 0x20_0004), 10);
    assert_eq!(word(&mut card, PLIC_BASE + 0x20_0004), 0);
    put(&mut card, PLIC_BASE + 0x20_0004, 10);
    assert_eq!(word(&mut card, PLIC_BASE + 0x20_0004), 10);
}

#[test]
fn a_console_that_nobody_reads_holds_the_firmware_back() {
    let mut card = Card::new();
    let ready = |card: &mut Card| card.board.read(UART_BASE + 5, Width::Byte).unwrap() & 0x20;
    for _ in 0..UART_OUTPUT_LIMIT {
        assert_ne!(ready(&mut card), 0);
        card.board.write(UART_BASE, Width::Byte, 0x41).unwrap();
    }
    assert_eq!(ready(&mut card), 0);
    assert_eq!(card.board.take_console().len(), UART_OUTPUT_LIMIT);
    assert_ne!(ready(&mut card), 0);
}

#[test]
fn places_for_virtio_are_empty_and_others_fault() {
    let mut card = Card::new();
    for place in 0..8 {
        assert_eq!(word(&mut card, VIRTIO_BASE + 0x1000 * place), 0x7472_6976);
        assert_eq!(word(&mut card, VIRTIO_BASE + 0x1000 * place + 8), 0);
    }
    for at in [0, 0x1000_9000, SPI_BASE + 0x24, FLASH_BASE + (64 << 20), RAM_BASE + (8 << 20)] {
        assert!(card.board.read(at, Width::Word).is_err(), "{at:#x}");
        assert!(card.board.write(at, Width::Word, 0).is_err(), "{at:#x}");
        assert!(card.board.fetch(at).is_err(), "{at:#x}");
    }
    assert!(card.load(RAM_BASE + (8 << 20) - 2, &[0; 3]).is_err());
    assert!(card.load(RAM_BASE + (8 << 20) - 3, &[0; 3]).is_ok());
}

fn pass(card: &mut Card, time: Duration) {
    card.run(time.as_nanos() as u64 / super::TICK_NANOS);
}

#[test]
fn the_flash_is_programmed_and_erased_through_its_window() {
    let mut card = Card::new();
    let at = FLASH_BASE + FLASH_PART.size + 0x100;
    put(&mut card, at, 0x0040_0040);
    put(&mut card, at, 0x1234_5678);
    assert_eq!(word(&mut card, at) & 0x80, 0, "it takes its time");
    pass(&mut card, FLASH_PART.timing.program);
    assert_eq!(word(&mut card, at), 0x0080_0080);
    put(&mut card, at, 0x00ff_00ff);
    assert_eq!(word(&mut card, at), 0x1234_5678);
    assert_eq!(card.board.read(at + 1, Width::Byte), Ok(0x56));
    put(&mut card, at, 0x0020_0020);
    put(&mut card, at, 0x00d0_00d0);
    pass(&mut card, FLASH_PART.erases[0].time);
    put(&mut card, at, 0x00ff_00ff);
    assert_eq!(word(&mut card, at), u32::MAX);
}

/// Speaks to the flash over SPI and gives what came back.
fn spi(card: &mut Card, sent: &[u8]) -> Vec<u8> {
    put(card, SPI_BASE, 1 | 1 << 8);
    let received = sent
        .iter()
        .map(|byte| {
            put(card, SPI_BASE + 8, (*byte).into());
            let received = word(card, SPI_BASE + 0xc);
            assert_eq!(received >> 8, 1);
            received as u8
        })
        .collect();
    put(card, SPI_BASE, 1);
    received
}

#[test]
fn the_flash_is_the_same_over_spi() {
    let mut card = Card::new();
    // Closed, the window does not read; open, the bytes do nothing.
    put(&mut card, SPI_BASE + 8, 0x9f);
    assert_eq!(word(&mut card, SPI_BASE + 0xc), 0);
    put(&mut card, SPI_BASE + 0x18, 0x300);
    assert!(card.board.read(FLASH_BASE, Width::Word).is_err());
    assert_eq!(spi(&mut card, &[0x9f, 0, 0, 0])[1..], FLASH_PART.jedec);
    spi(&mut card, &[0x06]);
    spi(&mut card, &[0x02, 0, 1, 0, 0xde, 0xad, 0xbe, 0xef]);
    assert_eq!(spi(&mut card, &[0x05, 0])[1] & 1, 1);
    pass(&mut card, FLASH_PART.timing.program);
    assert_eq!(spi(&mut card, &[0x05, 0])[1], 0);
    put(&mut card, SPI_BASE + 0x18, 0x301);
    assert_eq!(word(&mut card, FLASH_BASE + 0x100), 0xefbe_adde);
    put(&mut card, SPI_BASE + 0x18, 0x300);
    spi(&mut card, &[0x06]);
    spi(&mut card, &[0xd8, 0, 0, 0]);
    // A reset in the middle tears it, and opens the window.
    pass(&mut card, FLASH_PART.erases[0].time / 2);
    card.reset();
    assert!(card.board.read(FLASH_BASE, Width::Word).is_ok());
    assert!(!card.board.nor(0).unstable().is_empty());
}

#[test]
fn spi_does_not_keep_more_than_its_fifo_holds() {
    let mut card = Card::new();
    put(&mut card, SPI_BASE + 0x18, 0);
    put(&mut card, SPI_BASE, 1);
    for _ in 0..17 {
        put(&mut card, SPI_BASE + 8, 0);
    }
    assert_eq!(word(&mut card, SPI_BASE + 0x10), 16 << 8 | 16);
    assert_eq!(word(&mut card, SPI_BASE + 0x14), 1);
    put(&mut card, SPI_BASE + 0x14, 1);
    put(&mut card, SPI_BASE, 0);
    assert_eq!([word(&mut card, SPI_BASE + 0x10), word(&mut card, SPI_BASE + 0x14)], [16, 0]);
}
