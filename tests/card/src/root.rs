//! The model host at the PCIe side of a host card.

use crate::LONGEST;
use crate::stream::StreamMac;
use host_model::{PortError, TlpPort};
use host_proxy::shell::CountingPort;
use proxy_core::link::ClassSet;
use proxy_daemon::stop::Stop;
use soc::board::{PcieSide, SlotWire, class_of};
use soc::records::{Beside, Body, RecordPort, Windows};
use std::time::{Duration, Instant};

/// TLPs that the host's side stores, by class.
const WINDOWS: Windows = Windows([64, 32, 64]);

/// Longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// A root port at a socket.
pub struct CardPort {
    port: RecordPort<StreamMac>,
    stop: Stop,
}

impl CardPort {
    /// Waits for the card, and tells it that a root complex is there.
    ///
    /// # Errors
    ///
    /// [`PortError::Closed`] when it was told to stop before, or the card went.
    pub fn meet(mac: StreamMac, stop: Stop) -> Result<Self, PortError> {
        let mut port = Self { port: RecordPort::new(mac, 0..=0, WINDOWS), stop };
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
            self.pause(LONGEST_SLEEP)?;
        }
        self.port.send(SlotWire::HOST, tlp);
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8], deadline: Instant) -> Result<Option<usize>, PortError> {
        loop {
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
