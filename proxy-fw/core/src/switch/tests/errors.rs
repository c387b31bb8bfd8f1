//! Error messages, of the switch and through it.

use super::*;

fn error_codes(host: &mut Host) -> Vec<(MsgCode, Bdf)> {
    let tlps = host.take_out();
    tlps.iter().map(|tlp| (view(tlp).message_code(), view(tlp).requester())).collect()
}

/// What Linux's AER driver and a firmware that lets SERR# pass set on a port.
fn enable_reporting(host: &mut Host, id: u16) {
    host.write_bytes(id, 0x78, 0xf, 0x1);
    host.write_bytes(id, 0x3c, 1 << 17, 0x4);
}

#[test]
fn a_devices_error_message_passes_where_both_ports_let_it() {
    let mut host = Host::ready(1);
    let device = u16::from(bus(0)) << 8;
    let mut message = message_of(device, MsgCode::ErrNonFatal, MsgRouting::ToRootComplex);
    let masked = UpstreamVerdict::Discarded(Cause::ErrorMessageMasked);
    assert_eq!(host.up(0, &mut message), masked);
    enable_reporting(&mut host, Host::id(0));
    assert_eq!(host.up(0, &mut message), masked);
    enable_reporting(&mut host, UPSTREAM);
    assert_eq!(host.up(0, &mut message), UpstreamVerdict::ToRoot);
    assert_ne!(host.read(Host::id(0), 0x1c) & 1 << 30, 0, "Received System Error");
    assert_eq!(host.counter("switch.error_message_masked"), 2);
}

#[test]
fn a_ports_own_error_goes_through_the_upstream_port() {
    let mut host = Host::ready(1);
    enable_reporting(&mut host, Host::id(0));
    enable_reporting(&mut host, UPSTREAM);
    host.switch.report_error(host.now, port(0), PortError::Malformed, None, &mut host.out);
    assert_eq!(error_codes(&mut host), [(MsgCode::ErrFatal, bdf(Host::id(0)))]);
    assert_ne!(host.read(Host::id(0), 0x78) & 1 << 18, 0, "Fatal Error Detected");
    assert_eq!(host.counter("switch.error_messages"), 1);
}

#[test]
fn a_posted_request_to_nobody_is_a_non_fatal_error_of_the_upstream_port() {
    let mut host = Host::ready(1);
    enable_reporting(&mut host, UPSTREAM);
    let mut write = write_of(ROOT, 0x1234_5678);
    let _ = host.down(&mut write);
    assert_eq!(error_codes(&mut host), [(MsgCode::ErrNonFatal, bdf(UPSTREAM))]);
    assert_eq!(host.read(UPSTREAM, 0x104), 1 << 20);
    assert_eq!(host.read(UPSTREAM, 0x118) & 0x1f, 20);
    let header = view(&write).as_bytes()[..4].try_into().unwrap();
    assert_eq!(host.read(UPSTREAM, 0x11c), u32::from_be_bytes(header));
    assert_eq!(host.read(UPSTREAM, 0x124), 0x1234_5678);
    host.write(UPSTREAM, 0x104, 1 << 20);
    assert_eq!(host.read(UPSTREAM, 0x104), 0);
}

#[test]
fn a_scan_of_absent_devices_is_silent() {
    let mut host = Host::ready(2);
    enable_reporting(&mut host, UPSTREAM);
    enable_reporting(&mut host, Host::id(0));
    for device in 1..32u16 {
        let absent = u16::from(bus(0)) << 8 | device << 3;
        assert_eq!(host.config(true, absent, 0, None).0, CplStatus::UnsupportedRequest);
    }
    assert_eq!(error_codes(&mut host), [], "advisory, and masked by default");
}
