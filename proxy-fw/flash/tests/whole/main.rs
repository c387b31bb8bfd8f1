//! The program against simulated cards, over TCP: from the first write of a new card to what goes
//! wrong at a bench.

mod chain;
mod console;
mod litex;
mod policy;
mod reading;
mod rtt;
mod sim;
mod told;
mod tunnel;

use std::time::{Duration, Instant};

use card_image::{AntiDowngrade, Role};
use dxpu_flash::image::BootLoader;
use sim::{
    Bench, SimCard, board, cells, emulated_console, firmware, label, noisy_cable, of_firmware,
    read, serve, stuck, wait,
};
use sim_card::Card;

#[test]
fn a_new_card_is_filled_checked_and_read() {
    let bench = Bench::new();
    let layout = board().layout;
    bench.image("first.img", &label("1.0.0"), 20_000);
    let second = bench.image("second.img", &label("1.1.0+7"), 9_000);
    let boot: Vec<u8> = (0..5000_u32).map(|n| (n % 251) as u8).collect();
    let another = BootLoader::Plain.in_flash(&boot[1..]);
    let boot = BootLoader::Plain.in_flash(&boot);
    std::fs::write(bench.path("boot"), &boot).unwrap();
    let mut new = Card::new();
    // Somebody had it before.
    new.board.nor(0).preload(layout.boot_state().start, &[0x5a; 4096]);
    let card = SimCard::start(new);
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);

    let found = run(&["list", "--json"]).fine().json();
    assert_eq!(
        (&found[0]["card"], &found[0]["idcodes"][0]),
        (&"qemu-virt".into(), &0x1dc5_dffd_u32.into())
    );
    run(&["verify"]).failed(6, "neither slot");
    run(&["verify", "--boot-loader", "boot"]).failed(6, "no boot loader is there");
    run(&["verify", "first.img", "--slot", "a"]).failed(6, "slot a has no image");
    let settings = run(&["config", "get", "--json"]).fine().json();
    assert!(settings["settings"].is_null(), "{settings}");

    let wrote = run(&["write", "--erase-all", "--boot-loader", "boot", "first.img", "--json"]);
    let wrote = wrote.fine().json();
    assert_eq!(
        (&wrote["slot"], &wrote["boot_loader"]),
        (&"a".into(), &"written and verified".into())
    );
    let info = run(&["info", "--json"]).fine().json();
    let ([a, b], id) = ([&info["slots"][0], &info["slots"][1]], &info["flash_id"]);
    assert_eq!(
        (&a["state"], &a["wanted"], &a["image"]["version"]),
        (&"staged".into(), &true.into(), &"1.0.0+0".into())
    );
    assert_eq!((&b["state"], id), (&"empty".into(), &"894019".into()));

    // The same once more finds all of it there.
    let again = run(&["write", "first.img", "--json"]).fine().json();
    let bytes = &a["image"]["length"];
    assert_eq!((&again["slot"], &again["resumed_at"]), (&"a".into(), bytes), "{info}");

    // The slot that is not in use; the boot loader is there already.
    let wrote = run(&["write", "second.img", "--boot-loader", "boot", "--json"]).fine().json();
    assert_eq!((&wrote["slot"], &wrote["version"]), (&"b".into(), &"1.1.0+7".into()));
    assert_eq!(wrote["boot_loader"], "it was there already");
    let text = run(&["info"]).fine().out;
    assert!(
        text.contains("slot b: staged, to be started\n    1.1.0+7 for qemu-virt (box)"),
        "{text}"
    );

    let checked = run(&["verify"]).fine().out;
    assert!(
        checked.contains("slot a: right, 1.0.0+0") && checked.contains("slot b: right"),
        "{checked}"
    );
    let checked = run(&["verify", "first.img"]).fine().out;
    assert!(checked.starts_with("slot a: right"), "{checked}");
    run(&["verify", "--boot-loader", "boot"]).fine();
    let other = "slot b has another image: 1.1.0+7 for qemu-virt";
    run(&["verify", "first.img", "--slot", "b"]).failed(6, other);
    bench.image("third.img", &label("1.2.0"), 5000);
    run(&["verify", "third.img"]).failed(6, "no slot has the image");
    std::fs::write(bench.path("other"), another).unwrap();
    run(&["verify", "--boot-loader", "other"]).failed(6, "another boot loader is there than other");

    run(&["read", "boot-loader", "copy"]).fine();
    let copy = read(&bench.path("copy"));
    assert_eq!(copy.len() as u32, layout.boot_loader().len);
    assert!(copy.starts_with(&boot) && copy[boot.len()..].iter().all(|byte| *byte == 0xff));
    run(&["read", "boot-loader", "copy"]).failed(2, "cannot write copy");

    // What a card could not use is not written; what is not named stays.
    run(&["config", "set", "name=box-1"]).failed(2, "manager is missing");
    run(&["config", "set", "name=box-1", "manager=10.0.0.1:7781"]).fine();
    let settings = run(&["config", "set", "places=2", "name=box-2"]).fine().out;
    assert_eq!(settings, "name = box-2\nmanager = 10.0.0.1:7781\nplaces = 2\n");
    assert_eq!(run(&["config", "get"]).fine().out, settings);
    let text = run(&["info"]).fine().out;
    assert!(
        text.ends_with("settings\n    name = box-2\n    manager = 10.0.0.1:7781\n    places = 2\n"),
        "{text}"
    );

    let mut card = card.stop();
    assert_eq!(cells(&mut card, layout.slots()[1].start, second.len()), second);
    assert_eq!(cells(&mut card, 0, boot.len()), boot);
    // The boot loader there decides as is said here.
    let mut store_flash = nor_model::Direct::<1, 4096>(card.board.nor(0).clone());
    let store = card_image::BootStore::open(&mut store_flash, layout).unwrap();
    assert_eq!(store.state().wanted, card_image::SlotId::B);
}

