//! Firmware on its way to cards.

use crate::common::card::{BROKEN, Card, Label, wait_pieces};
use crate::common::fake::{Fake, Script, boxed, host};
use crate::common::{Manager, eventually};
use card_image::Role;
use proxy_core::control::{ControlError, FirmwareError, FirmwareRequest, Reply};
use serde_json::{Value, json};
use std::time::Duration;

mod ends;

/// Writes an image to a file beside the manager, and gives its name.
fn file(manager: &Manager, name: &str, image: &[u8]) -> String {
    std::fs::write(manager.path(name), image).unwrap();
    name.to_owned()
}

fn image(manager: &Manager, major: u16) -> String {
    file(manager, &format!("v{major}.img"), &Label::version(major).image())
}

fn card<'a>(rollout: &'a Value, name: &str) -> &'a Value {
    let cards = rollout["cards"].as_array().unwrap();
    cards.iter().find(|card| card["node"] == name).unwrap()
}

fn rollout_ends(manager: &Manager, state: &str) -> Value {
    eventually("the end of the rollout", || {
        let rollout = manager.get("/v1/firmware/rollout");
        (rollout["state"] == state).then_some(rollout)
    })
}

/// The major version that a card runs.
fn runs(manager: &Manager, name: &str) -> String {
    let listed = manager.json(&["firmware", "list"]);
    let cards = listed["cards"].as_array().unwrap();
    let card = cards.iter().find(|card| card["name"] == name).unwrap();
    let slot = usize::from(card["running"] == "b");
    card["slots"][slot]["version"].as_str().unwrap().to_owned()
}

#[test]
fn a_card_gets_an_image_and_goes_back() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 2));
    let _program = Fake::join(manager.control, host("host1", 2), "");
    manager.wait_ready(&["box1", "host1"]);
    assert_eq!(manager.failure(&["firmware", "status"]).0, 3, "there was none");
    let listed = manager.json(&["firmware", "list"]);
    assert_eq!(listed["images"], json!([]));
    let cards = listed["cards"].as_array().unwrap();
    assert_eq!(cards.len(), 1, "host1 is no card: {cards:?}");
    assert_eq!((&cards[0]["board"], &cards[0]["running"]), (&json!("small"), &json!("a")));
    assert_eq!(cards[0]["slots"][1], json!({ "state": "empty" }));
    let name = image(&manager, 2);
    let rollout = manager.json(&["firmware", "push", &name, "--all"]);
    assert_eq!((&rollout["state"], &rollout["id"]), (&json!("succeeded"), &json!("roll-1")));
    let updated = card(&rollout, "box1");
    assert_eq!((&updated["state"], &updated["wave"]), (&json!("updated"), &json!(1)));
    assert_eq!((&updated["before"], &updated["runs"]), (&json!("1.0.0+0"), &json!("2.0.0+0")));
    assert_eq!(at_box.pieces().len(), 6);
    manager.wait_event("firmware-updated", "box1 runs 2.0.0+0");
    manager.wait_event("firmware-rollout-ended", "roll-1: all 1 cards");
    let text = manager.text(&["firmware", "list"]);
    assert!(text.contains("2.0.0+0 (healthy)") && text.contains("1.0.0+0 (healthy)"), "{text}");
    // The same again does nothing.
    let again = manager.json(&["firmware", "push", &name, "--node", "box1"]);
    assert_eq!((&again["state"], &again["id"]), (&json!("succeeded"), &json!("roll-2")));
    // Who waited for the first may look only now.
    let former = &again["former"];
    assert_eq!((&former["state"], &former["id"]), (&json!("succeeded"), &json!("roll-1")));
    assert_eq!(at_box.pieces().len(), 6);
    assert_eq!(manager.json(&["firmware", "list"])["images"].as_array().unwrap().len(), 1);
    let back = manager.json(&["firmware", "rollback", "box1"]);
    assert_eq!(card(&back, "box1")["runs"], "1.0.0+0");
    assert_eq!((&back["former"]["id"], back["former"].get("former")), (&json!("roll-2"), None));
    assert_eq!(runs(&manager, "box1"), "1.0.0+0");
    assert!(manager.text(&["firmware", "status", "--watch"]).contains("back to the image before"));
}

