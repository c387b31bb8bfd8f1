//! The interface that all transports have in common.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::{Address, NetError, sys};

/// What became of a frame that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a frame that was not taken is to be sent again later"]
pub enum Sent {
    /// The port has it; it leaves with the batch, at the latest at the next [`Port::flush`].
    Queued,
    /// Not taken: neither this port nor the transport below has room. Send it again after a while.
    Full,
}

/// Where a frame came from, and what the network said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Who sent it.
    pub address: Address,
    /// A switch on its way marked it, as a sign that its queue is filling: Congestion Experienced
    /// in the IP header (RFC 3168, section 5). Ethernet alone has no such mark.
    pub congestion_experienced: bool,
}

impl Origin {
    /// Without a mark.
    pub fn plain(address: Address) -> Self {
        Self { address, congestion_experienced: false }
    }
}

/// What a port has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames handed to the transport.
    pub sent_frames: u64,
    /// Their bytes, counted as fabric frames.
    pub sent_bytes: u64,
    /// Frames that [`Port::send`] did not take because everything was full.
    pub send_full: u64,
    /// Frames taken by [`Port::send`] that the transport then refused (no route, larger than the
    /// path's MTU, interface down, no such port) or threw away again and again: gone, as a frame lost
    /// on the wire.
    pub send_refused: u64,
    /// Frames received and handed on.
    pub received_frames: u64,
    /// Their bytes, counted as fabric frames.
    pub received_bytes: u64,
    /// Frames that arrived and were thrown away: longer than the port's frame size, or without
    /// the headers they should have.
    pub receive_invalid: u64,
    /// Frames that arrived while the receive buffer was full. Frames that the kernel had put
    /// together for a UDP port count as one.
    pub receive_dropped: u64,
}

/// Where one path of this node ends.
///
/// Frames are fabric frames; the transport's headers are added and stripped by the port. Delivery
/// is as good as Ethernet's: a frame may be lost, doubled or overtaken.
pub trait Port: Send {
    /// What the other end uses as the destination.
    fn local_address(&self) -> Address;

    /// Largest fabric frame, in bytes.
    fn mtu(&self) -> usize;

    /// Takes a frame for sending. It may wait for others until [`flush`](Port::flush).
    ///
    /// # Errors
    ///
    /// When `to` is no address of this transport, the frame is longer than [`mtu`](Port::mtu), or
    /// the port is broken for good. A frame that the transport refuses later is counted
    /// ([`Counters::send_refused`]) and no error: the link above sends again what is lost.
    fn send(&mut self, to: &Address, frame: &[u8]) -> Result<Sent, NetError>;

    /// Where the next frame can be written so that it need not be copied: [`mtu`](Port::mtu)
    /// bytes, with anything in them. Nothing where there is no room now, or no such place at all:
    /// then there is [`send`](Port::send).
    ///
    /// # Errors
    ///
    /// When the port is broken for good.
    fn place(&mut self) -> Result<Option<&mut [u8]>, NetError> {
        Ok(None)
    }

    /// As [`send`](Port::send), of the first `len` bytes of the [`place`](Port::place) that was
    /// given last. Nothing else was done with the port since.
    ///
    /// # Errors
    ///
    /// As [`send`](Port::send).
    ///
    /// # Panics
    ///
    /// When there was no place.
    fn send_placed(&mut self, to: &Address, len: usize) -> Result<Sent, NetError> {
        unreachable!("a port without a place was to send {len} bytes from there to {to}")
    }

    /// Hands every frame taken so far to the transport, as far as that has room. What it has no
    /// room for stays and goes first with the next flush or full batch.
    ///
    /// # Errors
    ///
    /// When the port is broken for good, such as an interface that was removed.
    fn flush(&mut self) -> Result<(), NetError>;

    /// Takes every frame that is waiting, up to a batch, and never blocks. `sink` gets the origin
    /// and the frame. Gives the number of frames that `sink` got; zero means that nothing waits.
    ///
    /// # Errors
    ///
    /// When the port is broken for good.
    fn receive(&mut self, sink: &mut dyn FnMut(&Origin, &[u8])) -> Result<usize, NetError>;

    /// Whether [`receive`](Port::receive) would find something, where that can be seen without a
    /// system call; true where it cannot.
    fn may_receive(&self) -> bool {
        true
    }

    /// Sleeps until something can be received (or frames left by [`flush`](Port::flush) can be
    /// sent) or the time is over.
    ///
    /// # Errors
    ///
    /// When the port is broken for good.
    fn wait(&mut self, timeout: Duration) -> Result<(), NetError>;

    /// What to poll when several ports are waited for at once: the descriptor, for input, and
    /// whether also for room to send. None for [`MemoryPort`](crate::MemoryPort), which has no
    /// descriptor.
    fn interest(&self) -> Option<(BorrowedFd<'_>, bool)>;

    /// What it has done so far.
    fn counters(&self) -> Counters;
}

/// A descriptor that is waited for together with ports.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// Which.
    pub fd: BorrowedFd<'a>,
    /// Until it can be read.
    pub read: bool,
    /// Until it can be written.
    pub write: bool,
}

/// Sleeps until one of several ports has something to receive, or room for what it holds back, or
/// one of the other descriptors is ready, or the time is over.
///
/// # Errors
///
/// When the system refuses to wait.
pub fn wait_any<'a>(
    ports: impl Iterator<Item = &'a mut Box<dyn Port>>,
    others: &[Waiting<'_>],
    timeout: Duration,
) -> Result<(), NetError> {
    let mut ports: Vec<_> = ports.collect();
    if let ([port], []) = (&mut ports[..], others) {
        return port.wait(timeout);
    }
    let interests = ports.iter().map(|port| port.interest());
    let interests = interests.map(|i| i.map(|(fd, write)| Waiting { fd, read: true, write }));
    // Ports in memory have nothing to poll.
    let Some(mut waiting) = interests.collect::<Option<Vec<_>>>() else {
        let share = timeout / ports.len() as u32;
        return ports.iter_mut().try_for_each(|port| port.wait(share));
    };
    waiting.extend_from_slice(others);
    sys::wait_any(&waiting, timeout).map_err(|source| NetError::System {
        what: "waiting",
        port: format!("{} ports", ports.len()),
        source,
    })
}
