//! The schedule happens.

use super::{Event, World};
use crate::device::Manner;
use crate::director::slot_id;
use crate::host::driver::Burst;
use crate::host::memory::{self, Memory};
use crate::host::os::Os;
use crate::host::{FUNCTIONS, all_of};
use crate::network::{Cables, Loss};
use crate::oracle::Verdict;
use crate::random::{Drawer, Random};
use crate::schedule::{Act, Bad, Entry};
use proxy_core::time::Instant;
use std::time::Duration;

/// Writes of a device that floods, at a time.
const FLOOD: usize = 400;

impl From<Bad> for Manner {
    fn from(bad: Bad) -> Self {
        match bad {
            Bad::Hangs => Self::Hangs,
            Bad::Stuck => Self::Stuck,
            Bad::Late { by_us } => Self::Late(Duration::from_micros(by_us)),
            Bad::Twice => Self::Twice,
            Bad::Wrong { what } => Self::Wrong(what),
        }
    }
}

impl World {
    /// Everything was lent: the schedule begins.
    pub(super) fn begin_schedule(&mut self) {
        let now = self.now();
        self.began = Some(now);
        if let Some(manager) = self.lender.manager() {
            manager.lends_for_a_time(now + Duration::from_millis(self.profile.time.busy_ms));
        }
        self.trace.say(now, 0, "everything is lent; work and faults begin".into());
        for index in 0..self.schedule.len() {
            let entry = self.schedule[index];
            let at = now + Duration::from_micros(entry.at_us);
            self.agenda.plan(at, Event::Begin(index));
            self.agenda.plan(at + Duration::from_micros(entry.for_us), Event::End(index));
        }
    }

    /// An entry begins.
    pub(super) fn begin(&mut self, index: usize) -> Verdict {
        let entry = self.schedule[index];
        let now = self.now();
        let until = now + Duration::from_micros(entry.for_us);
        if !entry.act.is_work() {
            self.trace.say(now, 0, format!("fault {} begins: {:?}", entry.id, entry.act));
        }
        match entry.act {
            Act::Work { host, port, task, operations } => {
                let random = Random::stream(self.seed, Drawer::Burst, entry.id.into());
                self.give_work(host, port, Burst { task, left: operations, random })
            }
            Act::ProxyCrash { node, tables } => self.crash_until(node, until, tables),
            Act::HostReboot { host, perst } => self.reboot(host, perst),
            Act::BusReset { host, port } => self.change(host, port, |os, port| {
                os.reset_bus(port).then_some("buses that hosts reset")
            }),
            Act::FunctionReset { host, port } => self.change(host, port, |os, port| {
                os.reset_function(port).then_some("functions that hosts began to reset")
            }),
            Act::Changes { host, port, change } => self.change(host, port, |os, port| {
                os.begin_change(port, entry.id, change);
                // It counts by itself what becomes of that.
                None
            }),
            Act::DevicePulled { at_box, slot } => self.pull(at_box, slot),
            Act::Flood { at_box, slot, strays } => self.flood(at_box, slot, strays),
            _ => {
                self.begin_quietly(&entry, until);
                Ok(())
            }
        }
    }

