//! A TLP on its way from the adapter to the switch.

use super::Below;
use proxy_core::limits::{LINK_GIVE_UP, TLP_BUFFER};
use proxy_core::switch::{PortMapping, VirtualSwitch};
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::{Bus, PortId};
use tlp_codec::tlp::{Class, Packet, TlpType};
use vmd_adapter::COMPLETION_TIMEOUT;

/// How long the switch may have no room for a TLP: longer than a link takes to give up. The device
/// that it is for is hung then, and everything that the machine does waits behind it.
const LONGEST_HOLD: Duration = Duration::from_millis(1500);

/// The same for a TLP right behind one that was given up, so that several hung devices together
/// cost the machine hardly more time than one.
const SHORT_HOLD: Duration = Duration::from_millis(20);

/// Devices that may be hung at once.
const MAX_HUNG: u128 = 16;

/// QEMU waits five seconds for an answer. A request waits behind what the lane holds, and then for
/// its completion.
const _: () = {
    assert!(LINK_GIVE_UP.as_nanos() < LONGEST_HOLD.as_nanos());
    let holds = LONGEST_HOLD.as_nanos() + (MAX_HUNG - 1) * SHORT_HOLD.as_nanos();
    assert!(holds + COMPLETION_TIMEOUT.as_nanos() < 5_000_000_000);
};

/// One TLP that waits until the switch has room for it.
pub(super) struct Lane {
    tlp: Box<[u8; TLP_BUFFER]>,
    held: Option<(usize, Instant)>,
    /// Since a TLP was given up the switch has taken none.
    blocked: bool,
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
        Self { tlp: Box::new([0; TLP_BUFFER]), held: None, blocked: false, stuck: 0 }
    }

    /// The TLP that waits.
    pub(super) fn held(&self) -> Option<&[u8]> {
        self.held.map(|(length, _)| &self.tlp[..length])
    }

    pub(super) fn clear(&mut self) {
        (self.held, self.blocked, self.stuck) = (None, false, 0);
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
        if taken && self.stuck == 0 && !self.blocked {
            return Passed::Taken;
        }
        let port = below.switch().and_then(|switch| port_of(switch, tlp));
        let port = port.map_or(0, |port| 1 << port.get());
        if taken {
            self.blocked = false;
            self.stuck &= !port;
            return Passed::Taken;
        }
        let bound = if self.blocked { SHORT_HOLD } else { LONGEST_HOLD };
        if self.stuck & port == 0 && now.saturating_since(since) < bound {
            self.held = Some((length, since));
            return Passed::Held;
        }
        self.blocked = true;
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
