//! Memory, I/O and completions, both ways.

use super::*;

fn ur(host: &mut Host) -> (Bdf, u16, u8) {
    let answer = host.out.pop().expect("a completion");
    let packet = view(&answer);
    assert_eq!(packet.status(), CplStatus::UnsupportedRequest);
    assert_eq!(packet.tag(), tag(9));
    (packet.completer(), packet.byte_count(), packet.lower_address())
}

#[test]
fn memory_goes_to_the_port_whose_window_holds_it() {
    let mut host = Host::ready(3);
    for n in 0..3 {
        for address in [memory_of(n), memory_of(n) + 0xf_fffc, prefetchable_of(n)] {
            let expected = DownstreamVerdict::Forward(port(n));
            assert_eq!(host.down(&mut read_of(ROOT, address)), expected);
            assert_eq!(host.down(&mut write_of(ROOT, address)), expected);
        }
    }
    assert!(host.out.is_empty());
}

#[test]
fn what_is_in_no_window_is_unsupported() {
    let mut host = Host::ready(2);
    let outside = memory_of(2);
    let discarded = DownstreamVerdict::Discarded(Cause::NoWindow);
    assert_eq!(host.down(&mut read_of(ROOT, outside + 4)), discarded);
    assert_eq!(ur(&mut host), (bdf(UPSTREAM), 4, 4));
    assert_eq!(host.down(&mut write_of(ROOT, outside)), discarded);
    assert!(host.out.is_empty(), "a posted request gets no answer");
    assert_eq!(host.counter("switch.no_window"), 2);
    assert_ne!(host.read(UPSTREAM, 0x78) & 1 << 19, 0, "Unsupported Request Detected");
}

#[test]
fn closing_a_ports_window_or_its_enable_closes_the_way() {
    let mut host = Host::ready(2);
    let id = Host::id(0);
    let forward = DownstreamVerdict::Forward(port(0));
    let discarded = DownstreamVerdict::Discarded(Cause::NoWindow);
    host.write(id, 0x20, 0x0000_fff0);
    assert_eq!(host.down(&mut write_of(ROOT, memory_of(0))), discarded);
    assert_eq!(host.down(&mut write_of(ROOT, prefetchable_of(0))), forward);
    host.write_bytes(id, 0x04, 0x5, 0x1);
    assert_eq!(host.down(&mut write_of(ROOT, prefetchable_of(0))), discarded);
    host.enable(id);
    assert_eq!(host.down(&mut write_of(ROOT, prefetchable_of(0))), forward);
    // The upstream port's windows contain the ports'.
    host.write(UPSTREAM, 0x24, 0x0000_fff0);
    host.write(UPSTREAM, 0x2c, 0);
    assert_eq!(host.down(&mut write_of(ROOT, prefetchable_of(0))), discarded);
}

#[test]
fn a_port_in_d3_passes_no_requests() {
    let mut host = Host::ready(1);
    host.write_bytes(Host::id(0), 0x44, 0x3, 0x1);
    let discarded = DownstreamVerdict::Discarded(Cause::NoWindow);
    assert_eq!(host.down(&mut write_of(ROOT, memory_of(0))), discarded);
    let mut dma = write_of(u16::from(bus(0)) << 8, 0x1000);
    assert_eq!(host.up(0, &mut dma), UpstreamVerdict::Discarded(Cause::BusMasterOff));
    // D1 and D2 are not there: the write changes nothing.
    host.write_bytes(Host::id(0), 0x44, 0x1, 0x1);
    assert_eq!(host.read(Host::id(0), 0x44) & 0x3, 0x3);
    host.write_bytes(Host::id(0), 0x44, 0x0, 0x1);
    assert_eq!(host.down(&mut write_of(ROOT, memory_of(0))), DownstreamVerdict::Forward(port(0)));
}

#[test]
fn an_empty_port_is_unsupported_without_an_error() {
    let mut host = Host::ready(1);
    host.switch.surprise_remove(host.now, port(0), &mut host.out);
    host.take_out();
    let down = DownstreamVerdict::Discarded(Cause::LinkDown);
    assert_eq!(host.down(&mut read_of(ROOT, memory_of(0))), down);
    assert_eq!(ur(&mut host).0, bdf(Host::id(0)));
    assert_eq!(host.read(Host::id(0), 0x78) >> 16 & 0xf, 0, "no error is latched");
}

