//! Where the core's time goes: a card's load, and what each stage has of it.

use super::Board;

/// What a turn does, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Takes frames in: CRC, link, TLPs put where the role has them.
    FramesIn,
    /// Moves TLPs between the role and the PCIe side.
    Pcie,
    /// Timers, the manager, the clock and the watchdog.
    Management,
    /// Makes frames and gives them to the MAC.
    FramesOut,
}

const COUNTERS: [&str; 6] = [
    "card: cycles of taking frames in",
    "card: cycles at the PCIe side",
    "card: cycles of timers and management",
    "card: cycles of sending frames",
    "card: turns",
    "card: cycles from an interrupt to the first action, at most",
];

/// The core's cycles by what they went to. What sleeps takes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cycles {
    stages: [u64; 4],
    turns: u64,
    /// When the stage began that goes on.
    since: u32,
    /// When the core was woken, until it does what it was woken for.
    woken: Option<u32>,
    slowest_answer: u32,
}

impl Cycles {
    /// A turn begins.
    #[inline]
    pub(super) fn turn<B: Board>(&mut self) {
        self.turns += 1;
        self.since = B::cycles();
    }

    /// What went on since the last stage ended, or the turn began, was this one.
    #[inline]
    pub(super) fn end<B: Board>(&mut self, stage: Stage) {
        let now = B::cycles();
        self.stages[stage as usize] += u64::from(now.wrapping_sub(self.since));
        self.since = now;
    }

    /// An interrupt ended the core's sleep at that count.
    pub(super) fn woken(&mut self, at: u32) {
        self.woken = Some(at);
    }

    /// Something is done that came from outside.
    #[inline]
    pub(super) fn act<B: Board>(&mut self) {
        if let Some(woken) = self.woken.take() {
            self.slowest_answer = self.slowest_answer.max(B::cycles().wrapping_sub(woken));
        }
    }

    /// By name.
    pub(super) fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let rest = [self.turns, self.slowest_answer.into()];
        COUNTERS.into_iter().zip(self.stages.into_iter().chain(rest))
    }
}