#[test]
fn images_that_are_none_for_the_cards_are_refused() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 2));
    let _program = Fake::join(manager.control, host("host1", 2), "");
    manager.wait_ready(&["box1", "host1"]);
    let good = Label::version(2);
    let whole = good.image();
    let (header, payload) = good.unsigned();
    let mut damaged = whole.clone();
    damaged[1000] ^= 1;
    for (bytes, why) in [
        (b"not an image".to_vec(), "truncated"),
        (vec![7; 5000], "no firmware image"),
        (whole[..2000].to_vec(), "truncated"),
        (damaged, "damaged"),
        ([&whole[..], b"more"].concat(), "more follows"),
        ([&header.emit()[..], &payload].concat(), "not signed"),
    ] {
        let name = file(&manager, "bad.img", &bytes);
        let (code, problem) = manager.failure(&["firmware", "push", &name, "--all"]);
        assert_eq!((code, &problem["code"]), (2, &json!("not-an-image")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{problem}");
    }
    let push = |label: Label, to: &[&str]| {
        let name = file(&manager, "other.img", &label.image());
        manager.failure(&[&["firmware", "push", &name], to].concat())
    };
    for label in [
        Label { board: "other", ..good },
        Label { role: Role::Host, ..good },
        Label { length: 4000, ..good },
        Label { security: 0, ..good },
    ] {
        let (code, problem) = push(label, &["--node", "box1"]);
        assert_eq!((code, &problem["code"]), (4, &json!("wrong-image")), "{problem}");
        let (code, problem) = push(label, &["--all"]);
        assert_eq!((code, &problem["code"]), (5, &json!("nothing-fits")), "{problem}");
    }
    let (code, problem) = push(good, &["--node", "host1"]);
    assert_eq!((code, &problem["code"]), (2, &json!("not-a-card")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("updated by its package"), "{problem}");
    assert_eq!(manager.failure(&["firmware", "rollback", "host1"]).0, 2);
    // Either is named of what is missing.
    let told = manager.cli(&["firmware", "push", "other.img"]);
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(told.contains("--node <NAME>") && told.contains("--all"), "{told}");
    let both = manager.cli(&["firmware", "push", "other.img", "--node", "box1", "--all"]);
    assert_eq!(both.status.code(), Some(2));
    assert_eq!(push(good, &["--node", "nobody"]).0, 3);
    assert_eq!(push(good, &["--node", "box1", "--node", "box1"]).0, 2);
    assert_eq!(manager.json(&["firmware", "list"])["images"], json!([]), "none has a place");
    let (code, problem) = manager.failure(&["firmware", "rollback", "box1"]);
    assert_eq!((code, &problem["code"]), (4, &json!("no-way-back")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("its other slot is empty"), "{problem}");
    assert_eq!(manager.failure(&["firmware", "status"]).0, 3, "none has begun");
    assert!(at_box.pieces().is_empty());
    assert_eq!(runs(&manager, "box1"), "1.0.0+0");
    let big = vec![0; (4 << 20) + 1];
    let name = file(&manager, "big.img", &big);
    // What is longer than any image is not read to its end, and some have none.
    let zeros = std::path::Path::new("/dev/zero").exists().then_some("/dev/zero");
    for name in [&*name].into_iter().chain(zeros) {
        let (code, problem) = manager.failure(&["firmware", "push", name, "--all"]);
        let told = problem["detail"].as_str().unwrap();
        assert!(code == 2 && told.contains(&format!("{name} has more than 4194304")), "{problem}");
    }
    let (status, _) = manager.request("POST", "/v1/firmware/rollout", Some(&json!({})));
    assert_eq!(status, 400);
    let body = json!({ "image": "00".repeat(16), "wave_size": 1 });
    let (status, problem) = manager.request("POST", "/v1/firmware/rollout", Some(&body));
    assert_eq!((status, &problem["code"]), (404, &json!("no-such-image")));
    assert_eq!(manager.failure(&["firmware", "push", "nowhere.img", "--all"]).0, 2);
    for (cards, status) in
        [("", 400), ("box1,", 400), ("host1", 400), ("nobody", 404), ("box1", 200)]
    {
        let path = format!("/v1/firmware/images?cards={cards}");
        assert_eq!(manager.post_file(&path, &whole).0, status, "{cards}");
        let kept = manager.get("/v1/firmware/images")["items"].as_array().unwrap().len();
        assert_eq!(kept, usize::from(status == 200), "{cards}");
    }
}

#[test]
fn the_way_back_ends_where_the_card_allows_no_older_image() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 1));
    manager.wait_ready(&["box1"]);
    let name = file(&manager, "new.img", &Label { security: 2, ..Label::version(2) }.image());
    manager.json(&["firmware", "push", &name, "--node", "box1"]);
    let (code, problem) = manager.failure(&["firmware", "rollback", "box1"]);
    let told = problem["detail"].as_str().unwrap();
    assert!(code == 7 && told.contains("no image with a security version below 2"), "{problem}");
    let slots = || manager.json(&["firmware", "list"])["cards"][0]["slots"].clone();
    assert_eq!(slots()[0]["state"], "healthy", "it is not lost by that");
    assert_eq!(at_box.restarts(), 1);
    // Of an image that it has the manager knows that, and nothing begins.
    let last = manager.get("/v1/firmware/rollout")["id"].clone();
    let first = Label::version(1).image();
    assert_eq!(manager.post_file("/v1/firmware/images", &first).0, 200);
    let (code, problem) = manager.failure(&["firmware", "rollback", "box1"]);
    let told = problem["detail"].as_str().unwrap();
    assert!(code == 4 && told.contains("1.0.0+0, which has security version 1"), "{problem}");
    assert_eq!(manager.get("/v1/firmware/rollout")["id"], last);
    at_box.allows_downgrade();
    manager.json(&["firmware", "rollback", "box1"]);
    assert_eq!(runs(&manager, "box1"), "1.0.0+0");
}

