//! A switch in this process, for tests: no sockets, no privileges, nothing lost.

use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Address, BATCH, Counters, NetError, Origin, Port, Sent};

/// What arrived at a port and was not received yet.
#[derive(Debug, Default)]
struct Inbox {
    frames: Mutex<VecDeque<(u16, Box<[u8]>)>>,
    arrived: Condvar,
}

impl Inbox {
    /// The queue, also after a panic elsewhere: it is whole between any two operations on it.
    fn frames(&self) -> MutexGuard<'_, VecDeque<(u16, Box<[u8]>)>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Shared {
    mtu: usize,
    limit: usize,
    ports: Mutex<HashMap<u16, Arc<Inbox>>>,
}

impl Shared {
    fn ports(&self) -> MutexGuard<'_, HashMap<u16, Arc<Inbox>>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An Ethernet switch in memory. Clones are the same switch.
#[derive(Clone, Debug)]
pub struct MemorySwitch(Arc<Shared>);

impl MemorySwitch {
    /// A switch for frames of up to `mtu` bytes, whose ports each hold `limit` frames that arrived
    /// and were not received yet. While a port is full, senders to it get [`Sent::Full`].
    ///
    /// # Panics
    ///
    /// When `mtu` or `limit` is zero.
    pub fn new(mtu: usize, limit: usize) -> Self {
        assert!(mtu > 0 && limit > 0, "a switch that carries nothing");
        Self(Arc::new(Shared { mtu, limit, ports: Mutex::default() }))
    }

    /// Plugs a port in; it is unplugged when dropped.
    ///
    /// # Errors
    ///
    /// [`NetError::MemoryPortInUse`] when there is one with this number already.
    pub fn port(&self, number: u16) -> Result<MemoryPort, NetError> {
        let inbox = Arc::new(Inbox::default());
        let mut ports = self.0.ports();
        if ports.contains_key(&number) {
            return Err(NetError::MemoryPortInUse(number));
        }
        ports.insert(number, Arc::clone(&inbox));
        drop(ports);
        Ok(MemoryPort { switch: self.clone(), number, inbox, counters: Counters::default() })
    }
}

/// A port of a [`MemorySwitch`]. A frame is at its destination as soon as it is sent. One to a
/// number that is not plugged in is counted as [`Counters::send_refused`].
#[derive(Debug)]
pub struct MemoryPort {
    switch: MemorySwitch,
    number: u16,
    inbox: Arc<Inbox>,
    counters: Counters,
}

impl MemoryPort {
    /// Two ports, 0 and 1, of a switch of their own: see [`MemorySwitch::new`].
    ///
    /// # Panics
    ///
    /// When `mtu` or `limit` is zero.
    pub fn pair(mtu: usize, limit: usize) -> (MemoryPort, MemoryPort) {
        let switch = MemorySwitch::new(mtu, limit);
        let port = |number| switch.port(number).expect("a new switch has no ports");
        (port(0), port(1))
    }
}

impl Drop for MemoryPort {
    fn drop(&mut self) {
        self.switch.0.ports().remove(&self.number);
    }
}

impl Port for MemoryPort {
    fn local_address(&self) -> Address {
        Address::Memory(self.number)
    }

    fn mtu(&self) -> usize {
        self.switch.0.mtu
    }

    fn send(&mut self, to: &Address, frame: &[u8]) -> Result<Sent, NetError> {
        let &Address::Memory(number) = to else {
            return Err(NetError::WrongAddress { to: *to, from: self.local_address() });
        };
        if frame.len() > self.mtu() {
            return Err(NetError::TooLong { len: frame.len(), mtu: self.mtu() });
        }
        let Some(inbox) = self.switch.0.ports().get(&number).map(Arc::clone) else {
            self.counters.send_refused += 1;
            return Ok(Sent::Queued);
        };
        let mut frames = inbox.frames();
        if frames.len() >= self.switch.0.limit {
            self.counters.send_full += 1;
            return Ok(Sent::Full);
        }
        frames.push_back((self.number, frame.into()));
        drop(frames);
        inbox.arrived.notify_one();
        self.counters.sent_frames += 1;
        self.counters.sent_bytes += frame.len() as u64;
        Ok(Sent::Queued)
    }

