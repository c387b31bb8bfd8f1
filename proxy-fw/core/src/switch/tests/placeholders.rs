//! Placeholders: room at boot, gone before the first device.

use super::hotplug::{Driver, interrupts};
use super::*;
use crate::control::PortState;
use core::time::Duration;

fn host() -> Host {
    let mut config = SwitchConfig { ports: 2, ..SwitchConfig::default() };
    config.placeholders[0] = Some(Placeholder::new(1 << 20, 1 << 36, 256).unwrap());
    Host::new(&config)
}

fn at(n: u8) -> u16 {
    u16::from(bus(n)) << 8
}

#[test]
fn it_asks_for_room_and_answers_configuration_requests_only() {
    let mut host = host();
    assert_eq!(host.switch.port_state(port(0)), PortState::Placeholder);
    assert_eq!(host.switch.port_state(port(1)), PortState::Empty);
    host.enumerate();
    assert_ne!(host.read(Host::id(0), 0x88) & 1 << 22, 0, "present");
    assert_eq!(host.read(Host::id(0), 0x88) & 1 << 19, 0, "and not as a change");
    assert_eq!(host.read(at(0), 0x08) >> 8, 0xff_0000);
    for (register, size) in
        [(0x10, 0xfff0_0000), (0x18, 0xc), (0x1c, 0xffff_fff0), (0x20, 0xffff_ff01)]
    {
        host.write(at(0), register, u32::MAX);
        assert_eq!(host.read(at(0), register), size, "{register:#x}");
    }
    for nobody in [at(0) | 1, at(0) | 8, at(1)] {
        assert_eq!(host.config(true, nobody, 0, None).0, CplStatus::UnsupportedRequest);
    }
    host.enable(at(0));
    let refused = DownstreamVerdict::Discarded(Cause::NoFunction);
    assert_eq!(host.down(&mut read_of(ROOT, memory_of(0))), refused);
    assert_eq!(view(&host.out[0]).status(), CplStatus::UnsupportedRequest);
    assert!(!host.switch.is_present(port(0)));
}

#[test]
fn firmware_does_not_see_it_go() {
    let mut host = host();
    host.enumerate();
    host.switch.plug(host.now, port(0), &mut host.out);
    assert!(host.switch.is_present(port(0)));
    assert!(host.events().contains(&SwitchEvent::Inserted(port(0))));
    assert!(host.switch.mapping(port(0)).prefetchable.is_some(), "the room stays");
}

#[test]
fn an_operating_system_is_asked_for_it_by_button() {
    let mut host = host();
    host.enumerate();
    let driver = Driver::probe(&mut host, 0);
    host.switch.plug(host.now, port(0), &mut host.out);
    assert_eq!(interrupts(&mut host, 0), 1);
    assert_eq!(driver.interrupt(&mut host), 1, "the button");
    assert_eq!(host.switch.port_state(port(0)), PortState::Placeholder);
    driver.power_indicator(&mut host, Indicator::Blink);
    host.now = host.now + Duration::from_secs(5);
    driver.power_indicator(&mut host, Indicator::Off);
    assert_eq!(host.switch.port_state(port(0)), PortState::Empty);
    assert!(!host.events().iter().any(|e| matches!(e, SwitchEvent::LetGo { .. })));
    driver.interrupt(&mut host);
    host.take_out();
    // A while later the device comes.
    let due = host.switch.poll_timeout().unwrap();
    assert_eq!(due, host.now + PLACEHOLDER_GAP);
    host.switch.handle_timeout(host.now, &mut host.out);
    assert_eq!(host.switch.port_state(port(0)), PortState::Empty);
    host.now = due;
    host.switch.handle_timeout(host.now, &mut host.out);
    assert_eq!(interrupts(&mut host, 0), 1);
    driver.interrupt(&mut host);
    driver.power_on(&mut host);
    assert!(host.switch.is_present(port(0)));
    assert!(host.events().contains(&SwitchEvent::Inserted(port(0))));
    assert_eq!(host.switch.poll_timeout(), None);
}

