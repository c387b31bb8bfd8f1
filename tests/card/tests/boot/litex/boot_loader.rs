//! The boot loader, as LiteX's BIOS starts it from flash.

use super::{Bench, Card};
use crate::healthy_and_staged;
use crate::images::development_key;
use crate::start::has_used_up_its_trial;
use ::soc::reset::{self, Started};
use ::soc::settings;
use anyhow::{Result, ensure};
use board_litex::layout::{BOARD, LAYOUT, MEMORY, REGISTERS, RETAINED};
use card_image::{
    BoardName, Header, ImageParts, Journal, KeyId, Role, STATE_RECORD, SecurityVersion, SlotId,
    Version, seal,
};
use nor_model::{Direct, Nor, Part};

/// The watchdog's as a cause of a reset (`reset_control.status`).
const BY_WATCHDOG: u32 = 2;

type Flash = Direct<1, 4096>;

/// Of a life's time, in which the boot loader reads its image twice.
const BOUND: u64 = 60_000_000_000;

/// Instructions, as bytes.
fn program(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Sends a letter on the console, and sleeps.
fn says(letter: u8) -> Vec<u8> {
    program(&[
        REGISTERS as u32 | 0x2b7,              // lui  t0, the registers
        0x6002_8293,                           // addi t0, t0, uart.transmit
        0x0000_0313 | u32::from(letter) << 20, // li   t1, letter
        0x0062_a023,                           // sw   t1, 0(t0)
        0x3040_1073,                           // csrw mie, zero
        0x1050_0073,                           // wfi
        0xffdf_f06f,                           // j    .-4
    ])
}

/// A signed image of a payload for this board.
fn image(board: BoardName, major: u16, payload: &[u8], entry: u32) -> Result<Vec<u8>> {
    let parts = ImageParts {
        board,
        role: Role::Any,
        version: Version { major, ..Version::default() },
        security: SecurityVersion(0),
        load: MEMORY.start,
        entry,
    };
    let header = seal(parts.unsigned(payload)?, KeyId(1), &development_key())?;
    Ok([&header.emit()[..], payload].concat())
}

/// One that is entered at its first instruction.
fn small(major: u16, payload: &[u8]) -> Result<Vec<u8>> {
    image(BOARD, major, payload, MEMORY.start)
}

/// A flash with the boot loader and these images.
fn flash(bench: &Bench, images: [Option<&[u8]>; 2]) -> Result<Flash> {
    let mut nor = Nor::new(Part::W25Q128, 1);
    nor.preload(LAYOUT.boot_loader().start, &std::fs::read(bench.firmware.join("litex-boot.bin"))?);
    for (slot, image) in SlotId::ALL.into_iter().zip(images) {
        if let Some(image) = image {
            nor.preload(LAYOUT.slot(slot).start, image);
        }
    }
    Ok(Direct(nor))
}

/// One in which the image in slot a was healthy, and the other is to be started next.
fn with_update(bench: &Bench, old: &[u8], new: &[u8]) -> Result<Flash> {
    let mut flash = flash(bench, [Some(old), Some(new)])?;
    let mut journal: Journal<STATE_RECORD> =
        Journal::open(&mut flash, LAYOUT.boot_state(), |_| true)?;
    journal.append(&mut flash, &healthy_and_staged(old, new)?.emit())?;
    Ok(flash)
}

/// A card with this flash to which power comes.
fn card(bench: &Bench, flash: Flash) -> Result<Card> {
    Card::with_flash(bench, "litex-box", &flash.0)
}

/// What the console has when these words are on it, over as many resets as there are.
fn until_said(card: &mut Card, words: &str) -> Result<String> {
    loop {
        let length = card.console.len();
        card.step();
        if card.console.len() > length {
            let said = String::from_utf8_lossy(&card.console).into_owned();
            if said.contains(words) {
                return Ok(said);
            }
        }
        ensure!(card.nanos() < BOUND, "{}", String::from_utf8_lossy(&card.console));
    }
}

#[test]
fn the_bios_starts_the_boot_loader_and_that_an_image() {
    let Some(bench) = Bench::new() else { return };
    let new = small(1, &says(b'A')).unwrap();
    let mut card = card(&bench, flash(&bench, [Some(&new), None]).unwrap()).unwrap();
    let console = until_said(&mut card, "starting slot a: any 1.0.0+0\r\nA").unwrap();
    assert!(console.contains("DxPU boot loader, start 1: power came on"), "{console}");
    assert!(console.contains("trusts the development key"), "{console}");
    assert!(console.contains("slot a is new, with 2 more starts"), "{console}");
}

#[test]
fn an_image_that_is_not_right_is_not_started_and_the_other_one_is() {
    let Some(bench) = Bench::new() else { return };
    let (old, good) = (small(1, &says(b'A')).unwrap(), small(2, &says(b'B')).unwrap());
    let other = BoardName::new("qemu-virt").unwrap();
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let mut resigned = Header::parse(&good).unwrap();
    resigned.signature[3] ^= 1;
    let resigned = [&resigned.emit()[..], &good[256..]].concat();
    for (new, why) in [
        (resigned, "the image's signature is wrong"),
        (damaged, "the image's payload is damaged"),
        (image(other, 2, &says(b'B'), MEMORY.start).unwrap(), "the image is for the board"),
    ] {
        let flash = with_update(&bench, &old, &new).unwrap();
        let mut card = card(&bench, flash).unwrap();
        let console = until_said(&mut card, "starting slot a: any 1.0.0+0\r\nA").unwrap();
        assert!(console.contains(&format!("slot b: {why}")), "{console}");
        assert!(!console.contains("starting slot b"), "{console}");
    }
}

#[test]
fn an_image_that_hangs_or_crashes_is_given_up() {
    let Some(bench) = Bench::new() else { return };
    let old = small(1, &says(b'A')).unwrap();
    for (what, cause, text) in [
        // It sleeps, and takes over nothing: the boot loader's handler writes down where it is.
        (&[0x1050_0073, 0xffdf_f06f][..], "watchdog", "the image did not begin"),
        // The same, and lets nobody interrupt it: only the watchdog is left.
        (&[0x3040_1073, 0x1050_0073, 0xffdf_f06f], "watchdog", ""),
        // There is no such instruction.
        (&[0xc000_1073], "trap", "the image did not begin (0xc0001073)"),
    ] {
        let new = small(2, &program(what)).unwrap();
        let mut card = card(&bench, with_update(&bench, &old, &new).unwrap()).unwrap();
        let console = until_said(&mut card, "starting slot a: any 1.0.0+0\r\nA").unwrap();
        has_used_up_its_trial(&console, cause).unwrap();
        let kept = card.soc().memory(RETAINED, reset::RETAINED as u32).unwrap();
        let report = reset::report((&*kept).try_into().unwrap()).unwrap();
        assert!(report.text.starts_with(text), "{report:?}");
        let is_told = (MEMORY.start..MEMORY.start + 8).contains(&report.place);
        assert_eq!(is_told, !text.is_empty(), "{report:?}");
    }
}

#[test]
fn firmware_that_does_not_join_in_its_trial_goes_back_to_the_one_before() {
    let Some(bench) = Bench::new() else { return };
    let old = small(1, &says(b'A')).unwrap();
    let built = std::fs::read(bench.firmware.join("litex-box.img")).unwrap();
    let header = Header::parse(&built).unwrap();
    let new = image(BOARD, 2, &built[256..], header.entry).unwrap();
    let mut flash = with_update(&bench, &old, &new).unwrap();
    let text = "name = card-1\nmanager = 10.0.2.2:7781\ntrial = 1\n";
    settings::store(&mut flash, LAYOUT.config(), text).unwrap();
    let mut card = card(&bench, flash).unwrap();
    let console = until_said(&mut card, "starting slot a: any 1.0.0+0\r\nA").unwrap();
    has_used_up_its_trial(&console, "asked for").unwrap();
    let log = card.log().unwrap();
    // Each of three lives says so at its end, and the next one that logs says it again.
    let said = log.iter().filter(|line| line.contains("a new image did not join in its trial"));
    let (again, ended): (Vec<&String>, Vec<_>) = said.partition(|line| line.starts_with("start "));
    assert_eq!((ended.len(), again.len()), (3, 2), "{log:#?}");
}

#[test]
fn without_an_image_it_says_why_and_waits() {
    let Some(bench) = Bench::new() else { return };
    let mut card = card(&bench, flash(&bench, [None, None]).unwrap()).unwrap();
    let console = until_said(&mut card, "is there anything?").unwrap_err().to_string();
    assert!(card.card.hart.is_waiting() && card.card.resets() == 0, "{console}");
    assert!(console.contains("slot b: the slot is empty"), "{console}");
    assert!(console.contains("recovery: nothing can be started"), "{console}");
}

#[test]
fn firmware_that_a_person_loads_is_on_no_trial_whatever_was_started_before() {
    let Some(bench) = Bench::new() else { return };
    let mut card = Card::new(&bench, "litex-box", "name = card-1\nmanager = here:7781\n").unwrap();
    let kept = card.soc().memory(RETAINED, reset::RETAINED as u32).unwrap();
    let kept: &mut [u8; reset::RETAINED] = kept.try_into().unwrap();
    reset::begin(kept, None);
    reset::set_started(kept, Started { slot: SlotId::B, trying: true, fallback: true });
    *card.soc().register("reset.status") = BY_WATCHDOG;
    while !card.log().unwrap().iter().any(|line| line.contains("waits for a reset")) {
        (0..100).for_each(|_| card.step());
        card.is_well().unwrap();
    }
    let kept = card.soc().memory(RETAINED, reset::RETAINED as u32).unwrap();
    let life = reset::life((&*kept).try_into().unwrap()).unwrap();
    assert_eq!((life.number, life.started), (2, None));
}