/// What nobody recorded is an image all the same: the new one goes beside it, and until that is whole the
/// card starts the one that it has.
#[test]
fn an_image_is_written_beside_one_that_was_not_recorded() {
    let bench = Bench::new();
    let board = board();
    let image = bench.image("only.img", &label("1.0.0"), 3000);
    bench.image("next.img", &label("1.1.0"), 3000);
    let mut card = Card::new();
    card.board.nor(0).preload(board.layout.slots()[0].start, &image);
    let card = SimCard::start(card);
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let wrote = run(&["write", "next.img", "--json"]).fine().json();
    assert_eq!(wrote["slot"], "b", "{wrote}");
    let info = run(&["info"]).fine().out;
    for words in ["slot a: staged\n", "slot b: staged, to be started\n"] {
        assert!(info.contains(words), "{info}");
    }
}

/// Until the new image is whole the card starts the one that it has, also where that has no starts left.
#[test]
fn an_image_is_written_beside_one_whose_starts_are_used_up() {
    let bench = Bench::new();
    let board = board();
    let image = bench.image("only.img", &label("1.0.0"), 3000);
    let mut card = Card::new();
    let mut flash: nor_model::Direct<1, { 256 << 10 }> =
        nor_model::Direct(card.board.nor(0).clone());
    flash.0.preload(board.layout.slots()[0].start, &image);
    let requirements = board.requirements(Role::Box, &board.keys, AntiDowngrade::default());
    for _ in 0..card_image::BOOT_TRIES {
        let mut store = card_image::BootStore::open(&mut flash, board.layout).unwrap();
        store.decide(&mut flash, &requirements);
    }
    card.board.nor(0).preload(0, flash.0.cells());
    let card = SimCard::start(card);
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let info = run(&["info"]).fine().out;
    let words = "slot a: trying, its starts are used up, and it is started only where no other can be, \
                 to be started\n";
    assert!(info.contains(words), "{info}");
    let wrote = run(&["write", "only.img", "--json"]).fine().json();
    assert_eq!(wrote["slot"], "b", "{wrote}");
    let info = run(&["info"]).fine().out;
    assert!(info.contains("slot b: staged, to be started\n"), "{info}");
    assert!(info.contains("no other can be\n"), "{info}");
}

