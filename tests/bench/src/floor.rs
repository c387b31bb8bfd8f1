//! What bare Ethernet costs on the same interfaces: the least that any proxy could need.

use crate::network::Network;
use crate::process::pin;
use crate::system::{BOX_PROCESSOR, HOST_PROCESSOR};
use anyhow::{Context, Result};
use proxy_net::floor::RoundTrips;
use proxy_net::{MAX_FRAME, Port, RawPort, Sent, floor};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tlp_codec::crc;

/// Two bare ports, one at each end of the first path.
pub(crate) struct Floor {
    near: RawPort,
    far: RawPort,
}

/// What the ends of a stream do with each frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Nothing.
    Bare,
    /// One copy and the two CRCs over the same bytes, as a proxy that moves TLPs cannot do without.
    CopyAndCrcs,
}

impl Floor {
    pub(crate) fn open(network: &Network, ring: bool) -> Result<Self> {
        let (near, far) = network.bare_ports(ring)?;
        Ok(Self { near, far })
    }

    /// Frames of so many bytes, one at a time, there and back.
    pub(crate) fn round_trips(&mut self, frame: usize, count: u32) -> Result<RoundTrips> {
        let (near, far) = (&mut self.near, &mut self.far);
        let (to, stop) = (far.local_address(), AtomicBool::new(false));
        let trips = std::thread::scope(|scope| {
            let reflector = scope.spawn(|| {
                pin(BOX_PROCESSOR);
                floor::reflect(far, &stop)
            });
            let measured = scope.spawn(|| {
                pin(HOST_PROCESSOR);
                floor::round_trips(near, &to, frame, count)
            });
            let trips = measured.join().expect("measuring does not panic");
            stop.store(true, Ordering::Relaxed);
            reflector.join().expect("reflecting does not panic")?;
            trips
        })?;
        trips.context("no bare frame came back")
    }

    /// Bytes in a second that arrive at the host when the box sends the largest frames, no more of
    /// them underway than the receiver has room for.
    pub(crate) fn stream(&mut self, ends: Ends, run: Duration) -> Result<f64> {
        let (near, far) = (&mut self.near, &mut self.far);
        let to = near.local_address();
        let (stop, taken) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                pin(HOST_PROCESSOR);
                take(near, ends, &stop, &taken)
            });
            let sender = scope.spawn(|| {
                pin(BOX_PROCESSOR);
                let rate = give(far, &to, ends, run, &taken);
                stop.store(true, Ordering::Relaxed);
                rate
            });
            let rate = sender.join().expect("sending does not panic");
            receiver.join().expect("receiving does not panic")?;
            rate
        })
    }
}

/// Frames on the way at most: what fits the caches of both ends, and fills the time between.
const UNDERWAY: u64 = 64;
/// Frames that are sent with one system call.
const TOGETHER: u64 = 8;

fn give(
    port: &mut RawPort,
    to: &proxy_net::Address,
    ends: Ends,
    run: Duration,
    taken: &AtomicU64,
) -> Result<f64> {
    let data = vec![0x5a; MAX_FRAME];
    let mut frame = vec![0; MAX_FRAME];
    let (mut sent, mut lost, mut progress) = (0, 0, (0, Instant::now()));
    let (start, before) = (Instant::now(), taken.load(Ordering::Relaxed));
    while start.elapsed() < run {
        let arrived = taken.load(Ordering::Acquire) - before;
        if arrived != progress.0 {
            progress = (arrived, Instant::now());
        }
        if sent - lost >= arrived + UNDERWAY {
            // What does not arrive for so long does not arrive at all.
            if progress.1.elapsed() > Duration::from_millis(100) {
                lost = sent - arrived;
            }
            std::hint::spin_loop();
            continue;
        }
        for _ in 0..TOGETHER {
            if ends == Ends::CopyAndCrcs {
                frame.copy_from_slice(black_box(&data));
                black_box((crc::tlp(&frame), crc::frame(&frame)));
            }
            if port.send(to, &frame)? == Sent::Queued {
                sent += 1;
            }
        }
        port.flush()?;
    }
    let arrived = taken.load(Ordering::Acquire) - before;
    Ok(arrived as f64 * MAX_FRAME as f64 / start.elapsed().as_secs_f64())
}

fn take(port: &mut RawPort, ends: Ends, stop: &AtomicBool, taken: &AtomicU64) -> Result<()> {
    let mut store = vec![0; MAX_FRAME];
    while !stop.load(Ordering::Relaxed) {
        port.receive(&mut |_, frame| {
            if ends == Ends::CopyAndCrcs {
                let store = &mut store[..frame.len()];
                store.copy_from_slice(frame);
                black_box((crc::frame(store), crc::tlp(store)));
            }
            taken.fetch_add(1, Ordering::Release);
        })?;
    }
    Ok(())
}
