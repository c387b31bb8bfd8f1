//! Raw Ethernet ports on a pair of connected interfaces, in a network namespace of each test's
//! own, with packet rings and without. Without root they are skipped.

mod common;

use std::time::{Duration, Instant};

use proxy_net::{Address, MAX_FRAME, NetError, Origin, Port, RawOptions, RawPort, Sent, wait_any};

/// The namespace of this test, or none after saying why there is none.
fn namespace(mtu: usize) -> Option<()> {
    common::veth_pair(mtu).map_err(|reason| common::skip(&reason)).ok()
}

/// The ports that a test is about: with packet rings or without.
#[derive(Clone, Copy)]
struct Ports {
    ring: bool,
}

impl Ports {
    fn options(self, interface: &str) -> RawOptions {
        RawOptions { ring: self.ring, ..RawOptions::new(interface) }
    }

    fn open(self, interface: &str, vlan: Option<u16>) -> RawPort {
        let port = RawPort::open(&RawOptions { vlan, ..self.options(interface) }).unwrap();
        // A kernel without rings gives the ports that are tested anyway.
        assert!(self.ring || !port.has_ring());
        port
    }
}

/// Runs tests with both kinds of ports.
macro_rules! both {
    ($($name:ident)*) => {
        mod ring {
            use super::Ports;
            $(#[test] fn $name() { super::$name(Ports { ring: true }); })*
        }
        mod calls {
            use super::Ports;
            $(#[test] fn $name() { super::$name(Ports { ring: false }); })*
        }
    };
}

both! {
    jumbo_frames_both_ways
    many_frames_at_once_keep_their_order
    ports_of_two_ethertypes_share_an_interface
    frames_of_others_are_not_received
    a_vlan_is_a_world_of_its_own
    an_interface_that_cannot_be_used_says_why
    a_port_survives_its_interface_going_down_but_not_away
    a_port_whose_interface_gets_another_address_says_so
    a_full_receiver_loses_and_counts
    a_frame_longer_than_the_interface_carries_by_now_is_lost_alone
    a_frame_that_the_interface_never_takes_is_lost_alone
    several_ports_are_waited_for_at_once
    a_frame_in_the_ports_own_place_goes_as_one_that_is_copied
}

fn error(options: &RawOptions) -> NetError {
    RawPort::open(options).err().expect("this cannot be opened")
}

fn receive(port: &mut dyn Port, count: usize) -> Vec<(Address, Vec<u8>)> {
    let mut got = Vec::new();
    let bound = Instant::now() + Duration::from_secs(60);
    while got.len() < count && Instant::now() < bound {
        port.wait(Duration::from_secs(1)).unwrap();
        port.receive(&mut |from, frame| got.push((from.address, frame.to_vec()))).unwrap();
    }
    got
}

fn send(from: &mut RawPort, to: Address, frame: &[u8]) {
    assert_eq!(from.send(&to, frame).unwrap(), Sent::Queued);
    from.flush().unwrap();
}

fn jumbo_frames_both_ways(ports: Ports) {
    let Some(()) = namespace(MAX_FRAME) else { return };
    let (mut a, mut b) = (ports.open("va", None), ports.open("vb", None));
    assert_eq!(a.mtu(), MAX_FRAME);
    for len in [46, 64, 1500, MAX_FRAME] {
        let frame: Vec<u8> = (0..len).map(|i| i as u8).collect();
        send(&mut a, b.local_address(), &frame);
        assert_eq!(receive(&mut b, 1), [(a.local_address(), frame.clone())]);
        send(&mut b, a.local_address(), &frame);
        assert_eq!(receive(&mut a, 1), [(b.local_address(), frame)]);
    }
    assert_eq!((a.counters().sent_frames, a.counters().received_frames), (4, 4));
}

fn many_frames_at_once_keep_their_order(ports: Ports) {
    let Some(()) = namespace(1500) else { return };
    let (mut a, mut b) = (ports.open("va", None), ports.open("vb", None));
    for number in 0..500u16 {
        assert_eq!(
            a.send(&b.local_address(), &[&number.to_be_bytes()[..], &[0; 60]].concat()).unwrap(),
            Sent::Queued
        );
    }
    a.flush().unwrap();
    let numbers: Vec<u16> = receive(&mut b, 500)
        .iter()
        .map(|(_, frame)| u16::from_be_bytes([frame[0], frame[1]]))
        .collect();
    assert_eq!(numbers, (0..500).collect::<Vec<_>>());
}

fn ports_of_two_ethertypes_share_an_interface(ports: Ports) {
    let Some(()) = namespace(1500) else { return };
    let (mut a, mut b) = (ports.open("va", None), ports.open("vb", None));
    let other = |name| RawOptions { ethertype: 0x88B6, ..ports.options(name) };
    let mut c = RawPort::open(&other("va")).unwrap();
    let mut d = RawPort::open(&other("vb")).unwrap();
    send(&mut c, d.local_address(), &[1; 64]);
    send(&mut a, b.local_address(), &[2; 64]);
    assert_eq!(receive(&mut b, 1), [(a.local_address(), vec![2; 64])]);
    assert_eq!(receive(&mut d, 1), [(c.local_address(), vec![1; 64])]);
}

fn frames_of_others_are_not_received(ports: Ports) {
    let Some(()) = namespace(1500) else { return };
    common::ip(&["link", "set", "dev", "vb", "promisc", "on"]).unwrap();
    let (mut a, mut b) = (ports.open("va", None), ports.open("vb", None));
    let mine = b.local_address();
    // Somebody else's MAC address.
    send(&mut a, Address::Ethernet { mac: [2, 0, 0, 0, 0, 9], vlan: None }, &[1; 64]);
    // A tagged frame to us while this port is untagged.
    let Address::Ethernet { mac, .. } = mine else { panic!("a raw port has a MAC address") };
    let mut tagged = ports.open("va", Some(7));
    send(&mut tagged, Address::Ethernet { mac, vlan: Some(7) }, &[2; 64]);
    // Broadcast is for everyone.
    send(&mut a, Address::Ethernet { mac: [0xFF; 6], vlan: None }, &[3; 64]);
    send(&mut a, mine, &[4; 64]);
    let first_bytes: Vec<u8> = receive(&mut b, 2).iter().map(|(_, frame)| frame[0]).collect();
    assert_eq!(first_bytes, [3, 4]);
    // Nor does a port receive what it sends itself.
    assert_eq!(a.receive(&mut |_, _| panic!("nothing was sent to va")).unwrap(), 0);
}

fn a_vlan_is_a_world_of_its_own(ports: Ports) {
    let Some(()) = namespace(1500) else { return };
    let (mut a, mut b) = (ports.open("va", Some(7)), ports.open("vb", Some(7)));
    let mut others = [ports.open("vb", Some(8)), ports.open("vb", None)];
    let frame = [5; 1500];
    send(&mut a, b.local_address(), &frame);
    assert_eq!(receive(&mut b, 1), [(a.local_address(), frame.to_vec())]);
    for other in &mut others {
        assert_eq!(other.receive(&mut |_, _| panic!("another VLAN's frame")).unwrap(), 0);
        let error = a.send(&other.local_address(), &[0; 64]).unwrap_err();
        assert!(matches!(error, NetError::WrongAddress { .. }), "{error}");
    }
    // An untagged frame does not enter the VLAN.
    let Address::Ethernet { mac, .. } = b.local_address() else { panic!("a MAC address") };
    send(&mut ports.open("va", None), Address::Ethernet { mac, vlan: None }, &[6; 64]);
    assert_eq!(b.receive(&mut |_, _| panic!("an untagged frame")).unwrap(), 0);
}

fn an_interface_that_cannot_be_used_says_why(ports: Ports) {
    let Some(()) = namespace(1500) else { return };
    let open = |name: &str| error(&ports.options(name));
    assert!(matches!(open("vc"), NetError::NoSuchInterface { .. }));
    assert!(open("vc").to_string().contains("va"));
    assert!(matches!(open("lo"), NetError::NotEthernet { .. }));
    let large = RawOptions { frame_size: Some(9000), ..ports.options("va") };
    let NetError::MtuTooSmall { mtu: 1500, wanted: 9000, .. } = error(&large) else {
        panic!("{}", error(&large))
    };
    let vlan = RawOptions { vlan: Some(4095), ..ports.options("va") };
    assert!(matches!(error(&vlan), NetError::NoSuchVlan(4095)));
    common::ip(&["link", "set", "dev", "va", "down"]).unwrap();
    assert!(matches!(open("va"), NetError::InterfaceDown { .. }));
}

fn a_port_survives_its_interface_going_down_but_not_away(ports: Ports) {
    let Some(()) = namespace(1500) else { return };
    let (mut a, mut b) = (ports.open("va", None), ports.open("vb", None));
    common::ip(&["link", "set", "dev", "vb", "down"]).unwrap();
    assert_eq!(b.receive(&mut |_, _| panic!("nothing was sent")).unwrap(), 0);
    send(&mut b, a.local_address(), &[1; 64]);
    assert_eq!(b.counters().send_refused, 1);
    common::ip(&["link", "set", "dev", "vb", "up"]).unwrap();
    // The cable's other end learns a little later that there is a carrier again, and loses frames
    // until then.
    let bound = Instant::now() + Duration::from_secs(60);
    let mut got = Vec::new();
    while got.is_empty() && Instant::now() < bound {
        send(&mut a, b.local_address(), &[2; 64]);
        b.wait(Duration::from_millis(10)).unwrap();
        b.receive(&mut |from, frame| got.push((from.address, frame.to_vec()))).unwrap();
    }
    assert_eq!(got.first(), Some(&(a.local_address(), vec![2; 64])));

    common::ip(&["link", "delete", "va"]).unwrap();
    // A ring says so a while later.
    let bound = Instant::now() + Duration::from_secs(60);
    let error = loop {
        match b.receive(&mut |_, _| panic!("nothing was sent")) {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < bound, "the interface is gone"),
        }
    };
    assert!(matches!(error, NetError::InterfaceRemoved { .. }), "{error}");
    assert_eq!(b.send(&a.local_address(), &[3; 64]).unwrap(), Sent::Queued);
    assert!(matches!(b.flush(), Err(NetError::InterfaceRemoved { .. })));
}

fn a_port_whose_interface_gets_another_address_says_so(ports: Ports) {
    let Some(()) = namespace(1500) else { return };
    let mut b = ports.open("vb", None);
    let set = |name, what: &[&str]| {
        common::ip(&[&["link", "set", "dev", name][..], what].concat()).unwrap();
    };
    set("vb", &["down"]);
    // The port knows it by another name.
    set("vb", &["name", "vc"]);
    set("vc", &["address", "02:00:00:00:00:99"]);
    set("vc", &["up"]);
    let bound = Instant::now() + Duration::from_secs(60);
    let error = loop {
        match b.receive(&mut |_, _| panic!("nothing was sent")) {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < bound, "it is not reached by its address any more"),
        }
    };
    assert!(matches!(error, NetError::AddressChanged { .. }), "{error}");
    assert!(error.to_string().contains("02:00:00:00:00:99"), "{error}");
    let error = b.wait(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, NetError::AddressChanged { .. }), "{error}");
}

