//! The slot, driven as Linux's pciehp drives one.

use super::*;
use crate::control::PortState;
use core::time::Duration;

/// Slot Control: attention button, hot-plug interrupt, link state; no presence, as pciehp has it
/// where there is an attention button.
const PCIEHP_ENABLES: u32 = 1 << 0 | INTERRUPT_ENABLE | 1 << 12;
const INTERRUPT_ENABLE: u32 = 1 << 5;
const BUTTON: u32 = 1 << 0;
const PRESENCE_CHANGED: u32 = 1 << 3;
const PRESENT: u32 = 1 << 6;
const LINK_CHANGED: u32 = 1 << 8;

/// The parts of pciehp that touch the slot.
pub(super) struct Driver {
    pub(super) port: u8,
}

impl Driver {
    /// Probes the slot: clears old events, then enables what it listens to.
    pub(super) fn probe(host: &mut Host, port: u8) -> Self {
        let id = Host::id(port);
        host.write_bytes(id, 0x88, 0x011f << 16, 0xc);
        let driver = Self { port };
        let control = driver.control(host);
        host.write_bytes(id, 0x88, control | PCIEHP_ENABLES, 0x3);
        driver
    }

    fn control(&self, host: &mut Host) -> u32 {
        host.read(Host::id(self.port), 0x88) & 0xffff
    }

    pub(super) fn status(&self, host: &mut Host) -> u32 {
        host.read(Host::id(self.port), 0x88) >> 16
    }

    /// The interrupt handler: what it found and cleared. With MSI every bit must be seen clear
    /// before a new interrupt comes, so it looks again.
    pub(super) fn interrupt(&self, host: &mut Host) -> u32 {
        let mut found = 0;
        loop {
            let events = self.status(host) & (BUTTON | PRESENCE_CHANGED | LINK_CHANGED);
            if events == 0 {
                return found;
            }
            found |= events;
            host.write_bytes(Host::id(self.port), 0x88, events << 16, 0xc);
        }
    }

    pub(super) fn power_indicator(&self, host: &mut Host, indicator: Indicator) {
        let control = self.control(host) & !(0b11 << 8) | indicator.bits() << 8;
        host.write_bytes(Host::id(self.port), 0x88, control, 0x3);
    }

    /// Brings the slot up: the checks of pciehp's `check_link_status`.
    pub(super) fn power_on(&self, host: &mut Host) {
        self.power_indicator(host, Indicator::Blink);
        let link = host.read(Host::id(self.port), 0x80) >> 16;
        assert_ne!(link & 1 << 13, 0, "Data Link Layer Link Active");
        assert_eq!(link & 1 << 11, 0, "no training");
        assert_ne!(link >> 4 & 0x3f, 0, "a width");
        self.power_indicator(host, Indicator::On);
    }
}

/// Takes the interrupts that came out; checks that they are the port's.
pub(super) fn interrupts(host: &mut Host, n: u8) -> usize {
    let tlps = host.take_out();
    for tlp in &tlps {
        let packet = view(tlp);
        assert_eq!(packet.tlp_type(), TlpType::MWr);
        assert_eq!(packet.address(), MSI_ADDRESS + 0x100 * u64::from(n));
        assert_eq!(packet.payload(), (0x4000 + u32::from(n)).to_le_bytes());
        assert_eq!(packet.requester(), bdf(Host::id(n)));
    }
    tlps.len()
}

/// An enumerated switch with empty slots and drivers.
fn empty(ports: u8) -> (Host, Vec<Driver>) {
    let mut host = Host::with_ports(ports);
    host.enumerate();
    let drivers = (0..ports).map(|n| Driver::probe(&mut host, n)).collect();
    host.events();
    (host, drivers)
}

fn occupied() -> (Host, Driver) {
    let (mut host, mut drivers) = empty(1);
    host.switch.plug(host.now, port(0), &mut host.out);
    let driver = drivers.remove(0);
    assert_eq!(interrupts(&mut host, 0), 1);
    driver.interrupt(&mut host);
    driver.power_on(&mut host);
    host.events();
    (host, driver)
}

