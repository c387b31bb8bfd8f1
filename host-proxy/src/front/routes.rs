//! Which port of the switch a TLP from above goes to.

use proxy_core::switch::{PortMapping, VirtualSwitch};
use tlp_codec::ids::{Bus, PortId};
use tlp_codec::tlp::{Class, Packet, TlpType};

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
