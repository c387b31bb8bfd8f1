//! The watchdog block (`hw/regs/card.md`, "watchdog").

use super::super::TICK_NANOS;

/// What it is fed with.
const FOOD: u32 = 0xfeed_d09d;

const ENABLE: u32 = 1;
const LOCK: u32 = 2;

/// Ticks of a microsecond.
const MICROSECOND: u64 = 1000 / TICK_NANOS;

/// What it does when it was not fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bite {
    /// Its interrupt is pending.
    Warns,
    /// The core is reset.
    Resets,
}

#[derive(Debug)]
pub(super) struct Watchdog {
    control: u32,
    /// Microseconds, as the registers have them.
    period: u32,
    warning: u32,
    /// Times that it was fed since the reset, and when it was at last, in ticks.
    pub(super) fed: u32,
    fed_at: u64,
    /// It has warned since.
    warned: bool,
}

impl Watchdog {
    /// As a reset at this tick leaves it.
    pub(super) fn new(ticks: u64) -> Self {
        Self { control: 0, period: 10_000_000, warning: 0, fed: 0, fed_at: ticks, warned: false }
    }

    fn counts(&self) -> bool {
        self.control & ENABLE != 0
    }

    fn after(&self, microseconds: u32) -> u64 {
        self.fed_at + u64::from(microseconds) * MICROSECOND
    }

    /// When it has something to do, in ticks.
    pub(super) fn due(&self) -> u64 {
        match self.counts() {
            false => u64::MAX,
            true if self.warned || self.warning == 0 => self.after(self.period),
            true => self.after(self.period.saturating_sub(self.warning)),
        }
    }

    /// What it does now.
    pub(super) fn look(&mut self, ticks: u64) -> Option<Bite> {
        if ticks < self.due() {
            return None;
        }
        if ticks >= self.after(self.period) {
            return Some(Bite::Resets);
        }
        self.warned = true;
        Some(Bite::Warns)
    }

    /// A debugger has the core halted for so many ticks: it does not count.
    pub(super) fn stand_still(&mut self, ticks: u64) {
        self.fed_at += ticks;
    }

    /// A register's value; the registers are named as in the map, behind the block's name.
    pub(super) fn read(&self, register: &str, ticks: u64) -> u32 {
        let waited = if self.counts() { (ticks - self.fed_at) / MICROSECOND } else { 0 };
        match register {
            "period" => self.period,
            "warning" => self.warning,
            "control" => self.control,
            "remaining" => u64::from(self.period).saturating_sub(waited) as u32,
            _ => 0,
        }
    }

    /// A register is written. Says whether the core is reset for it.
    pub(super) fn write(&mut self, register: &str, value: u32, ticks: u64) -> bool {
        match register {
            "period" if self.control & LOCK == 0 => self.period = value,
            "warning" if self.control & LOCK == 0 => self.warning = value,
            "control" => {
                if !self.counts() {
                    self.fed_at = ticks;
                }
                self.control |= value & (ENABLE | LOCK);
            }
            "feed" if value == FOOD => {
                self.fed += 1;
                self.fed_at = ticks;
                self.warned = false;
            }
            "feed" => return self.counts(),
            _ => {}
        }
        false
    }
}