fn ask(host: &mut Host) -> RemovalRequest {
    host.switch.request_removal(host.now, port(0), &mut host.out)
}

#[test]
fn a_plug_latches_presence_and_link_at_once_and_interrupts_once() {
    let (mut host, drivers) = empty(2);
    assert_eq!(host.switch.port_state(port(1)), PortState::Empty);
    host.switch.plug(host.now, port(1), &mut host.out);
    assert_eq!(interrupts(&mut host, 1), 1);
    let status = drivers[1].status(&mut host);
    assert_eq!(status & PRESENT, PRESENT);
    assert_eq!(drivers[1].interrupt(&mut host), PRESENCE_CHANGED | LINK_CHANGED);
    assert_eq!(interrupts(&mut host, 1), 0);
    drivers[1].power_on(&mut host);
    assert_eq!(host.switch.port_state(port(1)), PortState::Present);
    assert!(host.switch.is_present(port(1)) && host.switch.is_link_up(port(1)));
    let events = host.events();
    assert!(events.contains(&SwitchEvent::Inserted(port(1))));
    assert!(events.contains(&SwitchEvent::PowerIndicator(port(1), Indicator::On)));
    // Again is nothing new.
    host.switch.plug(host.now, port(1), &mut host.out);
    assert_eq!(interrupts(&mut host, 1), 0);
}

#[test]
fn an_orderly_removal() {
    let (mut host, driver) = occupied();
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    assert_eq!(interrupts(&mut host, 0), 1);
    assert_eq!(driver.interrupt(&mut host), BUTTON);
    driver.power_indicator(&mut host, Indicator::Blink);
    assert_eq!(host.switch.port_state(port(0)), PortState::Removing);
    assert_eq!(host.events(), [SwitchEvent::PowerIndicator(port(0), Indicator::Blink)]);
    host.now = host.now + Duration::from_secs(20);
    assert_eq!(ask(&mut host), RemovalRequest::InProgress, "a second press would cancel");
    assert_eq!(interrupts(&mut host, 0), 0);

    driver.power_indicator(&mut host, Indicator::Off);
    let events = host.events();
    assert_eq!(events[0], SwitchEvent::LetGo { port: port(0), requested: true });
    // Presence and link were cleared before that could be told.
    assert_eq!(host.switch.port_state(port(0)), PortState::Empty);
    assert!(!host.switch.is_link_up(port(0)));
    assert_eq!(interrupts(&mut host, 0), 1);
    assert_eq!(driver.interrupt(&mut host), PRESENCE_CHANGED | LINK_CHANGED);
    assert_eq!(driver.status(&mut host) & PRESENT, 0);
    assert_eq!(ask(&mut host), RemovalRequest::Empty);
}

#[test]
fn the_button_waits_for_a_steady_indicator() {
    let (mut host, driver) = occupied();
    driver.power_indicator(&mut host, Indicator::Blink);
    assert_eq!(ask(&mut host), RemovalRequest::MustWait);
    assert_eq!(driver.status(&mut host) & BUTTON, 0);
    driver.power_indicator(&mut host, Indicator::On);
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    assert_ne!(driver.status(&mut host) & BUTTON, 0);
}

#[test]
fn a_press_that_nothing_follows_can_be_repeated_but_not_soon() {
    let (mut host, driver) = occupied();
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    driver.interrupt(&mut host);
    host.take_out();
    host.now = host.now + Duration::from_secs(5);
    assert_eq!(ask(&mut host), RemovalRequest::InProgress);
    host.now = host.now + PRESS_SETTLES;
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    assert_eq!(interrupts(&mut host, 0), 1);
}

#[test]
fn software_that_keeps_the_device_is_told_of() {
    let (mut host, driver) = occupied();
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    driver.interrupt(&mut host);
    driver.power_indicator(&mut host, Indicator::Blink);
    driver.power_indicator(&mut host, Indicator::On);
    assert_eq!(host.events()[0], SwitchEvent::RemovalCancelled(port(0)));
    assert_eq!(host.switch.port_state(port(0)), PortState::Present);
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
}

