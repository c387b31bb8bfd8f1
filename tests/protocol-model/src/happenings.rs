//! What happens to proxies, links, TLPs and whole managers.

use crate::leader::{self, Leader};
use crate::proxies::{Answer, Body, Refusal, Request, Tlp, Way};
use crate::space::{Bug, Connection, State, Wrong};
use tlp_codec::ids::Epoch;

/// Takes one from a budget, if there is one.
pub(crate) fn spend(left: &mut u8) -> Option<()> {
    *left = left.checked_sub(1)?;
    Some(())
}

impl State {
    pub(crate) fn leader(&self, index: usize) -> Option<&Leader> {
        self.leaders[index].as_ref()
    }

    pub(crate) fn proxy_term(&self, proxy: usize) -> u64 {
        match proxy {
            0 => self.the_box.term,
            host => self.hosts[host - 1].term,
        }
    }

    pub(crate) fn incarnation(&self, proxy: usize) -> u32 {
        match proxy {
            0 => self.the_box.incarnation,
            host => self.hosts[host - 1].incarnation,
        }
    }

    /// A connection that a manager can use.
    pub(crate) fn open(&self, proxy: usize, leader: usize) -> Option<&Connection> {
        self.connections[proxy].as_ref().filter(|c| c.open && c.leader == leader)
    }

    /// Ends a connection at the manager's end: what waits for it there does no longer.
    pub(crate) fn close(&mut self, proxy: usize) {
        let Some(connection) = &mut self.connections[proxy] else { return };
        connection.open = false;
        connection.ready = false;
        connection.sync_wanted = false;
        connection.sync = leader::Sync::Idle;
        connection.answers.clear();
        if let Some(leader) = &mut self.leaders[connection.leader] {
            leader.lost(proxy);
        }
    }

    pub(crate) fn dial(&mut self, proxy: usize, to: usize) -> Option<()> {
        let there = self.connections[proxy].as_ref();
        // A proxy that has a manager goes to the second one when it is told to, and never back.
        if there.is_some_and(|c| c.open && !c.gone && c.leader >= to) {
            return None;
        }
        let leader = self.leader(to)?;
        let term = self.proxy_term(proxy);
        if term > leader.records.term() {
            let before = leader.records.clone();
            let (after, ()) = before.with(|txn| txn.learn_term(term));
            self.leaders[to].as_mut()?.record(after.clone());
            return (before != after).then_some(());
        }
        self.close(proxy);
        self.connections[proxy] = Some(Connection {
            leader: to,
            incarnation: self.incarnation(proxy),
            open: true,
            gone: false,
            ready: false,
            sync_wanted: true,
            sync: leader::Sync::Idle,
            requests: Vec::new(),
            answers: Vec::new(),
        });
        Some(())
    }

    /// Says something to the manager, if one listens.
    pub(crate) fn tell(&mut self, proxy: usize, answer: Answer) {
        if let Some(connection) = &mut self.connections[proxy]
            && connection.open
            && !connection.gone
        {
            connection.answers.push(answer);
        }
    }

    pub(crate) fn restarted(&mut self, proxy: usize) {
        if let Some(connection) = &mut self.connections[proxy] {
            connection.gone = true;
            connection.requests.clear();
            connection.answers.clear();
        }
    }

    /// Whether the box would take what a host sends now under what its port has.
    pub(crate) fn reaches(&self, host: usize) -> bool {
        let (here, there) = (&self.hosts[host], &self.the_box);
        let (Some(port), Some(slot)) = (here.bound, there.bound) else { return false };
        let joined =
            here.peer == Some(there.incarnation) && there.peers[host] == Some(here.incarnation);
        joined && !port.dead && !slot.dead && slot.host == host && slot.epoch == port.epoch
    }

    pub(crate) fn box_notices(&mut self) -> Option<()> {
        let entry = self.the_box.bound.as_mut().filter(|entry| !entry.dead)?;
        let host = entry.host;
        if self.the_box.peers[host] == Some(self.hosts[host].incarnation) {
            return None;
        }
        entry.dead = true;
        let epoch = entry.epoch;
        self.tell(0, Answer::LinkDown(epoch));
        Some(())
    }

    pub(crate) fn host_notices(&mut self, host: usize) -> Option<()> {
        let there = self.the_box.bound.filter(|slot| slot.host == host && !slot.dead);
        let port = self.hosts[host].bound.as_mut().filter(|port| !port.dead)?;
        let joined = self.hosts[host].peer == Some(self.the_box.incarnation);
        if joined && there.is_some_and(|slot| slot.epoch == port.epoch) {
            return None;
        }
        port.dead = true;
        let epoch = port.epoch;
        self.tell(host + 1, Answer::LinkDown(epoch));
        Some(())
    }

    pub(crate) fn obey(&mut self, proxy: usize, bug: Option<Bug>) -> Option<()> {
        let connection = self.connections[proxy].as_mut().filter(|c| !c.gone)?;
        if connection.requests.is_empty() {
            return None;
        }
        let Request { way, term, body } = connection.requests.remove(0);
        let obeyed = self.proxy_term(proxy);
        if term < obeyed {
            self.tell(proxy, Answer::Refused(way, Refusal::StaleTerm(obeyed)));
            return Some(());
        }
        let known = self.leaders.iter().flatten().any(|leader| leader.records.term() == term);
        let later = self.leaders.iter().flatten().filter(|l| l.records.term() == term).count() > 1;
        if known && later && body != Body::Read {
            self.wrong = Some(Wrong::NotFenced);
        }
        let (answer, died) = match proxy {
            0 => self.box_obeys(way, term, body, bug),
            host => self.host_obeys(host - 1, way, term, body),
        };
        // A proxy's answers go before its events.
        self.tell(proxy, answer);
        if let Some(epoch) = died {
            self.tell(proxy, Answer::LinkDown(epoch));
        }
        Some(())
    }