#[test]
fn io_goes_by_its_window_and_isa_enable() {
    let mut host = Host::ready(2);
    let id = Host::id(1);
    host.write_bytes(id, 0x1c, 0x2020, 0x3);
    let io =
        |address| emit(Kind::IoRead { requester: bdf(ROOT), tag: tag(9), address, first_be: 0xf });
    assert_eq!(host.down(&mut io(0x2100)), DownstreamVerdict::Forward(port(1)));
    assert_eq!(host.down(&mut io(0x3000)), DownstreamVerdict::Discarded(Cause::NoWindow));
    assert_eq!(ur(&mut host), (bdf(UPSTREAM), 4, 0));
    // ISA Enable leaves only the first 256 bytes of each kilobyte.
    host.write_bytes(id, 0x3c, 1 << 18, 0x4);
    assert_eq!(host.down(&mut io(0x20fc)), DownstreamVerdict::Forward(port(1)));
    assert_eq!(host.down(&mut io(0x2100)), DownstreamVerdict::Discarded(Cause::NoWindow));
}

#[test]
fn dma_goes_to_the_root_while_both_ports_master() {
    let mut host = Host::ready(2);
    let device = u16::from(bus(0)) << 8;
    assert_eq!(host.up(0, &mut write_of(device, 0x1000)), UpstreamVerdict::ToRoot);
    assert_eq!(host.up(0, &mut read_of(device, 0x12_3456_7000)), UpstreamVerdict::ToRoot);
    host.write_bytes(Host::id(0), 0x04, 0x3, 0x1);
    let off = UpstreamVerdict::Discarded(Cause::BusMasterOff);
    assert_eq!(host.up(0, &mut write_of(device, 0x1000)), off);
    assert!(host.back.is_empty(), "a posted request is dropped");
    assert_eq!(host.up(0, &mut read_of(device, 0x1008)), off);
    let answer = host.back.pop().unwrap();
    assert_eq!(view(&answer).status(), CplStatus::UnsupportedRequest);
    assert_eq!(view(&answer).completer(), bdf(Host::id(0)));
    assert_eq!(view(&answer).requester(), bdf(device));
    assert_eq!(view(&answer).lower_address(), 8);
    assert_eq!(host.counter("switch.bus_master_off"), 2);
    // Completions and messages pass all the same.
    let mut completion = completion_for(ROOT, CplStatus::Success);
    assert_eq!(host.up(0, &mut completion), UpstreamVerdict::ToRoot);
    let mut pme = message_of(device, MsgCode::PmPme, MsgRouting::ToRootComplex);
    assert_eq!(host.up(0, &mut pme), UpstreamVerdict::ToRoot);
}

#[test]
fn a_disabled_link_stops_everything_and_is_told() {
    let mut host = Host::ready(1);
    let device = u16::from(bus(0)) << 8;
    host.write_bytes(Host::id(0), 0x80, 1 << 4, 0x1);
    assert_eq!(host.events(), [SwitchEvent::LinkDisabled { port: port(0), disabled: true }]);
    assert!(!host.switch.is_link_up(port(0)));
    let down = UpstreamVerdict::Discarded(Cause::LinkDown);
    assert_eq!(host.up(0, &mut read_of(device, 0x1000)), down);
    assert_eq!(view(&host.back.pop().unwrap()).status(), CplStatus::UnsupportedRequest);
    assert_eq!(host.up(0, &mut write_of(device, 0x1000)), down);
    host.write_bytes(Host::id(0), 0x80, 0, 0x1);
    assert_eq!(host.events(), [SwitchEvent::LinkDisabled { port: port(0), disabled: false }]);
    let id = u16::from(bus(0)) << 8;
    assert_eq!(host.config(true, id, 0, None).0, CplStatus::ConfigRetry, "it has been reset");
    host.switch.set_ready(port(0), true);
    assert_eq!(host.up(0, &mut write_of(device, 0x1000)), UpstreamVerdict::ToRoot);
}

#[test]
fn completions_go_by_the_requesters_bus() {
    let mut host = Host::ready(2);
    let requester = u16::from(bus(1)) << 8;
    let mut completion = completion_for(requester, CplStatus::Success);
    assert_eq!(host.down(&mut completion), DownstreamVerdict::Forward(port(1)));
    let mut stray = completion_for(0x7700, CplStatus::Success);
    let unexpected = DownstreamVerdict::Discarded(Cause::UnexpectedCompletion);
    assert_eq!(host.down(&mut stray), unexpected);
    assert_eq!(host.out.len(), 0);
}

#[test]
fn aborts_are_remembered_by_the_side_that_they_come_in_by() {
    let mut host = Host::ready(1);
    let requester = u16::from(bus(0)) << 8;
    let mut answer = completion_for(requester, CplStatus::UnsupportedRequest);
    let _ = host.down(&mut answer);
    assert_ne!(host.read(UPSTREAM, 0x04) & 1 << 29, 0);
    assert_ne!(host.read(Host::id(0), 0x04) & 1 << 29, 0);
    let mut answer = completion_for(ROOT, CplStatus::CompleterAbort);
    assert_eq!(host.up(0, &mut answer), UpstreamVerdict::ToRoot);
    assert_ne!(host.read(Host::id(0), 0x1c) & 1 << 28, 0);
    assert_eq!(host.read(Host::id(0), 0x1c) & 1 << 29, 0);
}

