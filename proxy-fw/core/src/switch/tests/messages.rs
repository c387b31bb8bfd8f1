//! Messages by their routing, INTx wires, PME_Turn_Off.

use super::*;
use core::time::Duration;

fn device(n: u8) -> u16 {
    u16::from(bus(n)) << 8
}

fn codes(host: &mut Host) -> Vec<MsgCode> {
    host.take_out().iter().map(|tlp| view(tlp).message_code()).collect()
}

fn by_id(requester: u16, code: MsgCode, to: u16) -> Vec<u8> {
    let [high, low] = to.to_be_bytes();
    emit(Kind::Message {
        routing: MsgRouting::ById,
        code,
        requester: bdf(requester),
        tag: tag(0),
        fields: [high, low, 0x12, 0x34, 0, 0, 0, 0],
        data: &[],
    })
}

#[test]
fn by_id_both_ways() {
    let mut host = Host::ready(2);
    let code = MsgCode::VendorDefined1;
    let mut to_device = by_id(ROOT, code, device(1));
    assert_eq!(host.down(&mut to_device), DownstreamVerdict::Forward(port(1)));
    assert_eq!(host.up(0, &mut by_id(device(0), code, ROOT)), UpstreamVerdict::ToRoot);
    let mut to_peer = by_id(device(0), code, device(1));
    assert_eq!(host.up(0, &mut to_peer), UpstreamVerdict::ToPort(port(1)));
    // To the switch itself: type 1 is ignored, type 0 is not supported.
    let ignored = DownstreamVerdict::Discarded(Cause::IgnoredMessage);
    assert_eq!(host.down(&mut by_id(ROOT, code, UPSTREAM)), ignored);
    let unsupported = DownstreamVerdict::Discarded(Cause::UnsupportedMessage);
    let mut type_0 = by_id(ROOT, MsgCode::VendorDefined0, Host::id(0));
    assert_eq!(host.down(&mut type_0), unsupported);
}

#[test]
fn broadcasts_go_down_only() {
    let mut host = Host::ready(1);
    let mut unlock = message_of(ROOT, MsgCode::Unlock, MsgRouting::Broadcast);
    assert_eq!(host.down(&mut unlock), DownstreamVerdict::Broadcast);
    let unsupported = UpstreamVerdict::Discarded(Cause::UnsupportedMessage);
    assert_eq!(host.up(0, &mut unlock), unsupported);
}

#[test]
fn turn_off_is_acknowledged_when_all_devices_have() {
    let mut host = Host::ready(3);
    host.switch.surprise_remove(host.now, port(2), &mut host.out);
    host.take_out();
    let mut off = message_of(ROOT, MsgCode::PmeTurnOff, MsgRouting::Broadcast);
    assert_eq!(host.down(&mut off), DownstreamVerdict::Broadcast);
    let ack = |host: &mut Host, n| {
        let mut tlp = message_of(device(n), MsgCode::PmeToAck, MsgRouting::Gathered);
        assert_eq!(host.up(n, &mut tlp), UpstreamVerdict::Consumed);
        codes(host)
    };
    assert_eq!(ack(&mut host, 0), []);
    assert_eq!(ack(&mut host, 0), [], "once each");
    assert_eq!(ack(&mut host, 1), [MsgCode::PmeToAck]);
    assert_eq!(ack(&mut host, 1), [], "nobody asked");
}

#[test]
fn turn_off_does_not_wait_for_the_dead() {
    let mut host = Host::ready(2);
    let mut off = message_of(ROOT, MsgCode::PmeTurnOff, MsgRouting::Broadcast);
    let _ = host.down(&mut off);
    host.switch.surprise_remove(host.now, port(0), &mut host.out);
    assert_eq!(codes(&mut host), []);
    let due = host.switch.poll_timeout().unwrap();
    assert!(due <= host.now + Duration::from_secs(4));
    host.switch.handle_timeout(due, &mut host.out);
    assert_eq!(codes(&mut host), [MsgCode::PmeToAck]);
    assert_eq!(host.switch.poll_timeout(), None);
    // With nobody below, at once.
    let mut host = Host::with_ports(1);
    let _ = host.down(&mut off);
    assert_eq!(codes(&mut host), [MsgCode::PmeToAck]);
}