/// It failed, or was never started.
#[test]
fn there_is_no_way_back_to_an_image_that_never_joined() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 1));
    manager.wait_ready(&["box1"]);
    let back = |why: &str| {
        let (code, problem) = manager.failure(&["firmware", "rollback", "box1"]);
        let told = problem["detail"].as_str().unwrap();
        assert!(code == 4 && told.contains(why), "{problem}");
    };
    refuses_to_restart(&at_box);
    let name = image(&manager, 2);
    assert_eq!(manager.failure(&["firmware", "push", &name, "--node", "box1"]).0, 7);
    at_box.obeys();
    back("has 2.0.0+0, which was never started");
    let name = image(&manager, BROKEN);
    assert_eq!(manager.failure(&["firmware", "push", &name, "--node", "box1"]).0, 7);
    back("has 100.0.0+0, which failed when it was started");
    assert_eq!(manager.get("/v1/firmware/rollout")["id"], "roll-2");
}

/// What a card's settings allow is a card's to say.
#[test]
fn an_older_image_goes_to_cards_that_allow_it() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 1));
    manager.wait_ready(&["box1"]);
    let name = file(&manager, "old.img", &Label { security: 0, ..Label::version(2) }.image());
    let push = ["firmware", "push", &name, "--node", "box1"];
    let (code, problem) = manager.failure(&push);
    let told = problem["detail"].as_str().unwrap();
    assert!(code == 4 && told.contains("config set downgrade=allow"), "{problem}");
    at_box.allows_downgrade();
    assert_eq!(manager.json(&push)["state"], "succeeded");
    assert_eq!(runs(&manager, "box1"), "2.0.0+0");
}

#[test]
fn waves_never_have_both_ends_of_a_binding() {
    let manager = Manager::start();
    let cards = ["box1", "box2", "host1", "host2"];
    let all: Vec<Card> = cards
        .iter()
        .map(|name| {
            let spec = if name.starts_with("box") { boxed(name, 1) } else { host(name, 1) };
            Card::start(manager.control, spec)
        })
        .collect();
    manager.wait_ready(&cards);
    manager.text(&["allocate", "--host", "host1", "--box", "box1"]);
    let name = image(&manager, 2);
    let (code, problem) = manager.failure(&["firmware", "push", &name, "--all"]);
    assert_eq!((code, &problem["code"]), (4, &json!("card-in-use")), "{problem}");
    let reasons = problem["reasons"].to_string();
    assert!(reasons.contains("box1/1 is lent to host1"), "{problem}");
    let rollout =
        manager.json(&["firmware", "push", &name, "--all", "--wave-size", "4", "--interrupt"]);
    let waves: Vec<&Value> = cards.iter().map(|name| &card(&rollout, name)["wave"]).collect();
    assert_eq!(waves, [&json!(1), &json!(1), &json!(2), &json!(1)]);
    let (from, to) = all[2].away();
    let (box_from, box_to) = all[0].away();
    assert!(box_to < from, "{box_from:?} {box_to:?} {from:?} {to:?}");
    // What was lent is lent again.
    manager.wait_phase("configured");
    // None of them is restarted for what it runs already.
    let again = manager.json(&["firmware", "push", &name, "--all"]);
    assert_eq!(again["state"], "succeeded", "{again}");
    assert_eq!(all[0].away(), (box_from, box_to));
}