/// It is what was written all the same.
#[test]
fn an_image_that_failed_is_verified_as_one() {
    use card_image::SlotId::{A, B};
    let bench = Bench::new();
    let board = board();
    let images = ["first.img", "second.img"].map(|name| {
        bench.image(name, &label(if name == "first.img" { "1.0.0" } else { "1.1.0" }), 3000)
    });
    let mut card = Card::new();
    let mut flash: nor_model::Direct<1, { 256 << 10 }> =
        nor_model::Direct(card.board.nor(0).clone());
    let requirements = board.requirements(Role::Box, &board.keys, AntiDowngrade::default());
    let mut store = card_image::BootStore::open(&mut flash, board.layout).unwrap();
    for (slot, image) in [(A, &images[0]), (B, &images[1])] {
        flash.0.preload(board.layout.slot(slot).start, image);
        store.adopt(&mut flash, slot, &requirements).unwrap();
        store.decide(&mut flash, &requirements);
        if slot == A {
            store.report_healthy(&mut flash, A).unwrap();
        }
    }
    for _ in 0..card_image::BOOT_TRIES {
        store.decide(&mut flash, &requirements);
    }
    card.board.nor(0).preload(0, flash.0.cells());
    let card = SimCard::start(card);
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    for command in [&["verify", "second.img", "--json"][..], &["verify", "--slot", "b", "--json"]] {
        let said = run(command).fine().json();
        assert_eq!((&said[0]["slot"], &said[0]["failed"]), (&"b".into(), &true.into()), "{said}");
    }
    assert_eq!(run(&["verify", "first.img", "--json"]).fine().json()[0]["failed"], false);
}

/// What was healthy and is damaged is no image to keep, nor one that is to be started.
#[test]
fn an_image_is_written_over_one_that_is_damaged() {
    use card_image::SlotId::{A, B};
    let bench = Bench::new();
    let board = board();
    let images = ["first.img", "second.img"].map(|name| bench.image(name, &label("1.0.0"), 3000));
    let mut card = Card::new();
    let mut flash: nor_model::Direct<1, { 256 << 10 }> =
        nor_model::Direct(card.board.nor(0).clone());
    let requirements = board.requirements(Role::Box, &board.keys, AntiDowngrade::default());
    let mut store = card_image::BootStore::open(&mut flash, board.layout).unwrap();
    for (slot, image) in [(B, &images[1]), (A, &images[0])] {
        flash.0.preload(board.layout.slot(slot).start, image);
        store.adopt(&mut flash, slot, &requirements).unwrap();
        store.decide(&mut flash, &requirements);
        if slot == B {
            store.report_healthy(&mut flash, B).unwrap();
        }
    }
    flash.0.flip(board.layout.slot(B).start + 1000, 1);
    for _ in 0..card_image::BOOT_TRIES {
        let decision = store.decide(&mut flash, &requirements);
        assert!(matches!(decision, card_image::Decision::Boot(boot) if boot.slot == A));
    }
    card.board.nor(0).preload(0, flash.0.cells());
    let card = SimCard::start(card);
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let info = run(&["info"]).fine().out;
    assert!(info.contains("no other can be, to be started\n"), "{info}");
    let words = "slot b: healthy, not to be started: the image's payload is damaged\n";
    assert!(info.contains(words), "{info}");
    // The same image again, and not what is there of it.
    let wrote = run(&["write", "second.img", "--json"]).fine().json();
    assert_eq!((&wrote["slot"], wrote["resumed_at"].is_null()), (&"b".into(), true), "{wrote}");
    let info = run(&["info", "--json"]).fine().json();
    let b = &info["slots"][1];
    assert_eq!((&b["state"], b["wrong"].is_null()), (&"staged".into(), true), "{info}");
    run(&["verify", "second.img", "--slot", "b"]).fine();
}

/// Writes an image, takes the power away when so many bytes of it are there, and writes it again.
fn torn_and_resumed(length: usize, torn_at: usize, recorded: u32) {
    let bench = Bench::new();
    let layout = board().layout;
    let image = bench.image("large.img", &label("2.0.0"), length);
    let start = layout.slots()[0].start as usize;
    let card = SimCard::start_until(Card::new(), move |card| {
        card.board.nor(0).cells()[start + torn_at..][..256].iter().any(|byte| *byte != 0xff)
    });
    let torn = bench.run(Some(card.address), &["write", "large.img"]);
    torn.failed(7, "the card does not answer any more");
    let card = SimCard::start(card.stop());
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let info = run(&["info", "--json"]).fine().json();
    let slot = &info["slots"][0];
    assert_eq!((&slot["state"], &slot["written"]), (&"writing".into(), &recorded.into()), "{info}");
    let wrote = run(&["write", "large.img", "--json"]).fine().json();
    let resumed = wrote["resumed_at"].as_u64().unwrap_or(0);
    assert_eq!((&wrote["slot"], resumed), (&"a".into(), u64::from(recorded)));
    assert_eq!(cells(&mut card.stop(), start as u32, image.len()), image);
}

