//! Devices that ask each other, and what may keep them from their answers.

use super::World;
use crate::clock::may_have_given_up;
use crate::device::Errand;
use crate::host::{FUNCTIONS, all_of, port_name};
use crate::oracle::binding::Binding;
use crate::oracle::completion::Asked;
use crate::oracle::order::{Seen, is_made_up};
use crate::oracle::progress::Waits;
use crate::oracle::tags::Tags;
use crate::oracle::{Verdict, Violation};
use proxy_core::limits::SYNTHESISED_COMPLETION;
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::tlp::{Class, CplStatus, Packet};

/// So much of a request's time may go by behind what is for devices that take nothing.
const KEPT: Duration = SYNTHESISED_COMPLETION.checked_div(2).expect("not zero");

impl World {
    /// A completion came to a device for what it had asked another one.
    pub(super) fn answered_by_peer(
        &mut self,
        asked: &Asked<Errand>,
        seen: Seen,
        tlp: &[u8],
    ) -> Verdict {
        let (now, request) = (self.now(), asked.request);
        let Errand { binding: Some(from), peer: Some((port, target)), .. } = asked.purpose else {
            return Ok(());
        };
        let upset = !self.bindings.all()[from].is_sound() || self.bindings.is_upset(target);
        let good = Packet::new_checked(tlp).is_ok_and(|p| p.status() == CplStatus::Success);
        let known = self.bindings.sender_aside(from, port, &seen, Some(request)).is_some();
        // Of two requests that were alike, one may have been lost.
        let alike = || upset && self.bindings.sender_aside(from, port, &seen, None).is_some();
        if known || alike() {
            self.bindings.deliver_aside(from, port, seen, known.then_some(request))?;
            if !good && upset {
                self.bindings.give_up_aside(now, from, port, request);
            }
            return Ok(());
        }
        let refused = target.is_some_and(|(index, _)| {
            self.has_no_tags(index, asked.since) || self.was_given_up(index, asked.since)
        });
        let target = target.map_or(from, |(index, _)| index);
        let waits = self.bindings.waits(asked.since, now, target, request);
        if is_made_up(tlp) && (upset || refused || self.peers_kept(&waits)) {
            self.bindings.give_up_aside(now, from, port, request);
            return Ok(());
        }
        let port = port_name(port);
        let what =
            format!("request {request} of a device got an answer that {port}'s did not give");
        Err(Violation::new(3, what))
    }

    /// Whether a binding's device may have left no tag to ask it under, so that it was refused at once.
    fn has_no_tags(&self, binding: usize, since: Instant) -> bool {
        let now = self.now();
        let Binding { at_box, slot, .. } = self.bindings.all()[binding];
        let slots = &self.boxes[at_box].slots;
        let of_slot = slots[all_of(slot)].iter().map(|slot| &slot.tags);
        Tags::may_all_have_been_gone(of_slot, since, now)
    }

    /// Whether a binding's device may have taken nothing for so long since then that its host gave up
    /// what was for it.
    fn was_given_up(&self, binding: usize, since: Instant) -> bool {
        let Binding { host, at_box, slot, .. } = self.bindings.all()[binding];
        let spells = &self.boxes[at_box].slots[slot].spells;
        spells.gave_up(since, self.now(), self.hosts[host].patience)
    }

    /// Whether the time of something that a binding's device asked is over, and other devices of its host
    /// took nothing meanwhile, for so long that they explain it: what is for them goes first, and each
    /// of them is waited for once in each class.
    pub(super) fn kept_by_stuck(&self, binding: usize, waits: &Waits) -> bool {
        let (now, since) = (self.now(), waits.network);
        let kept = KEPT.min(now.saturating_since(since) / 2);
        let host = self.bindings.all()[binding].host;
        let waited = || {
            let of_host = self.hosts[host].ports.iter().step_by(FUNCTIONS).flatten();
            let stuck = of_host.map(|index| {
                let Binding { at_box, slot, .. } = self.bindings.all()[*index];
                let spells = &self.boxes[at_box].slots[slot].spells;
                spells.stuck_for(since, now).min(self.hold * Class::ALL.len() as u32)
            });
            stuck.sum::<Duration>()
        };
        may_have_given_up(waits.since, now) && waited() >= kept
    }

    /// As [`World::peers_kept`], of what a host had asked that is answered now.
    pub(super) fn peers_kept_from_root(&self, host: usize, tlp: &[u8]) -> bool {
        let asked = is_made_up(tlp).then(|| self.hosts[host].requests.of(tlp).ok()).flatten();
        asked.is_some_and(|asked| {
            let binding = asked.purpose.1;
            let waits = |index| self.bindings.waits(asked.since, self.now(), index, asked.request);
            binding.is_some_and(|index| self.peers_kept(&waits(index)))
        })
    }

    /// Whether the time of something that was asked then is over, and some device was silent meanwhile
    /// or cut off from a host: where devices ask each other, what one of them does not take holds up
    /// what the others have sent behind it.
    ///
    /// What was answered in time is held up by what they do since then only.
    pub(super) fn peers_kept(&self, waits: &Waits) -> bool {
        let (now, since) = (self.now(), waits.network);
        let waited = may_have_given_up(waits.since, now);
        let hosts = self.hosts.len();
        self.profile.work.has_peers()
            && waited
            && self.boxes.iter().enumerate().any(|(at_box, node)| {
                let cut =
                    |host| self.silences.explain(&self.network, waits, now, (host, hosts + at_box));
                node.slots.iter().any(|slot| slot.spells.within(since, now)) || (0..hosts).any(cut)
            })
    }
}
