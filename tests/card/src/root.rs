//! The model host at the PCIe side of a host card.

use crate::LONGEST;
use crate::stream::StreamMac;
use host_model::{PortError, TlpPort};
use host_proxy::shell::CountingPort;
use proxy_core::link::ClassSet;
use proxy_daemon::stop::Stop;
use soc::board::{PcieSide, SlotWire, class_of};
use soc::records::{Beside, Body, RecordPort, Windows};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tlp_codec::tlp::Class;

/// TLPs that the host's side stores, by class.
const WINDOWS: Windows = Windows([64, 32, 64]);

/// What is taken in while a request waits for room: a root complex that waited for it with completions
/// untaken would wait for ever, since the card has room again when they are (PCIe 5.0, section 2.4.1).
const MEANWHILE: ClassSet = ClassSet::ALL.without(Class::NonPosted);

/// Longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// A root port at a socket.
pub struct CardPort {
    port: RecordPort<StreamMac>,
    /// TLPs that were taken in while one waited to be sent.
    held: VecDeque<Vec<u8>>,
    stop: Stop,
}

impl CardPort {
    /// Waits for the card, and tells it that a root complex is there.
    ///
    /// # Errors
    ///
    /// [`PortError::Closed`] when it was told to stop before, or the card went.
    pub fn meet(mac: StreamMac, stop: Stop) -> Result<Self, PortError> {
        let port = RecordPort::new(mac, 0..=0, WINDOWS);
        let mut port = Self { port, held: VecDeque::new(), stop };
        let here = Body::Beside(Beside::RootComplex(true));
        while !port.port.is_met() || !port.port.say(SlotWire::HOST, here.clone()) {
            port.pause(LONGEST_SLEEP)?;
        }
        Ok(port)
    }

    fn pause(&mut self, at_most: Duration) -> Result<(), PortError> {
        if self.stop.requested() || self.port.mac().is_closed() {
            return Err(PortError::Closed);
        }
        self.port.mac().wait(at_most.min(LONGEST_SLEEP));
        self.port.look();
        Ok(())
    }
}

impl TlpPort for CardPort {
    fn send(&mut self, tlp: &[u8]) -> Result<(), PortError> {
        if tlp.len() > LONGEST {
            return Err(PortError::TooLong { len: tlp.len(), max: LONGEST });
        }
        let class = class_of(tlp);
        while !self.port.room(SlotWire::HOST).contains(class) {
            while let Some(tlp) = self.port.next(SlotWire::HOST, MEANWHILE) {
                self.held.push_back(tlp.to_vec());
                self.port.take(SlotWire::HOST);
            }
            self.pause(LONGEST_SLEEP)?;
        }
        self.port.send(SlotWire::HOST, tlp);
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8], deadline: Instant) -> Result<Option<usize>, PortError> {
        loop {
            if let Some(tlp) = self.held.pop_front() {
                buf[..tlp.len()].copy_from_slice(&tlp);
                return Ok(Some(tlp.len()));
            }
            self.port.look();
            if let Some(tlp) = self.port.next(SlotWire::HOST, ClassSet::ALL) {
                let length = tlp.len();
                buf[..length].copy_from_slice(tlp);
                self.port.take(SlotWire::HOST);
                return Ok(Some(length));
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(None);
            }
            self.pause(deadline - now)?;
        }
    }
}

impl CountingPort for CardPort {
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.port.counters().to_vec()
    }
}