    fn flush(&mut self) -> Result<(), NetError> {
        Ok(())
    }

    fn receive(&mut self, sink: &mut dyn FnMut(&Origin, &[u8])) -> Result<usize, NetError> {
        // Taken out first: the sink may send to this very port.
        let batch: Vec<_> = {
            let mut frames = self.inbox.frames();
            let count = frames.len().min(BATCH);
            frames.drain(..count).collect()
        };
        for (from, frame) in &batch {
            self.counters.received_frames += 1;
            self.counters.received_bytes += frame.len() as u64;
            sink(&Origin::plain(Address::Memory(*from)), frame);
        }
        Ok(batch.len())
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), NetError> {
        let frames = self.inbox.frames();
        drop(self.inbox.arrived.wait_timeout_while(frames, timeout, |frames| frames.is_empty()));
        Ok(())
    }

    fn interest(&self) -> Option<(BorrowedFd<'_>, bool)> {
        None
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(port: &mut MemoryPort) -> Vec<(Address, Vec<u8>)> {
        let mut got = Vec::new();
        while port.receive(&mut |from, frame| got.push((from.address, frame.to_vec()))).unwrap() > 0
        {
        }
        got
    }

    #[test]
    fn frames_arrive_in_order_with_their_sender() {
        let (mut a, mut b) = MemoryPort::pair(100, 64);
        for number in 0..40u8 {
            assert_eq!(a.send(&b.local_address(), &[number; 3]).unwrap(), Sent::Queued);
        }
        let got = received(&mut b);
        assert_eq!(got.len(), 40);
        assert!(
            got.iter()
                .enumerate()
                .all(|(i, frame)| *frame == (Address::Memory(0), vec![i as u8; 3]))
        );
        assert_eq!((a.counters().sent_frames, b.counters().received_bytes), (40, 120));
    }

    #[test]
    fn a_full_port_takes_nothing_more_until_it_is_read() {
        let (mut a, mut b) = MemoryPort::pair(100, 2);
        let to = b.local_address();
        assert_eq!(a.send(&to, &[1]).unwrap(), Sent::Queued);
        assert_eq!(a.send(&to, &[2]).unwrap(), Sent::Queued);
        assert_eq!(a.send(&to, &[3]).unwrap(), Sent::Full);
        assert_eq!(a.counters().send_full, 1);
        assert_eq!(received(&mut b).len(), 2);
        assert_eq!(a.send(&to, &[3]).unwrap(), Sent::Queued);
        assert_eq!(received(&mut b), [(Address::Memory(0), vec![3])]);
    }

    #[test]
    fn wrong_destinations_and_lengths_are_refused() {
        let switch = MemorySwitch::new(10, 4);
        let mut a = switch.port(7).unwrap();
        assert!(matches!(switch.port(7), Err(NetError::MemoryPortInUse(7))));
        assert_eq!(a.send(&Address::Memory(9), &[1]).unwrap(), Sent::Queued);
        assert_eq!(a.counters().send_refused, 1);
        let udp = Address::Udp(([127, 0, 0, 1], 1).into());
        assert!(matches!(a.send(&udp, &[1]), Err(NetError::WrongAddress { .. })));
        assert!(matches!(
            a.send(&Address::Memory(7), &[0; 11]),
            Err(NetError::TooLong { len: 11, mtu: 10 })
        ));
        drop(a);
        assert!(switch.port(7).is_ok(), "a dropped port is unplugged");
    }

    #[test]
    fn waiting_ends_when_a_frame_comes() {
        let (mut a, mut b) = MemoryPort::pair(10, 4);
        let to = b.local_address();
        let sender = std::thread::spawn(move || a.send(&to, &[1]).unwrap());
        while received(&mut b).is_empty() {
            b.wait(Duration::from_secs(60)).unwrap();
        }
        assert_eq!(sender.join().unwrap(), Sent::Queued);
    }
}
