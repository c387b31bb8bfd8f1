//! Answers that come back to hosts and to devices, and what excuses others than those that were given.

use super::{World, stood_long};
use crate::clock::may_have_given_up;
use crate::device::Errand;
use crate::oracle::binding::Binding;
use crate::oracle::completion::Asked;
use crate::oracle::order::{Seen, is_made_up};
use crate::oracle::said::digest_to;
use crate::oracle::{Verdict, Violation};
use proxy_core::time::Instant;
use tlp_codec::tlp::{CplStatus, Packet};

/// What may have kept a request from its answer.
pub(super) struct Causes<'a> {
    /// Since when it waits, and now.
    pub(super) since: Instant,
    pub(super) now: Instant,
    /// Its device may have answered another one under its tag.
    pub(super) doubtful: bool,
    /// The device has said that since then.
    pub(super) said: &'a dyn Fn() -> bool,
    /// Its device may have left no tag to ask it under, or taken nothing for so long.
    pub(super) no_tags: bool,
    /// Its device was silent, or the network kept the two ends apart.
    pub(super) silence: &'a dyn Fn() -> bool,
}

/// What the root complex's proxy did with a completion.
pub(super) fn came_back(
    binding: &mut Binding,
    tlp: &[u8],
    seen: Seen,
    request: u64,
    causes: &Causes<'_>,
) -> Verdict {
    // What a proxy says when a binding is over may be what its device had said wrongly, too, and what
    // is lost.
    let is_last_word = is_made_up(tlp) && binding.up.is_closed();
    let is_known = |binding: &Binding, request| !is_last_word && binding.up.knows(&seen, request);
    let named = is_known(binding, Some(request)).then(|| binding.up.deliver(seen, Some(request)));
    // Of two requests that were alike, one may have been lost: the answer names the other one.
    let named = match named {
        Some(Ok(_)) => return Ok(()),
        _ if binding.may_mix_up(causes.now) && is_known(binding, None) => {
            Some(binding.up.deliver(seen, None))
        }
        named => named,
    };
    if let Some(verdict) = named {
        return verdict.map(|_| ());
    }
    // What a proxy says by itself, of a device that is not ready, too.
    let status = Packet::new_checked(tlp).map(|packet| packet.status());
    let own = is_made_up(tlp) || status == Ok(CplStatus::ConfigRetry);
    let waited = may_have_given_up(causes.since, causes.now);
    if own && !binding.is_sound()
        || causes.doubtful && (is_made_up(tlp) && waited || (causes.said)())
        || is_made_up(tlp)
            && (causes.no_tags || binding.forgot(causes.since) || waited && (causes.silence)())
    {
        binding.give_up(causes.now, request);
        return Ok(());
    }
    let what = if is_made_up(tlp) {
        "was answered with Unsupported Request by a proxy, without a cause"
    } else {
        "got an answer that its device did not give, or got twice"
    };
    Err(Violation::new(3, format!("request {request} of a host {what}")))
}

impl World {
    /// A completion came to a box's device for what it had asked its host on a binding.
    pub(super) fn answered_by_host(
        &mut self,
        place: (usize, usize),
        (index, asked): (usize, &Asked<Errand>),
        seen: Seen,
        tlp: &[u8],
    ) -> Verdict {
        // What the box's proxy says by itself may look like an answer of the host that is under way. It
        // has passed nothing that the host sent.
        if is_by_box(tlp) && self.gives_up(place, (index, asked), seen, tlp) {
            return Ok(());
        }
        let binding = self.bindings.get(index);
        if binding.down.knows(&seen, Some(asked.request)) {
            return binding.down.deliver(seen, Some(asked.request)).map(|_| ());
        }
        if !binding.is_sound() && binding.down.knows(&seen, None) {
            // Of two requests that were alike, one may have been lost.
            return binding.down.deliver(seen, None).map(|_| ());
        }
        if self.port_refused(index, (asked.request, asked.since), tlp) {
            return Ok(());
        }
        if self.gives_up(place, (index, asked), seen, tlp) {
            return Ok(());
        }
        let what = format!(
            "request {} of a device got an answer that its host did not give",
            asked.request
        );
        Err(Violation::new(3, what))
    }

    /// Whether a device may get an answer that its host did not give; then that request is given up.
    fn gives_up(
        &mut self,
        place: (usize, usize),
        (index, asked): (usize, &Asked<Errand>),
        seen: Seen,
        tlp: &[u8],
    ) -> bool {
        let excused = self.is_excused(place, (index, asked), seen, tlp);
        if excused {
            let now = self.now();
            self.bindings.get(index).give_up(now, asked.request);
        }
        excused
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
        // What a proxy says by itself it says when the time is over.
        let made_up = is_made_up(tlp);
        let waited = may_have_given_up(asked.since, now);
        let told = || {
            let requester = Packet::new_checked(tlp).expect("looked at before").requester();
            host.said.since(asked.since, digest_to(requester, &seen))
        };
        if host.spells.lies(asked.since, now) && (made_up && waited || told()) {
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
            || waited
                && (host.spells.within(asked.since, now)
                    || stood_long(&self.lives, nodes.into(), spells, waits.network, now)
                    || !spells.stuck_for(waits.network, now).is_zero())
            || self.silences.explain(&self.network, &waits, now, nodes)
            || self.peers_kept(&waits)
            || self.kept_by_stuck(index, &waits)
    }
}

/// Whether a completion is what a box's proxy itself says to a device: it calls itself 0, which no root
/// complex and no port here does.
fn is_by_box(tlp: &[u8]) -> bool {
    let completer = Packet::new_checked(tlp).map(|packet| packet.completer().bits());
    is_made_up(tlp) && completer == Ok(0)
}