/// What was written of an image is gone with its slot: the next writing begins at the beginning.
#[test]
fn an_erased_slot_is_recorded_as_one() {
    let bench = Bench::new();
    bench.image("good.img", &label("1.0.0"), 1000);
    let card = SimCard::start(Card::new());
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    run(&["erase", "slot-a"]).fine();
    let state = || run(&["info", "--json"]).fine().json()["slots"][0]["state"].clone();
    assert_eq!(state(), "empty");
    run(&["write", "good.img", "--no-start"]).fine();
    assert_eq!(state(), "staged");
    run(&["erase", "slot-a"]).fine();
    assert_eq!(state(), "failed");
    let wrote = run(&["write", "good.img", "--slot", "a", "--no-start", "--json"]).fine().json();
    assert!(wrote["resumed_at"].is_null(), "{wrote}");
    assert_eq!(state(), "staged");
}

#[test]
fn a_boot_loader_is_as_what_starts_it_wants_it() {
    let bench = Bench::new();
    let file = bench.board_file_with(&[("  layout:\n", "  boot_loader: litex-bios\n  layout:\n")]);
    let program: Vec<u8> = (0..5000_u32).map(|n| (n % 251) as u8).collect();
    let right = BootLoader::LitexBios.in_flash(&program);
    std::fs::write(bench.path("plain"), &program).unwrap();
    std::fs::write(bench.path("right"), &right).unwrap();
    let card = SimCard::start(Card::new());
    let run = |arguments: &[&str]| {
        bench.run(Some(card.address), &[&["--board-file", &*file], arguments].concat())
    };
    let write = |file| run(&["write", "--boot-loader", file, "--no-start"]);
    write("plain").failed(5, "LiteX's BIOS wants the program's length in its first word");
    let wrote = write("right").fine().out;
    assert!(wrote.contains("boot loader: written and verified"), "{wrote}");
    run(&["verify", "--boot-loader", "right"]).fine();
    run(&["verify", "--boot-loader", "plain"]).failed(5, "first word");
    run(&["info"]).fine();
    assert_eq!(cells(&mut card.stop(), 0, right.len()), right);
}

#[test]
fn a_torn_write_is_begun_again() {
    torn_and_resumed(6000, 3000, 0);
}

/// More than a unit of progress: a thousand pages.
#[test]
fn a_torn_write_goes_on_where_it_was() {
    let progress = board().layout.progress();
    torn_and_resumed(progress as usize + 10_000, progress as usize + 4000, progress);
}

#[test]
fn what_the_card_would_refuse_is_not_written() {
    let bench = Bench::new();
    let mut other = label("1.0.0");
    other.board = card_image::BoardName::new("other").unwrap();
    bench.image("other.img", &other, 1000);
    let good = bench.image("good.img", &label("1.0.0"), 1000);
    std::fs::write(bench.path("short.img"), &good[..900]).unwrap();
    let mut damaged = good.clone();
    damaged[700] ^= 1;
    std::fs::write(bench.path("damaged.img"), &damaged).unwrap();
    let mut forged = good.clone();
    forged[200] ^= 1;
    std::fs::write(bench.path("forged.img"), &forged).unwrap();
    let card = SimCard::start(Card::new());
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    run(&["write", "other.img"]).failed(5, "for the board other, the card is a qemu-virt");
    run(&["write", "short.img"]).failed(5, "truncated: 900 of 1256 bytes");
    run(&["write", "damaged.img"]).failed(5, "damaged");
    run(&["write", "forged.img"]).failed(5, "signature is wrong");
    run(&["write", "--boot-loader", "good.img"]).failed(5, "no boot loader");
    std::fs::write(bench.path("elsewhere"), BootLoader::LitexBios.in_flash(&[1; 64])).unwrap();
    let elsewhere = run(&["write", "--boot-loader", "elsewhere"]);
    elsewhere.failed(5, "LiteX's BIOS starts it, and a qemu-virt has none");
    // What nobody built as one, and one that is cut off: there is no second copy to start with.
    let boot = BootLoader::Plain.in_flash(&[7; 5000]);
    for (name, bytes) in [("text", &b"not a boot loader\n"[..]), ("cut", &boot[..3000])] {
        std::fs::write(bench.path(name), bytes).unwrap();
        run(&["write", "--boot-loader", name]).failed(5, "no boot loader, or not all of one");
        run(&["verify", "--boot-loader", name]).failed(5, "no boot loader, or not all of one");
    }
    run(&["write", "nowhere.img"]).failed(2, "cannot read nowhere.img");
    assert_eq!(card.stop().board.nor(0).steps(), 0, "the flash was left alone");
}