#[test]
fn software_can_let_go_unasked() {
    let (mut host, driver) = occupied();
    driver.power_indicator(&mut host, Indicator::Off);
    assert_eq!(host.events()[0], SwitchEvent::LetGo { port: port(0), requested: false });
    assert!(!host.switch.is_present(port(0)));
}

#[test]
fn a_write_of_zeros_to_the_indicators_changes_nothing() {
    let (mut host, driver) = occupied();
    host.write_bytes(Host::id(0), 0x88, PCIEHP_ENABLES, 0x3);
    assert_eq!(host.switch.power_indicator(port(0)), Indicator::On);
    assert!(host.switch.is_present(port(0)));
    assert_eq!(driver.control(&mut host) >> 8 & 0b11, Indicator::On.bits());
}

#[test]
fn a_surprise_removal_interrupts_and_the_slot_can_be_used_again() {
    let (mut host, driver) = occupied();
    host.switch.surprise_remove(host.now, port(0), &mut host.out);
    assert_eq!(interrupts(&mut host, 0), 1);
    assert_eq!(driver.interrupt(&mut host), PRESENCE_CHANGED | LINK_CHANGED);
    assert!(!host.events().iter().any(|e| matches!(e, SwitchEvent::LetGo { .. })));
    driver.power_indicator(&mut host, Indicator::Off);
    assert!(!host.events().iter().any(|e| matches!(e, SwitchEvent::LetGo { .. })));
    host.switch.plug(host.now, port(0), &mut host.out);
    assert_eq!(interrupts(&mut host, 0), 1);
    driver.interrupt(&mut host);
    driver.power_on(&mut host);
    assert!(host.switch.is_present(port(0)));
}

#[test]
fn software_that_is_late_with_a_removal_does_not_let_go_of_the_next_device() {
    let (mut host, driver) = occupied();
    host.switch.surprise_remove(host.now, port(0), &mut host.out);
    driver.interrupt(&mut host);
    // Drivers take their time to let go of the device that is gone; another one comes.
    host.switch.plug(host.now, port(0), &mut host.out);
    driver.interrupt(&mut host);
    assert_eq!(ask(&mut host), RemovalRequest::MustWait, "the new one is not taken up yet");
    driver.power_indicator(&mut host, Indicator::Off);
    assert!(!host.events().iter().any(|e| matches!(e, SwitchEvent::LetGo { .. })));
    assert!(host.switch.is_present(port(0)));
    driver.power_on(&mut host);
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    driver.power_indicator(&mut host, Indicator::Off);
    assert!(host.events().contains(&SwitchEvent::LetGo { port: port(0), requested: true }));
}

/// The first one fails while its driver begins with it, which may take seconds, and the next one is
/// there before software is done with that.
#[test]
fn software_that_was_busy_with_the_device_before_does_not_let_go_of_the_next() {
    let (mut host, mut drivers) = empty(1);
    let driver = drivers.remove(0);
    let lets_go = |host: &mut Host| {
        host.events().iter().any(|event| matches!(event, SwitchEvent::LetGo { .. }))
    };
    host.switch.plug(host.now, port(0), &mut host.out);
    driver.interrupt(&mut host);
    driver.power_indicator(&mut host, Indicator::Blink);
    host.switch.device_found(port(0));
    // And the one after that.
    for _ in 0..2 {
        host.switch.surprise_remove(host.now, port(0), &mut host.out);
        host.switch.plug(host.now, port(0), &mut host.out);
    }
    driver.power_indicator(&mut host, Indicator::On);
    assert_eq!(ask(&mut host), RemovalRequest::MustWait, "that was the first one");
    driver.interrupt(&mut host);
    driver.power_indicator(&mut host, Indicator::Off);
    assert!(!lets_go(&mut host) && host.switch.is_present(port(0)));
    driver.power_on(&mut host);
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    driver.power_indicator(&mut host, Indicator::Off);
    assert!(lets_go(&mut host) && !host.switch.is_present(port(0)));
    // One that comes before the one before was found is the one that is found.
    host.switch.plug(host.now, port(0), &mut host.out);
    driver.interrupt(&mut host);
    driver.power_indicator(&mut host, Indicator::Blink);
    host.switch.surprise_remove(host.now, port(0), &mut host.out);
    host.switch.plug(host.now, port(0), &mut host.out);
    driver.power_indicator(&mut host, Indicator::On);
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
}

