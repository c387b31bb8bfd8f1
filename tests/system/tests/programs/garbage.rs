//! Datagrams that are no frames, while a transfer runs.

use crate::harness::{ACCELERATOR, Daemon, NVME, Noise, Pool, items, program, wait_event};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tlp_codec::fabric::{Frame, FrameKind, FrameWriter, Header};
use tlp_codec::ids::{NodeId, PathId};

fn ports(pool: &Pool) -> Vec<SocketAddr> {
    let nodes = pool.manager_json(&["nodes"]);
    let port = |node: &serde_json::Value| {
        let path = node["connection"]["paths"][0].as_str().expect("a path");
        path.strip_prefix("udp ").expect("over UDP").parse().expect("an address")
    };
    items(&nodes).iter().map(port).collect()
}

/// One datagram: noise, or a frame cut short or with a bit turned.
fn datagram(frame: &[u8], noise: &mut Noise) -> Vec<u8> {
    let choice = noise.next();
    match choice % 3 {
        0 => (0..noise.next() % 1500).map(|_| noise.next() as u8).collect(),
        1 => frame[..noise.next() as usize % frame.len()].to_vec(),
        _ => {
            let mut frame = frame.to_vec();
            let bit = noise.next() as usize % (frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
            frame
        }
    }
}

/// A frame that is whole, from a node that is not there.
fn frame() -> Vec<u8> {
    let header = Header {
        kind: FrameKind::Data,
        destination: NodeId::new(1).expect("in range"),
        source: NodeId::new(2).expect("in range"),
        source_incarnation: 7,
        destination_incarnation: Some(9),
        session: 3,
        path: PathId::new(0).expect("in range"),
        packet: 1,
        sequence: 1,
        ack: None,
    };
    let mut buffer = vec![0; 1500];
    let writer = FrameWriter::new(&mut buffer, &header).expect("room");
    let length = writer.finish();
    buffer.truncate(length);
    buffer
}

#[test]
fn a_transfer_survives_garbage_at_both_ports() {
    let pool = Pool::new();
    let mut boxed = pool.boxed("box-a", &[pool.drive(1, "drive.img")]);
    let mut host = pool.host("host-1");
    pool.wait_ready(2);
    pool.allocate("host-1", "box-a/1");
    let drive = &pool.find("host-1", NVME, 1)[0];
    let ports = ports(&pool);
    let frame = frame();
    // Each kind of garbage has a counter of its own, at both ends.
    const DROPS: [&str; 3] =
        ["link.dropped_cut_short", "link.dropped_version", "link.dropped_frame_crc"];
    for node in ["box-a", "host-1"] {
        for name in DROPS {
            assert_eq!(pool.counter(node, name), 0, "{node}: {name}");
        }
    }
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let mut noise = Noise(1);
            while !stop.load(Ordering::Relaxed) {
                for port in &ports {
                    let datagram = datagram(&frame, &mut noise);
                    let _ = socket.send_to(&datagram, port);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                // Leaves the processor to those who are tested.
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..3 {
                pool.round_trip("host-1", drive, 3 << 20);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(sent.into_inner() > 100);
    assert!(boxed.runs() && host.runs());
    for node in ["box-a", "host-1"] {
        for name in DROPS {
            assert!(pool.counter(node, name) > 0, "{node}: {name} did not count");
        }
        assert_eq!(pool.counter(node, "link.violations"), 0, "{node}");
    }
}

/// Forwards datagrams to a box proxy, and says of each that is a data frame what its header is.
/// On demand one frame goes before the next: with the same header, and records that are none.
struct Relay {
    spoil: AtomicBool,
    stop: AtomicBool,
}

impl Relay {
    fn run(&self, socket: &UdpSocket, to: SocketAddr) {
        socket.set_read_timeout(Some(Duration::from_millis(10))).expect("a timeout");
        let mut buffer = [0; 65536];
        while !self.stop.load(Ordering::Relaxed) {
            let Ok((length, _)) = socket.recv_from(&mut buffer) else { continue };
            if let Ok(frame) = Frame::new_checked(&buffer[..length])
                && frame.kind() == FrameKind::Data
                && self.spoil.swap(false, Ordering::Relaxed)
            {
                let mut bad = [0; 256];
                let mut writer = FrameWriter::new(&mut bad, &frame.header()).expect("room");
                writer.body(&[0xff; 16]).expect("room");
                let bad_length = writer.finish();
                socket.send_to(&bad[..bad_length], to).expect("loopback");
            }
            socket.send_to(&buffer[..length], to).expect("loopback");
        }
    }
}

#[test]
fn garbage_records_in_a_frame_of_a_live_session_end_that_link_alone() {
    let pool = Pool::new();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let public = socket.local_addr().expect("an address");
    // An address of this machine that no other test uses, so the port is free there.
    let own = SocketAddr::from(([127, 0, 0, 2], public.port()));
    let relay = Relay { spoil: AtomicBool::new(false), stop: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        scope.spawn(|| relay.run(&socket, own));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            spoil_a_link(&pool, &relay, public, own);
        }));
        relay.stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn spoil_a_link(pool: &Pool, relay: &Relay, public: SocketAddr, own: SocketAddr) {
    let mut command = program("box-proxy");
    command.args(["--name", "box-a", "--manager", &pool.control]);
    command.args(["--fabric", &format!("udp:{own}"), "--advertise", &public.to_string()]);
    command.args(["--slot", &pool.drive(1, "drive.img")]);
    let mut box_a = Daemon::start(&mut command, &pool.path("box-a.log"));
    let mut box_b = pool.boxed("box-b", &["1=accelerator".into()]);
    let mut host = pool.host("host-1");
    pool.wait_ready(3);
    pool.allocate("host-1", "box-a/1");
    pool.allocate("host-1", "box-b/1");
    let drive = pool.find("host-1", NVME, 1).remove(0);
    let accelerator = pool.find("host-1", ACCELERATOR, 1).remove(0);
    pool.round_trip("host-1", &drive, 1 << 20);
    assert_eq!(pool.counter("box-a", "link.violations"), 0);

    relay.spoil.store(true, Ordering::Relaxed);
    // What is asked of the drive now makes frames; that it is answered is not to be expected.
    pool.host_run("host-1", &["config-read", &drive, "0"]);
    wait_event(pool, "rebinding", "box-a/1");
    assert_eq!(pool.counter("box-a", "link.violations"), 1);
    assert!(!relay.spoil.load(Ordering::Relaxed));

    // The other link never noticed.
    let test = ["bandwidth", &accelerator, "--bytes", "65536"];
    pool.host_json("host-1", &test);
    let events = pool.manager(&["events", "--limit", "1000", "--json"]).stdout;
    let hurt = |line: &&str| line.contains("binding-failed") || line.contains("rebinding");
    assert!(events.lines().filter(hurt).all(|line| !line.contains("box-b")), "{events}");

    // And the drive is back under a new epoch, with what was on it.
    let drive = pool.find("host-1", NVME, 1).remove(0);
    let after = pool.argument("after");
    pool.host_json("host-1", &["nvme-read", &drive, &after, "--bytes", "1048576"]);
    let same = std::fs::read(pool.path("sent")).unwrap() == std::fs::read(after).unwrap();
    assert!(same, "the drive has not what was written to it");
    assert!(box_a.runs() && box_b.runs() && host.runs());
}