    /// An entry begins that moves nothing by itself.
    fn begin_quietly(&mut self, entry: &Entry, until: Instant) {
        let now = self.now();
        match entry.act {
            Act::Storm { cables, trouble } => self.network.storm(cables, entry.id, trouble),
            Act::DelaySpike { cables, delay_us } => {
                self.network.spike(cables, entry.id, Duration::from_micros(delay_us));
            }
            Act::Pause { cables } => self.network.pause(cables, until),
            Act::CutOff { node, sends, gets } => self.cut_off(node, sends, gets, true),
            Act::PathDeath { node, path } => {
                self.network.cut(Cables::Of { node, path }, Loss::PathDead);
            }
            Act::PathOneWay { node, path, sends } => {
                self.network.cut(Cables::one_way(node, path, sends), Loss::PathDeadOneWay);
            }
            Act::PathsChange { host, at_box, count } => self.lender.set_paths(host, at_box, count),
            Act::MtuShrink { path, mtu } => {
                self.network.shrink(Cables::Plane { path }, entry.id, mtu);
            }
            Act::SwitchReboot { path } => {
                self.network.reboot(path);
                self.network.cut(Cables::Plane { path }, Loss::Rebooting);
            }
            Act::Freeze { node } => {
                let life = &mut self.lives[node];
                life.froze.get_or_insert(now);
                life.frozen = Some(life.frozen.map_or(until, |before| before.max(until)));
                self.agenda.plan(until, Event::Thaw(node));
            }
            Act::Manner { at_box, slot, manner } => {
                self.turn_manner(at_box, slot, manner.into());
            }
            Act::RootManner { host, manner } => self.hosts[host].set_manner(now, manner.into()),
            Act::ControlLost { node } => {
                if self.role(node).is_some() {
                    if self.lives[node].connected {
                        self.did.once("control connections that were lost");
                    }
                    self.lose_control(node);
                }
            }
            Act::ManagerCrash { writes, made } => {
                if let Some(manager) = self.lender.manager() {
                    manager.dies_at(writes, made);
                }
            }
            Act::ManagerSlow { by_us } => {
                self.post.slow.push((entry.id, Duration::from_micros(by_us)));
            }
            Act::ManagerTakeover => self.take_over(entry.for_us),
            Act::Release { at_box, slot, force } => {
                if self.lender.release(at_box, slot, force) {
                    self.did.once(if force {
                        "devices released by force"
                    } else {
                        "devices released"
                    });
                }
            }
            Act::Replace { .. }
            | Act::Drain { .. }
            | Act::CallBack
            | Act::TakeBack { .. }
            | Act::Extend { .. }
            | Act::ClockJump { .. } => self.ask_manager(entry.act),
            Act::Work { .. }
            | Act::ProxyCrash { .. }
            | Act::HostReboot { .. }
            | Act::BusReset { .. }
            | Act::FunctionReset { .. }
            | Act::Changes { .. }
            | Act::DevicePulled { .. }
            | Act::Flood { .. } => unreachable!("they move something"),
        }
    }

    /// A host begins anew; with PERST# it resets all its devices at once.
    fn reboot(&mut self, host: usize, perst: bool) -> Verdict {
        let local = self.local(host);
        let Self { hosts, bindings, .. } = self;
        let node = &mut hosts[host];
        if perst && node.role.is_some() {
            node.ports.iter().flatten().for_each(|bound| bindings.get(*bound).reset_begins());
        }
        node.reboot(local, perst);
        self.did.once(if perst {
            "hosts that began anew with PERST#"
        } else {
            "hosts that began anew without a word"
        });
        if perst {
            bindings.access.reset(host);
        }
        self.pump(host)
    }

    /// To one of the devices of a host that do work of that kind, if there is one.
    fn give_work(&mut self, host: usize, port: usize, burst: Burst) -> Verdict {
        let node = &mut self.hosts[host];
        let ready: Vec<usize> = (0..node.ports.len())
            .filter(|p| node.os.is_ready(*p) && node.os.suits(*p, burst.task))
            .collect();
        if !ready.is_empty() {
            node.os.begin(ready[port % ready.len()], burst);
        }
        self.pump(host)
    }

    /// The manners of a device change; but one that takes nothing does not before it is reset.
    fn turn_manner(&mut self, at_box: usize, slot: usize, manner: Manner) {
        if !self.boxes[at_box].slots[slot * FUNCTIONS].device.is_stuck() {
            self.set_manner(at_box, slot, manner);
        }
    }

    /// A device that took nothing does again. What was for it may be lost, so whoever has it begins anew
    /// with it: by its bus, or by its functions, of which its host's proxy knows nothing.
    fn end_stuck(&mut self, at_box: usize, slot: usize, id: u32) -> Verdict {
        let index = slot * FUNCTIONS;
        let entry = &mut self.boxes[at_box].slots[index];
        if entry.device.is_stuck() {
            self.did.once("devices that took nothing, and then did again");
            let bound = entry.binding.map(|binding| &self.bindings.all()[binding]);
            let bound = bound.and_then(|binding| Some((binding.host, binding.port?)));
            if let Some((host, port)) = bound
                && self.hosts[host].ports[port] == self.boxes[at_box].slots[index].binding
            {
                let os = &mut self.hosts[host].os;
                if !(id.is_multiple_of(2) && os.reset_bus(port)) {
                    for port in all_of(port) {
                        if !os.reset_function(port) {
                            // It is about to be let go, or is reset already.
                            os.drop_driver(port);
                        }
                    }
                }
                self.pump(host)?;
            }
            self.set_manner(at_box, slot, Manner::Good);
        }
        self.pump(self.hosts.len() + at_box)
    }

