//! Of a binding never both ends are away at once, whatever the other end is away for.

use super::{card, image, rollout_ends};
use crate::common::card::{Card, wait_pieces};
use crate::common::fake::{Fake, boxed, host};
use crate::common::{Manager, eventually};
use serde_json::Value;
use std::time::Duration;

/// What a card waits for.
fn waits(manager: &Manager, name: &str) -> String {
    eventually("a card that waits", || {
        let rollout = manager.get("/v1/firmware/rollout");
        assert_eq!(rollout["state"], "running", "{rollout}");
        rollout["waits"][name].as_str().map(str::to_owned)
    })
}

fn push<'a>(image: &'a str, name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["firmware", "push", image, "--node", name, "--interrupt"], more].concat()
}

/// An image is for one role, so that the two ends are in two rollouts.
#[test]
fn the_other_end_failed_in_the_rollout_before_and_is_away_still() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 1));
    let at_host = Card::start(manager.control, host("host1", 1));
    manager.wait_ready(&["box1", "host1"]);
    manager.text(&["allocate", "--host", "host1", "--box", "box1"]);
    at_box.stays_away(true);
    let (second, third) = (image(&manager, 2), image(&manager, 3));
    assert_eq!(manager.failure(&push(&second, "box1", &["--within-s", "1"])).0, 7);
    manager.json(&push(&third, "host1", &["--no-wait"]));
    let why = waits(&manager, "host1");
    let away = "box1 has not been connected since";
    assert!(why.starts_with(away) && why.ends_with("box1/1 is lent to host1"), "{why}");
    let status = manager.text(&["firmware", "status"]);
    assert!(status.contains(&format!("waits: {away}")), "{status}");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((at_host.restarts(), at_host.pieces().len()), (0, 0));
    at_box.stays_away(false);
    let rollout = rollout_ends(&manager, "succeeded");
    assert_eq!((&card(&rollout, "host1")["runs"], rollout.get("waits")), (&"3.0.0+0".into(), None));
    let ((_, box_to), (from, _)) = (at_box.away(), at_host.away());
    assert!(box_to < from, "{box_to:?} {from:?}");
    manager.wait_phase("configured");
}

/// It goes when the card has all of the image: that is not started before it is back.
#[test]
fn the_other_end_is_a_program_that_goes_meanwhile() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 1));
    let at_host = Fake::join(manager.control, host("host1", 1), "");
    manager.wait_ready(&["box1", "host1"]);
    manager.text(&["allocate", "--host", "host1", "--box", "box1"]);
    at_box.is_slow(Duration::from_millis(200));
    let name = image(&manager, 2);
    manager.json(&push(&name, "box1", &["--no-wait"]));
    wait_pieces(&at_box, 1);
    let (spec, state) = at_host.leave();
    let why = waits(&manager, "box1");
    assert!(why.starts_with("host1 has not been connected since"), "{why}");
    let stands = || card(&manager.get("/v1/firmware/rollout"), "box1")["state"].clone();
    assert_eq!((at_box.pieces().len(), at_box.restarts(), stands()), (6, 0, "restarting".into()));
    let _host = Fake::insist(manager.control, spec, state);
    rollout_ends(&manager, "succeeded");
    manager.wait_phase("configured");
}

/// One of two hosts is unplugged for good.
#[test]
fn the_other_end_never_comes() {
    let manager = Manager::start();
    let at_box = Card::start(manager.control, boxed("box1", 2));
    let hosts = ["host1", "host2"].map(|name| Fake::join(manager.control, host(name, 1), ""));
    manager.wait_ready(&["box1", "host1", "host2"]);
    for name in ["host1", "host2"] {
        manager.text(&["allocate", "--host", name, "--box", "box1"]);
    }
    let [_there, gone] = hosts;
    gone.leave();
    eventually("the end of host2", || {
        let node: Value = manager.get("/v1/nodes/host2");
        node["connection"].is_null().then_some(())
    });
    let name = image(&manager, 2);
    let (code, problem) = manager.failure(&push(&name, "box1", &["--within-s", "1"]));
    let told = problem["detail"].as_str().unwrap();
    assert_eq!(code, 7, "{problem}");
    for words in [
        "box1: host2 has not been connected since",
        "box1/2 is lent to host2, for longer than 1 s",
        "`dxpu-manager forget host2 --force`",
    ] {
        assert!(told.contains(words), "{told}");
    }
    assert_eq!((at_box.restarts(), at_box.pieces().len()), (0, 0), "it is as it was");
    // What it says helps, also while it waits.
    manager.json(&push(&name, "box1", &["--no-wait"]));
    waits(&manager, "box1");
    manager.text(&["forget", "host2", "--force"]);
    rollout_ends(&manager, "succeeded");
}
