//! QEMU's `-netdev stream`: Ethernet frames on a socket, each behind its length.

use proxy_daemon::stop::Stop;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use soc::board::{Arrived, EthernetMac, MacCounters};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Bytes in front of a frame: its length, big-endian.
const LENGTH: usize = 4;

/// The longest frame that is taken.
const MAX_FRAME: usize = 1514;

/// Bytes that wait to be sent, beyond which there is no room.
const MAX_WAITING: usize = 64 * 1024;

/// How often whoever waits for a card looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Waits at a socket until a card dials in; `None` when told to stop before.
///
/// # Errors
///
/// When nobody can listen there, such as at a path that is taken.
pub fn accept(path: &Path, stop: &Stop) -> std::io::Result<Option<StreamMac>> {
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    let look = Timespec::try_from(LOOK).unwrap_or_default();
    while !stop.requested() {
        match listener.accept() {
            Ok((socket, _)) => return StreamMac::new(socket).map(Some),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        // Whatever it says, the next turn looks.
        let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&look));
    }
    Ok(None)
}

/// A frame's end of the socket.
#[derive(Debug)]
pub struct StreamMac {
    socket: UnixStream,
    incoming: Vec<u8>,
    /// Bytes of `incoming` that were handed out.
    used: usize,
    outgoing: Vec<u8>,
    counters: MacCounters,
    /// The other end is gone, or sends what is no frame.
    closed: bool,
}

impl StreamMac {
    /// On a connected socket.
    ///
    /// # Errors
    ///
    /// When it cannot be made one that does not block.
    pub fn new(socket: UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        let (incoming, outgoing) = (Vec::new(), Vec::new());
        let counters = MacCounters::default();
        Ok(Self { socket, incoming, used: 0, outgoing, counters, closed: false })
    }

    /// Whether the other end is gone.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Waits until something came, or what waits can be sent, or the time is over.
    pub fn wait(&mut self, timeout: Duration) {
        self.flush();
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, !self.outgoing.is_empty());
        let timeout = Timespec::try_from(timeout).unwrap_or_default();
        // Whatever it says, the caller looks.
        let _ = poll(&mut [PollFd::new(&self.socket, flags)], Some(&timeout));
    }

    /// What to wait for: the socket, for input, and whether also for room to send.
    pub fn waits_on(&self) -> (BorrowedFd<'_>, bool) {
        (self.socket.as_fd(), !self.outgoing.is_empty())
    }

    fn flush(&mut self) {
        while !self.outgoing.is_empty() {
            match self.socket.write(&self.outgoing) {
                Ok(sent) if sent > 0 => drop(self.outgoing.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => {
                    self.closed = true;
                    self.outgoing.clear();
                }
            }
        }
    }

    /// Bytes of the next whole frame.
    fn whole(&mut self) -> Option<std::ops::Range<usize>> {
        let head = self.incoming[self.used..].first_chunk::<LENGTH>()?;
        let length = u32::from_be_bytes(*head) as usize;
        if length > MAX_FRAME {
            self.closed = true;
            return None;
        }
        let from = self.used + LENGTH;
        (self.incoming.len() >= from + length).then_some(from..from + length)
    }

    fn read(&mut self) -> bool {
        self.incoming.drain(..std::mem::take(&mut self.used));
        let before = self.incoming.len();
        self.incoming.resize(before + MAX_WAITING, 0);
        let got = self.socket.read(&mut self.incoming[before..]);
        self.incoming.truncate(before + got.as_ref().copied().unwrap_or(0));
        match got {
            Ok(0) => self.closed = true,
            Ok(_) => return true,
            Err(error) => {
                let later = [ErrorKind::WouldBlock, ErrorKind::Interrupted];
                self.closed |= !later.contains(&error.kind());
            }
        }
        false
    }
}

impl EthernetMac for StreamMac {
    fn address(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0, 0xfe]
    }

    fn link_is_up(&mut self) -> bool {
        !self.closed
    }

    fn max_frame(&self) -> usize {
        MAX_FRAME
    }

    fn has_arrived(&mut self) -> bool {
        self.whole().is_some() || self.read() && self.whole().is_some()
    }

    fn receive<R>(&mut self, sink: impl FnOnce(&mut Arrived<'_>) -> R) -> Option<R> {
        if !self.has_arrived() {
            return None;
        }
        let frame = self.whole()?;
        self.used = frame.end;
        self.counters.received += 1;
        Some(sink(&mut Arrived { bytes: &mut self.incoming[frame], marked: false }))
    }

    fn can_transmit(&mut self) -> bool {
        if self.outgoing.len() >= MAX_WAITING {
            self.flush();
        }
        self.outgoing.len() < MAX_WAITING
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
        let at = self.outgoing.len();
        self.outgoing.resize(at + LENGTH + room, 0);
        let (length, result) = fill(&mut self.outgoing[at + LENGTH..]);
        self.outgoing[at..at + LENGTH].copy_from_slice(&(length as u32).to_be_bytes());
        self.outgoing.truncate(if length > 0 { at + LENGTH + length } else { at });
        self.counters.sent += u64::from(length > 0);
        self.flush();
        Some(result)
    }

    fn counters(&self) -> MacCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_a_card_stops_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let (path, stop) = (folder.path().join("card"), Stop::default());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| accept(&path, &stop));
            while !path.exists() {
                std::thread::yield_now();
            }
            stop.request();
            assert!(waiting.join().unwrap().unwrap().is_none());
        });
        let taken = accept(&path, &stop).map(drop);
        assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn frames_arrive_whole_whatever_the_pieces() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut mac = StreamMac::new(near).unwrap();
        let bytes = [&[0, 0, 0, 3, 1, 2, 3][..], &[0, 0, 0, 2, 4, 5]].concat();
        let mut got = Vec::new();
        for byte in bytes {
            far.write_all(&[byte]).unwrap();
            got.extend(mac.receive(|frame| frame.bytes.to_vec()));
        }
        assert_eq!(got, [vec![1, 2, 3], vec![4, 5]]);
        assert!(!mac.is_closed());
        drop(far);
        assert_eq!(mac.receive(|_| ()), None);
        assert!(mac.is_closed());
    }

    #[test]
    fn a_length_that_no_frame_has_ends_it() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut mac = StreamMac::new(near).unwrap();
        far.write_all(&[0xff; 8]).unwrap();
        assert_eq!(mac.receive(|_| ()), None);
        assert!(mac.is_closed());
    }

    #[test]
    fn what_the_other_end_does_not_read_waits_up_to_a_bound() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut mac = StreamMac::new(near).unwrap();
        let mut sent = 0;
        while mac.transmit(1000, |room| (room.len(), ())).is_some() {
            sent += 1;
        }
        assert!(sent > 64);
        far.set_nonblocking(true).unwrap();
        let (mut read, mut buf) = (0, [0; 4096]);
        while read < sent * 1004 {
            read += far.read(&mut buf).unwrap_or(0);
            mac.flush();
        }
        assert!(mac.can_transmit());
        assert_eq!(mac.transmit(10, |_| (0, 7)), Some(7), "nothing is sent");
        assert!(mac.outgoing.is_empty());
    }
}
