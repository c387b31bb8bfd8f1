//! What is at the end of a slot: the model device with its bad manners, or an NVMe drive.
//!
//! | file | what |
//! |---|---|
//! | `model`, `config`, `engine` | the model device: registers with side effects, a DMA engine |
//! | `says` | its messages |
//! | `atomics` | what an atomic operation does |
//! | `wrong` | the ways in which its answers can be wrong |
//! | `drive` | the NVMe controller of the box proxy's own device models, over memory |

mod atomics;
mod config;
mod drive;
mod engine;
mod model;
mod says;
mod wrong;

pub(crate) use atomics::atomic;
pub(crate) use config::ID;
pub(crate) use drive::{CAPACITY, Drive, Medium};
pub(crate) use engine::{Command, FAILED, Job, Part, WRONG};
pub(crate) use model::{
    BLOCK, BLOCK_SEED, COMMANDS, COMPARED, COUNTER, DOORBELL, GOING, Model, NARROW, PART, PARTS,
    RUNG, SAY, SWAP, block_seed, part,
};
pub(crate) use says::{LONGEST as LONGEST_MESSAGE, SAYINGS};
pub(crate) use wrong::Wrong;

use crate::egress::Egress;
use crate::oracle::Verdict;
use crate::oracle::completion::Requests;
use crate::oracle::peers::State;
use crate::oracle::spells::Fault;
use proxy_core::boxes::SlotSignal;
use proxy_core::link::ClassSet;
use proxy_core::time::Instant;
use std::time::Duration;

/// TLPs of a device that wait before it takes no further requests.
pub(crate) const WAITING: usize = 64;

/// How a device behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Good,
    /// It takes everything and answers nothing.
    Hangs,
    /// It takes nothing, before it is reset.
    Stuck,
    /// It answers so much later.
    Late(Duration),
    Twice,
    Wrong(Wrong),
}

impl Manner {
    /// What that does to those who ask it.
    pub(crate) fn fault(self) -> Option<Fault> {
        match self {
            Self::Good => None,
            Self::Hangs | Self::Late(_) => Some(Fault::Silent),
            Self::Stuck => Some(Fault::Stuck),
            Self::Twice | Self::Wrong(_) => Some(Fault::Lies),
        }
    }
}

/// What the simulation has to know of a TLP that a device sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// A request of its own without an answer.
    Own,
    /// A request of its own, whose tag is chosen when its proxy takes it.
    Asks(Part),
    /// A request of its own under a tag that it chose.
    AsksTagged,
    /// An answer, under the tag that it was asked under.
    Answers,
    /// A part of one, after which more comes.
    Part,
    /// An answer too many.
    TooMany,
    /// A wrong answer, instead of the right one, to what it was asked under this tag.
    Lie { asked_under: u16 },
    /// A write that nobody told it to do, to where nobody has memory.
    Stray,
    /// What comes out nowhere: a write under the ID of a function that it does not have, a message
    /// that ends at the port.
    Nobodys,
    /// Its INTx wire turns, which comes out as the switch's own.
    Wire,
}

/// What one of a device's own requests is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errand {
    pub(crate) part: Part,
    /// The binding under which it was asked.
    pub(crate) binding: Option<usize>,
    /// The port whose device it asks, and who was there; else it asks the host.
    pub(crate) peer: Option<(usize, Option<State>)>,
}

/// What every device has: where it meets its proxy.
pub(crate) struct End {
    pub(crate) out: Egress<Mark>,
    /// What it asked for and has no answer to.
    pub(crate) requests: Requests<Errand>,
    manner: Manner,
    /// How often it held a request back that it had begun with.
    pub(crate) held_back: u64,
    /// Its answers that were late, requests that came while it hung, and answers that it gave twice.
    misdeeds: [u64; 3],
}

impl End {
    fn new() -> Self {
        Self {
            out: Egress::new(),
            requests: Requests::new(),
            manner: Manner::Good,
            held_back: 0,
            misdeeds: [0; 3],
        }
    }

    /// Everything is forgotten that was on its way.
    fn reset(&mut self) {
        self.out.clear();
        self.requests.forget();
    }

    /// A function-level reset: what was answered already still leaves.
    fn function_reset(&mut self) {
        self.out.retain(|waiting| matches!(waiting.mark, Mark::Answers | Mark::Part | Mark::Wire));
        self.requests.forget();
        self.requests.begin_anew();
    }
}

