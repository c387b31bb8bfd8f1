//! What a proxy tells that failed is over, and it has to have a cause: the manager took it back, its
//! other end is over, its link went down for a reason, its device was pulled, or a TLP of it was
//! changed where only its own CRC shows it.

use super::World;
use crate::host::{FUNCTIONS, all_of, first, host_name, port_name};
use crate::oracle::binding::Binding;
use crate::oracle::{Verdict, Violation};
use proxy_core::control::{BindingFailure, Event as Said, LinkDownReason, PortState, SlotState};
use proxy_core::limits::LINK_GIVE_UP;
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::{BindingKey, NodeId, SlotFunction, SlotId};

/// What a device did wrong before that is no reason to put it into quarantine: it has been asked,
/// reset and asked again since, and each of that had its time.
const QUARANTINES: Duration = Duration::from_secs(10);

/// The place of a function among those of its box.
pub(super) fn slot_of(key: &BindingKey) -> usize {
    place(key.slot, key.function)
}

fn place(slot: SlotId, function: SlotFunction) -> usize {
    (usize::from(slot.get()) - 1) * FUNCTIONS + usize::from(function.get())
}

fn without_cause(what: impl Into<String>) -> Verdict {
    Err(Violation::new(1, what))
}

impl World {
    /// A proxy tells that something happened by itself.
    pub(super) fn happened(&mut self, node: usize, event: &Said) -> Verdict {
        self.hear_paths(node, event);
        let hosts = self.hosts.len();
        match event {
            Said::LinkDown { peer, reason } => self.link_down(node, peer, *reason),
            Said::BindingFailed { peer, key, reason } => {
                self.binding_failed(node, usize::from(peer.get()) - 1, key, *reason)
            }
            Said::Port { port, state: state @ (PortState::Empty | PortState::Failed) }
                if node < hosts =>
            {
                self.port_over(node, usize::from(port.get()) * FUNCTIONS, *state)
            }
            Said::Slot { slot, function, state } if node >= hosts && *state != SlotState::Bound => {
                self.slot_over(node - hosts, place(*slot, *function), *state)
            }
            _ => Ok(()),
        }
    }

    /// The life that a node is in, if its proxy is there.
    pub(super) fn life_of(&mut self, node: usize) -> Option<u32> {
        let incarnation = self.lives[node].incarnation * 16 + node as u32 + 1;
        self.role(node).is_some().then_some(incarnation)
    }

    /// A link takes down what its node has bound, not what is only at the other end: that is on the
    /// link that comes.
    fn link_down(&mut self, node: usize, peer: &NodeId, reason: LinkDownReason) -> Verdict {
        let (now, hosts, other) = (self.now(), self.hosts.len(), usize::from(peer.get()) - 1);
        let life = self.life_of(other);
        let whole = self.had_a_path(LINK_GIVE_UP, node, other);
        if let Some(against) = self.links.down(now, (node, other), reason, life, whole) {
            return without_cause(format!(
                "the link of node {} to node {peer} went down ({reason:?}), but {against}",
                node + 1
            ));
        }
        let bound: Vec<usize> = match node.checked_sub(hosts) {
            None => self.hosts[node].ports.iter().copied().flatten().collect(),
            Some(at_box) => {
                self.boxes[at_box].slots.iter().filter_map(|slot| slot.binding).collect()
            }
        };
        for index in bound {
            let binding = self.bindings.get(index);
            let (host, at_box) = (binding.host, hosts + binding.at_box);
            if (node, other) == (host, at_box) || (node, other) == (at_box, host) {
                binding.end();
            }
        }
        Ok(())
    }