#[test]
fn a_change_while_the_handler_runs_is_not_lost() {
    let (mut host, mut drivers) = empty(1);
    let driver = drivers.remove(0);
    host.switch.plug(host.now, port(0), &mut host.out);
    assert_eq!(interrupts(&mut host, 0), 1);
    // The handler reads the status; before it clears, the device is gone again.
    let seen = driver.status(&mut host) & (PRESENCE_CHANGED | LINK_CHANGED);
    host.switch.surprise_remove(host.now, port(0), &mut host.out);
    host.write_bytes(Host::id(0), 0x88, seen << 16, 0xc);
    host.take_out();
    // After it cleared, a further change is a new interrupt.
    host.switch.plug(host.now, port(0), &mut host.out);
    assert_eq!(interrupts(&mut host, 0), 1);
}

#[test]
fn each_enabled_bit_that_rises_interrupts_even_if_another_is_set() {
    let (mut host, driver) = occupied();
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    assert_eq!(interrupts(&mut host, 0), 1);
    host.switch.surprise_remove(host.now, port(0), &mut host.out);
    assert_eq!(interrupts(&mut host, 0), 1, "the button's bit is still set");
    assert_eq!(driver.interrupt(&mut host), BUTTON | PRESENCE_CHANGED | LINK_CHANGED);
}

#[test]
fn enabling_with_an_event_pending_interrupts() {
    let mut host = Host::with_ports(1);
    host.enumerate();
    host.switch.plug(host.now, port(0), &mut host.out);
    assert_eq!(interrupts(&mut host, 0), 0, "nothing is enabled");
    host.write_bytes(Host::id(0), 0x88, 1 << 12, 0x3);
    assert_eq!(interrupts(&mut host, 0), 0, "hot-plug interrupts are off");
    host.write_bytes(Host::id(0), 0x88, PCIEHP_ENABLES, 0x3);
    assert_eq!(interrupts(&mut host, 0), 1);
}

#[test]
fn interrupts_need_msi_and_bus_mastering_and_wait_for_them() {
    for (register, off, on, enables) in
        [(0x50, 0, 0x0001_0000, 0xc), (0x04, 0x3, 0x7, 0x1), (0x44, 0x3, 0x0, 0x1)]
    {
        let (mut host, _drivers) = empty(1);
        let id = Host::id(0);
        host.write_bytes(id, register, off, enables);
        host.switch.plug(host.now, port(0), &mut host.out);
        assert_eq!(interrupts(&mut host, 0), 0, "{register:#x}");
        host.write_bytes(id, register, on, enables);
        assert_eq!(interrupts(&mut host, 0), 1, "{register:#x}");
    }
    let (mut host, _drivers) = empty(1);
    host.write_bytes(UPSTREAM, 0x04, 0x3, 0x1);
    host.switch.plug(host.now, port(0), &mut host.out);
    assert_eq!(interrupts(&mut host, 0), 0, "the upstream port masters too");
    host.write_bytes(UPSTREAM, 0x04, 0x7, 0x1);
    assert_eq!(interrupts(&mut host, 0), 1);
}

#[test]
fn a_masked_vector_is_pending_and_goes_when_unmasked() {
    let (mut host, driver) = empty(1);
    let id = Host::id(0);
    host.write(id, 0x60, 1);
    host.switch.plug(host.now, port(0), &mut host.out);
    assert_eq!(interrupts(&mut host, 0), 0);
    assert_eq!(host.read(id, 0x64), 1);
    host.write(id, 0x60, 0);
    assert_eq!(interrupts(&mut host, 0), 1);
    assert_eq!(host.read(id, 0x64), 0);
    // Cleared by software before it was unmasked: nothing is pending any more.
    driver[0].interrupt(&mut host);
    host.write(id, 0x60, 1);
    host.switch.surprise_remove(host.now, port(0), &mut host.out);
    assert_eq!(host.read(id, 0x64), 1);
    driver[0].interrupt(&mut host);
    assert_eq!(host.read(id, 0x64), 0);
    host.write(id, 0x60, 0);
    assert_eq!(interrupts(&mut host, 0), 0);
}

