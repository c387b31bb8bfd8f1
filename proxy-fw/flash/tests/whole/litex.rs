//! A card whose processor is a LiteX SoC in an FPGA: another memory map, another flash with sectors of
//! 4 KB, a boot loader that LiteX's BIOS starts, and a tunnel to its core, all as its board file has it.

use board_litex::layout::{BOARD, LAYOUT};
use card_image::SlotId;
use dxpu_flash::image::{BootLoader, Label};
use sim_card::Card;
use sim_card::card::litex;

use crate::sim::{Bench, SimCard, cells, firmware, label, of_firmware, read, wait};

fn litex_label(version: &str) -> Label {
    Label { board: BOARD, ..label(version) }
}

#[test]
fn a_litex_card_is_found_filled_checked_and_read() {
    let bench = Bench::new();
    let image = bench.image("first.img", &litex_label("1.0.0"), 9_000);
    bench.image("other.img", &label("1.0.0"), 9_000);
    let program: Vec<u8> = (0..5000_u32).map(|n| (n % 251) as u8).collect();
    let boot = BootLoader::LitexBios.in_flash(&program);
    std::fs::write(bench.path("boot.bin"), &boot).unwrap();
    let card = SimCard::start(Card::litex());
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);

    let found = run(&["list", "--json"]).fine().json();
    assert_eq!(
        (&found[0]["card"], &found[0]["idcodes"][0]),
        (&"litex".into(), &litex::IDCODE.into())
    );
    let other = run(&["--board", "qemu-virt", "info"]);
    let check = other.error.lines().nth(1).unwrap_or_default();
    assert!(
        check.contains("the board that is named") && check.contains("DXPU_BOARD_FILE"),
        "{check}"
    );
    other.failed(4, "the JTAG chain: one TAP with");
    run(&["write", "other.img"]).failed(5, "for the board qemu-virt, the card is a litex");
    let wrote = run(&["write", "--boot-loader", "boot.bin", "first.img", "--json"]);
    assert_eq!(wrote.fine().json()["boot_loader"], "written and verified");
    let info = run(&["--board", "litex", "info", "--json"]).fine().json();
    assert_eq!(
        (&info["slots"][0]["state"], &info["flash_id"]),
        (&"staged".into(), &"ef4018".into())
    );
    run(&["verify"]).fine();
    run(&["verify", "first.img"]).fine();
    run(&["verify", "--boot-loader", "boot.bin"]).fine();
    run(&["read", "boot-loader", "copy"]).fine();
    let copy = read(&bench.path("copy"));
    assert_eq!(copy.len() as u32, LAYOUT.boot_loader().len);
    assert!(copy.starts_with(&boot) && copy[boot.len()..].iter().all(|byte| *byte == 0xff));
    run(&["config", "set", "name=box-1", "manager=10.0.0.1:7781"]).fine();
    let settings = run(&["config", "set", "places=2"]).fine().out;
    assert_eq!(run(&["config", "get"]).fine().out, settings);
    let text = run(&["erase", "config"]).fine().out;
    assert!(text.contains("8192 bytes are erased"), "{text}");

    let mut card = card.stop();
    assert_eq!(cells(&mut card, LAYOUT.slot(SlotId::A).start, image.len()), image);
    assert_eq!(cells(&mut card, 0, boot.len()), boot);
}

/// Main memory does not work before the BIOS has set it up.
#[test]
fn a_place_for_the_algorithm_without_memory_is_told() {
    let bench = Bench::new();
    let (_, text) = dxpu_flash::board::BUILT_IN[1];
    let text = text.replace("load_address: 0x90000100", "load_address: 0x40000100");
    std::fs::write(bench.path("board.yaml"), text).unwrap();
    let card = SimCard::start(Card::litex());
    let said = bench.run(Some(card.address), &["--board-file", "board.yaml", "erase", "config"]);
    assert!(said.error.contains("`load_address` in the board file"), "{}", said.error);
    said.failed(4, "memory does not keep");
}

/// The firmware that is built, flashed over JTAG and started by the boot loader, and that by LiteX's BIOS;
/// its log, on the console and in memory.
#[test]
fn a_litex_card_that_was_flashed_starts() {
    let Some(path) = firmware("litex-box.img") else { return };
    let bench = Bench::new();
    let card = SimCard::start(Card::litex());
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let (boot, image, elf) = (path("litex-boot.bin"), path("litex-box.img"), path("litex-box"));
    run(&["write", "--boot-loader", &boot, &image, "--no-start"]).fine();
    // The program without the words that the BIOS wants in front: they are put there.
    run(&["verify", "--boot-loader", &path("litex-boot")]).fine();
    run(&["verify", &image]).fine();
    run(&["config", "set", "name=box-1", "manager=10.0.2.2:7781"]).fine();
    wait(120, || bench.log(&card, &elf), |log| of_firmware(log).contains("up, with"));
    // The same log from the card's memory.
    bench.watch(card.address, &["log", "--elf", &elf], "up, with");
    let info = run(&["info", "--json"]).fine().json();
    assert_eq!(info["slots"][0]["state"], "trying", "{info}");
    assert_eq!(info["settings"]["name"], "box-1", "{info}");
}

/// A boot loader that found nothing to start waits for a person: whose probe reads the flash then.
#[test]
#[ignore = "long: most of what one that starts does, in another state"]
fn a_litex_card_in_recovery_is_read_and_filled() {
    let Some(path) = firmware("litex-box.img") else { return };
    let bench = Bench::new();
    let card = SimCard::start(Card::litex());
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    run(&["write", "--boot-loader", &path("litex-boot.bin")]).fine();
    wait(60, || card.said(), |said| said.contains("recovery"));
    let info = run(&["info", "--json"]).fine().json();
    assert_eq!(info["slots"][0]["state"], "empty", "{info}");
    run(&["verify", "--boot-loader", &path("litex-boot.bin")]).fine();
    run(&["write", "--no-start", &path("litex-box.img")]).fine();
}
