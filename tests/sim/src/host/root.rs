//! The root complex: what devices ask of host memory, with bad manners where the schedule has them.

use super::memory::Memory;
use super::{HOST_ID, Purpose};
use crate::device::{Manner, Wrong, atomic};
use crate::dress::Dresser;
use crate::egress::{Egress, Piece, completion, pieces, written};
use crate::late::{DOUBLES_US, Late};
use crate::oracle::Verdict;
use crate::profile::Dress;
use crate::random::{Drawer, Random};
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::tlp::{AtomicOp, Class, CplStatus, Packet, Repr, TlpType};

/// Read Completion Boundary.
const BOUNDARY: usize = 64;

/// What answers.
pub(crate) struct Root {
    manner: Manner,
    /// What is said later.
    late: Late<Purpose>,
    /// Answers that were late, and lies.
    pub(crate) misdeeds: [u64; 2],
    random: Random,
    dresser: Dresser,
}

/// What an answer is for, and what its completions carry at most.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) binding: usize,
    pub(crate) request: u64,
    pub(crate) payload: usize,
}

impl Answer {
    fn purpose(self) -> Purpose {
        Purpose::Answer { binding: self.binding, request: self.request }
    }
}

impl Root {
    /// Of that host in the run of a seed.
    pub(crate) fn new(seed: u64, host: usize, dress: Dress) -> Self {
        Self {
            manner: Manner::Good,
            late: Late::new(),
            misdeeds: [0; 2],
            random: Random::stream(seed, Drawer::Root, host as u64),
            dresser: Dresser::new(dress, seed, host as u64),
        }
    }

    /// It behaves differently from now on. It answers everything in the end, rightly, too: what is wrong
    /// or comes twice is said beside that.
    pub(crate) fn set_manner(&mut self, manner: Manner) {
        self.manner = manner;
    }

    /// It begins anew, and owes nothing.
    pub(crate) fn forget(&mut self) {
        self.late.clear();
    }

    /// When it has something to say by itself.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.late.next_at()
    }

    /// When it has said all that it holds back.
    pub(crate) fn last_at(&self) -> Option<Instant> {
        self.late.last_at()
    }

    /// Says what is due. Whether an answer was among it that somebody waited for.
    pub(crate) fn wake(&mut self, now: Instant, out: &mut Egress<Purpose>) -> bool {
        let mut late = false;
        while let Some((bytes, purpose)) = self.late.pop(now) {
            late |= matches!(purpose, Purpose::Answer { .. });
            out.push_bytes(Class::Completion, bytes, purpose);
        }
        late
    }

    /// Answers a non-posted request of the device behind a port. Whether there was something at its
    /// address.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        packet: &Packet<&[u8]>,
        (port, answer): (usize, Answer),
        memory: &mut Memory,
        out: &mut Egress<Purpose>,
    ) -> Verdict<bool> {
        let length = usize::from(packet.length_dw()) * 4;
        let id = (HOST_ID, packet.tag());
        let refused = completion(packet, id, CplStatus::UnsupportedRequest, (4, 0), &[]);
        match packet.tlp_type() {
            TlpType::MRd => {
                if let Some(bytes) = memory.reach(port, packet.address(), length)? {
                    self.read(now, packet, answer, bytes, out);
                    return Ok(true);
                }
            }
            TlpType::FetchAdd | TlpType::Swap | TlpType::Cas => {
                let operands = packet.payload();
                let (op, width) = match packet.tlp_type() {
                    TlpType::FetchAdd => (AtomicOp::FetchAdd, operands.len()),
                    TlpType::Swap => (AtomicOp::Swap, operands.len()),
                    _ => (AtomicOp::Cas, operands.len() / 2),
                };
                if let Some(bytes) = memory.reach(port, packet.address(), width)? {
                    let old = atomic(bytes, op, operands);
                    let count = old.len() as u16;
                    let mut repr = completion(packet, id, CplStatus::Success, (count, 0), &old);
                    repr.attributes.id_based_ordering = self.random.chance(400_000);
                    self.say(now, repr, (answer, true), out);
                    return Ok(true);
                }
            }
            _ => {
                self.say(now, refused, (answer, true), out);
                return Ok(true);
            }
        }
        self.say(now, refused, (answer, true), out);
        Ok(false)
    }

    /// A read in one or several completions.
    fn read(
        &mut self,
        now: Instant,
        packet: &Packet<&[u8]>,
        answer: Answer,
        bytes: &[u8],
        out: &mut Egress<Purpose>,
    ) {
        // The completer's own choice, as are the boundaries.
        let by_id = self.random.chance(400_000);
        let pieces = pieces(packet, (answer.payload, BOUNDARY), &mut self.random);
        for Piece { at, length, says, last } in pieces {
            let id = (HOST_ID, packet.tag());
            let data = &bytes[at..at + length];
            let mut repr = completion(packet, id, CplStatus::Success, says, data);
            repr.attributes.id_based_ordering = by_id;
            self.say(now, repr, (answer, last), out);
        }
    }

    fn say(
        &mut self,
        now: Instant,
        mut repr: Repr<'_>,
        (answer, last): (Answer, bool),
        out: &mut Egress<Purpose>,
    ) {
        // What spoils an answer knows no prefixes.
        if !matches!(self.manner, Manner::Wrong(_)) {
            self.dresser.answer(&mut repr);
        }
        match self.manner {
            Manner::Late(by) => {
                self.hold(now + by, written(&repr), answer.purpose());
                return;
            }
            Manner::Twice if last => {
                // At once, or when the tag may be another request's.
                let by = self.random.below(2) * self.random.below(DOUBLES_US);
                self.hold(now + Duration::from_micros(by), written(&repr), Purpose::Lie);
            }
            Manner::Wrong(wrong) if last => self.lie(now, wrong, &repr, out),
            _ => {}
        }
        out.push(&repr, answer.purpose());
        self.wake(now, out);
    }

    /// Before the right answer, or after it.
    fn lie(&mut self, now: Instant, wrong: Wrong, right: &Repr<'_>, out: &mut Egress<Purpose>) {
        let mut bytes = written(right);
        wrong.spoil(&mut bytes, &mut self.random);
        match self.random.below(3) {
            // A part of what is owed, with which the rest would not fit, comes only afterwards.
            0 if !matches!(wrong, Wrong::Length | Wrong::LowerAddress) => {
                self.misdeeds[1] += 1;
                out.push_bytes(Class::Completion, bytes, Purpose::Lie);
            }
            0 | 1 => self.hold(now, bytes, Purpose::Lie),
            _ => {
                let by = Duration::from_micros(self.random.below(DOUBLES_US));
                self.hold(now + by, bytes, Purpose::Lie);
            }
        }
    }

    /// Holds back what is said later.
    fn hold(&mut self, at: Instant, bytes: Vec<u8>, purpose: Purpose) {
        self.misdeeds[usize::from(matches!(purpose, Purpose::Lie))] += 1;
        self.late.hold(at, bytes, purpose);
    }
}
