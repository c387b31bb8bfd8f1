//! A network that misbehaves, for proxies that talk UDP: a relay stands between a proxy and
//! everybody that sends to it.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a relay does to frames. Each is a share of all, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Are lost.
    pub loss: f64,
    /// Come twice.
    pub duplicate: f64,
    /// Come [`LATE`] after their turn, behind others.
    pub reorder: f64,
    /// All are lost.
    pub cut: bool,
}

/// How late a frame is that comes out of order.
pub const LATE: Duration = Duration::from_millis(1);

/// What a relay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Frames that came.
    pub came: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Frames that were sent twice.
    pub doubled: u64,
    /// Frames that were held back.
    pub late: u64,
}

struct Shared {
    socket: UdpSocket,
    to: SocketAddr,
    stop: AtomicBool,
    state: Mutex<(Faults, Done)>,
}

/// A relay with its thread; both end when it is dropped.
pub struct Relay {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// A relay that lets everything through, and the address behind it: one of this machine that
    /// nobody else uses, so that the port is free there. The seed says which frames it will harm.
    ///
    /// # Errors
    ///
    /// When there is no socket.
    pub fn start(seed: u64) -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(LATE))?;
        let to = SocketAddr::from(([127, 0, 0, 3], socket.local_addr()?.port()));
        let stop = AtomicBool::new(false);
        let shared = Arc::new(Shared { socket, to, stop, state: Mutex::default() });
        let of_thread = shared.clone();
        let thread = std::thread::spawn(move || of_thread.run(Random(seed)));
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Where the others are to send to: `--advertise udp:...` of the proxy behind it.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub fn public(&self) -> io::Result<SocketAddr> {
        self.shared.socket.local_addr()
    }

    /// Where the proxy behind it listens: its `--fabric udp:...`.
    pub fn behind(&self) -> SocketAddr {
        self.shared.to
    }

    /// From now on it does this to frames.
    pub fn set(&self, faults: Faults) {
        self.shared.lock().0 = faults;
    }

    /// What it did so far.
    pub fn done(&self) -> Done {
        self.shared.lock().1
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, (Faults, Done)> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn run(&self, mut random: Random) {
        let mut buffer = [0; 9000];
        let mut late: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
        while !self.stop.load(Ordering::Relaxed) {
            if let Ok((length, _)) = self.socket.recv_from(&mut buffer) {
                self.pass(&buffer[..length], &mut random, &mut late);
            }
            while late.front().is_some_and(|(at, _)| *at <= Instant::now()) {
                if let Some((_, frame)) = late.pop_front() {
                    self.send(&frame);
                }
            }
        }
    }

    fn pass(&self, frame: &[u8], random: &mut Random, late: &mut VecDeque<(Instant, Vec<u8>)>) {
        let (loss, duplicate, reorder) = (random.share(), random.share(), random.share());
        let mut state = self.lock();
        let (faults, done) = &mut *state;
        done.came += 1;
        if faults.cut || loss < faults.loss {
            done.lost += 1;
            return;
        }
        let doubled = duplicate < faults.duplicate;
        let held = reorder < faults.reorder;
        done.doubled += u64::from(doubled);
        done.late += u64::from(held);
        drop(state);
        if doubled {
            self.send(frame);
        }
        if held {
            late.push_back((Instant::now() + LATE, frame.to_vec()));
        } else {
            self.send(frame);
        }
    }

    fn send(&self, frame: &[u8]) {
        // The proxy behind may not be there yet.
        let _ = self.socket.send_to(frame, self.to);
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    /// From 0 up to and without 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as f64 / 2_f64.powi(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_lost_doubled_and_late_as_it_is_told() {
        let relay = Relay::start(7).unwrap();
        let end = UdpSocket::bind(relay.behind()).unwrap();
        end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let public = relay.public().unwrap();
        let send = |byte: u8| sender.send_to(&[byte], public).unwrap();
        let receive = || {
            let mut buffer = [0; 16];
            let (length, _) = end.recv_from(&mut buffer).unwrap();
            assert_eq!(length, 1);
            buffer[0]
        };
        send(1);
        assert_eq!(receive(), 1);
        relay.set(Faults { duplicate: 1.0, reorder: 1.0, ..Faults::default() });
        send(2);
        assert_eq!(receive(), 2);
        relay.set(Faults::default());
        send(3);
        send(4);
        let mut rest = [receive(), receive(), receive()];
        rest.sort_unstable();
        assert_eq!(rest, [2, 3, 4], "the late one comes, before or behind the others");
        relay.set(Faults { cut: true, ..Faults::default() });
        send(5);
        while relay.done().came < 5 {
            std::thread::yield_now();
        }
        let done = relay.done();
        assert_eq!((done.lost, done.doubled, done.late), (1, 1, 1));
    }

    #[test]
    fn shares_are_from_0_to_1_and_spread() {
        let mut random = Random(1);
        let shares: Vec<f64> = (0..1000).map(|_| random.share()).collect();
        assert!(shares.iter().all(|share| (0.0..1.0).contains(share)));
        let low = shares.iter().filter(|share| **share < 0.1).count();
        assert!((60..140).contains(&low), "{low}");
    }
}
