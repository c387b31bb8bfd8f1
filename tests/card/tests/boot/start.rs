//! A new image that stops before its loop: what the firmware does as it is built.

use super::images::{Label, image, relabelled, requirements, trusted};
use super::{BOUND, Bench, Connected, with_update};
use anyhow::{Result, ensure};
use card_image::{BOOT_TRIES, Decision, SlotId, SlotState};
use emulated_card::flash::CardFlash;
use proxy_core::control::FromProxy;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::Duration;

/// Settings that no firmware takes.
const WRONG: &str = "name = card-1\nmanager = here:7781\n";

/// A card with a small image that was healthy in slot a, and a new one that is to be started next
/// in slot b.
fn on_trial(bench: &Bench, new: &[u8], settings: &str) -> Result<CardFlash> {
    let mut flash = with_update(bench, new)?;
    flash.set_settings(settings)?;
    Ok(flash)
}

/// What the boot loader says while an image uses up its trial; each of its starts but the first has this
/// cause.
pub(crate) fn has_used_up_its_trial(console: &str, cause: &str) -> Result<()> {
    let left = [2, 1, 0].map(|left| format!("slot b is new, with {left} more starts"));
    let starts = [2, 3, 4].map(|start| format!("start {start}: {cause}"));
    for words in left.iter().chain(&starts) {
        ensure!(console.contains(words), "{words}: {console}");
    }
    ensure!(console.contains("slot b: its image never reported that it is healthy"), "{console}");
    Ok(())
}

#[test]
fn a_new_image_that_refuses_the_settings_gives_way_to_the_one_before() {
    let Some(scene) = Connected::new() else { return };
    let bench = &scene.bench;
    let firmware = bench.box_image().unwrap();
    let new = relabelled(&firmware, Label::version(2)).unwrap();
    let many = scene.settings(scene.manager.port).replace("places = 2", "places = 17");
    for (settings, why) in [
        (WRONG, "line 2: its key does not have such a value"),
        (&many, "places = 17: a box has 1 to 16 slots; set places to that"),
    ] {
        let flash = on_trial(bench, &new, settings).unwrap();
        flash.write(&bench.path("flash")).unwrap();
        let mut card = scene.start().unwrap();
        let console = bench.until_said(&mut card, "starting slot a: any 1.0.0+0\r\nA").unwrap();
        has_used_up_its_trial(&console, "asked for").unwrap();
        let log = bench.log().unwrap();
        let why = format!("a new image does not start: settings: {why}");
        assert_eq!(log.iter().filter(|line| line.contains(&why)).count(), 3, "{log:#?}");
        assert!(!log.iter().any(|line| line.contains("waits for a reset")), "{log:#?}");
    }
}

#[test]
fn an_image_with_nothing_to_go_back_to_waits_for_a_person() {
    let Some(bench) = Bench::new() else { return };
    let mut flash = bench.new_flash().unwrap();
    flash.put_image(SlotId::A, &bench.box_image().unwrap());
    flash.set_settings(WRONG).unwrap();
    let mut card = bench.start(&flash).unwrap();
    bench.until_said(&mut card, "starting slot a").unwrap();
    // Longer than the watchdog's patience: what waits for a person does not hang.
    std::thread::sleep(Duration::from_secs(12));
    let console = bench.console();
    assert!(!console.contains("start 2"), "{console}");
    let log = bench.log().unwrap();
    let said =
        ["settings: line 2: its key does not have such a value", "the card waits for a reset"];
    assert_eq!(log, said);
}

#[test]
fn a_new_image_that_hangs_before_its_loop_is_given_up() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program().unwrap();
    // It is asked for after the settings, and long before the loop.
    let at = program.interface().unwrap();
    let hangs = program.spoiled(&bench.box_image().unwrap(), at, 0x0000_006f).unwrap();
    let new = image(Label::version(2), &hangs).unwrap();
    let flash = on_trial(&bench, &new, "name = card-1\nmanager = 10.0.2.2:7781\n").unwrap();
    let console = bench.says(&flash, "starting slot a: any 1.0.0+0\r\nA").unwrap();
    has_used_up_its_trial(&console, "watchdog").unwrap();
    let log = bench.log().unwrap();
    let bites = log.iter().filter(|line| line.contains(&format!("watchdog at {at:#010x}")));
    assert_eq!(bites.count(), 3, "{log:#?}");
}

/// Three starts before there was a manager: the image of a card that has no other is started on, and is
/// as good as any when the card joins.
#[test]
fn an_image_whose_starts_are_used_up_joins_where_there_is_no_other() {
    let Some(scene) = Connected::new() else { return };
    let bench = &scene.bench;
    let mut flash = bench.new_flash().unwrap();
    flash.set_settings(&scene.settings(scene.manager.port)).unwrap();
    flash.write_image(SlotId::A, &bench.box_image().unwrap()).unwrap();
    let keys = trusted();
    for _ in 0..BOOT_TRIES {
        let mut store = flash.store().unwrap();
        let decision = store.decide(&mut flash.0, &requirements(&keys));
        assert!(
            matches!(&decision, Decision::Boot(boot) if boot.slot == SlotId::A),
            "{decision:?}"
        );
    }
    let state = *flash.store().unwrap().state();
    assert!(matches!(state.slot(SlotId::A), SlotState::Trying { left: 0, .. }), "{state:?}");
    flash.write(&bench.path("flash")).unwrap();
    let _card = scene.start().unwrap();
    scene.until_healthy(SlotId::A).unwrap();
    let console = bench.console();
    let words = "slot a has used up its starts, and there is no other";
    assert!(console.contains(words), "{console}");
}

/// A pipe as the card's console, which is full, and which nobody reads while the file is open.
fn full_console(bench: &Bench) -> Result<File> {
    let path = bench.path("card.uart");
    ensure!(Command::new("mkfifo").arg(&path).status()?.success(), "there is no pipe");
    let mut options = OpenOptions::new();
    let mut pipe = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
    // The last of it byte by byte: a pipe takes few bytes or none.
    for length in [4096, 1] {
        while pipe.write(&vec![b'.'; length]).is_ok() {}
    }
    Ok(pipe)
}

#[test]
fn a_console_that_nobody_reads_holds_no_card_up() {
    let Some(scene) = Connected::new() else { return };
    let mut flash = scene.bench.new_flash().unwrap();
    flash.set_settings(&scene.settings(scene.manager.port)).unwrap();
    flash.put_image(SlotId::A, &scene.bench.box_image().unwrap());
    flash.write(&scene.bench.path("flash")).unwrap();
    let mut pipe = full_console(&scene.bench).unwrap();
    let _card = scene.start_with_console().unwrap();
    let hello = scene.manager.said.recv_timeout(BOUND).expect("the card joins");
    assert!(matches!(hello, FromProxy::Hello(_)), "{hello:?}");
    // It was full all the time.
    let error = pipe.write(b".").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}
