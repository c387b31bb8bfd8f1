//! Frames that go and come as runs. Where the kernel cannot segment, all but the tests of how it
//! does pass as well, frame by frame.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use proptest::prelude::*;
use proxy_net::{Address, MAX_FRAME, Port, RawOptions, RawPort, Sent, UdpOptions, UdpPort};

use crate::common::{self, skip};
use crate::{open, receive};

fn socket_address(port: &UdpPort) -> SocketAddr {
    let Address::Udp(address) = port.local_address() else { panic!("a UDP port's address") };
    address
}

fn set(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> bool {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: an int option of an open socket.
    unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size) == 0 }
}

fn descriptor(port: &UdpPort) -> BorrowedFd<'_> {
    port.interest().expect("a UDP port has a descriptor").0
}

/// A socket that sends everything as segments of this length, where the kernel can.
fn segmenting(ip: std::net::IpAddr, len: libc::c_int) -> Option<UdpSocket> {
    let socket = UdpSocket::bind((ip, 0)).ok()?;
    if !set(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, len) {
        skip("this kernel does not segment UDP messages");
        return None;
    }
    Some(socket)
}

/// A frame that tells its number, as far as it is long enough.
fn frame(number: usize, len: usize) -> Vec<u8> {
    let bytes = (number as u32).to_be_bytes();
    bytes.into_iter().chain((4..len).map(|n| (n ^ number) as u8)).take(len).collect()
}

#[test]
fn many_equal_frames_arrive_whole_and_in_order() {
    let (mut a, mut b) = (open(Ipv4Addr::LOCALHOST), open(Ipv4Addr::LOCALHOST));
    for (len, count) in [(1200, 500), (MAX_FRAME, 100), (1, 200)] {
        let frames: Vec<Vec<u8>> = (0..count).map(|number| frame(number, len)).collect();
        for frame in &frames {
            assert_eq!(a.send(&b.local_address(), frame).unwrap(), Sent::Queued);
        }
        a.flush().unwrap();
        let got = receive(&mut b, count);
        assert!(got.iter().all(|(from, _)| *from == a.local_address()));
        assert!(got.into_iter().map(|(_, frame)| frame).eq(frames), "{count} times {len} bytes");
    }
    let bytes = 500 * 1200 + 100 * MAX_FRAME as u64 + 200;
    assert_eq!((a.counters().sent_frames, a.counters().sent_bytes), (800, bytes));
    assert_eq!((b.counters().received_frames, b.counters().received_bytes), (800, bytes));
    assert_eq!((a.counters().send_refused, b.counters().receive_invalid), (0, 0));
}

#[test]
fn a_frame_in_the_ports_own_place_goes_as_one_that_is_copied() {
    let (mut a, mut b) = (open(Ipv4Addr::LOCALHOST), open(Ipv4Addr::LOCALHOST));
    let to = b.local_address();
    let frames: Vec<Vec<u8>> = (0..100).map(|number| frame(number, 100 + number / 7)).collect();
    for (number, frame) in frames.iter().enumerate() {
        let place = a.place().unwrap().expect("a port with room has a place");
        assert_eq!(place.len(), MAX_FRAME);
        if number % 3 == 0 {
            // What is written there counts only once it is sent.
            place.fill(0xEE);
            assert_eq!(a.send(&to, frame).unwrap(), Sent::Queued);
        } else {
            place[..frame.len()].copy_from_slice(frame);
            assert_eq!(a.send_placed(&to, frame.len()).unwrap(), Sent::Queued);
        }
    }
    assert!(a.place().unwrap().is_some());
    assert!(a.send_placed(&to, MAX_FRAME + 1).is_err());
    a.flush().unwrap();
    assert!(receive(&mut b, 100).into_iter().map(|(_, frame)| frame).eq(frames));
}

/// Sends frames of these lengths, to the first or second of two ports, and compares what comes.
fn compare(
    ip: std::net::IpAddr,
    segmentation: [bool; 2],
    sequence: &[(bool, usize, bool)],
) -> Result<(), TestCaseError> {
    let open = |segmentation| {
        UdpPort::open(&UdpOptions { segmentation, ..UdpOptions::new((ip, 0).into()) }).unwrap()
    };
    let mut near = open(segmentation[0]);
    let mut far = [open(segmentation[1]), open(segmentation[1])];
    let mut sent = [Vec::new(), Vec::new()];
    for (number, &(second, len, flush)) in sequence.iter().enumerate() {
        let frame = frame(number, len);
        let to = far[usize::from(second)].local_address();
        prop_assert_eq!(near.send(&to, &frame).unwrap(), Sent::Queued);
        sent[usize::from(second)].push(frame);
        if flush {
            near.flush().unwrap();
        }
    }
    near.flush().unwrap();
    for (far, sent) in far.iter_mut().zip(sent) {
        let got = receive(far, sent.len());
        prop_assert!(got.iter().all(|(from, _)| *from == near.local_address()));
        prop_assert!(got.into_iter().map(|(_, frame)| frame).eq(sent));
        prop_assert_eq!(far.receive(&mut |_, _| ()).unwrap(), 0);
    }
    prop_assert_eq!(near.counters().sent_frames, sequence.len() as u64);
    Ok(())
}

