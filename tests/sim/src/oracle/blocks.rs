//! What every block of a drive may hold, whoever has the drive.
//!
//! Each write is a version of its blocks, and a block says which drive, block and version it is. A
//! write that was acknowledged replaces what had ended before it was begun. One that is under way,
//! or whose end nobody saw, leaves each of its blocks old or new: never a third thing, and never a
//! part of both.

use super::{Verdict, Violation};
use crate::device::Medium;
use crate::pattern;
use crate::random::mix;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// Extents that a drive's next user reads again first.
const RECENT: usize = 24;
/// A block's first bytes: drive, block, version.
const LABEL: usize = 16;

/// The drives of a fabric, by serial number.
#[derive(Clone)]
pub(crate) struct Drives(Rc<Vec<(String, RefCell<Ledger>)>>);

impl Drives {
    /// Serial number, bytes of a block and medium of each.
    pub(crate) fn new(drives: impl Iterator<Item = (String, usize, Medium)>) -> Self {
        let ledger = |(number, (name, block, medium)): (usize, (String, usize, Medium))| {
            (name, RefCell::new(Ledger::new(number as u32 + 1, block, medium)))
        };
        Self(Rc::new(drives.enumerate().map(ledger).collect()))
    }

    /// The drive that calls itself so.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|drive| drive.0 == name)
    }

    pub(crate) fn get(&self, drive: usize) -> std::cell::RefMut<'_, Ledger> {
        self.0[drive].1.borrow_mut()
    }

    /// Whether every medium holds what it may.
    pub(crate) fn check(&self) -> Verdict {
        self.0.iter().try_for_each(|(name, ledger)| {
            ledger.borrow().check_medium().map_err(|what| {
                Violation::new(1, format!("the medium of drive {name} is wrong: {what}"))
            })
        })
    }
}

/// What a block may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    version: u32,
    /// All zeros, and no label.
    zero: bool,
    /// When the command was begun, and had ended, by the ledger's own count.
    begun: u64,
    ended: Option<u64>,
}

/// The books of one drive.
pub(crate) struct Ledger {
    number: u32,
    /// Bytes of a block.
    pub(crate) block: usize,
    medium: Medium,
    may: Vec<Vec<Candidate>>,
    /// The version that last erased each block, acknowledged or not.
    erased: Vec<u32>,
    /// Counts commands and their ends.
    clock: u64,
    versions: u32,
    /// Who writes to it; what others write never counts.
    owner: u64,
    recent: Vec<Range<u64>>,
}

/// What a read may find: what was there when it began, and what was written since.
pub(crate) struct Snapshot {
    may: Vec<Vec<Candidate>>,
    versions: u32,
    clock: u64,
}

/// What a block's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Zeros,
    Version(u32),
    /// A third thing.
    Other,
}

impl Candidate {
    fn is(&self, found: Found) -> bool {
        match found {
            Found::Zeros => self.zero,
            Found::Version(version) => !self.zero && self.version == version,
            Found::Other => false,
        }
    }
}

