//! Resets, from above and by software.

use super::hotplug::{Driver, interrupts};
use super::*;

fn device(n: u8) -> u16 {
    u16::from(bus(n)) << 8
}

#[test]
fn a_secondary_bus_reset_takes_the_link_down_and_the_device_is_not_ready_after() {
    let mut host = Host::ready(2);
    let id = Host::id(0);
    host.write_bytes(id, 0x3c, 1 << 22, 0xc);
    assert_eq!(host.events(), [SwitchEvent::SecondaryBusReset { port: port(0), asserted: true }]);
    assert!(!host.switch.is_link_up(port(0)));
    assert_ne!(host.read(id, 0x88) & 1 << 24, 0, "the link's state changed");
    assert_ne!(host.read(id, 0x88) & 1 << 22, 0, "presence did not");
    let down = UpstreamVerdict::Discarded(Cause::LinkDown);
    assert_eq!(host.up(0, &mut write_of(device(0), 0x1000)), down);
    assert_eq!(host.config(true, device(0), 0, None).0, CplStatus::UnsupportedRequest);
    host.write_bytes(id, 0x3c, 0, 0xc);
    assert_eq!(host.events(), [SwitchEvent::SecondaryBusReset { port: port(0), asserted: false }]);
    assert!(host.switch.is_link_up(port(0)));
    assert_eq!(host.config(true, device(0), 0, None).0, CplStatus::ConfigRetry);
    host.switch.set_ready(port(0), true);
    let mut request = read_of(ROOT, memory_of(0));
    assert_eq!(host.down(&mut request), DownstreamVerdict::Forward(port(0)));
    // The other port saw nothing of it, and this one's registers stay.
    assert_eq!(host.up(1, &mut write_of(device(1), 0x1000)), UpstreamVerdict::ToRoot);
    assert_eq!(host.switch.mapping(port(0)).buses, (bus(0), bus(0)));
}

#[test]
fn both_edges_are_told_if_nobody_polled_between_them() {
    let mut host = Host::ready(1);
    host.write_bytes(Host::id(0), 0x3c, 1 << 22, 0xc);
    host.write_bytes(Host::id(0), 0x3c, 0, 0xc);
    assert_eq!(
        host.events(),
        [true, false].map(|asserted| SwitchEvent::SecondaryBusReset { port: port(0), asserted })
    );
}

#[test]
fn the_upstream_ports_secondary_reset_resets_the_ports_too() {
    let mut host = Host::ready(2);
    let _driver = Driver::probe(&mut host, 1);
    host.write_bytes(UPSTREAM, 0x3c, 1 << 22, 0xc);
    let events = host.events();
    for n in 0..2 {
        let expected = SwitchEvent::SecondaryBusReset { port: port(n), asserted: true };
        assert!(events.contains(&expected));
        assert_eq!(host.switch.mapping(port(n)).buses, (0, 0));
        assert!(!host.switch.is_link_up(port(n)));
    }
    host.write_bytes(UPSTREAM, 0x3c, 0, 0xc);
    let events = host.events();
    for n in 0..2 {
        let expected = SwitchEvent::SecondaryBusReset { port: port(n), asserted: false };
        assert!(events.contains(&expected));
        assert!(host.switch.is_link_up(port(n)) && host.switch.is_present(port(n)));
        assert_eq!(host.read(Host::id(n), 0x88) >> 16 & 0x1ff, 1 << 6, "present, no change");
    }
    assert_eq!(interrupts(&mut host, 1), 0);
}

#[test]
fn a_reset_from_above_forgets_everything_but_what_is_plugged() {
    let mut host = Host::ready(2);
    host.switch.surprise_remove(host.now, port(1), &mut host.out);
    host.switch.handle_reset(ResetKind::Fundamental);
    host.take_out();
    assert_eq!(host.switch.upstream_id(), bdf(0));
    assert_eq!(host.switch.upstream_max_payload(), 128);
    for n in 0..2 {
        let mapping = host.switch.mapping(port(n));
        assert_eq!((mapping.buses, mapping.memory, mapping.prefetchable), ((0, 0), None, None));
        assert!(!mapping.memory_enabled && !mapping.bus_master);
    }
    host.enumerate();
    assert_eq!(host.config(true, device(0), 0, None).0, CplStatus::ConfigRetry);
    assert_eq!(host.config(true, device(1), 0, None).0, CplStatus::UnsupportedRequest);
    assert_eq!(host.switch.power_indicator(port(0)), Indicator::On);
    assert_eq!(host.switch.power_indicator(port(1)), Indicator::Off);
}

#[test]
fn a_hot_reset_keeps_the_error_log() {
    let mut host = Host::ready(1);
    host.switch.report_error(host.now, port(0), PortError::Internal, None, &mut host.out);
    host.switch.report_error(host.now, port(0), PortError::Malformed, None, &mut host.out);
    host.switch.handle_reset(ResetKind::Hot);
    host.enumerate();
    assert_eq!(host.read(Host::id(0), 0x104), 1 << 18 | 1 << 22);
    host.switch.handle_reset(ResetKind::Fundamental);
    host.enumerate();
    assert_eq!(host.read(Host::id(0), 0x104), 0);
}
