//! What a card's own settings say of images, in the commands that write them and look at them.

use card_image::{AntiDowngrade, BootStore, Decision, Role, SecurityVersion, SlotId};
use dxpu_flash::image::{BootLoader, Label};
use sim_card::Card;

use crate::sim::{Bench, SimCard, board, label};

type Flash = nor_model::Direct<1, { 256 << 10 }>;

const SETTINGS: &str = "name = box-1\nmanager = 10.0.0.1:7781\n";

/// A card that has run an image of security version 2 from slot a, which was healthy.
fn repaired(bench: &Bench) -> Card {
    let mut newer = label("2.0.0");
    newer.security = SecurityVersion(2);
    let image = bench.image("newer.img", &newer, 3000);
    let board = board();
    let mut card = Card::new();
    let mut flash: Flash = nor_model::Direct(card.board.nor(0).clone());
    flash.0.preload(board.layout.slot(SlotId::A).start, &image);
    soc::settings::store(&mut flash, board.layout.config(), SETTINGS).unwrap();
    let mut store = BootStore::open(&mut flash, board.layout).unwrap();
    let requirements = board.requirements(Role::Box, &board.keys, AntiDowngrade::default());
    let decision = store.decide(&mut flash, &requirements);
    assert!(matches!(&decision, Decision::Boot(boot) if boot.slot == SlotId::A), "{decision:?}");
    store.report_healthy(&mut flash, SlotId::A).unwrap();
    card.board.nor(0).preload(0, flash.0.cells());
    card
}

#[test]
fn an_older_image_is_for_cards_whose_settings_allow_it() {
    let bench = Bench::new();
    let card = SimCard::start(repaired(&bench));
    bench.image("older.img", &label("1.0.0"), 3000);
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let said = run(&["write", "older.img"]);
    assert!(said.error.contains("dxpu-flash config set downgrade=allow"), "{}", said.error);
    said.failed(5, "has security version 0, the card runs none below 2");
    let info = run(&["info"]).fine().out;
    assert!(info.contains("starts no image below security version 2"), "{info}");

    run(&["config", "set", "downgrade=allow"]).fine();
    let wrote = run(&["write", "older.img", "--json"]).fine().json();
    assert_eq!((&wrote["slot"], &wrote["version"]), (&"b".into(), &"1.0.0+0".into()));
    let checked = run(&["verify"]).fine().out;
    assert!(checked.contains("slot b: right, 1.0.0+0"), "{checked}");
    let info = run(&["info"]).fine().out;
    assert!(info.contains("starts images below security version 2, too"), "{info}");
    assert_eq!(run(&["info", "--json"]).fine().json()["older_images"], true);

    // And not any more: but not while it is the one to be started.
    let said = run(&["config", "set", "downgrade=refuse"]);
    assert!(said.error.contains("dxpu-flash erase slot-b"), "{}", said.error);
    said.failed(2, "would not start the image in slot b any more: it has security version 0");
    assert_eq!(run(&["info", "--json"]).fine().json()["older_images"], true);
    run(&["write", "newer.img"]).fine();
    run(&["config", "set", "downgrade=refuse"]).fine();
    let said = run(&["verify"]);
    assert!(said.error.contains("dxpu-flash config set downgrade=allow"), "{}", said.error);
    said.failed(5, "slot b: the image has security version 0");
}

/// It is in the boot state, and nowhere else.
#[test]
fn what_is_forgotten_with_the_boot_state_is_said() {
    let bench = Bench::new();
    let card = SimCard::start(repaired(&bench));
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let erased = run(&["erase", "config", "--json"]).fine().json();
    assert_eq!(erased["lowest_security_version_forgotten"], 0);
    let text = run(&["erase", "boot-state"]).fine().out;
    assert!(text.contains("below security version 2, which is forgotten"), "{text}");
    let erased = run(&["erase", "all", "--json"]).fine().json();
    assert_eq!((&erased["region"], &erased["halted"]), (&"all".into(), &true.into()));
    assert_eq!(erased["lowest_security_version_forgotten"], 0, "{erased}");
    drop(card);
    let card = SimCard::start(repaired(&bench));
    let wrote = bench.run(Some(card.address), &["write", "--erase-all", "newer.img", "--json"]);
    assert_eq!(wrote.fine().json()["lowest_security_version_forgotten"], 2);
}