#[test]
fn runs_to_two_destinations_may_be_interleaved() {
    // Runs of three, of one, and of mixed lengths.
    let sequence: Vec<_> = (0..120)
        .map(|n| match n / 40 {
            0 => (n / 3 % 2 == 0, 500, false),
            1 => (n % 2 == 0, 500, false),
            _ => (n % 5 < 3, [1400, 1400, 90][n % 3], false),
        })
        .collect();
    compare(Ipv4Addr::LOCALHOST.into(), [true; 2], &sequence).unwrap();
}

proptest! {
    #[test]
    fn what_is_sent_arrives_in_order(
        v6: bool,
        segmentation: [bool; 2],
        sequence in prop::collection::vec(
            (
                prop::bool::weighted(0.2),
                prop_oneof![
                    4 => Just(1000_usize),
                    2 => prop_oneof![Just(0_usize), Just(1), Just(64), Just(MAX_FRAME)],
                    1 => 0..=MAX_FRAME,
                ],
                prop::bool::weighted(0.05),
            ),
            0..100,
        ),
    ) {
        let v6 = v6 && UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        let ip = if v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
        compare(ip, segmentation, &sequence)?;
    }
}

#[test]
fn segmentation_can_be_done_without() {
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let without = UdpOptions { segmentation: false, ..UdpOptions::new(bind) };
    let (mut a, mut b) = (UdpPort::open(&without).unwrap(), open(Ipv4Addr::LOCALHOST));
    assert!(!a.has_segmentation());
    for number in 0..100 {
        assert_eq!(a.send(&b.local_address(), &frame(number, 300)).unwrap(), Sent::Queued);
    }
    a.flush().unwrap();
    let got = receive(&mut b, 100).into_iter().map(|(_, frame)| frame);
    assert!(got.eq((0..100).map(|number| frame(number, 300))));
}

#[test]
fn where_segmentation_is_refused_frames_go_one_by_one() {
    let (mut a, mut b) = (open(Ipv4Addr::LOCALHOST), open(Ipv4Addr::LOCALHOST));
    if !a.has_segmentation() {
        return skip("this kernel does not segment UDP messages");
    }
    // The kernel segments nothing whose checksums are not wanted, and so gives what a device
    // without checksums gives.
    assert!(set(descriptor(&a), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1));
    let frames: Vec<Vec<u8>> = (0..100).map(|number| frame(number, 300)).collect();
    for frame in &frames[..50] {
        assert_eq!(a.send(&b.local_address(), frame).unwrap(), Sent::Queued);
    }
    assert!(!a.has_segmentation(), "the first batch was refused and shows that");
    // It stays so, also where it would be possible again.
    assert!(set(descriptor(&a), libc::SOL_SOCKET, libc::SO_NO_CHECK, 0));
    for frame in &frames[50..] {
        assert_eq!(a.send(&b.local_address(), frame).unwrap(), Sent::Queued);
    }
    a.flush().unwrap();
    assert!(!a.has_segmentation());
    assert!(receive(&mut b, 100).into_iter().map(|(_, frame)| frame).eq(frames));
    assert_eq!((a.counters().sent_frames, a.counters().send_refused), (100, 0));
}

#[test]
fn frames_that_are_refused_themselves_count_each_and_leave_segmentation_on() {
    let (mut a, mut b) = (open(Ipv4Addr::LOCALHOST), open(Ipv4Addr::LOCALHOST));
    let (had, to) = (a.has_segmentation(), b.local_address());
    let nobody = Address::Udp((Ipv4Addr::LOCALHOST, 0).into());
    for (to, count) in [(&to, 3), (&nobody, 4), (&to, 5)] {
        for number in 0..count {
            assert_eq!(a.send(to, &frame(number, 80)).unwrap(), Sent::Queued);
        }
    }
    a.flush().unwrap();
    assert_eq!(receive(&mut b, 8).len(), 8);
    assert_eq!((a.counters().sent_frames, a.counters().send_refused), (8, 4));
    assert_eq!(a.has_segmentation(), had);
}

#[test]
fn frames_longer_than_the_way_carries_are_lost_alone() {
    // In a network namespace of its own, which the thread of this test leaves with its end.
    if let Err(reason) = common::veth_pair(1500) {
        return skip(&reason);
    }
    common::ip(&["link", "set", "dev", "lo", "mtu", "1500", "up"]).unwrap();
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let options = UdpOptions { frame_size: Some(MAX_FRAME), ..UdpOptions::new(bind) };
    let mut a = UdpPort::open(&options).unwrap();
    let mut b = UdpPort::open(&options).unwrap();
    let had = a.has_segmentation();
    // A run of frames that fit, one of frames that do not, with a last one that does.
    let lengths = [[1472; 6], [1473; 6], [9000, 9000, 9000, 100, 100, 100], [1472; 6]].concat();
    for (number, len) in lengths.iter().enumerate() {
        assert_eq!(a.send(&b.local_address(), &frame(number, *len)).unwrap(), Sent::Queued);
    }
    a.flush().unwrap();
    let fit = lengths.iter().enumerate().filter(|(_, len)| **len <= 1472);
    let fit: Vec<Vec<u8>> = fit.map(|(number, len)| frame(number, *len)).collect();
    assert!(receive(&mut b, fit.len()).into_iter().map(|(_, frame)| frame).eq(fit));
    assert_eq!(a.counters().send_refused, 9);
    assert_eq!(a.has_segmentation(), had, "the frames were to blame");
}