impl Ledger {
    fn new(number: u32, block: usize, medium: Medium) -> Self {
        let blocks = crate::device::CAPACITY / block;
        let erased = Candidate { version: 0, zero: true, begun: 0, ended: Some(0) };
        Self {
            number,
            block,
            medium,
            may: (0..blocks).map(|_| Vec::from([erased])).collect(),
            erased: vec![0; blocks],
            clock: 0,
            versions: 0,
            owner: 0,
            recent: Vec::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn medium(&self) -> &Medium {
        &self.medium
    }

    /// Where on the medium the last bytes are of a block that was written and is at rest.
    #[cfg(test)]
    pub(crate) fn known_write(&self) -> Option<usize> {
        let rests = |may: &[Candidate]| may.len() == 1 && !may[0].zero && may[0].ended.is_some();
        let block = self.may.iter().position(|may| rests(may))?;
        Some((block + 1) * self.block - 1)
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.may.len() as u64
    }

    /// Somebody has it from now on, and reset its controller: nothing that was begun before goes
    /// on. Gives the owner's number.
    pub(crate) fn take(&mut self) -> u64 {
        self.clock += 1;
        let now = Some(self.clock);
        for candidate in self.may.iter_mut().flatten() {
            candidate.ended = candidate.ended.or(now);
        }
        self.owner += 1;
        self.owner
    }

    /// What was written last, and is worth to be read again.
    pub(crate) fn recent(&self) -> Vec<Range<u64>> {
        self.recent.clone()
    }

    /// A write is begun: its version.
    pub(crate) fn begin(&mut self, owner: u64, blocks: Range<u64>, zero: bool) -> u32 {
        self.versions += 1;
        self.clock += 1;
        let version = self.versions;
        if owner != self.owner {
            return version;
        }
        let candidate = Candidate { version, zero, begun: self.clock, ended: None };
        for block in blocks.clone() {
            self.may[block as usize].push(candidate);
            if zero {
                self.erased[block as usize] = version;
            }
        }
        self.recent.retain(|other| *other != blocks);
        if self.recent.len() >= RECENT {
            self.recent.remove(0);
        }
        self.recent.push(blocks);
        version
    }

    /// A write ended. If it was acknowledged, what had ended before it began is gone.
    pub(crate) fn end(&mut self, owner: u64, blocks: Range<u64>, version: u32, good: bool) {
        if owner != self.owner {
            return;
        }
        self.clock += 1;
        for block in blocks {
            let may = &mut self.may[block as usize];
            let Some(at) = may.iter().position(|c| c.version == version) else { continue };
            may[at].ended = Some(self.clock);
            let begun = may[at].begun;
            if good {
                may.retain(|c| c.version == version || c.ended.is_none_or(|ended| ended > begun));
            }
        }
    }

    /// Fills a block's bytes.
    pub(crate) fn fill(&self, block: u64, version: u32, bytes: &mut [u8]) {
        let (label, rest) = bytes.split_at_mut(LABEL);
        label[..4].copy_from_slice(&self.number.to_le_bytes());
        label[4..8].copy_from_slice(&version.to_le_bytes());
        label[8..].copy_from_slice(&block.to_le_bytes());
        pattern::fill(self.seed(block, version), LABEL, rest);
    }

    fn seed(&self, block: u64, version: u32) -> u64 {
        mix(u64::from(self.number) << 48 ^ block << 32 ^ u64::from(version))
    }

    /// A read is begun.
    pub(crate) fn look(&self, blocks: Range<u64>) -> Snapshot {
        let may = self.may[blocks.start as usize..blocks.end as usize].to_vec();
        Snapshot { may, versions: self.versions, clock: self.clock }
    }

    /// A read ended: whether it found what it may. What a block holds that nobody wrote to
    /// meanwhile is known from then on.
    pub(crate) fn found(
        &mut self,
        owner: u64,
        first: u64,
        data: &[u8],
        snapshot: &Snapshot,
    ) -> Result<(), String> {
        for (index, bytes) in data.chunks_exact(self.block).enumerate() {
            let block = first + index as u64;
            let (now, before) = (&self.may[block as usize], &snapshot.may[index]);
            let found = self.read(block, bytes);
            let since = snapshot.versions + 1..=self.versions;
            let good = before.iter().chain(now).any(|c| c.is(found))
                || match found {
                    Found::Zeros => since.contains(&self.erased[block as usize]),
                    Found::Version(version) => since.contains(&version),
                    Found::Other => false,
                };
            if !good {
                return Err(self.wrong(block, bytes, before));
            }
            let rested = |c: &Candidate| c.ended.is_some_and(|ended| ended <= snapshot.clock);
            if owner == self.owner && now.iter().all(rested) {
                self.may[block as usize].retain(|c| c.is(found));
            }
        }
        Ok(())
    }

    fn read(&self, block: u64, bytes: &[u8]) -> Found {
        if bytes.iter().all(|byte| *byte == 0) {
            return Found::Zeros;
        }
        let version = word(bytes, 4);
        let label = (word(bytes, 0), u64::from_le_bytes(bytes[8..16].try_into().expect("eight")));
        let whole = pattern::differs(self.seed(block, version), LABEL, &bytes[LABEL..]).is_none();
        if label == (self.number, block) && whole { Found::Version(version) } else { Found::Other }
    }

    fn wrong(&self, block: u64, bytes: &[u8], before: &[Candidate]) -> String {
        let name = |c: &Candidate| match (c.version, c.zero) {
            (0, _) => "nothing".into(),
            (version, true) => format!("zeros of version {version}"),
            (version, false) => format!("version {version}"),
        };
        let names = |may: &[Candidate]| may.iter().map(name).collect::<Vec<_>>().join(" or ");
        let found = match self.read(block, bytes) {
            Found::Version(version) => format!("version {version}"),
            Found::Zeros => "zeros".into(),
            Found::Other => {
                let (number, version) = (word(bytes, 0), word(bytes, 4));
                let wrong = pattern::differs(self.seed(block, version), LABEL, &bytes[LABEL..]);
                let from = wrong.map_or("".into(), |at| format!(" up to byte {}", at + LABEL));
                let labelled = word(bytes, 8);
                format!(
                    "what says it is version {version} of block {labelled} of drive {number}{from}"
                )
            }
        };
        let (now, before) = (names(&self.may[block as usize]), names(before));
        format!(
            "block {block} of drive {} holds {found}; it may hold {now} ({before} before)",
            self.number
        )
    }

    fn check_medium(&self) -> Result<(), String> {
        for block in 0..self.blocks() {
            let bytes = self.medium.bytes(block as usize * self.block, self.block);
            let found = self.read(block, &bytes);
            if !self.may[block as usize].iter().any(|c| c.is(found)) {
                return Err(self.wrong(block, &bytes, &[]));
            }
        }
        Ok(())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"))
}

#[cfg(test)]
mod tests;
