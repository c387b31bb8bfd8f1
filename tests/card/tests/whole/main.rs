//! The firmware in two emulated cards, and all that belongs to them.

mod garbage;
#[path = "../boot/images.rs"]
#[expect(dead_code, reason = "what boot loaders are tried with")]
mod images;
mod load;
mod recorder;
#[path = "../common/scene.rs"]
mod scene;
mod update;

use processes::wait_for;
use scene::{BOUND, Cards, Scene, firmware};
use std::path::Path;

/// The same bytes each time for a seed, none of them regular.
fn content(bytes: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn the_whole_path_through_two_cards() {
    let Some(firmware) = firmware() else { return };
    let mut scene = Scene::start(&firmware, Cards::Plain).unwrap();
    for address in ["ethernet 02:00:00:00:00:00", "ethernet 02:00:00:00:00:01"] {
        scene.until("a card's path", &["nodes"], address).unwrap();
    }
    scene.until("the drive", &["list"], "nvme").unwrap();
    // The host has enumerated when it answers.
    scene.host(&["lspci"]).unwrap();
    for model in ["nvme", "accelerator"] {
        scene.manager(&["allocate", "--host", "card-host", "--model", model]).unwrap();
    }
    scene.host(&["wait", "--devices", "2", "--seconds", "60"]).unwrap();
    let tree = scene.host(&["lspci"]).unwrap();
    for words in ["NVMe controller 1b36:d0ae, driver nvme", "d0ac, driver accelerator"] {
        assert!(tree.contains(words), "{tree}");
    }

    let (sent, read) = (scene.path("sent"), scene.path("read"));
    std::fs::write(&sent, content(1 << 20, 1)).unwrap();
    let name = |path: &Path| path.to_str().unwrap().to_owned();
    scene.host(&["nvme-write", "03:00.0", &name(&sent)]).unwrap();
    scene.host(&["nvme-read", "03:00.0", &name(&read), "--bytes", "1048576"]).unwrap();
    assert!(std::fs::read(&sent).unwrap() == std::fs::read(&read).unwrap(), "the file came back");
    println!("{}", scene.host(&["latency", "07:00.0", "--reads", "200"]).unwrap());
    // As many at a time as the model host has: more than the card, or the root complex, stores.
    scene.host(&["latency", "07:00.0", "--reads", "400", "--outstanding", "64"]).unwrap();

    let counters = scene.manager(&["counters", "card-box"]).unwrap();
    println!("{counters}");
    for name in ["port: frames received", "resets: power came on", "card: bytes of stack"] {
        assert!(counters.contains(name), "{counters}");
    }
    for card in ["card-box", "card-host"] {
        let told = format!("{card} was reset: power came on (start 1 since power came on)");
        scene.until("why a card started", &["events"], &told).unwrap();
    }
    // What the manager asks for is logged at one level, and not at another.
    let logged = |scene: &Scene| std::fs::metadata(scene.path("card-box.uart")).unwrap().len();
    let asks = |scene: &Scene, level: &str| {
        scene.manager(&["log-level", "card-box", level]).unwrap();
        let before = logged(scene);
        scene.manager(&["counters", "card-box"]).unwrap();
        before
    };
    let before = asks(&scene, "debug");
    wait_for("a longer log", BOUND, || Ok((logged(&scene) > before).then_some(()))).unwrap();
    let before = asks(&scene, "error");
    assert_eq!(logged(&scene), before);
    scene.manager(&["release", "alloc-1", "alloc-2"]).unwrap();
    let tree = scene.host(&["lspci"]).unwrap();
    assert!(!tree.contains("slot in use"), "{tree}");
}

#[test]
fn two_cards_keep_the_fabric_in_its_vlan() {
    let Some(firmware) = firmware() else { return };
    let mut scene = Scene::start(&firmware, Cards::InVlan(100)).unwrap();
    scene.until("a card's path", &["nodes"], "vlan 100").unwrap();
    scene.lend("accelerator");
    scene.host(&["latency", "03:00.0", "--reads", "200"]).unwrap();
    for cable in &scene.cables {
        for relay in [&cable.to_card, &cable.from_card] {
            let done = relay.done();
            assert!(done.tagged > 200, "frames of the fabric: {done:?}");
            assert!(done.came > done.tagged, "the manager is outside of it: {done:?}");
        }
    }
}