#[test]
fn an_operating_system_that_does_not_react_loses_it() {
    let mut host = host();
    host.enumerate();
    let driver = Driver::probe(&mut host, 0);
    host.switch.plug(host.now, port(0), &mut host.out);
    driver.interrupt(&mut host);
    let due = host.switch.poll_timeout().unwrap();
    assert_eq!(due, host.now + PLACEHOLDER_REMOVAL);
    host.now = due;
    host.switch.handle_timeout(host.now, &mut host.out);
    assert_eq!(host.switch.port_state(port(0)), PortState::Empty);
    host.now = host.switch.poll_timeout().unwrap();
    host.switch.handle_timeout(host.now, &mut host.out);
    assert!(host.switch.is_present(port(0)));
}

#[test]
fn the_button_waits_for_a_busy_slot() {
    let mut host = host();
    host.enumerate();
    let driver = Driver::probe(&mut host, 0);
    driver.power_indicator(&mut host, Indicator::Blink);
    host.switch.plug(host.now, port(0), &mut host.out);
    assert_eq!(driver.status(&mut host) & 1, 0);
    driver.power_indicator(&mut host, Indicator::On);
    assert_eq!(driver.status(&mut host) & 1, 1);
}

#[test]
fn a_plug_can_be_called_off() {
    for orderly in [true, false] {
        let mut host = host();
        host.enumerate();
        let _driver = Driver::probe(&mut host, 0);
        host.switch.plug(host.now, port(0), &mut host.out);
        if orderly {
            let answer = host.switch.request_removal(host.now, port(0), &mut host.out);
            assert_eq!(answer, RemovalRequest::Empty);
        } else {
            host.switch.surprise_remove(host.now, port(0), &mut host.out);
        }
        assert_eq!(host.switch.poll_timeout(), None);
        host.switch.handle_timeout(host.now + Duration::from_secs(60), &mut host.out);
        assert!(!host.switch.is_present(port(0)));
    }
}

#[test]
fn it_is_back_when_the_host_boots_again() {
    let mut host = host();
    host.switch.plug(host.now, port(0), &mut host.out);
    host.switch.surprise_remove(host.now, port(0), &mut host.out);
    host.switch.handle_reset(ResetKind::Hot);
    assert_eq!(host.switch.port_state(port(0)), PortState::Empty);
    host.switch.handle_reset(ResetKind::Fundamental);
    assert_eq!(host.switch.port_state(port(0)), PortState::Placeholder);
    host.switch.plug(host.now, port(0), &mut host.out);
    host.switch.handle_reset(ResetKind::Fundamental);
    assert_eq!(host.switch.port_state(port(0)), PortState::Present, "a device stays");
}

/// A boot that begins while the device is about to come sees the placeholder, and then that it goes.
#[test]
fn a_device_that_was_about_to_come_when_the_host_boots_comes_as_a_change() {
    let mut host = host();
    host.enumerate();
    let driver = Driver::probe(&mut host, 0);
    host.switch.plug(host.now, port(0), &mut host.out);
    driver.power_indicator(&mut host, Indicator::Off);
    assert_eq!(host.switch.port_state(port(0)), PortState::Empty);
    host.switch.handle_reset(ResetKind::Fundamental);
    host.take_out();
    host.enumerate();
    assert_eq!(host.read(at(0), 0x08) >> 8, 0xff_0000);
    host.write(Host::id(0), 0x88, 1 << 19 | 1 << 24);
    let mut seen = Vec::new();
    while let Some(due) = host.switch.poll_timeout() {
        host.now = due;
        host.switch.handle_timeout(host.now, &mut host.out);
        let changed = host.read(Host::id(0), 0x88) & 1 << 19 != 0;
        seen.push((host.switch.port_state(port(0)), changed));
    }
    assert_eq!(seen, [(PortState::Empty, true), (PortState::Present, true)]);
}
