//! What is looked at beside what each oracle sees by itself.

use super::{FOR_TAGS, World};
use crate::oracle::bounds::{self, Way};
use crate::oracle::{Verdict, Violation};
use std::collections::BTreeMap;
use std::time::Duration;

/// A counter's name, and how far it is.
type Counter = (&'static str, u64);

impl World {
    /// What is seen only by looking.
    pub(super) fn check(&mut self) -> Verdict {
        let now = self.now();
        let Self { hosts, boxes, lives, bound, .. } = self;
        let hosts_end = hosts.len();
        for (host, life) in hosts.iter_mut().zip(&*lives) {
            host.requests.check(now, *bound, |since| life.stood_still(since, now))?;
            host.check_front(now, |since| life.stood_still(since, now))?;
        }
        for (a_box, life) in boxes.iter_mut().zip(&lives[hosts_end..]) {
            for slot in &mut a_box.slots {
                let requests = &mut slot.device.end().requests;
                let still =
                    |since| life.stood_still(since, now) + slot.spells.stuck_for(since, now);
                requests.check(now, *bound, still)?;
                slot.device.check()?;
            }
        }
        let still = |node: usize, since| lives[node].stood_still(since, now);
        self.post.answers.check(now, still)?;
        self.bindings.progress.forget_old(now);
        self.check_crossings()?;
        self.check_standing()?;
        self.check_tables()?;
        self.check_written()?;
        (0..self.lives.len()).try_for_each(|node| self.check_counters(node))
    }

    /// What came to a proxy it has counted.
    pub(super) fn check_counters(&self, node: usize) -> Verdict {
        let Some(counters) = self.counters(node) else { return Ok(()) };
        self.lives[node].counted.check(counters).map_err(|said| {
            Violation::new(said.promise, format!("node {}: {}", node + 1, said.what))
        })
    }

    /// What a node's proxy has counted, if it lives.
    pub(super) fn counters(&self, node: usize) -> Option<Box<dyn Iterator<Item = Counter>>> {
        match node.checked_sub(self.hosts.len()) {
            None => Some(Box::new(self.hosts[node].role.as_ref()?.counters())),
            Some(at_box) => Some(Box::new(self.boxes[at_box].role.as_ref()?.counters())),
        }
    }

    /// Nothing of a binding in use is under way for longer than the profile says.
    fn check_crossings(&self) -> Verdict {
        let bound = Duration::from_millis(self.profile.time.crosses_ms);
        for binding in self.bindings.all().iter().filter(|b| b.is_sound() && !bound.is_zero()) {
            for (flow, way) in [(&binding.down, "to"), (&binding.up, "from")] {
                let since = flow.owed().1.unwrap_or(self.now());
                if self.now().saturating_since(since) > bound + FOR_TAGS {
                    let name = self.slot_of_box(binding.at_box, binding.slot);
                    let what =
                        format!("a TLP {way} the device in {name} is under way since {since:?}");
                    return Err(Violation::new(0, what));
                }
            }
        }
        Ok(())
    }

    /// A slot's function is bound to one host, and no two hosts show it under one epoch.
    pub(super) fn check_tables(&mut self) -> Verdict {
        let mut seen = BTreeMap::new();
        for (index, host) in self.hosts.iter().enumerate() {
            let Some(role) = &host.role else { continue };
            for port in role.switch().port_ids() {
                let entry = role.mapping_entry(port);
                for (function, epoch) in &entry.functions {
                    let name = (entry.box_node, entry.slot, function.get(), epoch.bits());
                    if let Some(other) = seen.insert(name, index) {
                        let what = format!("{name:?} is bound to hosts {other} and {index}");
                        return Err(Violation::new(4, what));
                    }
                }
            }
        }
        Ok(())
    }

    /// What a node's TLPs are held in has a limit.
    pub(super) fn check_held(&self, node: usize) -> Verdict {
        let shared = self.profile.fabric.shared_buffers;
        let sound = |index: &usize| &self.bindings.all()[*index];
        match node.checked_sub(self.hosts.len()) {
            None => {
                let ports = self.hosts[node].ports.iter().flatten();
                bounds::check(ports.map(sound), Way::ToDevice, shared)
            }
            Some(at_box) => {
                let slots = self.boxes[at_box].slots.iter().flat_map(|slot| &slot.binding);
                bounds::check(slots.map(sound), Way::FromDevice, shared)
            }
        }
    }
}