    /// The answer, and the epoch of what died by it.
    fn box_obeys(
        &mut self,
        way: Way,
        term: u64,
        body: Body,
        bug: Option<Bug>,
    ) -> (Answer, Option<Epoch>) {
        self.the_box.term = term;
        let done = |result: Result<(), Refusal>| match result {
            Ok(()) => Answer::Done(way),
            Err(refusal) => Answer::Refused(way, refusal),
        };
        match body {
            Body::Read => (Answer::Box(self.the_box.clone()), None),
            Body::SetPeer { peer, incarnation } => {
                (Answer::Done(way), self.the_box.set_peer(peer - 1, incarnation))
            }
            Body::BindSlot { host, incarnation, epoch, life } => {
                let died = self.the_box.set_peer(host, incarnation);
                let lax = bug == Some(Bug::EpochAgain);
                (done(self.the_box.bind(host, epoch, life, lax)), died)
            }
            Body::UnbindSlot { epoch, host_asked } => {
                if let Some(entry) = self.the_box.bound.filter(|entry| entry.epoch == epoch) {
                    if host_asked && self.reaches(entry.host) {
                        self.wrong = Some(Wrong::ResetUnderUse);
                    }
                    self.the_box.bound = None;
                }
                (Answer::Done(way), None)
            }
            body => unreachable!("{body:?} is not a box's"),
        }
    }

    fn host_obeys(
        &mut self,
        host: usize,
        way: Way,
        term: u64,
        body: Body,
    ) -> (Answer, Option<Epoch>) {
        let there = &mut self.hosts[host];
        there.term = term;
        match body {
            Body::Read => (Answer::Host(there.clone()), None),
            Body::SetPeer { incarnation, .. } => (Answer::Done(way), there.set_peer(incarnation)),
            Body::BindPort { incarnation, epoch, life } => {
                let died = there.set_peer(incarnation);
                let answer = match there.bind(host, epoch, life) {
                    Ok(()) => Answer::Done(way),
                    Err(refusal) => Answer::Refused(way, refusal),
                };
                (answer, died)
            }
            Body::UnbindPort { epoch } => {
                if there.bound.is_some_and(|entry| entry.epoch == epoch) {
                    (there.bound, there.configured) = (None, false);
                }
                (Answer::Done(way), None)
            }
            body => unreachable!("{body:?} is not a host's"),
        }
    }

    pub(crate) fn enable(&mut self, host: usize) -> Option<()> {
        let there = &mut self.hosts[host];
        there.bound.filter(|entry| !entry.dead && !there.configured)?;
        there.configured = true;
        self.tell(host + 1, Answer::Configured);
        Some(())
    }

    pub(crate) fn send(&mut self, host: usize, to_device: bool) -> Option<()> {
        if self.tlp.is_some() {
            return None;
        }
        let (here, there) = (&self.hosts[host], &self.the_box);
        let (entry, incarnations) = match to_device {
            true => (here.bound?, (here.incarnation, here.peer?)),
            false => (there.bound?, (there.incarnation, there.peers[host]?)),
        };
        if entry.dead || entry.host != host {
            return None;
        }
        spend(&mut self.left.tlps)?;
        let (epoch, life) = (entry.epoch, entry.life);
        self.tlp = Some(Tlp { to_device, host, incarnations, epoch, life });
        Some(())
    }

    pub(crate) fn arrive(&mut self) -> Option<()> {
        let tlp = self.tlp.take()?;
        let (host, there) = (&self.hosts[tlp.host], &self.the_box);
        let (entry, joined) = match tlp.to_device {
            true => (there.bound, (there.peers[tlp.host], there.incarnation)),
            false => (host.bound, (host.peer, host.incarnation)),
        };
        let same_lives = (Some(tlp.incarnations.0), tlp.incarnations.1) == joined;
        if let Some(entry) = entry
            && same_lives
            && entry.host == tlp.host
            && entry.epoch == tlp.epoch
            && !entry.dead
            && entry.life != tlp.life
        {
            self.wrong = Some(Wrong::Crossed);
        }
        Some(())
    }

    pub(crate) fn crash(&mut self, index: usize) -> Option<()> {
        let leader = self.leaders[index].as_mut()?;
        *leader = Leader::new(leader.durable.in_next_term());
        for proxy in 0..3 {
            if self.connections[proxy].as_ref().is_some_and(|c| c.leader == index) {
                self.close(proxy);
            }
        }
        Some(())
    }

    pub(crate) fn take_over(&mut self, bug: Option<Bug>) -> Option<()> {
        if self.leaders[1].is_some() {
            return None;
        }
        spend(&mut self.left.takeovers)?;
        let restored = match bug {
            Some(Bug::SameTerm | Bug::EpochAgain) => self.backup.clone(),
            _ => self.backup.in_next_generation(),
        };
        self.leaders[1] = Some(Leader::new(restored.in_next_term()));
        Some(())
    }
}