/// A device.
pub(crate) enum Device {
    Model(Box<Model>),
    Drive(Box<Drive>),
}

impl Device {
    pub(crate) fn end(&mut self) -> &mut End {
        match self {
            Self::Model(model) => &mut model.end,
            Self::Drive(drive) => &mut drive.end,
        }
    }

    /// Everything in it is as after power on, but for what a drive stores.
    pub(crate) fn reset(&mut self, now: Instant) {
        match self {
            Self::Model(model) => model.reset(now),
            Self::Drive(drive) => drive.power_cycle(now),
        }
    }

    /// A signal beside TLPs. Whether it was a reset.
    pub(crate) fn signal(&mut self, now: Instant, signal: SlotSignal) -> bool {
        match self {
            Self::Model(model) => model.signal(now, signal),
            Self::Drive(drive) => drive.signal(now, signal),
        }
    }

    /// Whether it may ask for memory now. A drive asks for nothing else than what it was told to.
    pub(crate) fn may_ask(&self) -> bool {
        match self {
            Self::Model(model) => model.config.may_ask(),
            Self::Drive(_) => true,
        }
    }

    /// Requests by an address that it did not decode, and how often it held back a request of its own.
    pub(crate) fn unheard(&self) -> [u64; 2] {
        match self {
            Self::Model(model) => [model.unheard, model.end.held_back],
            Self::Drive(_) => [0; 2],
        }
    }

    /// Its answers that were late, requests that came while it hung, and answers that it gave twice.
    pub(crate) fn misdeeds(&self) -> [u64; 3] {
        match self {
            Self::Model(model) => model.end.misdeeds,
            Self::Drive(drive) => drive.end.misdeeds,
        }
    }

    /// Whether it takes nothing.
    pub(crate) fn is_stuck(&mut self) -> bool {
        self.end().manner == Manner::Stuck
    }

    /// The classes that it has room for.
    pub(crate) fn room(&self) -> ClassSet {
        match self {
            Self::Model(model) => model.room(),
            Self::Drive(drive) => drive.room(),
        }
    }

    /// When it has something to say by itself.
    pub(crate) fn next_at(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Model(model) => model.next_at(),
            Self::Drive(drive) => drive.next_at(now),
        }
    }

    /// Says what is due.
    pub(crate) fn wake(&mut self, now: Instant) {
        match self {
            Self::Model(model) => model.wake(now),
            Self::Drive(drive) => drive.wake(now),
        }
    }

    /// Whether it asserts its INTx wire.
    pub(crate) fn has_wire(&self) -> bool {
        matches!(self, Self::Model(model) if model.wire)
    }

    /// A TLP from its proxy, which may be the answer to another request than it says (`doubtful`). Whether
    /// it was reset by it.
    pub(crate) fn handle(&mut self, now: Instant, tlp: &[u8], doubtful: bool) -> Verdict<bool> {
        match self {
            Self::Model(model) => model.handle(now, tlp, doubtful),
            Self::Drive(drive) => drive.handle(now, tlp),
        }
    }

    /// Its proxy takes a request of its own.
    pub(crate) fn asks(&mut self) {
        if let Self::Model(model) = self {
            model.asks();
        }
    }

    /// Its proxy took something: it goes on.
    pub(crate) fn work(&mut self, now: Instant) {
        match self {
            Self::Model(model) => model.work(),
            Self::Drive(drive) => drive.work(now),
        }
    }

    /// Whether all that it got so far was right, as far as it can tell.
    pub(crate) fn check(&self) -> Verdict {
        match self {
            Self::Model(model) => model.check(),
            Self::Drive(drive) => drive.check(),
        }
    }

    /// It behaves differently from now on; whether it can. A drive answers late or not at all,
    /// never twice and never wrongly.
    pub(crate) fn set_manner(&mut self, manner: Manner) -> bool {
        let can = match self {
            Self::Model(_) => true,
            Self::Drive(_) => !matches!(manner, Manner::Twice | Manner::Wrong(_)),
        };
        if can {
            self.end().manner = manner;
        }
        can
    }

    /// Writes what it was not told to, into its own part of its host's memory or astray, if it is a
    /// device that does so.
    pub(crate) fn flood(&mut self, own: Option<u64>, count: usize) {
        if let Self::Model(model) = self {
            match own {
                Some(address) => model.flood(address, count),
                None => model.stray(count),
            }
        }
    }
}
