//! Access Control Services.

use super::*;

const SOURCE_VALIDATION: u32 = 1;
const TRANSLATION_BLOCKING: u32 = 2;
const REQUEST_REDIRECT: u32 = 4;
const COMPLETION_REDIRECT: u32 = 8;
const UPSTREAM_FORWARDING: u32 = 16;

fn device(n: u8) -> u16 {
    u16::from(bus(n)) << 8
}

fn set(host: &mut Host, n: u8, controls: u32) {
    host.write_bytes(Host::id(n), 0x154, controls << 16, 0xc);
}

fn aborted(host: &mut Host) -> bool {
    view(&host.back.pop().unwrap()).status() == CplStatus::CompleterAbort
}

#[test]
fn what_is_supported_can_be_switched_on_and_nothing_else() {
    let mut host = Host::ready(1);
    assert_eq!(host.read(Host::id(0), 0x154), 0x1f);
    set(&mut host, 0, 0xffff);
    assert_eq!(host.read(Host::id(0), 0x154), 0x001f_001f);
    assert_eq!(host.read(UPSTREAM, 0x150) as u16, 0x03, "an upstream port has no ACS");
}

#[test]
fn source_validation_refuses_other_buses() {
    let mut host = Host::ready(2);
    let mut foreign = read_of(device(1), 0x1000);
    assert_eq!(host.up(0, &mut foreign.clone()), UpstreamVerdict::ToRoot);
    set(&mut host, 0, SOURCE_VALIDATION);
    let refused = UpstreamVerdict::Discarded(Cause::SourceValidation);
    assert_eq!(host.up(0, &mut foreign), refused);
    assert!(aborted(&mut host));
    assert_ne!(host.read(Host::id(0), 0x1c) & 1 << 27, 0, "Signaled Target Abort");
    assert_eq!(host.up(0, &mut write_of(ROOT, 0x1000)), refused);
    assert_ne!(host.read(Host::id(0), 0x104) & 1 << 21, 0, "ACS Violation");
    assert_eq!(host.up(0, &mut read_of(device(0) | 5, 0x1000)), UpstreamVerdict::ToRoot);
    // Completions carry the host's requester ID and are not validated.
    let mut completion = completion_for(ROOT, CplStatus::Success);
    assert_eq!(host.up(0, &mut completion), UpstreamVerdict::ToRoot);
}

#[test]
fn translated_addresses_need_a_grant() {
    let mut host = Host::ready(1);
    let translated = || {
        let mut tlp = read_of(device(0), 0x1000);
        tlp[2] |= 2 << 2;
        tlp
    };
    let not_granted = UpstreamVerdict::Discarded(Cause::NotGranted);
    assert_eq!(host.up(0, &mut translated()), not_granted);
    assert_eq!(view(&host.back[0]).status(), CplStatus::UnsupportedRequest);
    host.back.clear();
    set(&mut host, 0, TRANSLATION_BLOCKING);
    let blocked = UpstreamVerdict::Discarded(Cause::Translation);
    assert_eq!(host.up(0, &mut translated()), blocked);
    assert!(aborted(&mut host));
    host.switch.grant_translation(port(0), true);
    assert_eq!(host.up(0, &mut translated()), blocked, "a grant does not change that");
    set(&mut host, 0, 0);
    assert_eq!(host.up(0, &mut translated()), UpstreamVerdict::ToRoot);
}

#[test]
fn peers_reach_each_other_unless_redirected() {
    let mut host = Host::ready(2);
    let peer = memory_of(1) + 8;
    assert_eq!(host.up(0, &mut write_of(device(0), peer)), UpstreamVerdict::ToPort(port(1)));
    set(&mut host, 0, REQUEST_REDIRECT);
    assert_eq!(host.up(0, &mut write_of(device(0), peer)), UpstreamVerdict::ToRoot);
    let back = memory_of(0) + 8;
    let to_first = UpstreamVerdict::ToPort(port(0));
    assert_eq!(host.up(1, &mut write_of(device(1), back)), to_first, "each port for itself");
    host.switch.surprise_remove(host.now, port(0), &mut host.out);
    let down = UpstreamVerdict::Discarded(Cause::LinkDown);
    assert_eq!(host.up(1, &mut read_of(device(1), back)), down);
    assert_eq!(view(&host.back[0]).status(), CplStatus::UnsupportedRequest);
}

#[test]
fn completions_to_peers_are_redirected_unless_they_are_relaxed() {
    let mut host = Host::ready(2);
    let to_peer = completion_for(device(1), CplStatus::Success);
    let mut relaxed = to_peer.clone();
    relaxed[2] |= 0x20;
    assert_eq!(host.up(0, &mut to_peer.clone()), UpstreamVerdict::ToPort(port(1)));
    set(&mut host, 0, COMPLETION_REDIRECT);
    assert_eq!(host.up(0, &mut to_peer.clone()), UpstreamVerdict::ToRoot);
    assert_eq!(host.up(0, &mut relaxed), UpstreamVerdict::ToPort(port(1)));
}

#[test]
fn a_device_that_means_itself_is_forwarded_or_refused() {
    let mut host = Host::ready(1);
    let own = memory_of(0) + 4;
    let refused = UpstreamVerdict::Discarded(Cause::OwnWindow);
    assert_eq!(host.up(0, &mut read_of(device(0), own)), refused);
    set(&mut host, 0, UPSTREAM_FORWARDING);
    assert_eq!(host.up(0, &mut read_of(device(0), own)), UpstreamVerdict::ToRoot);
    let mut completion = completion_for(device(0), CplStatus::Success);
    assert_eq!(host.up(0, &mut completion), UpstreamVerdict::ToRoot);
}

#[test]
fn a_hole_in_the_switchs_window_is_nobodys() {
    let mut host = Host::ready(2);
    host.write(Host::id(1), 0x20, 0x0000_fff0);
    let refused = UpstreamVerdict::Discarded(Cause::NoWindow);
    assert_eq!(host.up(0, &mut read_of(device(0), memory_of(1))), refused);
    assert_eq!(view(&host.back[0]).completer(), bdf(UPSTREAM));
}