#[test]
fn what_the_kernel_has_no_room_for_stays_and_goes_first() {
    if let Err(reason) = common::veth_pair(1500) {
        return skip(&reason);
    }
    let ip = |arguments: &[&str]| common::ip(arguments).unwrap();
    ip(&["address", "add", "192.0.2.1/24", "dev", "va"]);
    // The kernel gives up on a neighbour after three times this, in milliseconds.
    ip(&["ntable", "change", "name", "arp_cache", "dev", "va", "retrans", "60000"]);
    let bind = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 0));
    let mut port = UdpPort::open(&UdpOptions::new(bind)).unwrap();
    // Packets for a neighbour whose MAC address is not known wait in the kernel and take up the
    // send buffer. The kernel doubles the size that is asked for.
    assert!(set(descriptor(&port), libc::SOL_SOCKET, libc::SO_SNDBUF, 16 << 10));
    let to = Address::Udp((Ipv4Addr::new(192, 0, 2, 2), 7).into());
    let mut taken = 0;
    // Runs of seven frames of one length each.
    let written = |number: usize| frame(number, 600 + number / 7 % 5);
    while port.send(&to, &written(taken)).unwrap() == Sent::Queued {
        taken += 1;
        assert!(taken < 1000, "nothing holds the frames");
    }
    let before = port.counters();
    assert!(before.sent_frames > 0 && before.sent_frames < taken as u64);
    assert!(port.interest().unwrap().1 && port.place().unwrap().is_none());

    // Now the neighbour is known. The frames are seen at the other end as IP packets; a raw port
    // without rings takes none that are longer than the MTU, so they are to be cut up before.
    ip(&["link", "set", "dev", "va", "gso_max_segs", "1"]);
    let raw = RawOptions { ethertype: 0x0800, ..RawOptions::new("vb") };
    let mut other = RawPort::open(&raw).unwrap();
    let Address::Ethernet { mac, .. } = other.local_address() else { panic!("a MAC address") };
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    ip(&["neighbour", "replace", "192.0.2.2", "lladdr", &mac, "dev", "va"]);
    let mut got = Vec::new();
    while got.len() < taken {
        port.flush().unwrap();
        let packets = receive(&mut other, 1);
        assert!(!packets.is_empty(), "{} frames of {taken}", got.len());
        got.extend(packets.into_iter().map(|(_, packet)| packet[28..].to_vec()));
    }
    assert!(got.into_iter().eq((0..taken).map(written)));
    assert_eq!((port.counters().sent_frames, port.counters().send_refused), (taken as u64, 0));
    assert!(!port.interest().unwrap().1);
}

#[test]
fn frames_of_a_run_share_its_congestion_mark() {
    for (ip, level, option) in [
        (Ipv4Addr::LOCALHOST.into(), libc::IPPROTO_IP, libc::IP_TOS),
        (Ipv6Addr::LOCALHOST.into(), libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    ] {
        let Some(sender) = segmenting(ip, 64) else { continue };
        let mut port = open(ip);
        for ecn in 0..4 {
            assert!(set(sender.as_fd(), level, option, ecn));
            sender.send_to(&[7; 64 * 2 + 3], socket_address(&port)).unwrap();
            let mut got = Vec::new();
            while got.len() < 3 {
                port.wait(Duration::from_secs(60)).unwrap();
                let sink = &mut |from: &proxy_net::Origin, frame: &[u8]| {
                    got.push((from.congestion_experienced, frame.len()));
                };
                port.receive(sink).unwrap();
            }
            assert_eq!(got, [64, 64, 3].map(|len| (ecn == 3, len)), "{ip}");
        }
    }
}

#[test]
fn each_frame_of_a_run_that_is_too_long_counts() {
    let Some(sender) = segmenting(Ipv4Addr::LOCALHOST.into(), 1100) else { return };
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    for segmentation in [true, false] {
        let options = UdpOptions { frame_size: Some(1000), segmentation, ..UdpOptions::new(bind) };
        let mut port = UdpPort::open(&options).unwrap();
        sender.send_to(&[7; 3 * 1100 + 300], socket_address(&port)).unwrap();
        let sender = Address::Udp(sender.local_addr().unwrap());
        assert_eq!(receive(&mut port, 1), [(sender, vec![7; 300])]);
        assert_eq!((port.counters().receive_invalid, port.counters().received_frames), (3, 1));
    }
}