#[test]
fn a_board_that_trusts_another_key_refuses() {
    let bench = Bench::new();
    bench.image("good.img", &label("1.0.0"), 1000);
    let key = bench.run(None, &["image", "keygen", "own.pem", "--json"]).fine().json();
    let file = bench.board_file(
        include_str!("../../keys/development.pub").trim(),
        key["public"].as_str().unwrap(),
    );
    let card = SimCard::start(Card::new());
    let run = |arguments: &[&str]| {
        bench.run(Some(card.address), &[&["--board-file", &file], arguments].concat())
    };
    run(&["write", "good.img"]).failed(5, "signature is wrong");
    run(&["image", "sign", "good.img", "--key", "own.pem", "--key-number", "1"]).fine();
    run(&["write", "good.img", "--no-start"]).fine();
    let text = run(&["erase", "slot-a"]).fine().out;
    assert!(text.contains("1048576 bytes are erased"), "{text}");
    run(&["verify", "--slot", "a"]).failed(5, "no firmware image");
    run(&["reset"]).fine();
    run(&["reset", "--halt"]).fine();
}

#[test]
fn what_is_no_card_is_told_from_what_is_another() {
    let bench = Bench::new();
    // Nobody listens at the near end of a connection, and nobody else can.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let nobody = connection.local_addr().unwrap();
    bench.run(Some(nobody), &["info"]).failed(3, "nobody answers at");
    for tdo in [b'0', b'1'] {
        bench.run(Some(stuck(tdo)), &["info"]).failed(4, "no card answers");
    }
    bench.run(Some(stuck(b'?')), &["info"]).failed(3, "neither 0 nor 1");
    let card = SimCard::start(Card::new());
    let file = bench.board_file("0x1dc5dffd", "0x13631093");
    let other = bench.run(Some(card.address), &["--board-file", &file, "info"]);
    other.failed(4, "its IDCODE is 0x13631093, on the chain is 0x1dc5dffd");
    bench.run(Some(card.address), &["--board", "nope", "info"]).failed(2, "no board nope");
    bench.run(Some(card.address), &["--board", "qemu-virt", "info"]).fine();
}

#[test]
fn a_probe_that_hangs_is_given_up() {
    let bench = Bench::new();
    let silent = serve(|stream| {
        std::thread::sleep(Duration::from_secs(60));
        drop(stream);
    });
    let began = Instant::now();
    bench.run(Some(silent), &["info"]).failed(3, "did not answer for");
    assert!(began.elapsed() < Duration::from_secs(30), "it is not tried again and again");
}

/// Whatever comes over a cable with noise is told in words.
#[test]
fn noise_on_the_cable_is_no_crash() {
    let bench = Bench::new();
    bench.image("small.img", &label("1.0.0"), 3000);
    let card = SimCard::start(Card::new());
    let mut failed = 0;
    for seed in 1..=16 {
        let cable = noisy_cable(card.address, 400 << (seed % 8), seed);
        let command: &[&str] = if seed % 2 == 0 { &["write", "small.img"] } else { &["info"] };
        let said = bench.run(Some(cable), command);
        assert!((0..=7).contains(&said.code), "{}: {}", said.code, said.error);
        assert!(said.code == 0 || said.error.starts_with("dxpu-flash: "), "{}", said.error);
        failed += usize::from(said.code != 0);
    }
    assert!(failed > 8, "noise was noticed {failed} times of 16");
    // Without it, all is well.
    bench.run(Some(card.address), &["write", "small.img"]).fine();
}

