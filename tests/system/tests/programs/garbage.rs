//! Datagrams that are no frames, while a transfer runs.

use crate::harness::{NVME, Noise, Pool, items};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tlp_codec::fabric::{FrameKind, FrameWriter, Header};
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
}
