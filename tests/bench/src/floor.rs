//! What bare Ethernet costs on the same interfaces: the least that any proxy could need.

use crate::network::Network;
use crate::process::pin;
use crate::system::{BOX_PROCESSOR, HOST_PROCESSOR};
use anyhow::{Context, Result};
use proxy_net::floor::RoundTrips;
use proxy_net::{Address, Port, Sent, floor};
use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tlp_codec::crc;
use tlp_codec::fabric::{FRAME_CRC, HEADER, RECORD_HEADER, TLP_OVERHEAD};

/// What carries bare frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Packet rings.
    Rings,
    /// System calls for batches of raw frames.
    Calls,
    /// UDP, with the kernel taking many frames at once.
    Udp,
}

/// Two bare ports, one at each end of the first path.
pub(crate) struct Floor {
    near: Box<dyn Port>,
    far: Box<dyn Port>,
}

/// What the ends of a stream do with each frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Nothing.
    Bare,
    /// One copy and the two CRCs over the same bytes, as a proxy that moves TLPs cannot do without.
    CopyAndCrcs,
    /// The same for frames of whole records, each with a write of so many bytes: one copy and a CRC
    /// for each TLP, and the frame's. The bytes of the writes are what counts. So much is left of a
    /// stream for a proxy that needs no time of its own.
    Writes(usize),
}

/// Bytes of a memory write's header below 4 GB (PCIe 5.0, section 2.2.7).
const WRITE_HEADER: usize = 12;

impl Ends {
    /// Bytes of a record with one write.
    fn record(payload: usize) -> usize {
        TLP_OVERHEAD + WRITE_HEADER + payload
    }

    /// Bytes of the longest frame that a port carries, and how many of them count.
    fn frame(self, mtu: usize) -> (usize, usize) {
        match self {
            Self::Bare | Self::CopyAndCrcs => (mtu, mtu),
            Self::Writes(payload) => {
                let records = (mtu - HEADER - FRAME_CRC) / Self::record(payload);
                (HEADER + records * Self::record(payload) + FRAME_CRC, records * payload)
            }
        }
    }

    /// Where the TLPs are in a frame.
    fn tlps(payload: usize, frame: usize) -> impl Iterator<Item = Range<usize>> {
        let records = (HEADER..frame - FRAME_CRC).step_by(Self::record(payload));
        records.map(move |at| at + RECORD_HEADER..at + RECORD_HEADER + WRITE_HEADER + payload)
    }

    /// What the sender does for a frame of which it has the bytes somewhere else.
    fn write(self, data: &[u8], frame: &mut [u8]) {
        match self {
            Self::Bare => {}
            Self::CopyAndCrcs => {
                frame.copy_from_slice(black_box(data));
                black_box((crc::tlp(frame), crc::frame(frame)));
            }
            Self::Writes(payload) => {
                for tlp in Self::tlps(payload, frame.len()) {
                    let copy = &mut frame[tlp.clone()];
                    copy.copy_from_slice(black_box(&data[tlp]));
                    black_box(crc::tlp(copy));
                }
                black_box(crc::frame(frame));
            }
        }
    }

    /// What the receiver does with one, which it keeps somewhere else.
    fn read(self, frame: &[u8], store: &mut [u8]) {
        match self {
            Self::Bare => {}
            Self::CopyAndCrcs => {
                store.copy_from_slice(frame);
                black_box((crc::frame(store), crc::tlp(store)));
            }
            Self::Writes(payload) => {
                black_box(crc::frame(frame));
                for tlp in Self::tlps(payload, frame.len()) {
                    let copy = &mut store[tlp.clone()];
                    copy.copy_from_slice(&frame[tlp]);
                    black_box(crc::tlp(copy));
                }
            }
        }
    }
}

impl Floor {
    pub(crate) fn open(network: &Network, by: By) -> Result<Self> {
        let (near, far) = network.bare_ports(by)?;
        Ok(Self { near, far })
    }