#[test]
fn more_data_than_the_payload_size_is_malformed() {
    let mut host = Host::ready(1);
    let write = |address| {
        emit(Kind::MemWrite {
            requester: bdf(u16::from(bus(0)) << 8),
            tag: tag(0),
            address,
            enables: ByteEnables::all(64),
            hint: None,
            data: &[0; 256],
        })
    };
    assert_eq!(host.switch.max_payload(port(0)), 128);
    let large = UpstreamVerdict::Discarded(Cause::PayloadTooLarge);
    assert_eq!(host.up(0, &mut write(0)), large);
    host.write_bytes(Host::id(0), 0x78, 1 << 5, 0x1);
    assert_eq!(host.switch.max_payload(port(0)), 256);
    assert_eq!(host.up(0, &mut write(0)), UpstreamVerdict::ToRoot);
    // What is set above what is supported counts as what is supported.
    host.write_bytes(Host::id(0), 0x78, 7 << 5, 0x1);
    assert_eq!(host.switch.max_payload(port(0)), crate::limits::MAX_PAYLOAD_OFFERED);
}

#[test]
fn atomics_and_prefixes_are_blocked_where_software_says() {
    let mut host = Host::ready(1);
    let atomic = |address| {
        emit(Kind::Atomic {
            op: tlp_codec::tlp::AtomicOp::Cas,
            requester: bdf(ROOT),
            tag: tag(9),
            address,
            hint: None,
            data: &[0; 16],
        })
    };
    let forward = DownstreamVerdict::Forward(port(0));
    assert_eq!(host.down(&mut atomic(memory_of(0))), forward);
    host.write_bytes(Host::id(0), 0x98, 1 << 7, 0x1);
    let blocked = DownstreamVerdict::Discarded(Cause::AtomicBlocked);
    assert_eq!(host.down(&mut atomic(memory_of(0))), blocked);
    assert_eq!(ur(&mut host), (bdf(Host::id(0)), 8, 0));
    assert_eq!(host.down(&mut read_of(ROOT, memory_of(0))), forward);

    let mut prefixed = read_of(ROOT, memory_of(0));
    prefixed.splice(0..0, [0x91, 0, 0, 1]);
    assert_eq!(host.down(&mut prefixed.clone()), forward);
    host.write_bytes(Host::id(0), 0x98, 1 << 15, 0x2);
    let blocked = DownstreamVerdict::Discarded(Cause::PrefixBlocked);
    assert_eq!(host.down(&mut prefixed), blocked);
    assert_eq!(ur(&mut host), (bdf(Host::id(0)), 4, 0));
}

#[test]
fn a_device_cannot_configure() {
    let mut host = Host::ready(1);
    let mut request = emit(Kind::ConfigRead {
        type1: true,
        requester: bdf(u16::from(bus(0)) << 8),
        tag: tag(9),
        destination: bdf(Host::id(0)),
        register: 0,
        first_be: 0xf,
    });
    let unsupported = UpstreamVerdict::Discarded(Cause::UnsupportedType);
    assert_eq!(host.up(0, &mut request), unsupported);
    assert_eq!(view(&host.back[0]).status(), CplStatus::UnsupportedRequest);
}

#[test]
fn poisoned_writes_to_the_switch_are_not_done_and_others_pass() {
    let mut host = Host::ready(1);
    let kind = Kind::ConfigWrite {
        type1: false,
        requester: bdf(ROOT),
        tag: tag(9),
        destination: bdf(UPSTREAM),
        register: 0x18,
        first_be: 0xf,
        data: &[9; 4],
    };
    let before = host.read(UPSTREAM, 0x18);
    let mut tlp = emit_repr(Repr { poisoned: true, ..Repr::new(kind) });
    assert_eq!(host.down(&mut tlp), DownstreamVerdict::Discarded(Cause::Poisoned));
    assert_eq!(ur(&mut host).0, bdf(UPSTREAM));
    assert_eq!(host.read(UPSTREAM, 0x18), before);
    assert_ne!(host.read(UPSTREAM, 0x04) & 1 << 31, 0, "Detected Parity Error");
    let mut dma = write_of(u16::from(bus(0)) << 8, 0x1000);
    Packet::new_checked(&mut dma[..]).unwrap().set_poisoned(true);
    assert_eq!(host.up(0, &mut dma), UpstreamVerdict::ToRoot);
    assert_ne!(host.read(Host::id(0), 0x1c) & 1 << 31, 0);
}