#[test]
fn an_interrupt_above_4_gb_has_a_long_header() {
    let (mut host, _drivers) = empty(1);
    host.write(Host::id(0), 0x58, 0x12);
    host.switch.plug(host.now, port(0), &mut host.out);
    let tlps = host.take_out();
    assert_eq!(view(&tlps[0]).address(), 0x12_0000_0000 | MSI_ADDRESS);
    assert_eq!(tlps[0].len(), 20);
}

#[test]
fn in_d3_an_event_wakes_by_pme() {
    let (mut host, _drivers) = empty(1);
    host.write_bytes(Host::id(0), 0x44, 0x0103, 0x3);
    host.switch.plug(host.now, port(0), &mut host.out);
    let tlps = host.take_out();
    assert_eq!(tlps.len(), 1);
    assert_eq!(view(&tlps[0]).message_code(), MsgCode::PmPme);
    assert_eq!(view(&tlps[0]).requester(), bdf(Host::id(0)));
    assert_ne!(host.read(Host::id(0), 0x44) & 1 << 15, 0, "PME_Status");
    host.write_bytes(Host::id(0), 0x44, 0x8000, 0x3);
    assert_eq!(interrupts(&mut host, 0), 1, "awake again, the interrupt follows");
}

/// Of several that come at a time a root port keeps two.
#[test]
fn a_power_event_that_nobody_serves_is_sent_again() {
    let (mut host, _drivers) = empty(1);
    host.write_bytes(Host::id(0), 0x44, 0x0103, 0x3);
    host.switch.plug(host.now, port(0), &mut host.out);
    assert_eq!(host.take_out().len(), 1);
    let after = |host: &mut Host, ms| {
        host.switch.handle_timeout(host.now, &mut host.out);
        host.now = host.now + Duration::from_millis(ms);
        host.switch.handle_timeout(host.now, &mut host.out);
        host.take_out().len()
    };
    assert_eq!(after(&mut host, 94), 0);
    assert_eq!(after(&mut host, 56), 1);
    assert_eq!(after(&mut host, 150), 1);
    // It is asleep still; what is seen is not told any more.
    host.write_bytes(Host::id(0), 0x44, 0x8103, 0x3);
    assert_eq!((after(&mut host, 150), after(&mut host, 150)), (0, 0));
    assert_eq!(host.switch.poll_timeout(), None);
}

/// The root complex may go off once it has the acknowledgement.
#[test]
fn no_power_event_follows_the_word_that_power_goes() {
    let (mut host, _drivers) = empty(2);
    for n in 0..2 {
        host.write_bytes(Host::id(n), 0x44, 0x0103, 0x3);
    }
    host.switch.plug(host.now, port(0), &mut host.out);
    let mut off = message_of(ROOT, MsgCode::PmeTurnOff, MsgRouting::Broadcast);
    let _ = host.down(&mut off);
    host.switch.plug(host.now, port(1), &mut host.out);
    let mut ack = message_of(u16::from(bus(0)) << 8, MsgCode::PmeToAck, MsgRouting::Gathered);
    assert_eq!(host.up(0, &mut ack), UpstreamVerdict::Consumed);
    let sent = host.take_out();
    let codes: Vec<_> = sent.iter().map(|tlp| view(tlp).message_code()).collect();
    assert_eq!(codes, [MsgCode::PmPme, MsgCode::PmeToAck]);
    host.now = host.now + Duration::from_millis(200);
    host.switch.handle_timeout(host.now, &mut host.out);
    assert_eq!(host.take_out().len(), 0);
    assert_eq!(host.switch.poll_timeout(), None);
    host.switch.handle_reset(ResetKind::Hot);
    host.enumerate();
    Driver::probe(&mut host, 0);
    host.write_bytes(Host::id(0), 0x44, 0x0103, 0x3);
    host.take_out();
    host.switch.surprise_remove(host.now, port(0), &mut host.out);
    assert_eq!(host.take_out().len(), 1, "a reset ends it");
}