    fn binding_failed(
        &mut self,
        node: usize,
        peer: usize,
        key: &BindingKey,
        reason: BindingFailure,
    ) -> Verdict {
        let hosts = self.hosts.len();
        let (host, at_box) = (node.min(peer), node.max(peer) - hosts);
        let named = |binding: &Binding| {
            (binding.host, binding.at_box, binding.slot) == (host, at_box, slot_of(key))
                && binding.epoch == key.epoch.bits()
        };
        let index = self.bindings.all().iter().position(named);
        let Some(index) = index else {
            return without_cause(format!("{key:?} failed, which is no binding of node {node}"));
        };
        // At its host all functions of a device fail with one of them, and the first one is named.
        let together = match self.bindings.all()[index].port.filter(|_| node < hosts) {
            Some(port) => self.hosts[host].ports[all_of(port)].iter().copied().flatten().collect(),
            None => vec![index],
        };
        let has_cause = together.into_iter().chain([index]).any(|index| {
            let binding = &self.bindings.all()[index];
            binding.is_over()
                || match reason {
                    BindingFailure::TlpCrc => {
                        let (slot, epoch) = (binding.slot, binding.epoch);
                        self.lied.contains(&(node, peer, slot, epoch))
                    }
                    // Its device may have been pulled before its host took it, while its box stood still.
                    BindingFailure::PeerUnbound | BindingFailure::DeviceGone => {
                        binding.may_be_stillborn()
                    }
                    BindingFailure::HostLetGo => {
                        node < hosts && self.hosts[node].let_go_of == Some(index)
                    }
                    // Whoever hears that a link is down notes it before.
                    BindingFailure::LinkDown => false,
                }
        });
        if !has_cause {
            return without_cause(format!(
                "node {} says that {key:?} failed ({reason:?}), without a cause",
                node + 1
            ));
        }
        self.bindings.get(index).end();
        Ok(())
    }

    /// A port is empty when the manager took its device back, and failed when a binding of it is.
    fn port_over(&mut self, host: usize, port: usize, state: PortState) -> Verdict {
        let bound: Vec<usize> =
            self.hosts[host].ports[all_of(port)].iter().copied().flatten().collect();
        let has_cause = |index: &usize| {
            let binding = &self.bindings.all()[*index];
            binding.is_over() || state == PortState::Empty && binding.is_asked_back()
        };
        if !bound.is_empty() && !bound.iter().any(has_cause) {
            let (host, port) = (host_name(host), port_name(first(port)));
            return without_cause(format!("{host} says that {port} is {state:?} by itself"));
        }
        bound.into_iter().for_each(|index| self.bindings.get(index).end());
        Ok(())
    }

    fn slot_over(&mut self, at_box: usize, slot: usize, state: SlotState) -> Verdict {
        if state == SlotState::Quarantined && !self.misbehaved(at_box, slot) {
            return without_cause(format!(
                "{} is quarantined, whose device did nothing wrong",
                self.slot_of_box(at_box, slot)
            ));
        }
        let entry = &self.boxes[at_box].slots[slot];
        if state == SlotState::Free && entry.present && !entry.answers_proxy {
            return without_cause(format!(
                "{} can be lent, whose device has answered nothing since it was reset: that is for \
                 quarantine",
                self.slot_of_box(at_box, slot)
            ));
        }
        let Some(index) = entry.binding else { return Ok(()) };
        let binding = &self.bindings.all()[index];
        if !binding.is_over() && !binding.may_be_stillborn() {
            return without_cause(format!(
                "{}, which is lent, is said to be {state:?} by itself",
                self.slot_of_box(at_box, slot)
            ));
        }
        Ok(())
    }

    /// Whether the device in a slot gave a reason to trust it no more, of late.
    fn misbehaved(&self, at_box: usize, slot: usize) -> bool {
        let now = self.now();
        let age = |at: Instant| now.saturating_since(at);
        // Functions that the device does not have say nothing of it.
        let mut functions = self.boxes[at_box].slots[all_of(slot)].iter().filter(|slot| slot.there);
        functions.any(|slot| {
            !slot.present || slot.spells.last(now).is_some_and(|last| age(last) <= QUARANTINES)
        })
    }
}