    /// Frames of so many bytes, one at a time, there and back.
    pub(crate) fn round_trips(&mut self, frame: usize, count: u32) -> Result<RoundTrips> {
        let (near, far) = (&mut self.near, &mut self.far);
        let (to, stop) = (far.local_address(), AtomicBool::new(false));
        let trips = std::thread::scope(|scope| {
            let reflector = scope.spawn(|| {
                pin(BOX_PROCESSOR);
                floor::reflect(&mut **far, &stop)
            });
            let measured = scope.spawn(|| {
                pin(HOST_PROCESSOR);
                floor::round_trips(&mut **near, &to, frame, count)
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
                take(&mut **near, ends, &stop, &taken)
            });
            let sender = scope.spawn(|| {
                pin(BOX_PROCESSOR);
                let rate = give(&mut **far, &to, ends, run, &taken);
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
    port: &mut dyn Port,
    to: &Address,
    ends: Ends,
    run: Duration,
    taken: &AtomicU64,
) -> Result<f64> {
    let (length, counts) = ends.frame(port.mtu());
    let data = vec![0x5a; length];
    let mut frame = vec![0; length];
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
            // Where it is sent from, as a proxy writes its frames: no copy is made but its own.
            let queued = if let Some(place) = port.place()? {
                ends.write(&data, &mut place[..length]);
                port.send_placed(to, length)?
            } else {
                ends.write(&data, &mut frame);
                port.send(to, &frame)?
            };
            if queued == Sent::Queued {
                sent += 1;
            }
        }
        port.flush()?;
    }
    let arrived = taken.load(Ordering::Acquire) - before;
    Ok(arrived as f64 * counts as f64 / start.elapsed().as_secs_f64())
}

fn take(port: &mut dyn Port, ends: Ends, stop: &AtomicBool, taken: &AtomicU64) -> Result<()> {
    let (length, _) = ends.frame(port.mtu());
    let mut store = vec![0; length];
    while !stop.load(Ordering::Relaxed) {
        port.receive(&mut |_, frame| {
            // The end of a stream before may come yet.
            if frame.len() == length {
                ends.read(frame, &mut store);
                taken.fetch_add(1, Ordering::Release);
            }
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy_net::{Counters, MAX_FRAME, NetError, Origin};
    use std::os::fd::BorrowedFd;

    /// A port with a place for frames.
    struct Placing {
        place: Vec<u8>,
        placed: u64,
        copied: u64,
    }

    impl Port for Placing {
        fn local_address(&self) -> Address {
            Address::Memory(1)
        }
        fn mtu(&self) -> usize {
            MAX_FRAME
        }
        fn send(&mut self, _: &Address, _: &[u8]) -> Result<Sent, NetError> {
            self.copied += 1;
            Ok(Sent::Queued)
        }
        fn place(&mut self) -> Result<Option<&mut [u8]>, NetError> {
            Ok(Some(&mut self.place))
        }
        fn send_placed(&mut self, _: &Address, _: usize) -> Result<Sent, NetError> {
            self.placed += 1;
            Ok(Sent::Queued)
        }
        fn flush(&mut self) -> Result<(), NetError> {
            Ok(())
        }
        fn receive(&mut self, _: &mut dyn FnMut(&Origin, &[u8])) -> Result<usize, NetError> {
            Ok(0)
        }
        fn wait(&mut self, _: Duration) -> Result<(), NetError> {
            Ok(())
        }
        fn interest(&self) -> Option<(BorrowedFd<'_>, bool)> {
            None
        }
        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    #[test]
    fn a_stream_is_written_where_it_is_sent_from() {
        for (ends, written) in [(Ends::Bare, 0), (Ends::CopyAndCrcs, 0x5a)] {
            let mut port = Placing { place: vec![0; MAX_FRAME], placed: 0, copied: 0 };
            let (to, taken) = (Address::Memory(2), AtomicU64::new(0));
            give(&mut port, &to, ends, Duration::from_millis(2), &taken).unwrap();
            assert!(port.placed > 0 && port.copied == 0, "{} {}", port.placed, port.copied);
            assert!(port.place.iter().all(|byte| *byte == written));
        }
    }
}
