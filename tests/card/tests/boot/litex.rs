//! The firmware and the boot loader of the board `litex` as they are built, on the simulated card's model
//! of its SoC. What the firmware takes of memory is what it says itself, as for the emulated card.

mod boot_loader;

use super::{Bench, MEMORY, PACKET_POOL};
use crate::firmware::Program;
use ::soc::reset::{self, Death};
use anyhow::{Context, Result, ensure};
use board_litex::layout::{LAYOUT, RETAINED};
use card_image::Header;
use card_regs::id::Capabilities;
use card_regs::irq::Pending;
use card_regs::values::{self, CrcAlgorithm};
use nor_model::{Direct, Nor, Part};
use proxy_core::control::{ResetCause, ResetReport};
use sim_card::card::Board;
use sim_card::card::litex::{ADDRESS, Litex};
use tlp_codec::fabric::{FrameKind, FrameWriter, Header as FrameHeader};
use tlp_codec::ids::{NodeId, PathId};

/// Of the card's time that a start may take.
const BOUND: u64 = 20_000_000_000;

/// Of the card's time that the loop is watched.
const LIFE: u64 = 20_000_000_000;

/// How long before its reset the watchdog warns.
const WARNING: u64 = 100_000_000;

/// Instructions between two looks.
const LOOK: u64 = 1000;

/// The card, and what it has said since power came on.
struct Card {
    card: sim_card::Card,
    console: Vec<u8>,
    program: Program,
}

impl Card {
    /// One with this flash and an image of this name in its main memory, where LiteX's own loader puts it,
    /// and enters it.
    fn new(bench: &Bench, name: &str, settings: &str) -> Result<Self> {
        let mut flash: Direct<1, 4096> = Direct(Nor::new(Part::W25Q128, 1));
        ::soc::settings::store(&mut flash, LAYOUT.config(), settings)?;
        let image = std::fs::read(bench.firmware.join(format!("{name}.img")))?;
        let header = Header::parse(&image)?;
        let payload = &image[image.len() - header.payload_len as usize..];
        let mut card = Self::with_flash(bench, name, &flash.0)?;
        card.card.load(header.load, payload)?;
        card.card.hart.set_pc(header.entry);
        Ok(card)
    }

    /// One with this flash to which power comes, and whose log is of the firmware of this name.
    fn with_flash(bench: &Bench, name: &str, flash: &Nor) -> Result<Self> {
        let program = Program::new(std::fs::read(bench.firmware.join(name))?);
        let mut card = sim_card::Card::litex();
        card.board.nor(0).preload(0, flash.cells());
        Ok(Self { card, console: Vec::new(), program })
    }

    fn soc(&mut self) -> &mut Litex {
        match &mut self.card.board {
            Board::Litex(soc) => soc,
            other => unreachable!("{other:?}"),
        }
    }

    fn nanos(&self) -> u64 {
        self.card.board.nanos()
    }

    /// Lets a little of its time pass.
    fn step(&mut self) {
        self.card.run(LOOK);
        self.console.extend(self.card.board.take_console());
    }

    /// What it has logged.
    fn log(&self) -> Result<Vec<String>> {
        self.program.log(&self.console)
    }

    /// Whether it was reset, and says why it should not have been.
    fn is_well(&self) -> Result<()> {
        ensure!(self.card.resets() == 0, "it resets itself: {:#?}", self.log()?);
        Ok(())
    }

    /// Runs until the loop has begun to feed the watchdog.
    fn start(&mut self) -> Result<()> {
        while self.soc().fed() < 3 {
            self.step();
            self.is_well()?;
            ensure!(self.nanos() < BOUND, "it does not start: {:#?}", self.log()?);
        }
        Ok(())
    }

    /// Runs until then, and then on; the log.
    fn live(&mut self) -> Result<Vec<String>> {
        self.start()?;
        let (began, fed) = (self.nanos(), self.soc().fed());
        while self.nanos() < began + LIFE {
            self.step();
            self.is_well()?;
        }
        // The loop sleeps for a tenth of a second at most, and does sleep.
        let turns = self.soc().fed() - fed;
        ensure!((200..2000).contains(&turns), "{turns} turns in 20 s: {:#?}", self.log()?);
        self.log()
    }
}

/// What the next life would say of the end of this one.
fn left_behind(card: &mut Card) -> ResetReport {
    let kept = card.soc().memory(RETAINED, reset::RETAINED as u32).expect("it is in memory");
    let mut kept: [u8; reset::RETAINED] = kept.try_into().expect("as many");
    reset::begin(&mut kept, None);
    reset::report(&kept).expect("a life was begun")
}

#[test]
fn what_ends_a_life_is_written_down_though_the_console_stands_still() {
    let Some(bench) = Bench::new() else { return };
    let settings = "name = card-1\nmanager = 10.0.2.2:7781\n";
    let mut card = Card::new(&bench, "litex-box", settings).unwrap();
    card.start().unwrap();
    assert_eq!(left_behind(&mut card).cause, ResetCause::Pin, "nobody wrote anything down");
    // The watchdog warns, and so soon resets the core.
    *card.soc().register("uart.status") = 0;
    card.soc().raise(Pending::from_bits(0).with_watchdog(true));
    let until = card.nanos() + WARNING;
    while card.nanos() < until && card.card.resets() == 0 {
        card.step();
    }
    let report = left_behind(&mut card);
    assert_eq!(report.cause, ResetCause::Watchdog, "{report:?}");
    assert!(report.text.contains("no progress") && report.place != 0, "{report:?}");
}

