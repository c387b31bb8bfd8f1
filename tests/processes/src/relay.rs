//! A network that misbehaves: a relay stands between a proxy that talks UDP and everybody that
//! sends to it, or in one direction of an emulated card's cable.

use crate::random::Random;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
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
    /// Come with one bit turned over.
    pub damage: f64,
    /// All are lost.
    pub cut: bool,
}

/// How late a frame is that comes out of order.
pub const LATE: Duration = Duration::from_millis(1);

/// Where an Ethernet frame's type is, when it has a VLAN tag.
const VLAN_TAG: [u8; 2] = 0x8100u16.to_be_bytes();

/// What a relay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Frames that came.
    pub came: u64,
    /// Of those, Ethernet frames with a VLAN tag (IEEE 802.1Q).
    pub tagged: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Frames that were sent twice.
    pub doubled: u64,
    /// Frames that were held back.
    pub late: u64,
    /// Frames that were damaged.
    pub damaged: u64,
    /// Frames that were sent on, each as often as it was.
    pub sent: u64,
}

/// Where frames come from and go to.
enum Ends {
    Udp { from: UdpSocket, to: SocketAddr },
    Unix { from: UnixDatagram, to: PathBuf },
}

impl Ends {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Udp { from, .. } => from.recv_from(buffer).map(|(length, _)| length),
            Self::Unix { from, .. } => from.recv(buffer),
        }
    }

    /// Sends a frame, if the one behind is there already.
    fn send(&self, frame: &[u8]) -> bool {
        match self {
            Self::Udp { from, to } => from.send_to(frame, to).is_ok(),
            Self::Unix { from, to } => from.send_to(frame, to).is_ok(),
        }
    }
}

struct Shared {
    ends: Ends,
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
        let from = UdpSocket::bind("127.0.0.1:0")?;
        from.set_read_timeout(Some(LATE))?;
        let to = SocketAddr::from(([127, 0, 0, 3], from.local_addr()?.port()));
        Ok(Self::over(Ends::Udp { from, to }, seed))
    }

    /// A relay that listens at one socket and sends to the other, which may come later.
    ///
    /// # Errors
    ///
    /// When it cannot listen there.
    pub fn between(from: &Path, to: &Path, seed: u64) -> io::Result<Self> {
        let from = UnixDatagram::bind(from)?;
        from.set_read_timeout(Some(LATE))?;
        Ok(Self::over(Ends::Unix { from, to: to.to_owned() }, seed))
    }

    fn over(ends: Ends, seed: u64) -> Self {
        let stop = AtomicBool::new(false);
        let shared = Arc::new(Shared { ends, stop, state: Mutex::default() });
        let of_thread = shared.clone();
        let thread = std::thread::spawn(move || of_thread.run(Random(seed)));
        Self { shared, thread: Some(thread) }
    }

    /// Where the others are to send to: `--advertise udp:...` of the proxy behind it.
    ///
    /// # Errors
    ///
    /// When the system does not say, and for a relay without UDP.
    pub fn public(&self) -> io::Result<SocketAddr> {
        match &self.shared.ends {
            Ends::Udp { from, .. } => from.local_addr(),
            Ends::Unix { .. } => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// Where the proxy behind it listens: its `--fabric udp:...`.
    ///
    /// # Panics
    ///
    /// For a relay without UDP.
    pub fn behind(&self) -> SocketAddr {
        match &self.shared.ends {
            Ends::Udp { to, .. } => *to,
            Ends::Unix { .. } => panic!("a relay between two sockets has no UDP address"),
        }
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
            if let Ok(length) = self.ends.receive(&mut buffer) {
                self.pass(&mut buffer[..length], &mut random, &mut late);
            }
            while late.front().is_some_and(|(at, _)| *at <= Instant::now()) {
                if let Some((_, frame)) = late.pop_front() {
                    self.send(&frame);
                }
            }
        }
    }

    fn pass(&self, frame: &mut [u8], random: &mut Random, late: &mut VecDeque<(Instant, Vec<u8>)>) {
        let [loss, duplicate, reorder, damage] = std::array::from_fn(|_| random.share());
        let mut state = self.lock();
        let (faults, done) = &mut *state;
        done.came += 1;
        done.tagged += u64::from(frame.get(12..14) == Some(&VLAN_TAG));
        if faults.cut || loss < faults.loss {
            done.lost += 1;
            return;
        }
        let doubled = duplicate < faults.duplicate;
        let held = reorder < faults.reorder;
        let damaged = damage < faults.damage && !frame.is_empty();
        done.doubled += u64::from(doubled);
        done.late += u64::from(held);
        done.damaged += u64::from(damaged);
        drop(state);
        if damaged {
            let bit = (random.share() * frame.len() as f64 * 8.0) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
        }
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
        let sent = self.ends.send(frame);
        self.lock().1.sent += u64::from(sent);
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
        assert_eq!((done.lost, done.doubled, done.late, done.sent), (1, 1, 1, 5));
    }

    #[test]
    fn a_damaged_frame_differs_in_one_bit() {
        let folder = tempfile::tempdir().unwrap();
        let (near, far) = (folder.path().join("near"), folder.path().join("far"));
        let end = UnixDatagram::bind(&far).unwrap();
        end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let relay = Relay::between(&near, &far, 3).unwrap();
        relay.set(Faults { damage: 1.0, ..Faults::default() });
        let sender = UnixDatagram::unbound().unwrap();
        let mut places = std::collections::BTreeSet::new();
        for _ in 0..20 {
            sender.send_to(&[0; 64], &near).unwrap();
            let mut buffer = [0; 128];
            assert_eq!(end.recv(&mut buffer).unwrap(), 64);
            assert_eq!(buffer.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
            places.insert(buffer.iter().position(|byte| *byte != 0));
        }
        assert!(places.len() > 5, "bits all over the frame");
        assert_eq!(relay.done().damaged, 20);
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
