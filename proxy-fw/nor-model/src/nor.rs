//! The cells, and what happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use crate::part::Part;

/// Elementary steps of erasing, whatever the size: of pre-programming to zeros, then of erasing.
const ERASE_STEPS: u64 = 8;

/// Why the array did not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The power is off, or went off on the way.
    #[error("the flash has no power")]
    NoPower,
    /// It is programming or erasing.
    #[error("the flash is busy")]
    Busy,
    /// It has no such address.
    #[error("the flash has no such address")]
    OutOfBounds,
    /// An erase that is not one of the part's.
    #[error("the flash cannot erase just that")]
    NotABlock,
}

/// What is going on, or was stopped on the way.
#[derive(Clone, Debug)]
enum Work {
    Program {
        at: u32,
        bytes: Vec<u8>,
    },
    Erase(Range<u32>),
    /// Something that does not touch the cells.
    Other,
}

impl Work {
    /// Into how many parts a power cut can divide it.
    fn steps(&self) -> u64 {
        match self {
            Self::Program { bytes, .. } => bytes.len() as u64,
            Self::Erase(_) => ERASE_STEPS,
            Self::Other => 1,
        }
    }
}

#[derive(Clone, Debug)]
struct Busy {
    work: Work,
    takes: Duration,
    left: Duration,
}

/// The array of a NOR flash.
#[derive(Clone, Debug)]
pub struct Nor {
    part: Part,
    cells: Vec<u8>,
    rng: fastrand::Rng,
    busy: Option<Busy>,
    powered: bool,
    /// Elementary steps until the power goes.
    cut_in: Option<u64>,
    steps: u64,
    /// Erase cycles by block.
    wear: Vec<u32>,
    /// Bits that stay 0, by address.
    stuck: BTreeMap<u32, u8>,
    /// Blocks whose erase was cut, and how likely in 256 one of their bits reads wrong.
    unstable: BTreeMap<u32, u8>,
    reprogrammed: u64,
    unraised: u64,
}

impl Nor {
    /// An erased part with power.
    ///
    /// # Panics
    ///
    /// When the part contradicts itself.
    #[must_use]
    pub fn new(part: Part, seed: u64) -> Self {
        part.check();
        Self {
            part,
            cells: vec![0xff; part.size as usize],
            rng: fastrand::Rng::with_seed(seed),
            busy: None,
            powered: true,
            cut_in: None,
            steps: 0,
            wear: vec![0; (part.size / part.block()) as usize],
            stuck: BTreeMap::new(),
            unstable: BTreeMap::new(),
            reprogrammed: 0,
            unraised: 0,
        }
    }

    /// What it is.
    #[must_use]
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// The cells as they are, also without power. Blocks whose erase was cut read otherwise.
    #[must_use]
    pub fn cells(&self) -> &[u8] {
        &self.cells
    }