#[test]
fn what_ended_the_life_before_is_logged() {
    let Some(bench) = Bench::new() else { return };
    for name in ["litex-box", "litex-host"] {
        let settings = "name = card-1\nmanager = 10.0.2.2:7781\n";
        let mut card = Card::new(&bench, name, settings).unwrap();
        let kept = card.soc().memory(RETAINED, reset::RETAINED as u32).expect("it is in memory");
        let kept: &mut [u8; reset::RETAINED] = kept.try_into().expect("as many");
        reset::begin(kept, None);
        let text = format_args!("no progress for some seconds");
        reset::write_down(kept, &Death::new(ResetCause::Watchdog, 0x4000_1234, 7, text));
        *card.soc().register("reset.status") = values::ResetCause::Panic.bits();
        card.start().unwrap();
        let log = card.log().unwrap();
        let line = "start 2: watchdog 0x40001234 no progress for some seconds";
        assert!(log.iter().any(|said| said == line), "{name}: {log:#?}");
    }
}

/// Bytes of memory, and of the packet pool, as the log has them.
fn memory(log: &[String]) -> Result<(u64, u64)> {
    let line = log.iter().find(|line| line.contains("up, with")).context("it came up")?;
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    Ok((numbers.next().context("bytes")?, numbers.next().context("bytes of the pool")?))
}

#[test]
fn the_firmware_for_litex_starts_and_a_box_with_sixteen_slots_has_memory_enough() {
    let Some(bench) = Bench::new() else { return };
    for (name, places) in [("litex-box", 16), ("litex-box", 4), ("litex-host", 4)] {
        let settings = format!("name = card-1\nmanager = 10.0.2.2:7781\nplaces = {places}\n");
        let log = Card::new(&bench, name, &settings).and_then(|mut card| card.live()).unwrap();
        let (memory, pool) = memory(&log).unwrap();
        println!(
            "FIGURE: {name} with {places} places: {memory} of {MEMORY} B, packet pool {pool} of \
             {PACKET_POOL} B"
        );
        assert!(memory <= MEMORY, "{name}: {memory} of {MEMORY} B: {log:#?}");
        assert!(pool <= PACKET_POOL, "{name}: {pool} of {PACKET_POOL} B: {log:#?}");
        assert!(log.iter().any(|line| line.contains("no network module")), "{log:#?}");
        assert!(!log.iter().any(|line| line.contains("a reset follows")), "{log:#?}");
    }
}

#[test]
fn firmware_for_litex_that_cannot_start_says_why_and_waits_for_a_person() {
    let Some(bench) = Bench::new() else { return };
    for name in ["litex-box", "litex-host"] {
        let mut card = Card::new(&bench, name, "name = card-1\nmanager = here:7781\n").unwrap();
        while card.nanos() < LIFE {
            card.step();
            card.is_well().unwrap();
        }
        let log = card.log().unwrap();
        assert_eq!(
            log,
            ["settings: line 2: its key does not have such a value", "the card waits for a reset"]
        );
        // A hang would have been one from before the settings were read.
        let fed = card.soc().fed();
        assert!(fed > 3, "{name}: the watchdog was fed {fed} times");
    }
}

/// A frame that is right, to this card.
fn frame() -> Vec<u8> {
    let header = FrameHeader {
        kind: FrameKind::Probe,
        destination: NodeId::new(1).unwrap(),
        source: NodeId::new(2).unwrap(),
        source_incarnation: 7,
        destination_incarnation: Some(9),
        session: 1,
        path: PathId::new(0).unwrap(),
        packet: 0,
        sequence: 0,
        ack: None,
    };
    let mut bytes = vec![0; 14 + 200];
    bytes[..6].copy_from_slice(&ADDRESS);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    bytes[12..14].copy_from_slice(&tlp_codec::fabric::ETHERTYPE.to_be_bytes());
    let mut writer = FrameWriter::new(&mut bytes[14..], &header).unwrap();
    writer.pad(200);
    assert_eq!(writer.finish(), 200);
    bytes
}

#[test]
fn the_crc_of_a_frame_is_the_engines_where_the_gateware_has_one() {
    let Some(bench) = Bench::new() else { return };
    for has_engine in [true, false] {
        let settings = "name = card-1\nmanager = 10.0.2.2:7781\n";
        let mut card = Card::new(&bench, "litex-host", settings).unwrap();
        let capabilities = card.soc().register("id.capabilities");
        let has = Capabilities::from_bits(*capabilities).with_crc_engine(has_engine);
        *capabilities = has.bits();
        card.start().unwrap();
        let frame = frame();
        card.soc().comes(&frame);
        let fed = card.soc().fed();
        while card.soc().fed() < fed + 3 {
            card.step();
        }
        // All of it but Ethernet's header and the CRC itself.
        let covered = frame[14..frame.len() - 4].to_vec();
        let asked = has_engine.then_some((CrcAlgorithm::Crc32c, covered));
        assert_eq!(card.soc().crcs(), Vec::from_iter(asked));
        let carried = u32::from_le_bytes(*frame.last_chunk().unwrap());
        assert_eq!(*card.soc().register("crc.result"), if has_engine { carried } else { 0 });
    }
}
