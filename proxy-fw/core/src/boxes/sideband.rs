//! Sideband records of hosts: resets, and the end of what a binding has under way.

use super::{BoxRole, SlotSignal};
use crate::link::{LinkOrder, TakenSideband};
use crate::time::Instant;
use tlp_codec::fabric::Sideband;

impl BoxRole {
    pub(super) fn handle_sideband(&mut self, now: Instant, peer: usize, taken: TakenSideband) {
        let TakenSideband { channel, record, at } = taken;
        let Some((slot, function)) = self.find(|t| t.peer == peer && t.channel == channel) else {
            self.counters.sideband_ignored += 1;
            return;
        };
        match record {
            // A link that comes back has been retrained, which resets the device.
            Sideband::HotReset | Sideband::LinkDisable => {
                self.reset_by_host(now, (slot, function), SlotSignal::HotReset, at);
            }
            Sideband::PerstAssert => {
                let signal = SlotSignal::Perst { asserted: true };
                self.reset_by_host(now, (slot, function), signal, at);
            }
            Sideband::PerstDeassert => {
                if self.release_perst(now, slot) {
                    self.begin_work_anew(now, slot);
                } else {
                    self.counters.sideband_ignored += 1;
                }
            }
            // The slot's power is the box's own: the record ends the binding's traffic and no more.
            Sideband::Flush | Sideband::PowerOff => self.end_requests(now, slot, function),
            // The device was reset when the link was disabled, and may be used.
            Sideband::LinkEnable => {}
            _ => self.counters.sideband_ignored += 1,
        }
    }

    /// Resets the whole device for the host that has all of what is lent of it. One that shares it
    /// with others gets only an end of what its own binding has under way.
    /// What was sent to any of its functions before the record at `at` is not for it any more: of
    /// the others than the record's own it is still stored, until a record of theirs comes.
    fn reset_by_host(
        &mut self,
        now: Instant,
        (slot, function): (usize, usize),
        signal: SlotSignal,
        at: LinkOrder,
    ) {
        let functions = 0..self.slots[slot].functions.len();
        let host = self.slots[slot].target(function).map(|target| target.peer);
        let lent = functions.clone().filter_map(|f| self.slots[slot].target(f));
        if lent.into_iter().any(|target| Some(target.peer) != host) {
            self.counters.resets_refused += 1;
            self.end_requests(now, slot, function);
            return;
        }
        // A device in PERST# is in reset already, and it is that which has to end.
        if !self.slots[slot].perst {
            self.slots[slot].signal(signal);
        }
        self.slots[slot].perst |= signal == SlotSignal::Perst { asserted: true };
        for each in functions {
            let Some(target) = self.slots[slot].target(each) else { continue };
            if each != function {
                self.node.link(target.peer).drop_received_before(target.channel, at);
            }
            self.flush_function(now, slot, each);
        }
        self.slot_is_reset(now, slot);
        self.begin_work_anew(now, slot);
    }

    /// Ends what the function asked its host: with Unsupported Request. What the host asked it the
    /// function still answers; at the host's end nothing waits for that any more.
    fn end_requests(&mut self, now: Instant, slot: usize, function: usize) {
        self.slots[slot].functions[function].requests.expire_where(now, |_| true);
        self.expire(now, slot);
    }
}