/// A binding that comes after the wave was made.
#[test]
fn both_ends_of_a_new_binding_are_not_away_at_once() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 1));
    let at_host = Card::start(manager.control, host("host1", 1));
    manager.wait_ready(&["box1", "host1"]);
    for card in [&at_box, &at_host] {
        card.is_slow(Duration::from_millis(300));
    }
    let name = image(&manager, 2);
    let push = ["firmware", "push", &name, "--all", "--wave-size", "2", "--interrupt", "--no-wait"];
    manager.json(&push);
    wait_pieces(&at_box, 1);
    wait_pieces(&at_host, 1);
    manager.text(&["allocate", "--host", "host1", "--box", "box1"]);
    assert_eq!((at_box.restarts(), at_host.restarts()), (0, 0), "there is a binding before");
    let rollout = rollout_ends(&manager, "succeeded");
    assert_eq!(
        (&card(&rollout, "box1")["wave"], &card(&rollout, "host1")["wave"]),
        (&json!(1), &json!(1))
    );
    let ((box_from, box_to), (from, to)) = (at_box.away(), at_host.away());
    assert!(box_to < from || to < box_from, "{box_from:?} {box_to:?} {from:?} {to:?}");
    manager.wait_phase("configured");
}

/// It still answers for a while, and what it were given then would go away under its host.
#[test]
fn a_card_that_was_told_to_restart_is_given_nothing_more() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 1));
    let at_host = Card::start(manager.control, host("host1", 1));
    manager.wait_ready(&["box1", "host1"]);
    let wish = json!({"host": "host1", "count": 1});
    for (card, name, major) in [(&at_box, "box1", 2), (&at_host, "host1", 3)] {
        card.lingers(Duration::from_secs(1));
        let name_of_image = image(&manager, major);
        manager.json(&["firmware", "push", &name_of_image, "--node", name, "--no-wait"]);
        eventually("a restart", || (card.restarts() == 1).then_some(()));
        let (status, problem) = manager.request("POST", "/v1/allocations", Some(&wish));
        assert!(matches!(status, 409 | 503), "{status}: {problem}");
        assert!(problem.to_string().contains(&format!("{name} is not connected")), "{problem}");
        rollout_ends(&manager, "succeeded");
    }
    manager.text(&["allocate", "--host", "host1"]);
    manager.wait_phase("configured");
}

#[test]
fn it_stops_at_the_first_card_that_fails() {
    let manager = Manager::start();
    let cards = ["box1", "box2", "box3"];
    let all: Vec<Card> =
        cards.iter().map(|name| Card::start(manager.control, boxed(name, 1))).collect();
    manager.wait_ready(&cards);
    let name = image(&manager, BROKEN);
    let order = ["--node", "box2", "--node", "box1", "--node", "box3"];
    let output = manager.cli(&[&["--json", "firmware", "push", &name], &order[..]].concat());
    assert_eq!(output.status.code(), Some(7));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("box2: it runs 1.0.0+0 and not 100.0.0+0"), "{error}");
    let rollout: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rollout["state"], "failed");
    for (name, state) in [("box1", "left-alone"), ("box2", "failed"), ("box3", "left-alone")] {
        assert_eq!(card(&rollout, name)["state"], state, "{rollout}");
    }
    assert!(all[0].pieces().is_empty() && all[2].pieces().is_empty());
    manager.wait_event("firmware-failed", "box2");
    manager.wait_event("firmware-rollout-ended", "stopped: 0 cards updated, 1 failed, 2 left");
    let listed = manager.json(&["firmware", "list"]);
    assert_eq!(listed["cards"][1]["slots"][1]["state"], "failed");
    // A good one goes on from there.
    let good = image(&manager, 3);
    manager.text(&["firmware", "push", &good, "--all", "--wave-size", "3"]);
    for name in cards {
        assert_eq!(runs(&manager, name), "3.0.0+0");
    }
}

