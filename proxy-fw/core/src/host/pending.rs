//! What a port has still to tell its box: resets, link state and broadcast messages that the link
//! had no room for when they came.
//!
//! Of resets and link states only the outcome is kept, so that no number of them needs more room:
//! two hot resets that both wait are one. TLPs for the device wait until all of it is sent.

use super::{HostRole, hold::Hold};
use crate::canaries::{Canary, planted};
use crate::limits::TLP_BUFFER;
use crate::link::{SendError, TlpMeta};
use crate::queue::TlpQueue;
use crate::stamps::StampedTlp;
use crate::time::Instant;
use tlp_codec::fabric::Sideband;
use tlp_codec::ids::PortId;
use tlp_codec::tlp::{Class, Packet};

/// Broadcast messages that wait for room towards one device. A further one is lost to it, and
/// counted: a device that takes nothing does not hold the others up.
const BROADCASTS: usize = 4;

/// Records of the first function, in the order in which they are sent.
const RECORDS: [Sideband; 5] = [
    Sideband::PerstAssert,
    Sideband::HotReset,
    Sideband::PerstDeassert,
    Sideband::LinkDisable,
    Sideband::LinkEnable,
];
const PERST: u8 = 1 << 0;
const HOT_RESET: u8 = 1 << 1;
const PERST_END: u8 = 1 << 2;
const DISABLE: u8 = 1 << 3;
const ENABLE: u8 = 1 << 4;

/// What waits at one port.
pub(super) struct Pending {
    /// By place in [`RECORDS`].
    records: u8,
    /// The functions but for the first one, by number in the binding, that are to be flushed.
    flushes: u8,
    broadcasts: TlpQueue<TLP_BUFFER>,
}

/// What happens to the device below a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A hot reset.
    HotReset,
    /// PERST#, asserted and released.
    Perst,
    /// The link is disabled, or enabled again.
    Link { disabled: bool },
}

impl Wanted {
    /// Whether it ends everything that is under way.
    fn flushes(self) -> bool {
        self != Self::Link { disabled: false }
    }
}

/// So many functions, by number in the binding.
fn all_functions(count: usize) -> u8 {
    ((1_u16 << count) - 1) as u8
}

impl Pending {
    pub(super) fn new() -> Self {
        Self { records: 0, flushes: 0, broadcasts: TlpQueue::new(BROADCASTS) }
    }

    /// Whether TLPs for the device have to wait.
    pub(super) fn is_some(&self) -> bool {
        self.records | self.flushes != 0 || !self.broadcasts.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.records = 0;
        self.flushes = 0;
        self.broadcasts.clear();
    }

    fn want(&mut self, wanted: Wanted, functions: u8) {
        let mut flushes = wanted.flushes();
        match wanted {
            Wanted::HotReset => self.want_hot_reset(),
            Wanted::Perst if self.records & PERST_END != 0 => {}
            Wanted::Perst => self.records = self.records & !HOT_RESET | PERST | PERST_END,
            Wanted::Link { disabled: true } => self.records = self.records & !ENABLE | DISABLE,
            Wanted::Link { disabled: false } => {
                if self.records & DISABLE != 0 {
                    // The box never learns that it was disabled, but the device is reset by it.
                    self.records &= !DISABLE;
                    self.want_hot_reset();
                    flushes |= Wanted::HotReset.flushes();
                }
                self.records |= ENABLE;
            }
        }
        if flushes {
            self.flushes = functions & !1;
            self.broadcasts.clear();
        }
    }

    /// PERST# that is not released yet does more.
    fn want_hot_reset(&mut self) {
        if self.records & (PERST | PERST_END) == 0 {
            self.records |= HOT_RESET;
        }
    }

    /// The next record, and the function that it is for.
    fn record(&self) -> Option<(usize, Sideband)> {
        if self.records != 0 {
            return Some((0, RECORDS[self.records.trailing_zeros() as usize]));
        }
        (self.flushes != 0).then(|| (self.flushes.trailing_zeros() as usize, Sideband::Flush))
    }

    /// The record that was next is sent.
    fn record_done(&mut self) {
        let which = if self.records != 0 { &mut self.records } else { &mut self.flushes };
        *which &= which.wrapping_sub(1);
    }
}

impl HostRole {
    /// Tells the box what happens to the port's device; what is outstanding ends at this end, too.
    pub(super) fn tell_box(&mut self, now: Instant, port: PortId, wanted: Wanted) {
        let entry = &mut self.ports[port.get() as usize];
        let Some(bound) = &entry.binding else { return };
        let functions = all_functions(bound.channels.len());
        entry.pending.want(wanted, functions);
        self.with_pending |= 1 << port.get();
        if wanted.flushes() {
            // The others' own records come behind the first one's, at a device that is reset by then.
            for (_, channel) in bound.channels.iter().skip(1) {
                self.node.link(bound.peer).drop_unsent(*channel);
            }
        }
        self.send_pending(now, port);
        if wanted.flushes() {
            let entry = &mut self.ports[port.get() as usize];
            entry.flushed = functions;
            entry.held.clear();
            entry.hold = Hold::default();
            entry.requests.expire_where(now, |_| true);
            // Of what it had asked it knows nothing any more. Later requests do not wait for that.
            self.give_up_on_all(port.get().into());
            self.ports.iter_mut().for_each(|other| other.held.flush(port));
            self.synthesised_at = None;
            self.synthesise(now);
        }
    }

    /// Sends a message to every device whose port's link is up.
    pub(super) fn broadcast(&mut self, now: Instant, tlp: &mut [u8]) {
        for port in self.switch.port_ids() {
            let entry = &mut self.ports[port.get() as usize];
            if entry.target(None).is_none()
                || !self.switch.passes_broadcast(port, tlp, &mut self.to_root)
            {
                continue;
            }
            if !entry.pending.broadcasts.push(tlp) {
                self.counters.broadcasts_lost += 1;
                continue;
            }
            self.with_pending |= 1 << port.get();
            self.send_pending(now, port);
            if planted(Canary::TellFirst) {
                return;
            }
        }
    }

    /// Sends what waits at any port, as far as there is room.
    pub(super) fn send_all_pending(&mut self, now: Instant) {
        let mut ports = self.with_pending;
        while ports != 0 {
            let port = PortId::new(ports.trailing_zeros() as u8).expect("at most 32 ports");
            ports &= ports - 1;
            self.send_pending(now, port);
        }
    }

    fn send_pending(&mut self, now: Instant, port: PortId) {
        let entry = &mut self.ports[port.get() as usize];
        while let Some((function, record)) = entry.pending.record() {
            if let Some(target) = entry.target_of(function) {
                let link = self.node.link(target.peer);
                if link.send_sideband(now, target.channel, record) == Err(SendError::Full) {
                    return;
                }
            }
            // With any other error the binding is at its end.
            entry.pending.record_done();
        }
        while let Some(tlp) = entry.pending.broadcasts.front() {
            let packet = Packet::known(tlp);
            let relaxed = packet.attributes().relaxed_ordering;
            let Some(target) = entry.target(None) else { break };
            let class = Class::Posted;
            let stamp = if self.node.link(target.peer).can_send(target.channel, class) {
                self.node.sample(now, target.stamp_key(true, StampedTlp::Posted(None)))
            } else {
                None
            };
            let link = self.node.link(target.peer);
            let meta = TlpMeta { class, outstanding: None, relaxed, stamp };
            if link.send_tlp(now, target.channel, meta, tlp) == Err(SendError::Full) {
                return;
            }
            entry.pending.broadcasts.drop_front();
        }
        entry.pending.clear();
        self.with_pending &= !(1 << port.get());
    }
}
