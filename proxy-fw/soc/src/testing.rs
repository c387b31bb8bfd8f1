//! Media access controllers without a network, and a card at one, for tests.

use crate::board::{Arrived, EthernetMac, MacCounters};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::Vec;

/// Frames on their way in one direction.
type Queue = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// One end of a wire with room for so many frames in each direction. Nothing is lost on it.
#[derive(Clone, Debug)]
pub struct WireMac {
    address: [u8; 6],
    room: usize,
    incoming: Queue,
    outgoing: Queue,
    counters: MacCounters,
}

impl WireMac {
    /// Both ends of a wire, with the addresses 02:00:00:00:00:`a` and `b`.
    pub fn pair(a: u8, b: u8, room: usize) -> (Self, Self) {
        let (there, back) = (Queue::default(), Queue::default());
        let end = |last, incoming: &Queue, outgoing: &Queue| Self {
            address: [2, 0, 0, 0, 0, last],
            room,
            incoming: incoming.clone(),
            outgoing: outgoing.clone(),
            counters: MacCounters::default(),
        };
        (end(a, &back, &there), end(b, &there, &back))
    }

    /// Frames that wait to be received at this end.
    pub fn waiting(&self) -> usize {
        lock(&self.incoming).len()
    }
}

fn lock(queue: &Queue) -> std::sync::MutexGuard<'_, VecDeque<Vec<u8>>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EthernetMac for WireMac {
    fn address(&self) -> [u8; 6] {
        self.address
    }

    fn link_is_up(&mut self) -> bool {
        true
    }

    fn max_frame(&self) -> usize {
        1514
    }

    fn has_arrived(&mut self) -> bool {
        self.waiting() > 0
    }

    fn receive<R>(&mut self, sink: impl FnOnce(&mut Arrived<'_>) -> R) -> Option<R> {
        let mut bytes = lock(&self.incoming).pop_front()?;
        self.counters.received += 1;
        Some(sink(&mut Arrived { bytes: &mut bytes, marked: false }))
    }

    fn can_transmit(&mut self) -> bool {
        lock(&self.outgoing).len() < self.room
    }

    fn transmit<R>(
        &mut self,
        room: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Option<R> {
        if !self.can_transmit() {
            self.counters.full += 1;
            return None;
        }
        let mut frame = std::vec![0; room];
        let (length, result) = fill(&mut frame);
        if length > 0 {
            frame.truncate(length);
            lock(&self.outgoing).push_back(frame);
            self.counters.sent += 1;
        }
        Some(result)
    }

    fn counters(&self) -> MacCounters {
        self.counters
    }
}

/// A card whose address is fixed, and its manager's.
#[cfg(test)]
pub(crate) fn at_fixed_address() -> crate::manage::ManagementConfig {
    use crate::manage::{Addressing, ManagementConfig};
    use proxy_core::control::{CONTROL_VERSION, Hello, Name, RoleKind, Term};
    let hello = Hello {
        version: CONTROL_VERSION,
        name: Name::try_from("card").expect("it is short"),
        role: RoleKind::Host { ports: 4 },
        incarnation: 1,
        node: None,
        paths: heapless::Vec::new(),
        mtu: 1500,
        term: Term(0),
    };
    let addressing = Addressing::Fixed { address: [10, 0, 0, 2], prefix: 24, gateway: None };
    ManagementConfig { addressing, manager: ([10, 0, 0, 1], 7781), seed: 1, hello }
}
