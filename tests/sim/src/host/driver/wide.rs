//! What a driver asks of a model device beside its registers: blocks of bytes, which come in parts, and
//! atomics of every kind and width.

use super::Question;
use super::model::ModelDriver;
use crate::device::{self, BLOCK};
use crate::egress::Egress;
use crate::host::Purpose;
use crate::oracle::completion::Completed;
use crate::oracle::{Verdict, Violation};
use crate::pattern;
use crate::random::Random;
use tlp_codec::tlp::{AtomicOp, Kind};

/// What it has asked for so far.
#[derive(Debug, Default)]
pub(super) struct Wide {
    /// The device was told what its block holds.
    seeded: bool,
    /// Which values of the counter of 4 bytes came back; and how many additions were asked for.
    added: Vec<bool>,
    adds: usize,
    /// Which values that were swapped in came back; and how many there are.
    swapped: Vec<bool>,
    swaps: usize,
    /// Which values were replaced by the one above, how often that was asked for, and what was there
    /// last.
    replaced: Vec<bool>,
    asked: usize,
    found: u64,
}

/// Notes a value that may come back once, of so many.
fn once(came: &mut Vec<bool>, value: usize, of: usize) -> bool {
    came.resize(came.len().max(of), false);
    came.get_mut(value).is_some_and(|came| !std::mem::replace(came, true))
}

impl Wide {
    /// Whether the device was told what its block holds.
    pub(super) fn has_block(&self) -> bool {
        self.seeded
    }
}

impl ModelDriver {
    /// Some bytes of the device's block, wherever they begin.
    pub(super) fn ask_for_block(&mut self, out: &mut Egress<Purpose>, random: &mut Random) {
        if !std::mem::replace(&mut self.wide.seeded, true) {
            let life = self.life.to_le_bytes();
            self.write(out, device::BLOCK_SEED, &life);
        }
        let length = random.between(1, BLOCK.1);
        let from = random.below(BLOCK.1 - length + 1);
        let question = Question::Block { from: from as u16 };
        self.ask_for_bytes(out, BLOCK.0 + from, length as usize, question);
    }

    /// An atomic of another kind than the addition of 8 bytes.
    pub(super) fn ask_for_atomic(&mut self, out: &mut Egress<Purpose>, random: &mut Random) {
        let window = self.registers(self.port);
        let mut data = [0; 16];
        let (op, at, length, question) = match random.below(3) {
            0 => {
                self.wide.adds += 1;
                data[0] = 1;
                (AtomicOp::FetchAdd, device::NARROW, 4, Question::Narrow)
            }
            1 => {
                self.wide.swaps += 1;
                data[..4].copy_from_slice(&(self.wide.swaps as u32).to_le_bytes());
                (AtomicOp::Swap, device::SWAP, 4, Question::Swap)
            }
            _ => {
                self.wide.asked += 1;
                let compare = self.wide.found;
                data[..8].copy_from_slice(&compare.to_le_bytes());
                data[8..].copy_from_slice(&(compare + 1).to_le_bytes());
                (AtomicOp::Cas, device::COMPARED, 16, Question::Cas { compare })
            }
        };
        let address = window + at;
        self.ask(out, question, |requester, tag| Kind::Atomic {
            op,
            requester,
            tag,
            address,
            hint: None,
            data: &data[..length],
        });
    }

    /// A part of a block is here.
    pub(super) fn part_of_block(
        &self,
        from: u16,
        done: &Completed<crate::host::Asker>,
        payload: &[u8],
    ) -> Verdict {
        let Some(bytes) = done.bytes.filter(|_| !done.doubtful) else { return Ok(()) };
        let at = usize::from(from) + done.offset;
        let data = &payload[done.skip..][..bytes];
        match pattern::differs(device::block_seed(self.life), at, data) {
            None => Ok(()),
            Some(wrong) => {
                let what = format!("byte {} of a device's block read wrong", at + wrong);
                Err(Violation::new(3, what))
            }
        }
    }

    /// An atomic was answered with what was there before it.
    pub(super) fn atomic(&mut self, question: Question, old: &[u8]) -> Verdict {
        let wide = &mut self.wide;
        let word = old.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let value = word as usize;
        let right = match question {
            Question::Narrow => once(&mut wide.added, value, wide.adds),
            // What is there at first comes back, too.
            Question::Swap => once(&mut wide.swapped, value, wide.swaps + 1),
            Question::Cas { compare } => {
                wide.found = wide.found.max(if word == compare { word + 1 } else { word });
                let is_new = word != compare || once(&mut wide.replaced, value, wide.asked);
                is_new && value <= wide.asked
            }
            _ => unreachable!("no atomic"),
        };
        if right {
            return Ok(());
        }
        let what = format!("{question:?} found {word}, which another found, or too many");
        Err(Violation::new(3, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_is_found_once() {
        let mut came = Vec::new();
        assert!(once(&mut came, 1, 2) && once(&mut came, 0, 2));
        assert!(!once(&mut came, 1, 2), "twice");
        assert!(!once(&mut came, 2, 2), "never there");
        assert!(once(&mut came, 2, 3));
    }
}
