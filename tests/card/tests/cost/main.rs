//! What a TLP costs a card: instructions of the whole firmware, as the cards count them themselves
//! under an emulator whose cycles are instructions. A program of its own, so that no other test runs
//! beside it.

#[path = "../common/scene.rs"]
#[allow(dead_code)] // not all of it is used here
mod scene;

use emulated_card::firmware::Firmware;
use scene::{Cards, Counters, Scene, firmware};

/// What a turn of a card does, by the names of its counters.
const STAGES: [(&str, &str); 4] = [
    ("frames in", "card: cycles of taking frames in"),
    ("PCIe side", "card: cycles at the PCIe side"),
    ("management", "card: cycles of timers and management"),
    ("frames out", "card: cycles of sending frames"),
];

const TLPS: [&str; 2] = ["link.tlps_sent", "link.tlps_received"];

/// Frames that carried them, and acknowledgements alone.
const FRAMES: [&str; 2] = ["link.frames_sent", "link.frames_received"];

/// From the interrupt that ends a card's sleep to the first thing that it does for it.
const FIRST_ACTION: &str = "card: cycles from an interrupt to the first action, at most";

const CARDS: [&str; 2] = ["card-box", "card-host"];

/// The accelerator.
const DEVICE: &str = "03:00.0";

/// Instructions of each stage between two looks, and TLPs that went in or out.
fn between(before: &Counters, after: &Counters) -> ([u64; 4], u64) {
    let more = |name: &str| after[name] - before[name];
    (STAGES.map(|(_, counter)| more(counter)), TLPS.map(more).iter().sum())
}

/// What a TLP of some work takes of a card.
#[derive(Clone, Copy)]
struct Cost {
    card: &'static str,
    stages: [u64; 4],
    tlps: u64,
    frames: u64,
}

impl Cost {
    fn all(&self) -> u64 {
        self.stages.iter().sum()
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { card, tlps, frames, .. } = self;
        write!(f, "{card}: {} instructions each of {tlps} TLPs in {frames} frames", self.all())?;
        STAGES.iter().zip(self.stages).try_for_each(|((stage, _), each)| {
            let between = if *stage == STAGES[0].0 { ": " } else { ", " };
            write!(f, "{between}{stage} {each}")
        })
    }
}

/// What each TLP of some work takes of each card: what is done meanwhile without it, which is
/// mostly to tell the counters, is taken off.
fn cost(scene: &Scene, what: &str, work: &[&str]) -> [Cost; 2] {
    let looks = |scene: &Scene| CARDS.map(|card| scene.counters(card));
    let at_rest = [looks(scene), looks(scene)];
    let before = looks(scene);
    scene.host(work).unwrap();
    let after = looks(scene);
    [0, 1].map(|n| {
        let (rest, _) = between(&at_rest[0][n], &at_rest[1][n]);
        let (stages, tlps) = between(&before[n], &after[n]);
        assert!(tlps > 500, "{what}: {tlps} TLPs");
        let each = |stage: usize| stages[stage].saturating_sub(rest[stage]) / tlps;
        let frames = FRAMES.map(|name| after[n][name] - before[n][name]).iter().sum();
        Cost { card: CARDS[n], stages: [0, 1, 2, 3].map(each), tlps, frames }
    })
}

/// Makes the accelerator's writes 256 bytes long: Max_Payload_Size of Device Control (PCIe 5.0,
/// section 7.5.3.4).
fn set_payload(scene: &Scene) {
    let read = |register: u32| {
        let text = scene.host(&["config-read", DEVICE, &format!("{register:#x}")]).unwrap();
        u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap()
    };
    let mut at = read(0x34) & 0xfc;
    while read(at) & 0xff != 0x10 {
        at = read(at) >> 8 & 0xfc;
        assert!(at != 0, "a PCI Express capability");
    }
    let control = read(at + 8) & 0x0000_ff1f | 1 << 5;
    let register = format!("{:#x}", at + 8);
    scene.host(&["config-write", DEVICE, &register, &format!("{control:#x}")]).unwrap();
}

/// Kinds of work, by what they are called.
const READ_ALONE: &str = "a TLP that is only a header, one at a time";
const READS: &str = "a TLP that is only a header, 32 reads at a time";
const WRITES: &str = "a write of 256 bytes in a stream";