/// What is told in D3hot is what is set, whenever it is enabled.
#[test]
fn a_power_event_is_sent_when_it_is_enabled_late() {
    let (mut host, _drivers) = empty(1);
    host.write_bytes(Host::id(0), 0x44, 0x0103, 0x3);
    host.switch.plug(host.now, port(0), &mut host.out);
    assert_eq!(host.take_out().len(), 1);
    host.write_bytes(Host::id(0), 0x44, 0x0003, 0x3);
    assert_eq!(host.take_out().len(), 0);
    host.write_bytes(Host::id(0), 0x44, 0x0103, 0x3);
    assert_eq!(host.take_out().len(), 1);
}

/// A doubleword has Link Control and Link Status: what its write clears it may set again.
#[test]
fn a_status_that_one_write_clears_and_sets_again_interrupts() {
    const RETRAIN: u32 = 1 << 5;
    const BANDWIDTH_INTERRUPT: u32 = 1 << 10;
    const BANDWIDTH_STATUS: u32 = 1 << 30;
    let (mut host, _driver) = occupied();
    for _ in 0..3 {
        host.write(Host::id(0), 0x80, BANDWIDTH_STATUS | BANDWIDTH_INTERRUPT | RETRAIN);
        assert_ne!(host.read(Host::id(0), 0x80) & BANDWIDTH_STATUS, 0);
        assert_eq!(interrupts(&mut host, 0), 1);
    }
    host.write(Host::id(0), 0x80, BANDWIDTH_STATUS | BANDWIDTH_INTERRUPT);
    assert_eq!(interrupts(&mut host, 0), 0);
}

/// A system that sleeps wants to be woken, and no interrupt.
#[test]
fn in_d3_an_event_wakes_whose_interrupt_is_off() {
    let (mut host, drivers) = empty(1);
    let control = drivers[0].control(&mut host);
    host.write_bytes(Host::id(0), 0x88, control & !INTERRUPT_ENABLE, 0x3);
    host.events();
    host.take_out();
    host.write_bytes(Host::id(0), 0x44, 0x0103, 0x3);
    host.switch.plug(host.now, port(0), &mut host.out);
    let tlps = host.take_out();
    assert_eq!(tlps.len(), 1);
    assert_eq!(view(&tlps[0]).message_code(), MsgCode::PmPme);
    host.write_bytes(Host::id(0), 0x44, 0x8000, 0x3);
    assert_eq!(interrupts(&mut host, 0), 0, "awake again, it looks by itself");
}

/// As a driver that polls, or whose system sleeps: nothing is taken from under a file system.
#[test]
fn who_listens_without_interrupts_is_asked() {
    let (mut host, driver) = occupied();
    let control = driver.control(&mut host);
    host.write_bytes(Host::id(0), 0x88, control & !INTERRUPT_ENABLE, 0x3);
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
}

/// A sink that takes so many TLPs and no more.
struct Room(usize, Tlps);

impl TlpSink for Room {
    fn push(&mut self, tlp: &[u8]) -> bool {
        if self.0 == 0 {
            return false;
        }
        self.0 -= 1;
        self.1.push(tlp.to_vec());
        true
    }
}

#[test]
fn a_full_sink_loses_no_interrupt() {
    let (mut host, _drivers) = empty(2);
    let mut full = Room(0, Vec::new());
    host.switch.plug(host.now, port(0), &mut full);
    host.switch.plug(host.now, port(1), &mut full);
    assert!(full.1.is_empty());
    assert_eq!(host.switch.poll_timeout(), Some(Instant::ZERO), "there is something left");
    let mut one = Room(1, Vec::new());
    host.switch.handle_timeout(host.now, &mut one);
    assert_eq!(view(&one.1[0]).requester(), bdf(Host::id(0)));
    assert_eq!(host.switch.poll_timeout(), Some(Instant::ZERO));
    host.switch.handle_timeout(host.now, &mut host.out);
    assert_eq!(interrupts(&mut host, 1), 1);
    assert_eq!(host.switch.poll_timeout(), None);
}