fn a_full_receiver_loses_and_counts(ports: Ports) {
    let Some(()) = namespace(1500) else { return };
    let (mut a, mut b) = (ports.open("va", None), ports.open("vb", None));
    let (frames, mut sent) = (40_000u32, 0);
    while sent < frames {
        match a.send(&b.local_address(), &[&sent.to_be_bytes()[..], &[0; 1496]].concat()).unwrap() {
            Sent::Queued => sent += 1,
            Sent::Full => a.wait(Duration::from_millis(1)).unwrap(),
        }
    }
    a.flush().unwrap();
    let (mut last, mut got) = (None, 0);
    let mut in_order = |_: &Origin, frame: &[u8]| {
        let number = u32::from_be_bytes(frame[..4].try_into().unwrap());
        assert!(last < Some(number) && number < frames, "{last:?} {number}");
        last = Some(number);
    };
    loop {
        match b.receive(&mut in_order).unwrap() {
            0 => break,
            count => got += count as u64,
        }
    }
    let counters = b.counters();
    assert!(got > 0 && counters.receive_dropped > 0, "{counters:?}");
    assert_eq!(got + counters.receive_dropped, u64::from(frames), "{counters:?}");
    assert_eq!(b.counters(), counters, "asking again does not change what was counted");
}

fn a_frame_longer_than_the_interface_carries_by_now_is_lost_alone(ports: Ports) {
    let Some(()) = namespace(MAX_FRAME) else { return };
    let (mut a, mut b) = (ports.open("va", None), ports.open("vb", None));
    common::ip(&["link", "set", "dev", "va", "mtu", "1500"]).unwrap();
    let to = b.local_address();
    for len in [64, 9000, 100, 1501, 1500] {
        assert_eq!(a.send(&to, &vec![len as u8; len]).unwrap(), Sent::Queued);
    }
    a.flush().unwrap();
    let lengths: Vec<usize> = receive(&mut b, 3).iter().map(|(_, frame)| frame.len()).collect();
    assert_eq!(lengths, [64, 100, 1500]);
    let counters = a.counters();
    assert_eq!((counters.sent_frames, counters.send_refused), (3, 2));
    assert_eq!(counters.sent_bytes, 64 + 100 + 1500);
}