/// What it signs would never be started.
#[test]
fn a_key_whose_number_means_another_is_refused() {
    let bench = Bench::new();
    let card = SimCard::start(Card::new());
    for name in ["own.pem", "other.pem"] {
        bench.run(None, &["image", "keygen", name]).fine();
    }
    let key = std::fs::read_to_string(bench.path("own.pub")).unwrap();
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let set = |number: &str| {
        let trust = format!("trust={number}:{}", key.trim());
        run(&["config", "set", "name=a", "manager=10.0.0.1:7781", &trust])
    };
    set("1").failed(2, "built with another key of the number 0x00000001");
    set("7").fine();
    // The boot loader's own, for that matter.
    let own = include_str!("../../keys/development.pub").trim();
    run(&["config", "set", &format!("trust=1:{own}")]).fine();
    let both = ["--trust", "7=own.pub", "--trust", "7=other.pub"];
    run(&[&both[..], &["verify"]].concat()).failed(2, "two keys with the number 0x00000007");
}

/// Neither its boot loader nor its program is touched for an image that it does not take.
#[test]
fn a_card_that_refuses_an_image_is_left_as_it_was() {
    let bench = Bench::new();
    let board = board();
    let mut card = repaired(&bench);
    let mut flash: Flash = nor_model::Direct(card.board.nor(0).clone());
    let settings = format!("{SETTINGS}places = 20\n");
    soc::settings::store(&mut flash, board.layout.config(), &settings).unwrap();
    card.board.nor(0).preload(0, flash.0.cells());
    let steps = card.board.nor(0).steps();
    let card = SimCard::start(card);
    let secure = |name| Label { security: SecurityVersion(2), ..label(name) };
    bench.image("older.img", &label("1.0.0"), 3000);
    bench.image("box.img", &secure("3.0.0"), 3000);
    bench.image("host.img", &Label { role: Role::Host, ..secure("3.0.0") }, 3000);
    std::fs::write(bench.path("boot"), BootLoader::Plain.in_flash(&[1; 5000])).unwrap();
    for (image, code, words) in [
        (&["older.img"][..], 5, "has security version 0, the card runs none below 2"),
        (&["box.img"], 2, "places: a box has at most 16 slots, not 20"),
        (&["host.img", "--slot", "a"], 5, "slot a has the only good image"),
    ] {
        let write = [&["write", "--boot-loader", "boot"], image].concat();
        let said = bench.run(Some(card.address), &write);
        assert!(!said.error.contains("may stand still"), "{}", said.error);
        said.failed(code, words);
        let info = bench.run(Some(card.address), &["info", "--json"]).fine().json();
        assert_eq!(info["halted"], false, "{image:?}");
    }
    let mut card = card.stop();
    assert_eq!(card.board.nor(0).steps(), steps, "the flash was left alone");
}

/// Slot a was healthy, and is older than what slot b has run since: the boot loader starts it no more.
#[test]
fn an_image_that_is_not_started_any_more_is_none_to_go_back_to() {
    let bench = Bench::new();
    let board = board();
    let mut card = Card::new();
    let mut flash: Flash = nor_model::Direct(card.board.nor(0).clone());
    let requirements = board.requirements(Role::Box, &board.keys, AntiDowngrade::default());
    let mut store = BootStore::open(&mut flash, board.layout).unwrap();
    let secure = Label { security: SecurityVersion(2), ..label("2.0.0") };
    for (slot, label) in [(SlotId::A, label("1.0.0")), (SlotId::B, secure)] {
        let image = bench.image("old.img", &label, 3000);
        flash.0.preload(board.layout.slot(slot).start, &image);
        store.adopt(&mut flash, slot, &requirements).unwrap();
        store.decide(&mut flash, &requirements);
        store.report_healthy(&mut flash, slot).unwrap();
    }
    card.board.nor(0).preload(0, flash.0.cells());
    let card = SimCard::start(card);
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    bench.image("next.img", &Label { version: label("3.0.0").version, ..secure }, 3000);
    let said = run(&["write", "next.img", "--slot", "b"]);
    assert!(said.error.contains("write the other slot: --slot a"), "{}", said.error);
    said.failed(5, "slot b has the only good image");
    // It is not given up for that: the settings may allow it.
    let info = run(&["info", "--json"]).fine().json();
    assert_eq!(info["slots"][0]["state"], "healthy", "{info}");
    let wrote = run(&["write", "next.img", "--json"]).fine().json();
    assert_eq!(wrote["slot"], "a", "{wrote}");
}