#[test]
fn images_are_made_without_a_card() {
    let bench = Bench::new();
    let image = bench.image("good.img", &label("1.2.3"), 1000);
    let text = bench.run(None, &["image", "inspect", "good.img"]).fine().out;
    assert!(text.contains("right, by the known key 0x00000001"), "{text}");
    std::fs::write(bench.path("fw.elf"), b"\x7fELF").unwrap();
    let build = ["--board", "qemu-virt", "image", "build", "fw.elf", "-o", "fw.img"];
    let rest = ["--role", "box", "--image-version", "1.0.0"];
    bench.run(None, &[&build[..], &rest].concat()).failed(2, "no ELF file");
    bench.run(None, &[&build[2..], &rest].concat()).failed(2, "for which board");
    assert!(!bench.path("fw.img").exists());
    std::fs::write(bench.path("short.img"), &image[..100]).unwrap();
    bench.run(None, &["image", "inspect", "short.img"]).failed(5, "truncated");
    let json = bench.run(None, &["--json", "image", "inspect", "short.img"]);
    let error: serde_json::Value = serde_json::from_str(&json.error).unwrap();
    assert_eq!((json.code, &error["exit"]), (5, &5.into()));
}

/// The firmware that is built, flashed over JTAG and started; its log. Then QEMU starts the very
/// same flash.
#[test]
fn a_card_that_was_flashed_starts() {
    let Some(path) = firmware("fw-box.img") else { return };
    let bench = Bench::new();
    let card = SimCard::start(Card::new());
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let (boot, image, elf) = (path("boot.bin"), path("fw-box.img"), path("fw-box"));
    run(&["write", "--boot-loader", &boot, &image, "--no-start"]).fine();
    // The ELF files of both, told apart.
    run(&["verify", "--boot-loader", &path("boot")]).fine();
    run(&["verify", "--boot-loader", &elf]).failed(5, "where images do");
    run(&["config", "set", "name=box-1", "manager=10.0.2.2:7781"]).fine();
    let begun =
        |log: &str| [" error ", " info "].iter().any(|level| of_firmware(log).contains(level));
    wait(120, || bench.log(&card, &elf), begun);
    // The same log from the card's memory.
    bench.watch(card.address, &["log", "--elf", &elf], " error ");
    let info = run(&["info", "--json"]).fine().json();
    assert_eq!(info["slots"][0]["state"], "trying", "{info}");
    let flash = bench.path("flash");
    std::fs::write(&flash, card.stop().board.nor(0).cells()).unwrap();
    match emulated_console(&flash, "starting slot a: box") {
        Some(console) => assert!(console.contains("slot a is new, with 1 more start"), "{console}"),
        None => println!("SKIPPED: the part in QEMU: qemu-system-riscv32 is not there"),
    }
}

/// The boot loader looks at the images, and records that it starts one, while they are read.
#[test]
fn a_card_that_starts_is_read_right() {
    let Some(path) = firmware("fw-box.img") else { return };
    let bench = Bench::new();
    let (boot, image) = (path("boot.bin"), path("fw-box.img"));
    let card = SimCard::start(Card::new());
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    run(&["write", "--boot-loader", &boot, &image]).fine();
    let bytes = read(image.as_ref());
    for copy in ["first", "second"] {
        run(&["read", "slot-a", copy]).fine();
        assert!(read(&bench.path(copy)).starts_with(&bytes), "{copy} is what was written");
        run(&["verify"]).fine();
        run(&["verify", &image]).fine();
        run(&["reset"]).fine();
    }
    let info = run(&["info", "--json"]).fine().json();
    assert!(info["recorded"] == true && info["slots"][0]["image"].is_object(), "{info}");
    // Nobody has lost by it: the boot loader goes on where it was each time.
    wait(120, || card.said(), |said| said.contains("starting slot a: box"));
}

/// Help names everything, with the exit codes.
#[test]
fn help_is_there_for_every_command() {
    let bench = Bench::new();
    let all = bench.run(None, &["--help"]).fine().out;
    assert!(all.contains("Exit codes:") && all.contains("remote-bitbang:HOST:PORT"), "{all}");
    for command in
        ["list", "info", "write", "verify", "read", "erase", "reset", "config", "log", "image"]
    {
        assert!(all.contains(&format!("\n  {command} ")), "{command}");
        let help = bench.run(None, &[command, "--help"]).fine().out;
        assert!(help.contains("Usage: dxpu-flash"), "{help}");
    }
}