/// PCIe 5.0 sections 7.5.1.1.4 and 7.5.1.3.7.
#[test]
fn the_port_that_a_poisoned_request_leaves_by_says_so() {
    let mut host = Host::ready(2);
    host.write(UPSTREAM, 0x04, 0x0047);
    for index in 0..2 {
        let bridge = host.read(Host::id(index), 0x3c);
        host.write(Host::id(index), 0x3c, bridge | 1 << 16);
    }
    let says = |host: &mut Host| {
        let up = host.read(UPSTREAM, 0x04) & 1 << 24 != 0;
        let [first, second] = [0, 1].map(|index| host.read(Host::id(index), 0x1c) & 1 << 24 != 0);
        (up, first, second)
    };
    assert_eq!(says(&mut host), (false, false, false));
    let poisoned = |requester, address| {
        let mut tlp = write_of(requester, address);
        Packet::new_checked(&mut tlp[..]).unwrap().set_poisoned(true);
        tlp
    };
    let device = u16::from(bus(0)) << 8;
    assert_eq!(host.up(0, &mut poisoned(device, memory_of(1))), UpstreamVerdict::ToPort(port(1)));
    assert_eq!(says(&mut host), (false, false, true), "to a peer");
    assert_eq!(host.down(&mut poisoned(ROOT, memory_of(0))), DownstreamVerdict::Forward(port(0)));
    assert_eq!(says(&mut host), (false, true, true), "from the root complex");
    assert_eq!(host.up(0, &mut poisoned(device, 0x1000)), UpstreamVerdict::ToRoot);
    assert_eq!(says(&mut host), (true, true, true));
}

/// It is one TLP, however often it is handed in, and leaves nothing behind where it is given up.
#[test]
fn what_comes_again_leaves_its_trace_once() {
    let mut host = Host::ready(1);
    let mut poisoned = write_of(ROOT, memory_of(0));
    Packet::new_checked(&mut poisoned[..]).unwrap().set_poisoned(true);
    let refused = emit(Kind::Completion {
        completer: bdf(ROOT),
        requester: bdf(u16::from(bus(0)) << 8),
        tag: tag(9),
        status: CplStatus::UnsupportedRequest,
        bcm: false,
        byte_count: 4,
        lower_address: 0,
        locked: false,
        data: &[],
    });
    let cases = [
        (poisoned, "switch.poisoned_passed", (0x1c, 0)),
        (refused, "switch.unsuccessful_completions", (0x04, 1 << 29)),
    ];
    for (mut tlp, noted, (register, bit)) in cases {
        for _ in 0..3 {
            assert_eq!(host.hand_in(&mut tlp), DownstreamVerdict::Forward(port(0)));
        }
        assert_eq!(host.counter(noted), 0);
        assert_eq!(host.read(Host::id(0), register) & bit, 0);
        assert_eq!(host.down(&mut tlp), DownstreamVerdict::Forward(port(0)));
        assert_eq!(host.counter(noted), 1);
        assert_eq!(host.read(Host::id(0), register) & bit, bit);
    }
}

/// What nobody gets went on to nobody.
#[test]
fn a_poisoned_tlp_that_is_refused_did_not_pass() {
    let mut host = Host::ready(1);
    let mut nowhere = write_of(ROOT, 0xffff_0000_0000);
    Packet::new_checked(&mut nowhere[..]).unwrap().set_poisoned(true);
    assert!(matches!(host.down(&mut nowhere), DownstreamVerdict::Discarded(_)));
    assert_eq!(host.counter("switch.poisoned_passed"), 0);
}

#[test]
fn a_write_to_host_memory_is_seen_to_go_through_by_the_short_way() {
    let mut host = Host::ready(2);
    let device = u16::from(bus(0)) << 8;
    let passes = |host: &Host, tlp: &[u8]| host.switch.passes_write(port(0), &view(tlp));
    for address in [0x1000, 1 << 40] {
        assert!(passes(&host, &write_of(device, address)), "{address:#x}");
    }
    assert!(!passes(&host, &write_of(device, memory_of(0))), "its own window");
    assert!(!passes(&host, &write_of(device, memory_of(1))), "another device's window");
    assert!(!passes(&host, &read_of(device, 0x1000)), "a read is remembered");
    let mut poisoned = write_of(device, 0x1000);
    poisoned[2] |= 0x40;
    assert!(!passes(&host, &poisoned), "a poisoned one is reported");
    host.switch.set_ready(port(0), false);
    assert!(!passes(&host, &write_of(device, 0x1000)), "what is behind the port is in reset");
}