    /// One of the devices of a host, or a function of it, if one is ready there.
    /// What came of it is counted by the name that is given back.
    fn change(
        &mut self,
        host: usize,
        port: usize,
        how: impl FnOnce(&mut Os, usize) -> Option<&'static str>,
    ) -> Verdict {
        let node = &mut self.hosts[host];
        let ready: Vec<usize> = (0..node.ports.len()).filter(|p| node.os.is_ready(*p)).collect();
        if !ready.is_empty()
            && let Some(what) = how(&mut node.os, ready[port % ready.len()])
        {
            self.did.once(what);
        }
        self.pump(host)
    }

    fn crash_until(&mut self, node: usize, until: Instant, tables: bool) -> Verdict {
        if self.role(node).is_none() {
            return Ok(());
        }
        self.crash(node, tables)?;
        let later = self.now() + Duration::from_millis(1);
        self.agenda.plan(until.max(later), Event::Start(node));
        Ok(())
    }

    /// Another manager comes; within that time one proxy after the other finds it.
    fn take_over(&mut self, within_us: u64) {
        let now = self.now();
        let Some(manager) = self.lender.manager() else { return };
        if manager.taken_over(now) {
            self.did.once("managers that were taken over");
        }
        let nodes = self.lives.len() as u64;
        for node in 0..nodes {
            let after = within_us * (node + 1) / (nodes + 1);
            self.agenda.plan(now + Duration::from_micros(after), Event::Redial(node as usize));
        }
    }

    /// What only the manager's own code can be asked for.
    fn ask_manager(&mut self, act: Act) {
        let now = self.now();
        let Some(manager) = self.lender.manager() else { return };
        match act {
            Act::Replace { at_box, slot, force } => manager.replace(at_box, slot, force),
            Act::Drain { site, replace } => manager.begin_work(site, replace),
            Act::CallBack => manager.call_back(),
            Act::TakeBack { at_box, slot, grace_ms } => manager.take_back(at_box, slot, grace_ms),
            Act::Extend { at_box, slot, lease_ms } => manager.extend(at_box, slot, lease_ms),
            Act::ClockJump { by_ms } => {
                manager.clock_jumps(now, by_ms);
                self.did.once("jumps of wall clocks");
            }
            _ => unreachable!("proxies and devices do that"),
        }
    }

    /// An entry ends.
    pub(super) fn end(&mut self, index: usize) -> Verdict {
        let entry = self.schedule[index];
        let now = self.now();
        match entry.act {
            Act::Storm { cables, .. } | Act::DelaySpike { cables, .. } => {
                self.network.end(now, cables, entry.id);
            }
            Act::CutOff { node, sends, gets } => self.cut_off(node, sends, gets, false),
            Act::PathDeath { node, path } => {
                self.network.mend(now, Cables::Of { node, path }, Loss::PathDead);
            }
            Act::PathOneWay { node, path, sends } => {
                let cables = Cables::one_way(node, path, sends);
                self.network.mend(now, cables, Loss::PathDeadOneWay);
            }
            Act::PathsChange { host, at_box, .. } => {
                self.lender.set_paths(host, at_box, self.profile.fabric.paths);
            }
            Act::MtuShrink { path, .. } => self.network.end(now, Cables::Plane { path }, entry.id),
            Act::SwitchReboot { path } => {
                self.network.mend(now, Cables::Plane { path }, Loss::Rebooting);
            }
            Act::ManagerSlow { .. } => self.post.slow.retain(|slow| slow.0 != entry.id),
            Act::Drain { site, .. } => {
                if let Some(manager) = self.lender.manager() {
                    manager.end_work(site);
                }
            }
            Act::ManagerTakeover => {
                if let Some(manager) = self.lender.manager() {
                    manager.end_stale();
                }
            }
            Act::Changes { host, .. } => {
                self.hosts[host].os.end_change(entry.id);
                return self.pump(host);
            }
            Act::DevicePulled { at_box, slot } => return self.put_back(at_box, slot),
            Act::Manner { at_box, slot, manner: Bad::Stuck } => {
                return self.end_stuck(at_box, slot, entry.id);
            }
            Act::Manner { at_box, slot, .. } => self.turn_manner(at_box, slot, Manner::Good),
            Act::RootManner { host, .. } => self.hosts[host].set_manner(now, Manner::Good),
            _ => {}
        }
        Ok(())
    }