#[test]
fn nobody_listens() {
    let mut host = Host::with_ports(1);
    host.enumerate();
    assert_eq!(host.switch.power_indicator(port(0)), Indicator::Off);
    host.switch.plug(host.now, port(0), &mut host.out);
    assert_eq!(host.switch.power_indicator(port(0)), Indicator::On, "as software would set it");
    assert_eq!(ask(&mut host), RemovalRequest::Unattended);
    // A driver that comes later finds the slot on, and the removal works.
    let driver = Driver::probe(&mut host, 0);
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    driver.interrupt(&mut host);
    driver.power_indicator(&mut host, Indicator::Off);
    assert!(!host.switch.is_present(port(0)));
    host.switch.plug(host.now, port(0), &mut host.out);
    assert_eq!(host.switch.power_indicator(port(0)), Indicator::Off, "software's business now");
}

#[test]
fn retraining_sets_the_bandwidth_bit_and_interrupts_where_enabled() {
    let (mut host, _driver) = occupied();
    let id = Host::id(0);
    host.write_bytes(id, 0x80, 1 << 10, 0x3);
    host.write_bytes(id, 0x80, 1 << 10 | 1 << 5, 0x3);
    assert_eq!(interrupts(&mut host, 0), 1);
    let link = host.read(id, 0x80);
    assert_eq!(link & 1 << 5, 0, "Retrain Link reads 0");
    assert_ne!(link & 1 << 30, 0, "Link Bandwidth Management Status");
    assert_ne!(link & 1 << 29, 0, "the link stays active");
    host.write_bytes(id, 0x80, 1 << 30, 0xc);
    assert_eq!(host.read(id, 0x80) & 1 << 30, 0);
}

/// As behind Intel's VMD, where Linux leaves the indicators to its user.
fn unlit() -> (Host, Driver) {
    let (mut host, mut drivers) = empty(1);
    host.switch.plug(host.now, port(0), &mut host.out);
    let driver = drivers.remove(0);
    driver.interrupt(&mut host);
    host.take_out();
    host.events();
    (host, driver)
}

const BUS_MASTER_AND_MEMORY: u16 = 0b110;
const PUT_DOWN: u16 = 0x402;

fn command(host: &mut Host, function: u8, value: u16) {
    host.switch.command_written(port(0), function, (value, 0b11), &mut host.out);
}

fn wait(host: &mut Host, time: Duration) {
    host.now = host.now + time;
    host.switch.handle_timeout(host.now, &mut host.out);
}

#[test]
fn software_that_leaves_the_indicators_alone_is_asked_when_it_has_found_the_device() {
    let (mut host, driver) = unlit();
    assert_eq!(ask(&mut host), RemovalRequest::MustWait);
    host.switch.device_found(port(0));
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    assert_eq!(driver.interrupt(&mut host), BUTTON);
    assert_eq!(ask(&mut host), RemovalRequest::InProgress);
}

#[test]
fn what_is_put_back_after_a_reset_does_not_let_go_of_the_device() {
    for kind in [ResetKind::Hot, ResetKind::Fundamental] {
        let (mut host, driver) = unlit();
        let saved = driver.control(&mut host);
        assert_eq!(host.switch.power_indicator(port(0)), Indicator::Off);
        host.switch.handle_reset(kind);
        host.enumerate();
        // As pciehp after a recovery: Slot Status first. And somebody writes a byte at a time.
        host.write_bytes(Host::id(0), 0x88, LINK_CHANGED << 16, 0xc);
        host.write_bytes(Host::id(0), 0x88, saved, 0x1);
        host.write_bytes(Host::id(0), 0x88, saved, 0x2);
        assert_eq!(driver.control(&mut host), saved);
        let let_go = |e: &SwitchEvent| matches!(e, SwitchEvent::LetGo { .. });
        assert!(!host.events().iter().any(let_go) && host.switch.is_present(port(0)), "{kind:?}");
        // It still leaves the indicators alone, and is asked as such.
        host.switch.device_found(port(0));
        assert_eq!(ask(&mut host), RemovalRequest::Pressed);
        // What it writes from here on means something.
        driver.power_indicator(&mut host, Indicator::On);
        driver.power_indicator(&mut host, Indicator::Off);
        assert!(host.events().iter().any(let_go) && !host.switch.is_present(port(0)), "{kind:?}");
    }
}

