//! The simulated card starts from the very flash that the emulator starts from, and what it logs
//! is in its memory for a probe.

use crate::Bench;
use anyhow::{Context, Result, ensure};
use card_image::{SlotId, SlotState};
use emulated_card::flash::CardFlash;
use sim_card::card::Card;
use sim_card::iss::{Bus, Width};

/// Ticks that a start may take: 10 s.
const BOUND: u64 = 1_000_000_000;

/// Ticks between two looks.
const LOOK: u64 = 1_000_000;

/// The simulated card's memory, as a probe reads it.
struct Memory<'a>(&'a mut Card);

impl Memory<'_> {
    fn bytes(&mut self, at: u32, length: u32) -> Result<Vec<u8>> {
        let byte = |at| self.0.board.read(at, Width::Byte).map(|byte| byte as u8);
        (at..at + length).map(byte).collect::<Result<_, _>>().ok().context("there is memory")
    }

    fn word(&mut self, at: u32) -> Result<u32> {
        let bytes = self.bytes(at, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four of them")))
    }

    /// What waits in channel 0 of RTT, whose control block is there: name, and bytes.
    fn channel(&mut self, block: u32) -> Result<(Vec<u8>, Vec<u8>)> {
        ensure!(self.bytes(block, 16)? == b"SEGGER RTT\0\0\0\0\0\0", "no control block");
        ensure!(self.word(block + 16)? >= 1, "no channel to the probe");
        let channel = block + 24;
        let name = self.word(channel)?;
        let (buffer, write) = (self.word(channel + 4)?, self.word(channel + 12)?);
        ensure!(self.word(channel + 20)? & 3 == 0, "the channel makes the card wait");
        Ok((self.bytes(name, 5)?, self.bytes(buffer, write)?))
    }
}

#[test]
fn the_simulated_card_starts_the_same_image() {
    let Some(bench) = Bench::new() else { return };
    let mut flash = bench.new_flash().unwrap();
    flash.set_settings("name = card-1\nmanager = 10.0.2.2:7781\n").unwrap();
    flash.put_image(SlotId::A, &bench.box_image().unwrap());
    let mut card = Card::new();
    card.board.nor(0).preload(0, flash.0.0.cells());
    let (program, mut console) = (bench.program().unwrap(), Vec::new());
    let log = loop {
        card.run(LOOK);
        console.extend(card.board.take_console());
        let log = program.log(&console).unwrap();
        if log.iter().any(|line| line.contains("waits for a reset")) {
            break log;
        }
        let said = String::from_utf8_lossy(&console);
        assert!(card.board.ticks() < BOUND, "{said}");
    };
    assert!(String::from_utf8_lossy(&console).contains("starting slot a: box"));
    assert!(log.iter().any(|line| line.contains("network interfaces")), "{log:#?}");
    assert_eq!(card.resets(), 0);

    // A probe finds the same.
    let block = program.address("_SEGGER_RTT").unwrap();
    let (name, bytes) = Memory(&mut card).channel(block).unwrap();
    assert_eq!(name, b"defmt");
    assert_eq!(program.log(&bytes).unwrap(), log);

    // The boot loader recorded the start in the card's own flash.
    let mut kept: CardFlash = bench.new_flash().unwrap();
    kept.0.0.preload(0, card.board.nor(0).cells());
    let state = *kept.store().unwrap().state();
    assert!(matches!(state.slot(SlotId::A), SlotState::Trying { left: 2, .. }), "{state:?}");
}