fn a_frame_that_the_interface_never_takes_is_lost_alone(ports: Ports) {
    let Some(()) = namespace(MAX_FRAME) else { return };
    let (mut a, mut b) = (ports.open("va", None), ports.open("vb", None));
    // The near end carries it and has the kernel throw it away.
    common::ip(&["link", "set", "dev", "vb", "mtu", "1500"]).unwrap();
    let to = b.local_address();
    let mut lengths = Vec::new();
    for (round, sizes) in [[64, 9000, 100], [8000, 9000, 300]].iter().enumerate() {
        for &len in sizes {
            assert_eq!(a.send(&to, &vec![len as u8; len]).unwrap(), Sent::Queued);
        }
        let bound = Instant::now() + Duration::from_secs(60);
        while lengths.len() < [2, 3][round] && Instant::now() < bound {
            a.flush().unwrap();
            b.receive(&mut |_, frame| lengths.push(frame.len())).unwrap();
        }
    }
    assert_eq!(lengths, [64, 100, 300]);
    let counters = a.counters();
    assert_eq!((counters.sent_frames, counters.send_refused), (3, 3));
    assert_eq!(counters.sent_bytes, 64 + 100 + 300);
}

fn several_ports_are_waited_for_at_once(ports: Ports) {
    let Some(()) = namespace(1500) else { return };
    let mut a = ports.open("va", None);
    let other = RawOptions { ethertype: 0x88B6, ..ports.options("vb") };
    let mut both: [Box<dyn Port>; 2] =
        [Box::new(RawPort::open(&other).unwrap()), Box::new(ports.open("vb", None))];
    let to = both[1].local_address();
    let start = Instant::now();
    wait_any(both.iter_mut(), &[], Duration::from_millis(20)).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(20), "nothing was sent");
    send(&mut a, to, &[1; 64]);
    wait_any(both.iter_mut(), &[], Duration::from_secs(60)).unwrap();
    assert!(start.elapsed() < Duration::from_secs(60), "a frame ends the wait");
    assert_eq!(both[1].receive(&mut |_, frame| assert_eq!(frame, [1; 64])).unwrap(), 1);
    assert_eq!(both[0].receive(&mut |_, _| panic!("another EtherType's frame")).unwrap(), 0);
}