#[test]
fn a_card_that_does_not_come_back_is_told() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 1));
    manager.wait_ready(&["box1"]);
    at_box.stays_away(true);
    let name = image(&manager, 2);
    let to = ["firmware", "push", &name, "--all", "--within-s", "1"];
    let (code, problem) = manager.failure(&to);
    assert_eq!(code, 7);
    assert!(problem["detail"].as_str().unwrap().contains("has not joined again"), "{problem}");
    assert_eq!(manager.failure(&["firmware", "push", &name, "--node", "box1"]).0, 6, "it is away");
    at_box.stays_away(false);
    manager.wait_ready(&["box1"]);
    assert_eq!(runs(&manager, "box1"), "2.0.0+0", "it was late");
}

/// Wherever it restarts each time: what it had before is no progress.
#[test]
fn a_card_that_restarts_whenever_it_is_written_is_given_up() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 1));
    manager.wait_ready(&["box1"]);
    let mut lives = 0;
    at_box.does_instead(move |request| match request {
        FirmwareRequest::Begin { .. } => {
            lives += 1;
            Some(Script::Answer(Box::new(Reply::FirmwareNext(lives % 3 * 512))))
        }
        FirmwareRequest::Piece { .. } => {
            Some(Script::Refuse(ControlError::Firmware(FirmwareError::NothingBegun)))
        }
        _ => None,
    });
    let push = ["firmware", "push", &image(&manager, 2), "--all", "--within-s", "1"];
    let (code, problem) = manager.failure(&push);
    let told = problem["detail"].as_str().unwrap();
    assert!(code == 7 && told.contains("box1: it did not get on within 1 s"), "{problem}");
}

/// It stands still while its flash erases: who uses it by now would notice.
#[test]
fn a_card_that_comes_into_use_while_it_is_written_is_written_no_further() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 1));
    let _host = Fake::join(manager.control, host("host1", 1), "");
    manager.wait_ready(&["box1", "host1"]);
    at_box.is_slow(Duration::from_millis(500));
    let name = image(&manager, 2);
    let push = ["firmware", "push", &name, "--all"];
    manager.json(&[&push[..], &["--no-wait"]].concat());
    wait_pieces(&at_box, 1);
    manager.text(&["allocate", "--host", "host1", "--box", "box1"]);
    let rollout = rollout_ends(&manager, "failed");
    let reason = card(&rollout, "box1")["reason"].as_str().unwrap();
    for words in ["box1/1 is lent to host1", "by now; release it"] {
        assert!(reason.contains(words), "{reason}");
    }
    let written = at_box.pieces().len();
    assert!(written < 6 && at_box.restarts() == 0, "{written} pieces");
    // What it says helps.
    at_box.is_slow(Duration::ZERO);
    manager.text(&["release", "alloc-1"]);
    manager.json(&push);
    assert_eq!(runs(&manager, "box1"), "2.0.0+0");
}

#[test]
fn a_manager_that_is_killed_goes_on_where_it_was() {
    let mut manager = Manager::start();
    let cards = ["box1", "box2"];
    let all: Vec<Card> =
        cards.iter().map(|name| Card::start(manager.control, boxed(name, 1))).collect();
    manager.wait_ready(&cards);
    all[0].is_slow(Duration::from_millis(300));
    let name = image(&manager, 2);
    let first = manager.json(&["firmware", "push", &name, "--all", "--no-wait"]);
    assert_eq!(first["state"], "running");
    assert_eq!(manager.failure(&["firmware", "push", &name, "--all"]).0, 4, "one at a time");
    wait_pieces(&all[0], 3);
    manager.kill();
    let before = all[0].pieces().len();
    all[0].is_slow(Duration::ZERO);
    manager.run();
    let rollout = rollout_ends(&manager, "succeeded");
    assert_eq!(rollout["id"], "roll-1");
    let pieces = all[0].pieces();
    assert!(pieces[before] >= 1024, "what the card had was not sent again: {pieces:?}");
    for name in cards {
        assert_eq!(runs(&manager, name), "2.0.0+0");
    }
}

