//! A TLP on its way from the adapter to the switch.

use super::Below;
use proxy_core::limits::{LINK_GIVE_UP, MAX_PORTS, TLP_BUFFER};
use proxy_core::switch::{PortMapping, VirtualSwitch};
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::{Bus, PortId};
use tlp_codec::tlp::{Class, Packet, TlpType};
use vmd_adapter::COMPLETION_TIMEOUT;

/// How long the switch may have no room for a TLP: longer than a link takes to give up. The device
/// that it is for is hung then, and everything that the machine does waits behind it.
const LONGEST_HOLD: Duration = Duration::from_millis(1500);

/// The same for all TLPs together that are given up, however many devices are hung: each gets a
/// quarter of what is left ([`Held`]).
const ALL_HOLDS: Duration = Duration::from_millis(1900);

/// How long QEMU waits for an answer. All that it wrote before is in its socket by then, and goes
/// through the lane first.
const PATIENCE: Duration = Duration::from_secs(5);

/// A turn, which a hold may last longer than it should.
const TURN: Duration = Duration::from_millis(1);

const _: () = {
    assert!(LINK_GIVE_UP.as_nanos() < LONGEST_HOLD.as_nanos());
    assert!(LONGEST_HOLD.as_nanos() < ALL_HOLDS.as_nanos());
    let turns = MAX_PORTS as u128 * TURN.as_nanos();
    let holds = ALL_HOLDS.as_nanos() + turns;
    assert!(holds + COMPLETION_TIMEOUT.as_nanos() < PATIENCE.as_nanos());
};

/// The time that went by with TLPs that were given up in the end.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    time: Duration,
    /// When the last one was given up.
    last: Option<Instant>,
}

impl Held {
    /// How long the next TLP may be held. What other devices take meanwhile gives no time back: the
    /// machine may wait behind all of it. After a while with nothing given up nobody waits any more.
    fn bound(&mut self, now: Instant) -> Duration {
        if self.last.is_none_or(|last| now.saturating_since(last) >= PATIENCE) {
            *self = Self::default();
            return LONGEST_HOLD;
        }
        ALL_HOLDS.saturating_sub(self.time) / 4
    }

    fn given_up(&mut self, now: Instant, held: Duration) {
        // One that was not held at all takes nobody's time.
        if !held.is_zero() {
            self.time += held;
            self.last = Some(now);
        }
    }
}

/// One TLP that waits until the switch has room for it.
pub(super) struct Lane {
    tlp: Box<[u8; TLP_BUFFER]>,
    held: Option<(usize, Instant)>,
    given_up: Held,
    /// Ports, by bit, whose device took nothing for too long, and has taken nothing since.
    stuck: u32,
}

/// What became of a lane's TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// The switch has it.
    Taken,
    /// It waits.
    Held,
    /// It waited for too long, or its device was waited for before, and it is gone.
    GivenUp,
}

impl Lane {
    pub(super) fn new() -> Self {
        Self { tlp: Box::new([0; TLP_BUFFER]), held: None, given_up: Held::default(), stuck: 0 }
    }

    /// The TLP that waits.
    pub(super) fn held(&self) -> Option<&[u8]> {
        self.held.map(|(length, _)| &self.tlp[..length])
    }

    pub(super) fn clear(&mut self) {
        (self.held, self.given_up, self.stuck) = (None, Held::default(), 0);
    }

    /// Takes the next TLP, if none waits. Whether one does now.
    pub(super) fn fill(
        &mut self,
        now: Instant,
        next: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        if self.held.is_none() {
            self.held = next(&mut self.tlp[..]).map(|length| (length, now));
        }
        self.held.is_some()
    }

    /// Hands the TLP that waits over.
    ///
    /// # Panics
    ///
    /// When none waits.
    pub(super) fn pass(&mut self, now: Instant, below: &mut impl Below) -> Passed {
        let (length, since) = self.held.take().expect("the caller filled the lane");
        let tlp = &self.tlp[..length];
        let taken = below.handle_tlp(now, tlp).is_ok();
        if taken && self.stuck == 0 {
            return Passed::Taken;
        }
        let port = below.switch().and_then(|switch| port_of(switch, tlp));
        let port = port.map_or(0, |port| 1 << port.get());
        if taken {
            self.stuck &= !port;
            return Passed::Taken;
        }
        let held = now.saturating_since(since);
        if self.stuck & port == 0 && held < self.given_up.bound(since) {
            self.held = Some((length, since));
            return Passed::Held;
        }
        self.given_up.given_up(now, held);
        self.stuck |= port;
        Passed::GivenUp
    }
}

/// Whether a completion may not pass a TLP that waits: when that is a write to the same device
/// (PCIe 5.0 section 2.4.1), or to one that cannot be told.
pub(super) fn must_wait(switch: Option<&VirtualSwitch>, completion: &[u8], held: &[u8]) -> bool {
    let is_write =
        Packet::new_header_checked(held).is_ok_and(|held| held.class() == Some(Class::Posted));
    let same = |switch| {
        port_of(switch, held).is_some_and(|port| port_of(switch, completion) == Some(port))
    };
    is_write && switch.is_none_or(same)
}

/// The port that a TLP from above leaves the switch by, if it is one port's.
pub(super) fn port_of(switch: &VirtualSwitch, tlp: &[u8]) -> Option<PortId> {
    let packet = Packet::new_header_checked(tlp).ok()?;
    match packet.class()? {
        Class::Completion => port_towards(switch, packet.requester().bus()),
        _ if is_config(packet.tlp_type()) => port_towards(switch, packet.destination().bus()),
        _ => switch.port_ids().find(|port| claims(&switch.mapping(*port), packet.address())),
    }
}

const fn is_config(kind: TlpType) -> bool {
    matches!(kind, TlpType::CfgRd0 | TlpType::CfgWr0 | TlpType::CfgRd1 | TlpType::CfgWr1)
}

/// The port that leads to a bus.
pub(super) fn port_towards(switch: &VirtualSwitch, bus: Bus) -> Option<PortId> {
    switch.port_ids().find(|port| {
        let (first, last) = switch.mapping(*port).buses;
        first != 0 && (first..=last).contains(&bus.get())
    })
}

fn claims(port: &PortMapping, address: u64) -> bool {
    let windows = [port.memory, port.prefetchable];
    windows.into_iter().flatten().any(|(first, last)| (first..=last).contains(&address))
}

#[cfg(test)]
mod tests;
