//! Who is bound to whom, by what the manager asked for and the proxies said yes to, and what is
//! under way on each binding.

use super::order::{Flow, Seen};
use super::{Verdict, Violation};
use proxy_core::time::Instant;
use std::collections::BTreeMap;

/// One binding, for ever: its epoch is never used again.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) host: usize,
    pub(crate) at_box: usize,
    pub(crate) slot: usize,
    pub(crate) epoch: u32,
    /// From the root complex to the device, and back.
    pub(crate) down: Flow,
    pub(crate) up: Flow,
    /// The request behind each tag that the root complex was asked under.
    pub(crate) asked_root: Vec<u64>,
    pub(crate) standing: Standing,
    /// Its device sends what it was not told to.
    pub(crate) rogue: bool,
}

/// How much a binding has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The operating system does not use the device yet or any more, or something has happened
    /// that excuses a loss. What comes has still to be right.
    Fresh,
    /// Nothing may be lost, and nobody but the device answers.
    Sound,
    /// It failed, or was taken back.
    Over,
}

/// All bindings of a run.
#[derive(Default)]
pub(crate) struct Bindings {
    all: Vec<Binding>,
    by_name: BTreeMap<(usize, usize, u32), usize>,
}

impl Bindings {
    /// The binding of a box's slot under an epoch, to a host.
    pub(crate) fn find(
        &mut self,
        host: usize,
        at_box: usize,
        slot: usize,
        epoch: u32,
    ) -> Verdict<usize> {
        let next = self.all.len();
        let index = *self.by_name.entry((at_box, slot, epoch)).or_insert(next);
        if index == next {
            let (down, up) = Default::default();
            let asked_root = vec![0; 256];
            let standing = Standing::Fresh;
            self.all.push(Binding {
                host,
                at_box,
                slot,
                epoch,
                down,
                up,
                asked_root,
                standing,
                rogue: false,
            });
        }
        if self.all[index].host != host {
            let what = format!(
                "slot {slot} of box {at_box} is bound to hosts {} and {host} under one epoch",
                self.all[index].host
            );
            return Err(Violation::new(4, what));
        }
        Ok(index)
    }

    pub(crate) fn get(&mut self, index: usize) -> &mut Binding {
        &mut self.all[index]
    }

    pub(crate) fn all(&self) -> &[Binding] {
        &self.all
    }

    pub(crate) fn all_mut(&mut self) -> &mut [Binding] {
        &mut self.all
    }

    /// TLPs that came, over all bindings.
    pub(crate) fn delivered(&self) -> u64 {
        self.all.iter().map(|b| b.up.delivered + b.down.delivered).sum()
    }
}

impl Binding {
    pub(crate) fn is_sound(&self) -> bool {
        self.standing == Standing::Sound
    }

    /// The operating system uses the device from now on.
    pub(crate) fn settle(&mut self) {
        if self.standing == Standing::Fresh {
            self.standing = Standing::Sound;
        }
    }

    /// Something happened that excuses a loss.
    pub(crate) fn unsettle(&mut self) {
        if self.standing == Standing::Sound {
            self.standing = Standing::Fresh;
        }
        self.down.relax();
        self.up.relax();
    }

    /// It failed, or is taken back.
    pub(crate) fn end(&mut self) {
        self.standing = Standing::Over;
        self.down.relax();
        self.up.relax();
    }

    /// It is over for good: nothing of it may come any more.
    pub(crate) fn close(&mut self) {
        self.end();
        self.down.close();
        self.up.close();
    }

    /// A TLP of the root complex was taken in.
    pub(crate) fn sent_down(&mut self, now: Instant, seen: Seen, request: u64) {
        self.down.send(now, seen, request, !self.is_sound());
    }

    /// A TLP of the device was taken in.
    pub(crate) fn sent_up(&mut self, now: Instant, seen: Seen, request: u64, optional: bool) {
        self.up.send(now, seen, request, optional || !self.is_sound());
    }
}