#[test]
fn it_has_let_go_when_it_put_the_device_down() {
    let (mut host, _) = unlit();
    host.switch.device_found(port(0));
    command(&mut host, 0, BUS_MASTER_AND_MEMORY);
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    command(&mut host, 1, PUT_DOWN);
    assert!(host.switch.is_present(port(0)), "function 0 is the last");
    host.switch.command_written(port(0), 0, (0, 0b01), &mut host.out);
    assert!(host.switch.is_present(port(0)), "a driver that ends");
    command(&mut host, 0, PUT_DOWN);
    assert!(!host.switch.is_present(port(0)));
    let let_go = SwitchEvent::LetGo { port: port(0), requested: true };
    assert!(host.events().contains(&let_go));
}

#[test]
fn what_was_put_down_before_is_not_asked_for_by_button() {
    let (mut host, _) = unlit();
    host.switch.device_found(port(0));
    command(&mut host, 0, BUS_MASTER_AND_MEMORY);
    command(&mut host, 0, PUT_DOWN);
    assert!(host.switch.is_present(port(0)), "it can be taken up again");
    assert_eq!(ask(&mut host), RemovalRequest::LetGo);
    command(&mut host, 0, BUS_MASTER_AND_MEMORY);
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
}

#[test]
fn who_turns_everything_off_for_a_reset_does_not_let_go() {
    // What Linux's pci_reset_function writes before it resets one: nothing but INTx disabled.
    const BEFORE_RESET: u16 = 0x400;
    let (mut host, _) = unlit();
    host.switch.device_found(port(0));
    command(&mut host, 0, BUS_MASTER_AND_MEMORY);
    command(&mut host, 0, BEFORE_RESET);
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    command(&mut host, 0, BEFORE_RESET);
    assert!(host.switch.is_present(port(0)), "nor twice");
    command(&mut host, 0, BUS_MASTER_AND_MEMORY);
    command(&mut host, 0, BEFORE_RESET);
    assert!(host.switch.is_present(port(0)), "nor when the button was pressed before");
    command(&mut host, 0, BUS_MASTER_AND_MEMORY);
    command(&mut host, 0, PUT_DOWN);
    assert!(!host.switch.is_present(port(0)));
}

#[test]
fn an_idle_device_is_let_go_some_time_after_the_button() {
    let (mut host, _) = unlit();
    host.switch.device_found(port(0));
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    assert_eq!(host.switch.poll_timeout(), Some(host.now + PRESS_SETTLES));
    wait(&mut host, PRESS_SETTLES);
    assert!(!host.switch.is_present(port(0)));
}

#[test]
fn a_device_in_use_is_let_go_when_its_driver_ends() {
    let (mut host, _) = unlit();
    host.switch.device_found(port(0));
    command(&mut host, 3, BUS_MASTER_AND_MEMORY);
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    wait(&mut host, PRESS_SETTLES);
    assert!(host.switch.is_present(port(0)));
    assert_eq!(host.switch.poll_timeout(), None, "nothing more to wait for by the clock");
    assert_eq!(ask(&mut host), RemovalRequest::InProgress);
    command(&mut host, 3, 0b010);
    assert!(!host.switch.is_present(port(0)));
}

#[test]
fn one_blink_tells_that_the_indicators_mean_something() {
    let (mut host, driver) = unlit();
    host.switch.device_found(port(0));
    assert_eq!(ask(&mut host), RemovalRequest::Pressed);
    driver.power_indicator(&mut host, Indicator::Blink);
    command(&mut host, 0, PUT_DOWN);
    wait(&mut host, PRESS_SETTLES);
    assert!(host.switch.is_present(port(0)), "only the indicator tells");
    driver.power_indicator(&mut host, Indicator::Off);
    assert!(!host.switch.is_present(port(0)));
}
