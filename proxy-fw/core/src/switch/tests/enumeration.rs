//! What an operating system finds and programs.

use super::*;

#[test]
fn the_upstream_port_answers_type_0_whatever_the_device_number() {
    let mut host = Host::with_ports(2);
    let id = SwitchConfig::default();
    let expected = u32::from(id.upstream_device_id) << 16 | u32::from(id.vendor_id);
    assert_eq!(host.config(false, 0x0100, 0, None).1, Some(expected));
    assert_eq!(host.config(false, 0x0138, 0, None).1, Some(expected));
    let (status, value) = host.config(false, 0x0101, 0, None);
    assert_eq!((status, value), (CplStatus::UnsupportedRequest, None), "function 1 is not there");
}

#[test]
fn a_write_tells_the_switch_its_id_and_completions_carry_it() {
    let mut host = Host::with_ports(2);
    assert_eq!(host.switch.upstream_id(), bdf(0));
    host.write(UPSTREAM, 0x0c, 0x10);
    assert_eq!(host.switch.upstream_id(), bdf(UPSTREAM));
    let kind = Kind::ConfigRead {
        type1: false,
        requester: bdf(ROOT),
        tag: tag(0x2a5),
        destination: bdf(UPSTREAM),
        register: 0,
        first_be: 0xf,
    };
    assert_eq!(host.down(&mut emit(kind)), DownstreamVerdict::Consumed);
    let answer = host.out.pop().unwrap();
    assert_eq!(view(&answer).completer(), bdf(UPSTREAM));
    assert_eq!(view(&answer).tag(), tag(0x2a5));
    assert_eq!(view(&answer).tlp_type(), TlpType::CplD);
}

#[test]
fn ports_are_devices_on_the_internal_bus() {
    let mut host = Host::with_ports(3);
    host.write(UPSTREAM, 0x18, u32::from_le_bytes([1, INTERNAL, 9, 0]));
    for device in 0..32u16 {
        let id = u16::from(INTERNAL) << 8 | device << 3;
        let (status, _) = host.config(true, id, 0, None);
        let expected = if device < 3 { CplStatus::Success } else { CplStatus::UnsupportedRequest };
        assert_eq!(status, expected, "device {device}");
        assert_eq!(host.config(true, id | 1, 0, None).0, CplStatus::UnsupportedRequest);
    }
    let slot = |host: &mut Host, n| host.read(Host::id(n), 0x84) >> 19;
    assert_eq!((slot(&mut host, 0), slot(&mut host, 2)), (1, 3), "slot numbers count up");
}

#[test]
fn thirty_two_ports_enumerate() {
    let mut host = Host::ready(32);
    for n in 0..32 {
        let mapping = host.switch.mapping(port(n));
        assert_eq!(mapping.buses, (bus(n), bus(n)));
        assert_eq!(mapping.device, bdf(u16::from(bus(n)) << 8));
        assert_eq!(mapping.memory, Some((memory_of(n), memory_of(n) + 0xf_ffff)));
        let base = prefetchable_of(n);
        assert_eq!(mapping.prefetchable, Some((base, base + 0x3ff_ffff)));
        assert_eq!(mapping.io, None);
        assert!(mapping.memory_enabled && mapping.bus_master);
        assert_eq!(host.down(&mut write_of(ROOT, base + 64)), DownstreamVerdict::Forward(port(n)));
    }
}

#[test]
fn enumeration_is_told_port_by_port() {
    let mut host = Host::with_ports(2);
    host.enumerate();
    let events = host.events();
    for n in 0..2 {
        assert!(events.contains(&SwitchEvent::WindowsChanged(port(n))));
        assert!(events.contains(&SwitchEvent::BusMaster { port: port(n), enabled: true }));
    }
    assert_eq!(host.switch.poll_event(), None);
}

#[test]
fn bus_master_is_the_switchs_and_the_ports() {
    let mut host = Host::ready(1);
    host.write_bytes(UPSTREAM, 0x04, 0x3, 0x3);
    assert_eq!(host.events().last(), Some(&SwitchEvent::WindowsChanged(port(0))));
    assert!(!host.switch.mapping(port(0)).bus_master);
    host.enable(UPSTREAM);
    assert!(host.events().contains(&SwitchEvent::BusMaster { port: port(0), enabled: true }));
    host.write_bytes(Host::id(0), 0x44, 0x3, 0x1);
    assert!(host.events().contains(&SwitchEvent::BusMaster { port: port(0), enabled: false }));
}