/// Signs an image with another key, whose public part in digits this gives.
fn signed_anew(bench: &Bench, image: &str) -> String {
    let key = bench.run(None, &["image", "keygen", "own.pem", "--json"]).fine().json();
    let sign = ["image", "sign", image, "--key", "own.pem", "--key-number", "7"];
    bench.run(None, &sign).fine();
    key["public"].as_str().unwrap().to_owned()
}

#[test]
fn keys_that_the_settings_trust_are_known() {
    let bench = Bench::new();
    bench.image("own.img", &label("1.0.0"), 3000);
    let public = signed_anew(&bench, "own.img");
    let card = SimCard::start(Card::new());
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let said = run(&["write", "own.img"]);
    assert!(said.error.contains("dxpu-flash config set trust="), "{}", said.error);
    said.failed(5, "signed with key 0x00000007, which the card does not trust");
    let trust = format!("trust=7:{public}");
    run(&["config", "set", "name=box-1", "manager=10.0.0.1:7781", &trust]).fine();
    run(&["write", "own.img"]).fine();
    let checked = run(&["verify"]).fine().out;
    assert!(checked.contains("slot a: right, 1.0.0+0"), "{checked}");
    // The settings would be gone when the image is there.
    let said = run(&["write", "own.img", "--erase-all"]);
    said.failed(5, "--erase-all takes the settings away");
    // What would be started next is not locked out.
    for trust in ["trust=", &trust.replace("7:", "1:")] {
        let said = run(&["config", "set", trust]);
        assert!(said.error.contains("dxpu-flash erase slot-a"), "{}", said.error);
        said.failed(
            2,
            "would not start the image in slot a any more: it is signed with key 0x00000007",
        );
    }
    assert!(run(&["config", "get"]).fine().out.contains(&public));
    // A number of the boot loader's own means that key.
    bench.image("first.img", &label("1.0.0"), 3000);
    run(&["write", "first.img"]).fine();
    let trust = trust.replace("7:", "1:");
    run(&["config", "set", &trust]).failed(2, "built with another key of the number 0x00000001");
    std::fs::write(bench.path("own.pub"), &public).unwrap();
    run(&["--trust", "1=own.pub", "config", "set", &trust]).fine();
    run(&["verify", "--slot", "b"]).fine();
    run(&["verify", "--slot", "a"]).failed(5, "which the card does not trust");
}

#[test]
fn settings_that_have_no_room_stop_no_card() {
    let bench = Bench::new();
    let card = SimCard::start(Card::new());
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let text = format!("{SETTINGS}# {}\n", "x".repeat(1000));
    std::fs::write(bench.path("settings"), text).unwrap();
    let said = run(&["config", "set", "--file", "settings"]);
    assert!(!said.error.contains("may stand still"), "{}", said.error);
    said.failed(2, "settings have at most 1014 bytes, these have 1040");
    assert_eq!(run(&["info", "--json"]).fine().json()["halted"], false);
}

/// A box has at most 16 slots, and does not start with more.
#[test]
fn places_that_an_image_cannot_have_are_refused() {
    let bench = Bench::new();
    let card = SimCard::start(Card::new());
    bench.image("box.img", &label("1.0.0"), 3000);
    bench.image("host.img", &Label { role: Role::Host, ..label("1.0.0") }, 3000);
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    // Nobody knows yet what the card is.
    run(&["config", "set", "name=box-1", "manager=10.0.0.1:7781", "places=20"]).fine();
    let said = run(&["write", "box.img"]);
    assert!(said.error.contains("dxpu-flash config set places="), "{}", said.error);
    said.failed(2, "places: a box has at most 16 slots, not 20");
    run(&["verify", "--slot", "a"]).failed(5, "no firmware image");
    run(&["config", "set", "places=16"]).fine();
    run(&["write", "box.img"]).fine();
    let said = run(&["config", "set", "places=17"]);
    assert!(said.error.contains("slot a has an image for a box"), "{}", said.error);
    said.failed(2, "places: a box has at most 16 slots, not 17");
    assert!(run(&["config", "get"]).fine().out.contains("places = 16"));
    // As a host it may have them.
    let wrote = run(&["write", "host.img", "--slot", "a", "--erase-all"]).fine().out;
    assert!(wrote.contains("boot loader: none is on the card, which starts nothing"), "{wrote}");
    assert!(wrote.ends_with("qemu-virt: reset\n"), "{wrote}");
    run(&["config", "set", "name=host-1", "manager=10.0.0.1:7781", "places=32"]).fine();
}
