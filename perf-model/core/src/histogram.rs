//! Durations by number and by time, in bins that grow with the duration.

use crate::Nanos;

/// A range of durations: four bins for each doubling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bin(u8);

impl Bin {
    /// How many there are: from 0 ns to the longest time in 64 bits.
    pub const COUNT: usize = 256;

    /// The bin that `nanos` lies in.
    pub const fn of(nanos: u64) -> Self {
        if nanos < 4 {
            return Self(nanos as u8);
        }
        let doubling = nanos.ilog2();
        let quarter = (nanos >> (doubling - 2)) & 3;
        Self((doubling * 4 + quarter as u32) as u8)
    }

    /// The bin of this number, if there is one (4 to 7 hold nothing: 0 to 3 ns lie in 0 to 3).
    pub const fn from_number(number: usize) -> Option<Self> {
        if number < Self::COUNT { Some(Self(number as u8)) } else { None }
    }

    /// Its number.
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// The shortest duration in it, ns.
    pub const fn start(self) -> u64 {
        if self.0 < 8 {
            return if self.0 < 4 { self.0 as u64 } else { 4 };
        }
        let doubling = self.0 as u32 / 4;
        (4 + self.0 as u64 % 4) << (doubling - 2)
    }
}

/// Kernels shorter than this are called short (DxPU, Figure 5).
pub const SHORT: Nanos = Nanos(10_000);

/// How many durations lie in each bin, and how long they are together. Short ones are counted by
/// themselves, too: [`SHORT`] lies within a bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; Bin::COUNT],
    nanos: [u64; Bin::COUNT],
    short: (u64, u64),
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; Bin::COUNT], nanos: [0; Bin::COUNT], short: (0, 0) }
    }
}

impl Histogram {
    /// Adds a duration.
    pub fn add(&mut self, nanos: u64) {
        self.add_many(Bin::of(nanos), 1, nanos);
        if nanos < SHORT.0 {
            self.add_short(1, nanos);
        }
    }

    /// Says of `count` durations that were added, `nanos` long together, that they are short.
    pub(crate) fn add_short(&mut self, count: u64, nanos: u64) {
        self.short.0 = self.short.0.saturating_add(count);
        self.short.1 = self.short.1.saturating_add(nanos);
    }

    /// Adds `count` durations of one bin that are `nanos` long together.
    pub(crate) fn add_many(&mut self, bin: Bin, count: u64, nanos: u64) {
        let bin = bin.number();
        self.counts[bin] = self.counts[bin].saturating_add(count);
        self.nanos[bin] = self.nanos[bin].saturating_add(nanos);
    }

    /// Adds what another one holds.
    pub fn merge(&mut self, other: &Self) {
        for (bin, count, nanos) in other.bins() {
            self.add_many(bin, count, nanos);
        }
        self.add_short(other.short.0, other.short.1);
    }

    /// The bins that hold something: bin, count, ns together.
    pub fn bins(&self) -> impl Iterator<Item = (Bin, u64, u64)> + '_ {
        (0..Bin::COUNT)
            .filter(|bin| self.counts[*bin] != 0)
            .map(|bin| (Bin(bin as u8), self.counts[bin], self.nanos[bin]))
    }

    /// How many durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// How long they are together, ns.
    pub fn nanos(&self) -> u64 {
        self.nanos.iter().fold(0, |sum, nanos| sum.saturating_add(*nanos))
    }

    /// Their average in ns, if there are any.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.nanos() as f64 / count as f64)
    }

    /// The share of durations that are shorter than [`SHORT`], by number and by time, each from 0
    /// to 1.
    pub fn short(&self) -> (f64, f64) {
        let of = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        (of(self.short.0, self.count()), of(self.short.1, self.nanos()))
    }
}
