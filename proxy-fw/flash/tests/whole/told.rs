//! What the program refuses before it touches a card, and how it says so.

use sim_card::Card;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::sim::{Bench, Said, SimCard, board, label};

/// The failure that was printed as JSON.
fn failure(said: &Said) -> serde_json::Value {
    serde_json::from_str(&said.error).unwrap_or_else(|error| panic!("{error}: {}", said.error))
}

#[test]
fn settings_that_nobody_can_use_are_not_written() {
    let bench = Bench::new();
    let card = SimCard::start(Card::new());
    let good = ["name=box-1", "manager=10.0.0.1:7781"];
    for (setting, words) in [
        ("name=a b", "name: \"a b\" is no node's name, and the manager refuses it"),
        ("name=-ü", "name: \"-ü\" is no node's name"),
        ("manager=10.0.0.1:0", "manager: nobody listens at port 0"),
        ("manager=0.0.0.0:7781", "manager: 0.0.0.0 is no address at all"),
        ("gateway=10.1.0.1", "gateway: 10.1.0.1 is not in the subnet 10.0.0.0/24"),
        ("manager=192.168.7.1:7781", "gateway: without one the card does not reach its manager"),
        ("manager=10.0.0.20:7781", "manager: 10.0.0.20 is the card's own address"),
    ] {
        let mut settings = vec!["address=10.0.0.20/24", setting];
        let key = setting.split('=').next().unwrap();
        settings.extend(good.iter().filter(|other| !other.starts_with(key)));
        let said = bench.run(Some(card.address), &[&["config", "set"][..], &settings].concat());
        said.failed(2, words);
    }
    // With DHCP, said or not, a gateway has nobody who uses it.
    for address in [&[][..], &["address=dhcp"]] {
        let settings = [&["config", "set", "gateway=10.0.0.1"], &good[..], address].concat();
        let said = bench.run(Some(card.address), &settings);
        assert!(said.error.contains("config set gateway="), "{}", said.error);
        said.failed(2, "gateway: 10.0.0.1 would not be used: DHCP gives the card its gateway");
    }
    assert_eq!(card.stop().board.nor(0).steps(), 0, "the flash was left alone");
}

/// A card has them from another program: what it cannot use is said there, too.
#[test]
fn settings_are_told_by_their_keys() {
    let bench = Bench::new();
    let mut card = Card::new();
    let mut flash = nor_model::Direct::<1, { 256 << 10 }>(card.board.nor(0).clone());
    let text = "# rack 7\nname = a b\nmanager = 10.0.0.1:7781 # there\n";
    soc::settings::store(&mut flash, board().layout.config(), text).unwrap();
    card.board.nor(0).preload(0, flash.0.cells());
    let card = SimCard::start(card);
    let run = |arguments: &[&str]| bench.run(Some(card.address), arguments);
    let got = run(&["config", "get", "--json"]).fine().json();
    let settings = serde_json::json!({ "name": "a b", "manager": "10.0.0.1:7781" });
    assert_eq!((&got["settings"], &got["text"]), (&settings, &text.into()));
    assert!(got["wrong"].as_str().unwrap().contains("is no node's name"), "{got}");
    assert_eq!(run(&["info", "--json"]).fine().json()["settings"], settings);
    let got = run(&["config", "get"]).fine().out;
    assert!(got.starts_with("# rack 7\nname = a b\n") && got.contains("\n# the card"), "{got}");
}

#[test]
fn a_file_without_an_end_is_not_read_to_it() {
    if !std::path::Path::new("/dev/zero").exists() {
        println!("SKIPPED: there is no /dev/zero here");
        return;
    }
    let bench = Bench::new();
    for command in [
        &["write", "/dev/zero"][..],
        &["write", "--boot-loader", "/dev/zero"],
        &["verify", "/dev/zero"],
        &["image", "inspect", "/dev/zero"],
        &["log", "--elf", "/dev/zero"],
        &["config", "set", "--file", "/dev/zero"],
        &["--board-file", "/dev/zero", "info"],
    ] {
        let said = bench.run(None, command);
        assert!(said.error.contains("/dev/zero"), "{command:?}: {}", said.error);
        said.failed(2, "it has more than");
    }
}

/// What may be in one does not help there.
#[test]
fn a_board_file_that_cannot_be_read_is_told_as_any_file() {
    let bench = Bench::new();
    let said = bench.run(None, &["--board-file", "nowhere.yaml", "info"]);
    assert!(said.error.contains("\n  - is its name right?"), "{}", said.error);
    assert!(!said.error.contains("what a board file has"), "{}", said.error);
    said.failed(2, "cannot read nowhere.yaml");
    std::fs::write(bench.path("board.yaml"), "card: {}").unwrap();
    let said = bench.run(None, &["--board-file", "board.yaml", "info"]);
    said.failed(2, "what a board file has");
}

