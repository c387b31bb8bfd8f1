//! What a driver does not know of its device while the configuration of that, or of its port, is changed
//! under it: which of what it wrote has come, and which of what the device wrote has. Afterwards it finds
//! out, without a reset.

use super::Question;
use super::model::{CELLS, ModelDriver};
use crate::device::{self, Job};
use crate::egress::Egress;
use crate::host::{Asker, Purpose};
use crate::oracle::completion::Completed;
use tlp_codec::tlp::CplStatus;

/// What may come to nothing: what is asked of a device and written to it, or what the device does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) down: bool,
    pub(crate) up: bool,
}

/// What a driver knows for sure.
#[derive(Debug, Default)]
pub(super) struct Unsure {
    /// What may come to nothing now.
    losses: Losses,
    /// It begins nothing.
    paused: bool,
    /// The version of each register that has come, or will.
    sure: [u32; CELLS],
    /// How often the doorbell was rung and heard.
    rung: u64,
    /// Transfers that were begun.
    transfers: u64,
    /// Those of which nothing is heard any more.
    pub(super) lost: u64,
    /// It has asked how many commands are not done.
    asking: bool,
    /// How far its device's registers are from where they were first.
    pub(super) slid: u64,
}

impl Unsure {
    /// Whether what is written comes to the device.
    pub(super) fn is_heard(&self) -> bool {
        !self.losses.down
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// A register was written.
    pub(super) fn wrote(&mut self, cell: usize, version: u32) {
        if self.is_heard() {
            self.sure[cell] = version;
        }
    }

    /// The version that a register has at least.
    pub(super) fn version(&self, cell: usize) -> u32 {
        self.sure[cell]
    }

    /// The doorbell was rung.
    pub(super) fn rang(&mut self) {
        self.rung += u64::from(self.is_heard());
    }

    /// How often it was at least.
    pub(super) fn rung(&self) -> u64 {
        self.rung
    }

    /// Number of a transfer, and whether some of it may be lost.
    pub(super) fn begin_transfer(&mut self) -> (u64, bool) {
        self.transfers += 1;
        (self.transfers, self.losses != Losses::default())
    }
}

impl ModelDriver {
    /// It begins nothing before it goes on.
    pub(crate) fn pause(&mut self) {
        self.unsure.paused = true;
    }

    /// From now on something may be lost.
    pub(crate) fn expect(&mut self, losses: Losses) {
        self.unsure.losses = losses;
        if losses.up {
            self.transfers.iter_mut().flatten().for_each(|transfer| transfer.void = true);
        }
    }

    /// Nothing is lost any more.
    pub(crate) fn go_on(&mut self) {
        self.unsure.losses = Losses::default();
        self.unsure.paused = false;
    }

    /// Whether every question was answered.
    pub(crate) fn waits_for_nothing(&self) -> bool {
        self.outstanding == 0
    }

    /// Whether every transfer is done, too.
    pub(crate) fn is_drained(&self) -> bool {
        self.waits_for_nothing() && self.transfers.iter().all(Option::is_none)
    }

    /// How far its device's registers are from where they were first.
    pub(crate) fn slid(&self) -> u64 {
        self.unsure.slid
    }

    pub(crate) fn slide_to(&mut self, slid: u64) {
        self.unsure.slid = slid;
    }

    /// Asks whether its device still works at what may be lost.
    pub(super) fn look_for_lost(&mut self, out: &mut Egress<Purpose>) {
        let any = self.transfers.iter().flatten().any(|transfer| transfer.void);
        if any && !self.unsure.asking && self.unsure.losses == Losses::default() {
            self.unsure.asking = true;
            let question = Question::Going { upto: self.unsure.transfers };
            self.read(out, device::GOING, 1, question);
        }
    }

    /// A device without work has said all that it had to, and that came before its answer.
    pub(super) fn looked_for_lost(&mut self, upto: u64, done: &Completed<Asker>, payload: &[u8]) {
        self.unsure.asking = false;
        if done.status != CplStatus::Success || done.doubtful || payload != [0; 4] {
            return;
        }
        for (transfer, unknown) in self.transfers.iter_mut().zip(&mut self.unknown) {
            if let Some(lost) = transfer.take_if(|lost| lost.void && lost.number <= upto) {
                *unknown |= lost.command.job == Job::Add;
                self.unsure.lost += 1;
            }
        }
    }
}
