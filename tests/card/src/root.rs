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
    /// Which meeting the card was told of the root complex in; 0: it was told in none.
    told: u64,
    /// The card began anew, and nobody asked since.
    anew: bool,
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
        let mut port = Self { port, held: VecDeque::new(), told: 0, anew: false, stop };
        while port.told == 0 {
            port.pause(LONGEST_SLEEP)?;
        }
        Ok(port)
    }

    /// Takes in what arrived. A card that begins, or begins anew, is told that a root complex is there; what
    /// came from its life before means nothing any more.
    fn look(&mut self) {
        self.port.look();
        let met = self.port.meetings();
        let here = Body::Beside(Beside::RootComplex(true));
        if self.told != met && self.port.say(SlotWire::HOST, here) {
            self.held.clear();
            self.anew = self.told != 0;
            self.told = met;
        }
    }

    fn pause(&mut self, at_most: Duration) -> Result<(), PortError> {
        if self.stop.requested() || self.port.mac().is_closed() {
            return Err(PortError::Closed);
        }
        self.port.mac().wait(at_most.min(LONGEST_SLEEP));
        self.look();
        Ok(())
    }
}

impl TlpPort for CardPort {
    fn send(&mut self, tlp: &[u8]) -> Result<(), PortError> {
        if tlp.len() > LONGEST {
            return Err(PortError::TooLong { len: tlp.len(), max: LONGEST });
        }
        let (class, told) = (class_of(tlp), self.told);
        while !self.port.room(SlotWire::HOST).contains(class) {
            while let Some(tlp) = self.port.next(SlotWire::HOST, MEANWHILE) {
                self.held.push_back(tlp.to_vec());
                self.port.take(SlotWire::HOST);
            }
            self.pause(LONGEST_SLEEP)?;
            if self.told != told {
                // It was for the life before: lost, as with a link that goes down.
                return Ok(());
            }
        }
        self.port.send(SlotWire::HOST, tlp);
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8], deadline: Instant) -> Result<Option<usize>, PortError> {
        loop {
            self.look();
            if let Some(tlp) = self.held.pop_front() {
                buf[..tlp.len()].copy_from_slice(&tlp);
                return Ok(Some(tlp.len()));
            }
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

    fn began_anew(&mut self) -> bool {
        std::mem::take(&mut self.anew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use soc::board::Happening;
    use std::os::unix::net::UnixStream;

    /// A memory write of one doubleword.
    const WRITE: [u8; 16] = [0x40, 0, 0, 1, 0, 0, 0, 0xf, 0, 0, 0, 0, 0, 0, 0, 1];

    /// A card that begins its life at this socket.
    fn card(socket: &UnixStream) -> RecordPort<StreamMac> {
        let mac = StreamMac::new(socket.try_clone().unwrap()).unwrap();
        RecordPort::new(mac, 0..=0, WINDOWS)
    }

    #[test]
    fn a_card_that_begins_anew_is_told_of_the_root_complex_again() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut first = card(&far);
        let mut root = std::thread::scope(|scope| {
            let meeting = scope
                .spawn(|| CardPort::meet(StreamMac::new(near).unwrap(), Stop::default()).unwrap());
            while !meeting.is_finished() {
                first.look();
                std::thread::yield_now();
            }
            meeting.join().unwrap()
        });
        let mut nothing = [0; LONGEST];
        let mut look = |root: &mut CardPort| root.recv(&mut nothing, Instant::now()).unwrap();
        look(&mut root);
        assert_eq!(first.happening(), Some(Happening::RootComplex(true)));
        assert!(!root.began_anew(), "it is the first life");
        assert!(first.send_with(SlotWire::HOST, |room| {
            room[..WRITE.len()].copy_from_slice(&WRITE);
            Some(WRITE.len())
        }));
        drop(first);

        let mut second = card(&far);
        for _ in 0..4 {
            second.look();
            root.look();
        }
        assert_eq!(second.happening(), Some(Happening::RootComplex(true)));
        assert_eq!(second.happening(), None);
        assert!(root.began_anew() && !root.began_anew(), "it is told once");
        assert_eq!(look(&mut root), None, "what the life before had sent is gone");
        root.send(&WRITE).unwrap();
        second.look();
        assert_eq!(second.next(SlotWire::HOST, ClassSet::ALL), Some(&WRITE[..]));
    }
}