/// The same command once more is what helps: nothing is left that would refuse it.
#[test]
fn nothing_is_left_of_what_has_no_room() {
    let bench = Bench::new();
    bench.image("good.img", &label("1.0.0"), 1000);
    bench.run(None, &["image", "keygen", "own.pem"]).fine();
    let card = SimCard::start(Card::new());
    for command in [
        &["image", "keygen", "new.pem"][..],
        &["image", "sign", "good.img", "--key", "own.pem", "--key-number", "1", "-o", "new.img"],
        &["read", "config", "new"],
    ] {
        let before = bench.files();
        bench.run_without_room(Some(card.address), command).failed(2, "cannot write");
        assert_eq!(bench.files(), before, "{command:?}");
        bench.run(Some(card.address), command).fine();
    }
}

#[test]
fn a_wrong_command_line_is_told_as_json_where_json_is_wanted() {
    let bench = Bench::new();
    for (line, detail) in [
        (&["--json", "read", "slot-c", "out"][..], "invalid value 'slot-c'"),
        (&["read", "--json"], "required arguments were not provided"),
        (&["--json"], "the command is missing"),
        (&["config", "set", "name", "--json"], "KEY=VALUE is wanted"),
        (&["--json", "--clock", "0", "list"], "invalid value '0' for '--clock <KHZ>'"),
    ] {
        let said = bench.run(None, line);
        let failure = failure(&said);
        assert!(failure["detail"].as_str().unwrap().contains(detail), "{failure}");
        assert_eq!((said.code, &failure["exit"], &*said.out), (2, &2.into(), ""));
        assert!(!failure["check"].as_array().unwrap().is_empty(), "{failure}");
    }
    // Who asks for help gets it, and text stays text.
    assert!(bench.run(None, &["--json", "--help"]).fine().out.contains("Exit codes:"));
    bench.run(None, &["read"]).failed_without_advice(2, "error: the following required arguments");
}

#[test]
fn help_that_finds_no_room_is_a_failure() {
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else {
        return println!("SKIPPED: there is no /dev/full here");
    };
    let said = Bench::new().command(None, &["--help"]).stdout(full).output().unwrap();
    let error = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(1), "{error}");
    assert!(error.contains("standard output cannot be written"), "{error}");
}

/// Where there is none, `list` is a failure as every other command; where there is one, not.
#[test]
fn a_list_without_a_probe_is_a_failure() {
    let bench = Bench::new();
    let said = bench.run(None, &["list", "--json"]);
    if said.code == 0 {
        assert!(!said.json().as_array().unwrap().is_empty(), "{}", said.out);
        return;
    }
    let failure = failure(&said);
    assert_eq!((said.code, &failure["exit"], &*said.out), (3, &3.into(), ""));
    bench.run(None, &["list"]).failed(3, "no probe is connected to this computer");
}

#[test]
fn what_helps_a_damaged_slot_is_said() {
    let bench = Bench::new();
    let mut image = bench.image("good.img", &label("1.0.0"), 3000);
    image[2000] ^= 1;
    let mut card = Card::new();
    card.board.nor(0).preload(board().layout.slots()[1].start, &image);
    let card = SimCard::start(card);
    let said = bench.run(Some(card.address), &["verify"]);
    assert!(said.error.contains("write the image again: `dxpu-flash write IMAGE --slot b`"));
    assert!(!said.error.contains("copied"), "no file was copied: {}", said.error);
    said.failed(5, "slot b: the image's payload is damaged");
    bench.image("good.img", &label("1.0.0"), 3000);
    let said = bench.run(Some(card.address), &["verify", "good.img"]);
    let differs = board().layout.slots()[1].start + 2000;
    said.failed(
        6,
        &format!("slot b has the image, but not all of it is right: it differs at {differs:#x}"),
    );
    let said = bench.run(Some(card.address), &["verify", "--slot", "a"]);
    said.failed(5, "`dxpu-flash write IMAGE --slot a`");
}

/// The other slot has all of it.
#[test]
fn of_two_slots_with_an_image_the_whole_one_is_meant() {
    let bench = Bench::new();
    let mut image = bench.image("good.img", &label("1.0.0"), 3000);
    let slots = board().layout.slots();
    let mut card = Card::new();
    card.board.nor(0).preload(slots[1].start, &image);
    image[2000] ^= 1;
    card.board.nor(0).preload(slots[0].start, &image);
    let card = SimCard::start(card);
    let said = bench.run(Some(card.address), &["verify", "good.img"]).fine();
    assert!(said.out.starts_with("slot b: right"), "{}", said.out);
}

/// As the boot loader, which refuses it.
#[test]
fn an_image_that_is_not_the_recorded_one_is_not_right() {
    let bench = Bench::new();
    bench.image("good.img", &label("1.0.0"), 3000);
    let card = SimCard::start(Card::new());
    bench.run(Some(card.address), &["write", "good.img", "--slot", "a", "--no-start"]).fine();
    bench.run(Some(card.address), &["verify"]).fine();
    let mut card = card.stop();
    let other = bench.image("other.img", &label("1.0.1"), 3000);
    card.board.nor(0).preload(board().layout.slots()[0].start, &other);
    let card = SimCard::start(card);
    let said = bench.run(Some(card.address), &["verify"]);
    said.failed(5, "slot a: the slot has another image than was recorded");
}

#[test]
fn a_file_name_need_not_be_utf_8() {
    let bench = Bench::new();
    let name = OsStr::from_bytes(b"a\xff.pem");
    let said = bench.command(None, &["image", "keygen"]).arg(name).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