/// The budget of each card: instructions of the whole firmware. There is none for what comes alone,
/// with the turns between: it is bounded half as much again above what it takes.
const BUDGETS: [(&str, u64); 2] = [(READ_ALONE, 18_000), (WRITES, 9_000)];

/// That of a TLP that is only a header is not met: the budget, and what it takes and a quarter.
const HEADER_ONLY: (u64, u64) = (1_500, 6_200);

/// The budget from the interrupt that ends a card's sleep to the first thing that it does for it.
const TO_FIRST_ACTION: u64 = 300;

/// How many turns there are for a TLP depends on when frames arrive, and so on how busy this computer is:
/// the two cards' emulators are programs of their own, whose instructions are counted and whose wires
/// are not. So the least counts of as many runs as these, if the first is above a budget. From an
/// interrupt to the first action the most counts, of every run: that is a bound.
const RUNS: usize = 8;

/// What was counted in a run.
struct Run {
    costs: Vec<(&'static str, [Cost; 2])>,
    first_action: [u64; 2],
}

impl Run {
    fn of(firmware: &Firmware) -> Self {
        let mut scene = Scene::start(firmware, Cards::Counting).unwrap();
        scene.lend("accelerator");
        let mut costs = Vec::new();
        let alone = ["latency", DEVICE, "--reads", "1000"];
        costs.push((READ_ALONE, cost(&scene, READ_ALONE, &alone)));
        let stream = ["latency", DEVICE, "--reads", "4000", "--outstanding", "32"];
        costs.push((READS, cost(&scene, READS, &stream)));
        set_payload(&scene);
        let write = ["bandwidth", DEVICE, "--only", "write", "--bytes", "1048576"];
        costs.push((WRITES, cost(&scene, WRITES, &write)));
        let first_action = CARDS.map(|card| scene.counters(card)[FIRST_ACTION]);
        Self { costs, first_action }
    }

    /// The least that a TLP took in both, and the most to a first action.
    fn and(self, other: Self) -> Self {
        let least = |a: Cost, b: Cost| if a.all() <= b.all() { a } else { b };
        let costs = self.costs.into_iter().zip(other.costs);
        Self {
            costs: costs
                .map(|((what, a), (_, b))| (what, [least(a[0], b[0]), least(a[1], b[1])]))
                .collect(),
            first_action: [0, 1].map(|n| self.first_action[n].max(other.first_action[n])),
        }
    }

    /// What is above its bound of what a TLP took.
    fn above(&self) -> Vec<String> {
        let bound = |what: &str| {
            let budget = BUDGETS.iter().find(|(name, _)| *name == what);
            budget.map_or(HEADER_ONLY.1, |(_, budget)| *budget)
        };
        let costs = self.costs.iter().flat_map(|(what, costs)| costs.map(|cost| (*what, cost)));
        let costs = costs.filter(|(what, cost)| cost.all() > bound(what));
        costs.map(|(what, cost)| format!("{what}: {cost}, of {}", bound(what))).collect()
    }
}

#[test]
fn what_a_tlp_costs() {
    let Some(firmware) = firmware() else { return };
    let mut run = Run::of(&firmware);
    for _ in 1..RUNS {
        if run.above().is_empty() {
            break;
        }
        run = run.and(Run::of(&firmware));
    }
    for (what, costs) in &run.costs {
        let budget = match *what {
            READS => format!("budget {}, which is not met", HEADER_ONLY.0),
            READ_ALONE => "without a budget".to_owned(),
            _ => format!("budget {}", BUDGETS[1].1),
        };
        costs.iter().for_each(|cost| println!("FIGURE: {what} ({budget}): {cost}"));
    }
    for (card, most) in CARDS.into_iter().zip(run.first_action) {
        println!(
            "FIGURE: {card}: {most} instructions from an interrupt to the first action, at most \
             (budget {TO_FIRST_ACTION})"
        );
        assert!(most > 0, "{card} was never woken");
        assert!(most <= TO_FIRST_ACTION, "{card}: {most} to the first action");
    }
    let above = run.above();
    assert!(above.is_empty(), "{above:#?}");
}