#[test]
fn a_configuration_request_for_a_device_becomes_type_0() {
    let mut host = Host::ready(2);
    let request = |destination| Kind::ConfigRead {
        type1: true,
        requester: bdf(ROOT),
        tag: tag(7),
        destination: bdf(destination),
        register: 0x10,
        first_be: 0xf,
    };
    let mut tlp = emit(request(u16::from(bus(1)) << 8 | 3));
    assert_eq!(host.down(&mut tlp), DownstreamVerdict::Forward(port(1)));
    assert_eq!(view(&tlp).tlp_type(), TlpType::CfgRd0);
    assert_eq!(view(&tlp).destination(), bdf(u16::from(bus(1)) << 8 | 3));

    // Device 1 is not on a link; with ARI it is function 8.
    let mut tlp = emit(request(u16::from(bus(1)) << 8 | 1 << 3));
    assert_eq!(host.down(&mut tlp), DownstreamVerdict::Discarded(Cause::NoFunction));
    host.write_bytes(Host::id(1), 0x98, 1 << 5, 0x1);
    let mut tlp = emit(request(u16::from(bus(1)) << 8 | 1 << 3));
    assert_eq!(host.down(&mut tlp), DownstreamVerdict::Forward(port(1)));
}

#[test]
fn buses_further_down_stay_type_1_and_others_are_nobodys() {
    let mut host = Host::ready(2);
    host.write(UPSTREAM, 0x18, u32::from_le_bytes([1, INTERNAL, 20, 0]));
    host.write(Host::id(1), 0x18, u32::from_le_bytes([INTERNAL, 4, 9, 0]));
    let request = |bus: u8| Kind::ConfigRead {
        type1: true,
        requester: bdf(ROOT),
        tag: tag(7),
        destination: bdf(u16::from(bus) << 8 | 5 << 3),
        register: 0,
        first_be: 0xf,
    };
    let mut tlp = emit(request(7));
    assert_eq!(host.down(&mut tlp), DownstreamVerdict::Forward(port(1)));
    assert_eq!(view(&tlp).tlp_type(), TlpType::CfgRd1);
    for nobody in [10, 20, 21, 255, 0, 1] {
        let before = host.out.len();
        let mut tlp = emit(request(nobody));
        assert_eq!(host.down(&mut tlp), DownstreamVerdict::Discarded(Cause::NoBus), "{nobody}");
        let answer = host.out.remove(before);
        assert_eq!(view(&answer).status(), CplStatus::UnsupportedRequest);
    }
}

#[test]
fn an_empty_port_answers_unsupported_request_and_a_device_not_ready_retry() {
    let mut host = Host::with_ports(1);
    host.enumerate();
    let device = u16::from(bus(0)) << 8;
    assert_eq!(host.config(true, device, 0, None).0, CplStatus::UnsupportedRequest);
    host.switch.plug(host.now, port(0), &mut host.out);
    host.take_out();
    host.switch.set_ready(port(0), false);
    assert_eq!(host.config(true, device, 0, None).0, CplStatus::ConfigRetry);
    let down = DownstreamVerdict::Discarded(Cause::LinkDown);
    assert_eq!(host.down(&mut write_of(ROOT, memory_of(0))), down);
    assert_eq!(host.counter("switch.not_ready"), 1);
}

#[test]
fn configurations_that_are_not_possible_say_so() {
    let make = |config: &SwitchConfig| VirtualSwitch::new(config).err();
    let base = SwitchConfig::default();
    for ports in [0, 33] {
        let config = SwitchConfig { ports, ..base.clone() };
        assert_eq!(make(&config), Some(SwitchConfigError::Ports(ports)));
    }
    for max_payload in [64, 300, 8192] {
        let config = SwitchConfig { max_payload, ..base.clone() };
        assert_eq!(make(&config), Some(SwitchConfigError::MaxPayload(max_payload)));
    }
    let config = SwitchConfig { first_slot_number: 0x1fff, ..base.clone() };
    assert!(make(&config).is_some());
    assert!(make(&SwitchConfig { vendor_id: 0xffff, ..base }).is_some());
}