#[test]
fn wires_turn_with_the_port_and_are_shared() {
    let mut host = Host::ready(6);
    let wire = |host: &mut Host, n, code| {
        let mut tlp = message_of(device(n), code, MsgRouting::Local);
        assert_eq!(host.up(n, &mut tlp), UpstreamVerdict::Consumed);
        codes(host)
    };
    assert_eq!(wire(&mut host, 0, MsgCode::AssertInta), [MsgCode::AssertInta]);
    assert_eq!(wire(&mut host, 1, MsgCode::AssertInta), [MsgCode::AssertIntb]);
    assert_eq!(wire(&mut host, 5, MsgCode::AssertInta), [], "INTB is asserted already");
    assert_eq!(wire(&mut host, 1, MsgCode::DeassertInta), [], "port 5 still asserts it");
    assert_eq!(wire(&mut host, 5, MsgCode::DeassertInta), [MsgCode::DeassertIntb]);
    assert_eq!(wire(&mut host, 3, MsgCode::AssertIntd), [MsgCode::AssertIntc]);
    // A device that goes takes its wires along.
    host.switch.surprise_remove(host.now, port(0), &mut host.out);
    host.switch.surprise_remove(host.now, port(3), &mut host.out);
    assert_eq!(codes(&mut host), [MsgCode::DeassertInta, MsgCode::DeassertIntc]);
}

#[test]
fn the_slot_power_limit_is_captured() {
    let mut host = Host::ready(1);
    let mut limit = emit(Kind::Message {
        routing: MsgRouting::Local,
        code: MsgCode::SetSlotPowerLimit,
        requester: bdf(ROOT),
        tag: tag(0),
        fields: [0; 8],
        data: &[0x4b, 0x01, 0, 0],
    });
    let mut poisoned = limit.clone();
    Packet::new_checked(&mut poisoned[..]).unwrap().set_poisoned(true);
    assert_eq!(host.down(&mut poisoned), DownstreamVerdict::Discarded(Cause::Poisoned));
    assert_eq!(host.read(UPSTREAM, 0x74) >> 18 & 0x3ff, 0);
    assert_eq!(host.read(UPSTREAM, 0x04) >> 31, 1, "Detected Parity Error");
    assert_eq!(host.down(&mut limit), DownstreamVerdict::Consumed);
    assert_eq!(host.read(UPSTREAM, 0x74) >> 18 & 0x3ff, 0x14b);
}

#[test]
fn what_the_switch_does_not_offer_is_unsupported_and_old_hot_plug_messages_are_ignored() {
    let mut host = Host::ready(1);
    for code in [MsgCode::Ltr, MsgCode::PtmRequest] {
        let mut tlp = message_of(device(0), code, MsgRouting::Local);
        let unsupported = UpstreamVerdict::Discarded(Cause::UnsupportedMessage);
        assert_eq!(host.up(0, &mut tlp), unsupported, "{code:?}");
    }
    let mut old = message_of(device(0), MsgCode::AttentionButtonPressed, MsgRouting::Local);
    assert_eq!(host.up(0, &mut old), UpstreamVerdict::Discarded(Cause::IgnoredMessage));
    let mut old = message_of(ROOT, MsgCode::PowerIndicatorOn, MsgRouting::Local);
    assert_eq!(host.down(&mut old), DownstreamVerdict::Discarded(Cause::IgnoredMessage));
    // Page requests and invalidations belong to translation, which was not granted.
    let mut page = message_of(device(0), MsgCode::PageRequest, MsgRouting::ToRootComplex);
    let refused = UpstreamVerdict::Discarded(Cause::NotGranted);
    assert_eq!(host.up(0, &mut page), refused);
    host.switch.grant_translation(port(0), true);
    assert_eq!(host.up(0, &mut page), UpstreamVerdict::ToRoot);
}
