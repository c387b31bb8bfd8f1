//! UDP ports on loopback. Those of runs that the kernel segments are in `segmentation`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use proxy_net::{Address, BATCH, MAX_FRAME, NetError, Port, Sent, UdpOptions, UdpPort};

mod common;
#[path = "udp/segmentation.rs"]
mod segmentation;

fn open(ip: impl Into<std::net::IpAddr>) -> UdpPort {
    UdpPort::open(&UdpOptions::new(SocketAddr::new(ip.into(), 0))).unwrap()
}

/// Receives until so many frames are there; loopback loses none while the buffers have room.
fn receive(port: &mut dyn Port, count: usize) -> Vec<(Address, Vec<u8>)> {
    let mut got = Vec::new();
    let bound = Instant::now() + Duration::from_secs(60);
    while got.len() < count && Instant::now() < bound {
        port.wait(Duration::from_secs(1)).unwrap();
        port.receive(&mut |from, frame| got.push((from.address, frame.to_vec()))).unwrap();
    }
    got
}

#[test]
fn frames_of_all_sizes_arrive_in_order_with_their_sender() {
    let (mut a, mut b) = (open(Ipv4Addr::LOCALHOST), open(Ipv4Addr::LOCALHOST));
    assert_eq!(a.mtu(), MAX_FRAME);
    let frames: Vec<Vec<u8>> = [0, 1, 64, 1500, MAX_FRAME]
        .iter()
        .map(|len| (0..*len).map(|i| i as u8).collect())
        .collect();
    for frame in &frames {
        assert_eq!(a.send(&b.local_address(), frame).unwrap(), Sent::Queued);
    }
    a.flush().unwrap();
    let got = receive(&mut b, frames.len());
    assert!(got.iter().all(|(from, _)| *from == a.local_address()));
    assert_eq!(got.into_iter().map(|(_, frame)| frame).collect::<Vec<_>>(), frames);
    let bytes = frames.iter().map(|frame| frame.len() as u64).sum();
    assert_eq!((a.counters().sent_frames, a.counters().sent_bytes), (5, bytes));
    assert_eq!((b.counters().received_frames, b.counters().received_bytes), (5, bytes));
    assert_eq!(b.receive(&mut |_, _| panic!("nothing waits")).unwrap(), 0);
}

#[test]
fn a_full_batch_leaves_by_itself_and_a_receiver_takes_a_batch_at_most() {
    let (mut a, mut b) = (open(Ipv4Addr::LOCALHOST), open(Ipv4Addr::LOCALHOST));
    for number in 0..=BATCH {
        assert_eq!(a.send(&b.local_address(), &[number as u8]).unwrap(), Sent::Queued);
    }
    // The last one is still here.
    let mut got = Vec::new();
    let taken = b.receive(&mut |_, frame| got.push(frame[0])).unwrap();
    assert_eq!(taken, BATCH);
    assert_eq!(b.receive(&mut |_, _| panic!("nothing waits")).unwrap(), 0);
    a.flush().unwrap();
    assert_eq!(receive(&mut b, 1), [(a.local_address(), vec![BATCH as u8])]);
    assert_eq!(got, (0..BATCH as u8).collect::<Vec<_>>());
}

#[test]
fn ipv6_and_a_socket_for_both() {
    let Ok(mut both) = UdpPort::open(&UdpOptions::new((Ipv6Addr::UNSPECIFIED, 0).into())) else {
        eprintln!("SKIPPED: this machine has no IPv6");
        return;
    };
    let Address::Udp(local) = both.local_address() else { panic!("a UDP port has a UDP address") };
    let mut v4 = open(Ipv4Addr::LOCALHOST);
    let to = Address::Udp((Ipv4Addr::LOCALHOST, local.port()).into());
    assert_eq!(v4.send(&to, b"four").unwrap(), Sent::Queued);
    v4.flush().unwrap();
    // The sender shows as the IPv4 address that it is, and can be answered there.
    assert_eq!(receive(&mut both, 1), [(v4.local_address(), b"four".to_vec())]);
    assert_eq!(both.send(&v4.local_address(), b"answer").unwrap(), Sent::Queued);
    both.flush().unwrap();
    assert_eq!(receive(&mut v4, 1), [(to, b"answer".to_vec())]);

    let Ok(mut v6) = UdpPort::open(&UdpOptions::new((Ipv6Addr::LOCALHOST, 0).into())) else {
        eprintln!("SKIPPED: the loopback interface has no IPv6 address");
        return;
    };
    let to = Address::Udp((Ipv6Addr::LOCALHOST, local.port()).into());
    assert_eq!(v6.send(&to, b"six").unwrap(), Sent::Queued);
    v6.flush().unwrap();
    assert_eq!(receive(&mut both, 1), [(v6.local_address(), b"six".to_vec())]);
    let error = v6.send(&v4.local_address(), b"four").unwrap_err();
    assert!(matches!(error, NetError::WrongAddress { .. }), "{error}");
}

