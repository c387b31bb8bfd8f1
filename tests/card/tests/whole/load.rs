//! Load with faults on the wire: nothing leaks, no queue is stuck, and the counters add up.
//!
//! A minute of it; `DXPU_CARD_LOAD_MINUTES=60` makes it an hour.

use crate::content;
use crate::scene::{BOUND, Cards, Counters, Scene, firmware};
use processes::relay::{Done, Faults};
use processes::wait_for;
use std::time::{Duration, Instant};

const DRIVE: &str = "03:00.0";
const ACCELERATOR: &str = "07:00.0";

const FAULTS: Faults =
    Faults { loss: 0.01, duplicate: 0.01, reorder: 0.01, damage: 0.002, cut: false };

/// Bytes of a file, and of a job of the accelerator in each direction.
const BYTES: usize = 256 << 10;

/// The cards, in the order of their cables.
const CARDS: [&str; 2] = ["card-box", "card-host"];

/// Why a card drops a frame that was damaged.
const BAD_FRAMES: [&str; 10] = [
    "cut_short",
    "version",
    "length",
    "key",
    "kind",
    "node",
    "path",
    "ranges",
    "body",
    "frame_crc",
];

fn minutes() -> Duration {
    let told = std::env::var("DXPU_CARD_LOAD_MINUTES").ok();
    let minutes = told.map_or(1.0, |told| told.parse().expect("minutes as a number"));
    Duration::from_secs_f64(60.0 * minutes)
}

fn lend(scene: &mut Scene) {
    for model in ["nvme", "accelerator"] {
        scene.manager(&["allocate", "--host", "card-host", "--model", model]).unwrap();
    }
    scene.host(&["wait", "--devices", "2", "--seconds", "60"]).unwrap();
}

fn take_back(scene: &Scene) {
    scene.manager(&["release", "card-box/1", "card-box/2"]).unwrap();
}

/// One round of everything, each byte checked.
fn round(scene: &Scene, seed: u32) {
    let (sent, read) = (scene.path("sent"), scene.path("read"));
    std::fs::write(&sent, content(BYTES, seed)).unwrap();
    let bytes = BYTES.to_string();
    scene.host(&["nvme-write", DRIVE, sent.to_str().unwrap()]).unwrap();
    scene.host(&["nvme-read", DRIVE, read.to_str().unwrap(), "--bytes", &bytes]).unwrap();
    assert!(std::fs::read(&sent).unwrap() == std::fs::read(&read).unwrap(), "round {seed}");
    scene.host(&["bandwidth", ACCELERATOR, "--bytes", &bytes]).unwrap();
    scene.host(&["latency", ACCELERATOR, "--reads", "100"]).unwrap();
}

/// What one card sent the other got, all of it and once.
fn add_up(from: &Counters, to: &Counters) {
    for what in ["tlps", "sideband"] {
        let (sent, received) = (format!("link.{what}_sent"), format!("link.{what}_received"));
        assert_eq!(from[&sent], to[&received], "{what}");
    }
}

/// What a cable's relay let through is what the card counts, between two looks at the relay.
fn frames_add_up(counters: &Counters, before: [Done; 2], after: [Done; 2]) {
    let [[to, from], [to_after, from_after]] = [before, after];
    let sent = counters["port: frames sent"];
    assert!((from.came..=from_after.came).contains(&sent), "{from:?}, {sent}, {from_after:?}");
    let arrived = ["received", "thrown away as invalid", "lost for lack of room"]
        .iter()
        .map(|what| counters[&format!("port: frames {what}")])
        .sum::<u64>();
    assert!((to.sent..=to_after.sent).contains(&arrived), "{to:?}, {arrived}, {to_after:?}");
}

/// When a card that lends and borrows nothing has none of its buffers in use.
fn until_empty(scene: &Scene) {
    for card in CARDS {
        wait_for("empty buffers", BOUND, || {
            Ok((scene.counters(card)["link.buffers_in_use"] == 0).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{card}: {error}: {:?}", scene.counters(card)));
    }
}

#[test]
fn load_with_faults_on_the_wire() {
    let Some(firmware) = firmware() else { return };
    let mut scene = Scene::start(&firmware, Cards::BadCables(5)).unwrap();
    for model in ["nvme", "accelerator"] {
        scene.until("the device", &["list"], model).unwrap();
    }
    scene.host(&["lspci"]).unwrap();
    lend(&mut scene);
    let set = |scene: &Scene, faults: Faults| {
        for cable in &scene.cables {
            cable.to_card.set(faults);
            cable.from_card.set(faults);
        }
    };
    set(&scene, FAULTS);
    let until = Instant::now() + minutes();
    let mut rounds = 0;
    while rounds < 2 || Instant::now() < until {
        rounds += 1;
        round(&scene, rounds);
        if rounds % 10 == 0 {
            take_back(&scene);
            lend(&mut scene);
        }
    }
    set(&scene, Faults::default());
    take_back(&scene);
    until_empty(&scene);

    let looks = |scene: &Scene, n: usize| {
        [scene.cables[n].to_card.done(), scene.cables[n].from_card.done()]
    };
    let (mut all, mut damaged) = (Vec::new(), Vec::new());
    for (n, card) in CARDS.into_iter().enumerate() {
        let before = looks(&scene, n);
        let counters = scene.counters(card);
        let after = looks(&scene, n);
        frames_add_up(&counters, before, after);
        println!("{card}: to it {:?}, from it {:?}", after[0], after[1]);
        assert!(counters["link.records_retransmitted"] > 0, "{counters:?}");
        assert!(counters["link.dropped_frame_crc"] > 0, "{counters:?}");
        damaged.push(after);
        all.push(counters);
    }
    for (n, other) in [(0, 1), (1, 0)] {
        // What is damaged where nobody looks, as in an address, is dropped before it is a frame.
        let damaged = damaged[n][0].damaged + damaged[other][1].damaged;
        let dropped = BAD_FRAMES.iter().map(|name| all[n][&format!("link.dropped_{name}")]);
        let dropped: u64 = dropped.sum();
        assert!(
            (damaged / 2..=damaged).contains(&dropped),
            "{dropped} of {damaged} damaged frames"
        );
    }
    add_up(&all[0], &all[1]);
    add_up(&all[1], &all[0]);
    println!("{rounds} rounds, {} TLPs from the box", all[0]["link.tlps_sent"]);
    // The last tenant's load changed nothing for the next one.
    lend(&mut scene);
    round(&scene, 0);
}