    fn cut_off(&mut self, node: usize, sends: bool, gets: bool, cut: bool) {
        let now = self.now();
        let why = if sends && gets { Loss::CutOff } else { Loss::CutOffOneWay };
        for path in 0..self.profile.fabric.paths as u8 {
            let both = [(sends, Cables::From { node, path }), (gets, Cables::To { node, path })];
            for (_, cables) in both.into_iter().filter(|b| b.0) {
                if cut {
                    self.network.cut(cables, why);
                } else {
                    self.network.mend(now, cables, why);
                }
            }
        }
    }

    fn pull(&mut self, at_box: usize, slot: usize) -> Verdict {
        let (now, local) = (self.now(), self.local(self.hosts.len() + at_box));
        let node = &mut self.boxes[at_box];
        let all = all_of(slot * FUNCTIONS);
        if !node.slots[all.start].present {
            return Ok(());
        }
        self.did.once("devices that were pulled");
        for entry in &mut node.slots[all] {
            entry.present = false;
            entry.device.reset(now);
            entry.forget(now);
            if let Some(binding) = entry.binding.take() {
                self.bindings.get(binding).end();
            }
        }
        if let Some(role) = &mut node.role {
            role.device_removed(local, slot_id(slot));
        }
        self.pump(self.hosts.len() + at_box)
    }

    fn put_back(&mut self, at_box: usize, slot: usize) -> Verdict {
        let local = self.local(self.hosts.len() + at_box);
        let node = &mut self.boxes[at_box];
        let all = all_of(slot * FUNCTIONS);
        if node.slots[all.start].present {
            return Ok(());
        }
        self.did.once("devices that were put back");
        node.slots[all].iter_mut().for_each(|entry| entry.present = entry.there);
        if let Some(role) = &mut node.role {
            role.device_inserted(local, slot_id(slot), super::boxes::model());
        }
        self.pump(self.hosts.len() + at_box)
    }

    fn flood(&mut self, at_box: usize, slot: usize, strays: bool) -> Verdict {
        let entry = &mut self.boxes[at_box].slots[slot * FUNCTIONS];
        let Some(index) = entry.binding else { return Ok(()) };
        let host = self.bindings.get(index).host;
        let port = self.hosts[host].ports.iter().position(|bound| *bound == Some(index));
        let Some(port) = port else { return Ok(()) };
        let own = (!strays).then(|| Memory::address(port, false, memory::FLOODED));
        entry.device.flood(own, FLOOD);
        self.pump(self.hosts.len() + at_box)
    }

    /// A proxy that stood still goes on: its timers first, then what came meanwhile.
    pub(super) fn thaw(&mut self, node: usize) -> Verdict {
        let now = self.now();
        if self.lives[node].frozen.is_none_or(|until| until > now) {
            return Ok(());
        }
        self.lives[node].frozen = None;
        if let Some(since) = self.lives[node].froze.take() {
            self.links.stood_still(since, now, node);
            self.lives[node].stood_still.push((since, now));
            self.did.once("nodes that stood still");
        }
        self.lives[node].timer = None;
        self.pump(node)?;
        let backlog = std::mem::take(&mut self.lives[node].backlog);
        self.did.times("frames that waited at a node that stood still", backlog.len());
        for number in backlog {
            if let Some(flight) = self.held[number as usize].take() {
                self.arrived(flight)?;
            }
        }
        let unread = std::mem::take(&mut self.lives[node].unread);
        self.did.times("control messages that waited at a node that stood still", unread.len());
        for number in unread {
            self.message(number)?;
        }
        Ok(())
    }
}