    /// Sets cells without programming: a part that comes with something in it.
    ///
    /// # Panics
    ///
    /// When it does not fit.
    pub fn preload(&mut self, at: u32, bytes: &[u8]) {
        self.cells[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Reads.
    ///
    /// # Errors
    ///
    /// Without power, while busy, and beyond the end.
    pub fn read(&mut self, at: u32, into: &mut [u8]) -> Result<(), Fault> {
        self.ready()?;
        let range = self.range(at, into.len())?;
        into.copy_from_slice(&self.cells[range.start as usize..range.end as usize]);
        if !self.unstable.is_empty() {
            for (address, byte) in range.zip(into) {
                *byte ^= self.noise(address);
            }
        }
        Ok(())
    }

    /// Bits that read wrong this time.
    fn noise(&mut self, address: u32) -> u8 {
        let Some(&likely) = self.unstable.get(&(address / self.part.block())) else { return 0 };
        (0..8).fold(0, |bits, bit| bits | u8::from(self.rng.u8(..) < likely) << bit)
    }

    /// Begins to program bytes of one page; an address beyond its end is the page's beginning.
    /// Bits are only cleared. It is done when the part's time has passed.
    ///
    /// # Errors
    ///
    /// Without power, while busy, beyond the end, and when the power goes.
    pub fn program(&mut self, at: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.ready()?;
        self.range(at, 1)?;
        let work = Work::Program { at, bytes: bytes.to_vec() };
        self.begin(work, self.part.timing.program)
    }

    /// Begins to erase one block of any of the part's sizes, or everything. It is done when the
    /// part's time has passed.
    ///
    /// # Errors
    ///
    /// Without power, while busy, when it is no block of the part, and when the power goes.
    pub fn erase(&mut self, at: u32, size: u32) -> Result<(), Fault> {
        self.ready()?;
        let range = self.range(at, size as usize)?;
        let kind = self.part.erases.iter().find(|kind| kind.size == size);
        let takes = match kind {
            Some(kind) if at.is_multiple_of(size) => kind.time,
            _ if size == self.part.size => self.part.timing.chip_erase,
            _ => return Err(Fault::NotABlock),
        };
        self.begin(Work::Erase(range), takes)
    }

    /// Is busy for so long with something that does not touch the cells.
    ///
    /// # Errors
    ///
    /// As of [`program`](Self::program).
    pub fn occupy(&mut self, takes: Duration) -> Result<(), Fault> {
        self.ready()?;
        self.begin(Work::Other, takes)
    }

    /// Whether it programs or erases.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Lets time pass.
    pub fn advance(&mut self, time: Duration) {
        let Some(busy) = &mut self.busy else { return };
        busy.left = busy.left.saturating_sub(time);
        if busy.left.is_zero() {
            let work = self.busy.take().expect("it is busy").work;
            self.complete(work);
        }
    }

    /// Lets as much time pass as what goes on needs.
    pub fn finish(&mut self) {
        self.advance(Duration::MAX);
    }

    /// Elementary steps so far: of programming a byte, or an eighth of an erase.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Has the power go after so many further elementary steps: 0 is before the next.
    pub fn cut_after(&mut self, steps: u64) {
        self.cut_in = Some(steps);
    }

    /// Takes the power away now. What goes on is left as far as it has come.
    pub fn power_off(&mut self) {
        self.stop();
        self.powered = false;
    }

    /// Stops what goes on and leaves it as far as it has come, as a reset does.
    pub fn stop(&mut self) {
        if let Some(busy) = self.busy.take() {
            let done = busy.takes.saturating_sub(busy.left).as_secs_f64();
            self.tear(&busy.work, done / busy.takes.as_secs_f64());
        }
    }

    /// Gives the power back, which stays from now on.
    pub fn power_on(&mut self) {
        self.powered = true;
        self.cut_in = None;
    }

    /// Whether it has power.
    #[must_use]
    pub fn is_powered(&self) -> bool {
        self.powered
    }

    /// Erase cycles of each block of the smallest size.
    #[must_use]
    pub fn wear(&self) -> &[u32] {
        &self.wear
    }

    /// Blocks of the smallest size whose erase was cut, by number. They read differently each time
    /// until they are erased.
    #[must_use]
    pub fn unstable(&self) -> BTreeSet<u32> {
        self.unstable.keys().copied().collect()
    }

    /// Bytes that were programmed without having been erased.
    #[must_use]
    pub fn reprogrammed(&self) -> u64 {
        self.reprogrammed
    }

    /// Bits that were to become 1 by programming, and stayed 0.
    #[must_use]
    pub fn unraised(&self) -> u64 {
        self.unraised
    }

    /// Turns one bit over, as ageing and radiation do.
    ///
    /// # Panics
    ///
    /// When there is no such address or bit.
    pub fn flip(&mut self, at: u32, bit: u8) {
        assert!(bit < 8);
        self.cells[at as usize] ^= 1 << bit;
    }

    /// Turns over random bits of a range, and says where.
    ///
    /// # Panics
    ///
    /// When the range is empty or beyond the end.
    pub fn flip_random(&mut self, range: Range<u32>, bits: usize) -> Vec<(u32, u8)> {
        let flips: Vec<_> =
            (0..bits).map(|_| (self.rng.u32(range.clone()), self.rng.u8(..8))).collect();
        flips.iter().for_each(|&(at, bit)| self.flip(at, bit));
        flips
    }

    fn ready(&self) -> Result<(), Fault> {
        match (self.powered, &self.busy) {
            (false, _) => Err(Fault::NoPower),
            (true, Some(_)) => Err(Fault::Busy),
            (true, None) => Ok(()),
        }
    }

    fn range(&self, at: u32, length: usize) -> Result<Range<u32>, Fault> {
        let end = u64::from(at) + length as u64;
        if end > u64::from(self.part.size) {
            return Err(Fault::OutOfBounds);
        }
        Ok(at..end as u32)
    }

    fn begin(&mut self, work: Work, takes: Duration) -> Result<(), Fault> {
        let steps = work.steps();
        if let Some(left) = &mut self.cut_in {
            if *left < steps {
                let done = *left as f64 / steps as f64;
                self.steps += *left;
                self.tear(&work, done);
                self.powered = false;
                return Err(Fault::NoPower);
            }
            *left -= steps;
        }
        self.steps += steps;
        if takes.is_zero() {
            self.complete(work);
        } else {
            self.busy = Some(Busy { work, takes, left: takes });
        }
        Ok(())
    }

    /// Addresses of a page's bytes, with the value that each is programmed with.
    fn page_bytes(&self, at: u32, bytes: &[u8]) -> Vec<(u32, u8)> {
        let page = self.part.page;
        let start = at & !(page - 1);
        let addresses = (0..bytes.len() as u32).map(|n| start + (at - start + n) % page);
        addresses.zip(bytes.iter().copied()).collect()
    }

    fn complete(&mut self, work: Work) {
        match work {
            Work::Program { at, bytes } => {
                for (address, byte) in self.page_bytes(at, &bytes) {
                    let cell = &mut self.cells[address as usize];
                    self.reprogrammed += u64::from(*cell != 0xff);
                    self.unraised += u64::from((byte & !*cell).count_ones());
                    *cell &= byte;
                }
            }
            Work::Erase(range) => self.erased(range),
            Work::Other => {}
        }
    }

    fn erased(&mut self, range: Range<u32>) {
        let block = self.part.block();
        self.cells[range.start as usize..range.end as usize].fill(0xff);
        for number in range.start / block..range.end / block {
            self.unstable.remove(&number);
            if self.worn(number) {
                let address = number * block + self.rng.u32(..block);
                *self.stuck.entry(address).or_default() |= 1 << self.rng.u8(..8);
            }
        }
        for (&address, &bits) in self.stuck.range(range) {
            self.cells[address as usize] &= !bits;
        }
    }

    /// Counts an erase cycle of a block, and whether it was one too many.
    fn worn(&mut self, number: u32) -> bool {
        let cycles = &mut self.wear[number as usize];
        *cycles += 1;
        *cycles > self.part.endurance
    }

    /// Leaves work that was done to so much (0 to 1) as it is then.
    fn tear(&mut self, work: &Work, done: f64) {
        match work {
            Work::Program { at, bytes } => {
                // A part pulses all bits of a page at once; some give in sooner than others.
                for (address, byte) in self.page_bytes(*at, bytes) {
                    let reached = self.some_bits(done);
                    self.cells[address as usize] &= byte | !reached;
                }
            }
            Work::Erase(range) if done > 0.0 => self.tear_erase(range.clone(), done),
            Work::Erase(_) | Work::Other => {}
        }
    }

    /// First half: bits become 0, so that all are erased alike; second half: bits become 1. How
    /// they read then is not certain, and least of all shortly before the end can one see it.
    fn tear_erase(&mut self, range: Range<u32>, done: f64) {
        for address in range.clone() {
            let (cleared, set) = if done < 0.5 {
                (self.some_bits(done * 2.0), 0)
            } else {
                (0xff, self.some_bits(done * 2.0 - 1.0))
            };
            let cell = &mut self.cells[address as usize];
            *cell = *cell & !cleared | set;
        }
        let nearly = done > 1.0 - 1.5 / ERASE_STEPS as f64;
        if nearly {
            self.cells[range.start as usize..range.end as usize].fill(0xff);
        }
        let block = self.part.block();
        for number in range.start / block..range.end / block {
            self.worn(number);
            // One bit in 256, or one in 16.
            self.unstable.insert(number, if nearly { 1 } else { 16 });
        }
    }

    /// A byte in which each bit is set with this probability.
    fn some_bits(&mut self, likely: f64) -> u8 {
        (0..8).fold(0, |bits, bit| bits | u8::from(self.rng.f64() < likely) << bit)
    }
}

#[cfg(test)]
mod tests;