#[test]
fn a_frame_for_nobody_is_refused_and_the_next_one_goes() {
    let (mut a, mut b) = (open(Ipv4Addr::LOCALHOST), open(Ipv4Addr::LOCALHOST));
    // No datagram can be sent to port 0 (RFC 768: zero means "no port").
    let nobody = Address::Udp((Ipv4Addr::LOCALHOST, 0).into());
    assert_eq!(a.send(&nobody, &[1]).unwrap(), Sent::Queued);
    assert_eq!(a.send(&b.local_address(), &[2]).unwrap(), Sent::Queued);
    a.flush().unwrap();
    assert_eq!(receive(&mut b, 1), [(a.local_address(), vec![2])]);
    assert_eq!((a.counters().send_refused, a.counters().sent_frames), (1, 1));
}

#[test]
fn a_datagram_longer_than_a_frame_is_counted_and_dropped() {
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut port =
        UdpPort::open(&UdpOptions { frame_size: Some(1000), ..UdpOptions::new(bind) }).unwrap();
    let Address::Udp(to) = port.local_address() else { panic!("a UDP port has a UDP address") };
    let other = UdpSocket::bind(bind).unwrap();
    other.send_to(&[0; 1001], to).unwrap();
    other.send_to(&[0; 1000], to).unwrap();
    assert_eq!(receive(&mut port, 1)[0].1.len(), 1000);
    assert_eq!(port.counters().receive_invalid, 1);
    let error = port.send(&Address::Udp(to), &[0; 1001]).unwrap_err();
    assert!(matches!(error, NetError::TooLong { len: 1001, mtu: 1000 }), "{error}");
}

#[test]
fn what_the_kernel_had_no_room_for_is_counted() {
    let (mut a, b) = (open(Ipv4Addr::LOCALHOST), open(Ipv4Addr::LOCALHOST));
    let to = b.local_address();
    // Twice the buffer that was asked for is surely more than the kernel keeps.
    let frames = 4 * proxy_net::SOCKET_BUFFER / MAX_FRAME;
    for _ in 0..frames {
        assert_eq!(a.send(&to, &[0; MAX_FRAME]).unwrap(), Sent::Queued);
    }
    a.flush().unwrap();
    let (sent, dropped) = (a.counters().sent_frames, b.counters().receive_dropped);
    assert_eq!(sent, frames as u64);
    assert!(dropped > 0 && dropped < sent, "{dropped} of {sent} dropped");
}

#[test]
fn an_address_that_cannot_be_bound_says_what_to_do() {
    let port = open(Ipv4Addr::LOCALHOST);
    let Address::Udp(taken) = port.local_address() else { panic!("a UDP port has a UDP address") };
    let error = UdpPort::open(&UdpOptions::new(taken)).err().unwrap().to_string();
    assert!(error.contains(&taken.to_string()) && error.contains("another program"), "{error}");
    // TEST-NET-1 (RFC 5737) is nobody's address.
    let nowhere = SocketAddr::from(([192, 0, 2, 1], 4791));
    let error = UdpPort::open(&UdpOptions::new(nowhere)).err().unwrap().to_string();
    assert!(error.contains("no interface has this address"), "{error}");
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let error = UdpPort::open(&UdpOptions { frame_size: Some(9001), ..UdpOptions::new(bind) })
        .err()
        .unwrap();
    assert!(matches!(error, NetError::FrameSize { wanted: 9001, max: 9000 }), "{error}");
}

#[test]
fn waiting_ends_with_the_time() {
    let mut port = open(Ipv4Addr::LOCALHOST);
    let start = Instant::now();
    port.wait(Duration::from_millis(20)).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_congestion_mark_is_told() {
    use std::os::fd::AsRawFd;
    for (bind, level, option) in [
        ("127.0.0.1:0", libc::IPPROTO_IP, libc::IP_TOS),
        ("[::1]:0", libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    ] {
        let bind: SocketAddr = bind.parse().unwrap();
        let Ok(sender) = UdpSocket::bind(bind) else {
            eprintln!("SKIPPED: {bind} is not to be had");
            continue;
        };
        let mut port = UdpPort::open(&UdpOptions::new(bind)).unwrap();
        let Address::Udp(to) = port.local_address() else { unreachable!() };
        let mut marks = Vec::new();
        for ecn in 0..4_i32 {
            // SAFETY: an int option of an open socket.
            let done = unsafe {
                let size = size_of::<i32>() as libc::socklen_t;
                libc::setsockopt(sender.as_raw_fd(), level, option, (&raw const ecn).cast(), size)
            };
            assert_eq!(done, 0);
            sender.send_to(&[0; 64], to).unwrap();
            while marks.len() <= ecn as usize {
                port.wait(Duration::from_secs(60)).unwrap();
                port.receive(&mut |from, _| marks.push(from.congestion_experienced)).unwrap();
            }
        }
        assert_eq!(marks, [false, false, false, true], "{bind}");
    }
}