/// Only rings have such a place.
fn a_frame_in_the_ports_own_place_goes_as_one_that_is_copied(ports: Ports) {
    let Some(()) = namespace(MAX_FRAME) else { return };
    let (mut a, mut b) = (ports.open("va", None), ports.open("vb", None));
    let (to, ring) = (b.local_address(), a.has_ring());
    // More than the ring has slots.
    for round in 0..400_u32 {
        let frame: Vec<u8> =
            (0..40 + round as usize * 20).map(|n| (n as u32 ^ round) as u8).collect();
        match a.place().unwrap() {
            Some(place) => {
                assert!(ring && place.len() == MAX_FRAME);
                place[..frame.len()].copy_from_slice(&frame);
                assert_eq!(a.send_placed(&to, frame.len()).unwrap(), Sent::Queued);
            }
            None => {
                assert!(!ring, "a ring with room has a place");
                assert_eq!(a.send(&to, &frame).unwrap(), Sent::Queued);
            }
        }
        a.flush().unwrap();
        let got = receive(&mut b, 1);
        assert!(got[0].1.starts_with(&frame), "frame {round}");
    }
    if ring {
        let error = a.send_placed(&to, MAX_FRAME + 1).unwrap_err();
        assert!(matches!(error, NetError::TooLong { .. }), "{error}");
    }
}

#[test]
fn without_the_capability_the_error_names_it() {
    let Some(()) = namespace(1500) else { return };
    drop_net_raw();
    let error = error(&RawOptions::new("va"));
    assert!(matches!(error, NetError::NotPermitted { .. }), "{error}");
    assert!(error.to_string().contains("CAP_NET_RAW") && error.to_string().contains("UDP"));
}

/// Takes all capabilities from this thread, which ends with its test.
fn drop_net_raw() {
    // linux/capability.h: version 3 has two sets of 32 bits, each effective, permitted, inheritable.
    let header: [u32; 2] = [0x2008_0522, 0];
    let none = [0u32; 6];
    // SAFETY: capset reads a header of two and data of six 32-bit numbers, which both live on the
    // stack; it concerns this thread only.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