#[test]
fn a_card_that_loses_its_power_gets_the_rest() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 1));
    manager.wait_ready(&["box1"]);
    at_box.is_slow(Duration::from_millis(100));
    let name = image(&manager, 2);
    manager.json(&["firmware", "push", &name, "--all", "--no-wait"]);
    wait_pieces(&at_box, 4);
    at_box.power_cycle();
    rollout_ends(&manager, "succeeded");
    let pieces = at_box.pieces();
    assert!(pieces.iter().filter(|offset| **offset < 1024).count() <= 2, "{pieces:?}");
    assert_eq!(runs(&manager, "box1"), "2.0.0+0");
}

/// It takes what it is given, and its flash fails for whoever asks it to restart.
fn refuses_to_restart(card: &Card) {
    card.does_instead(|request| {
        let refuse = Script::Refuse(ControlError::Firmware(FirmwareError::Flash));
        matches!(request, FirmwareRequest::Restart { .. }).then_some(refuse)
    });
}

/// It has all of an image and was not restarted. Whoever then wants the one that it runs gets that, also
/// after a restart.
#[test]
fn an_image_that_was_not_started_is_taken_back_by_the_one_that_runs() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 2));
    manager.wait_ready(&["box1"]);
    let (first, second) = (image(&manager, 1), image(&manager, 2));
    refuses_to_restart(&at_box);
    let (code, _) = manager.failure(&["firmware", "push", &second, "--node", "box1"]);
    assert_eq!(code, 7);
    at_box.obeys();
    let wanted = || manager.json(&["firmware", "list"])["cards"][0]["wanted"].clone();
    assert_eq!(wanted(), "b");
    let done = manager.json(&["firmware", "push", &first, "--node", "box1"]);
    assert_eq!(card(&done, "box1")["state"], "updated");
    assert_eq!((wanted(), at_box.restarts()), (json!("a"), 0));
    at_box.power_cycle();
    manager.wait_ready(&["box1"]);
    assert_eq!(runs(&manager, "box1"), "1.0.0+0");
}

/// It was told to go back and was not restarted: the image before is not written over for a push of the
/// one that runs.
#[test]
fn an_image_that_was_healthy_is_not_lost_to_the_one_that_runs() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 2));
    manager.wait_ready(&["box1"]);
    let second = image(&manager, 2);
    manager.json(&["firmware", "push", &second, "--node", "box1"]);
    refuses_to_restart(&at_box);
    assert_eq!(manager.failure(&["firmware", "rollback", "box1"]).0, 7);
    at_box.obeys();
    let card_now = || manager.json(&["firmware", "list"])["cards"][0].clone();
    assert_eq!((&card_now()["running"], &card_now()["wanted"]), (&json!("b"), &json!("a")));
    assert_eq!(manager.failure(&["firmware", "push", &second, "--node", "box1"]).0, 7);
    let why = manager.get("/v1/firmware/rollout");
    let why = card(&why, "box1")["reason"].as_str().unwrap().to_owned();
    assert!(why.contains("told to go back to 1.0.0+0"), "{why}");
    assert_eq!(card_now()["slots"][0]["state"], "healthy");
    let back = manager.json(&["firmware", "rollback", "box1"]);
    assert_eq!(card(&back, "box1")["runs"], "1.0.0+0");
}

#[test]
fn a_card_that_does_not_say_what_it_runs_is_not_left_out_in_silence() {
    let manager = Manager::start();
    let _good = Card::start(manager.control, boxed("box1", 2));
    let bad = Card::start(manager.control, boxed("box2", 2));
    manager.wait_ready(&["box1", "box2"]);
    bad.does_instead(|_| Some(Script::Refuse(ControlError::Firmware(FirmwareError::Flash))));
    let listed = manager.json(&["firmware", "list"]);
    let cards = listed["cards"].as_array().unwrap();
    assert_eq!((cards.len(), &cards[1]["slots"]), (2, &json!([])), "{cards:?}");
    assert!(cards[0].get("problem").is_none());
    let problem = cards[1]["problem"].as_str().unwrap();
    assert!(problem.contains("flash"), "{problem}");
    assert!(manager.text(&["firmware", "list"]).contains(problem));
    let name = image(&manager, 2);
    let (code, said) = manager.failure(&["firmware", "push", &name, "--all"]);
    assert_eq!(code, 7, "{said}");
    assert!(said["detail"].as_str().unwrap().starts_with("box2 does not say"), "{said}");
    let done = manager.json(&["firmware", "push", &name, "--node", "box1"]);
    assert_eq!(card(&done, "box1")["runs"], "2.0.0+0");
}
