//! What a TLP costs a card: instructions of the whole firmware, as the cards count them themselves. The
//! very images run in simulated cards whose cycles are instructions, with all that is around them in the
//! same thread and on the same clock: each run counts the same, to the digit.

mod lab;
mod root;

use anyhow::{Context, Result};
use emulated_card::firmware::Firmware;
use lab::{BOX_CARD, Counters, HOST_CARD, Lab};
use root::Root;

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

/// The cards, in the order of their numbers.
const CARDS: [&str; 2] = ["card-host", "card-box"];

/// Instructions of each stage between two looks, and TLPs that went in or out.
fn between(before: &Counters, after: &Counters) -> ([u64; 4], u64) {
    let more = |name: &str| after[name] - before[name];
    (STAGES.map(|(_, counter)| more(counter)), TLPS.map(more).iter().sum())
}

/// What a TLP of some work takes of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
fn cost(
    lab: &mut Lab,
    what: &'static str,
    work: impl FnOnce(&mut Lab) -> Result<()>,
) -> Result<(&'static str, [Cost; 2])> {
    let look = |lab: &mut Lab| -> Result<[Counters; 2]> {
        Ok([lab.counters(HOST_CARD)?, lab.counters(BOX_CARD)?])
    };
    let at_rest = [look(lab)?, look(lab)?];
    let before = look(lab)?;
    work(lab).context(what)?;
    let after = look(lab)?;
    let costs = [0, 1].map(|n| {
        let (rest, _) = between(&at_rest[0][n], &at_rest[1][n]);
        let (stages, tlps) = between(&before[n], &after[n]);
        assert!(tlps > 500, "{what}: {tlps} TLPs");
        let each = |stage: usize| stages[stage].saturating_sub(rest[stage]) / tlps;
        let frames = FRAMES.map(|name| after[n][name] - before[n][name]).iter().sum();
        Cost { card: CARDS[n], stages: [0, 1, 2, 3].map(each), tlps, frames }
    });
    Ok((what, costs))
}

/// Kinds of work, by what they are called.
const READ_ALONE: &str = "a TLP that is only a header, one at a time";
const READS: &str = "a TLP that is only a header, 32 reads at a time";
const WRITES: &str = "a write of 256 bytes in a stream";

/// The budget of each card: instructions of the whole firmware. There is none for what comes alone,
/// with the turns between: it is bounded a tenth above what it takes.
const BUDGETS: [(&str, u64); 2] = [(READ_ALONE, 13_200), (WRITES, 9_000)];

/// That of a TLP that is only a header is not met: the budget, and what it takes and a tenth.
const HEADER_ONLY: (u64, u64) = (1_500, 5_250);

/// The budget from the interrupt that ends a card's sleep to the first thing that it does for it.
const TO_FIRST_ACTION: u64 = 300;

/// What was counted in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    costs: [(&'static str, [Cost; 2]); 3],
    first_action: [u64; 2],
    /// Everything that the cards count, at the end.
    counters: [Counters; 2],
}

impl Run {
    fn of(firmware: &Firmware) -> Result<Self> {
        let mut lab = Lab::new(firmware)?;
        lab.join()?;
        lab.lend()?;
        let costs = [
            cost(&mut lab, READ_ALONE, |lab| Root::read(lab, 1000, 1))?,
            cost(&mut lab, READS, |lab| Root::read(lab, 4000, 32))?,
            cost(&mut lab, WRITES, Root::take_writes)?,
        ];
        lab.check()?;
        let counters = [lab.counters(HOST_CARD)?, lab.counters(BOX_CARD)?];
        let first_action = [0, 1].map(|card: usize| counters[card][FIRST_ACTION]);
        Ok(Self { costs, first_action, counters })
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
    let firmware = match Firmware::find_images() {
        Ok(firmware) => firmware,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    // On two threads: neither knows of the other.
    let run = || Run::of(&firmware).unwrap();
    let (run, again) = std::thread::scope(|scope| {
        let again = scope.spawn(run);
        (run(), again.join().unwrap())
    });
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
    assert_eq!(run, again, "two runs count the same");
    let above = run.above();
    assert!(above.is_empty(), "{above:#?}");
}
