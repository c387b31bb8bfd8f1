//! Answers of hosts that come back to the devices that asked, and what excuses others than these.

use super::{World, stood_long};
use crate::device::Errand;
use crate::oracle::completion::Asked;
use crate::oracle::order::{Seen, is_made_up};
use crate::oracle::said::digest_to;
use crate::oracle::{Verdict, Violation};
use tlp_codec::tlp::Packet;

impl World {
    /// A completion came to a box's device for what it had asked its host on a binding.
    pub(super) fn answered_by_host(
        &mut self,
        place: (usize, usize),
        (index, asked): (usize, &Asked<Errand>),
        seen: Seen,
        tlp: &[u8],
    ) -> Verdict {
        let binding = self.bindings.get(index);
        if binding.down.knows(&seen, Some(asked.request)) {
            return binding.down.deliver(seen, Some(asked.request)).map(|_| ());
        }
        if !binding.is_sound() && binding.down.knows(&seen, None) {
            // Of two requests that were alike, one may have been lost.
            return binding.down.deliver(seen, None).map(|_| ());
        }
        if self.is_excused(place, (index, asked), seen, tlp) {
            let now = self.now();
            self.bindings.get(index).give_up(now, asked.request);
            return Ok(());
        }
        let what = format!(
            "request {} of a device got an answer that its host did not give",
            asked.request
        );
        Err(Violation::new(3, what))
    }

    /// Whether a device may get an answer that its host did not give to that request.
    fn is_excused(
        &self,
        (at_box, slot): (usize, usize),
        (index, asked): (usize, &Asked<Errand>),
        seen: Seen,
        tlp: &[u8],
    ) -> bool {
        let now = self.now();
        let binding = &self.bindings.all()[index];
        let host = &self.hosts[binding.host];
        let made_up = is_made_up(tlp);
        let told = || {
            let requester = Packet::new_checked(tlp).expect("looked at before").requester();
            host.said.since(asked.since, digest_to(requester, &seen))
        };
        if host.spells.lies(asked.since, now) && (made_up || told()) {
            return true;
        }
        if !made_up {
            return false;
        }
        let nodes = (binding.host, self.hosts.len() + at_box);
        // What has its answer waits for the way back only.
        let waits = self.bindings.waits(asked.since, now, index, asked.request);
        let spells = &self.boxes[at_box].slots[slot].spells;
        !binding.is_sound()
            || host.spells.within(asked.since, now)
            || self.silences.explain(&self.network, &waits, now, nodes)
            || stood_long(&self.lives, nodes.into(), waits.network, now)
            || self.peers_kept(&waits)
            || !spells.stuck_for(waits.network, now).is_zero()
            || self.kept_by_stuck(index, &waits)
    }
}
