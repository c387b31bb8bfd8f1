//! Frames through packet rings: what came is seen without a system call, and one call sends
//! everything that was written.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::shared::{Arrival, SharedRings, Slots};
use crate::patience::Patience;
use crate::{BATCH, Counters, RING_RECEIVE_SLOTS, RING_SEND_SLOTS, sys};

/// The rings of one socket and where we are in them.
pub(super) struct Ring {
    shared: SharedRings,
    /// The slot that the next frame comes into.
    arriving: usize,
    /// The oldest slot that was filled and that the kernel was not seen to take.
    first: usize,
    /// How many of those there are.
    waiting: usize,
    /// Lengths of the frames in the send ring, headers included; 0 of one that was given up.
    lengths: Box<[usize]>,
    header: usize,
    last_refusal: Option<i32>,
    patience: Patience,
    /// Frames that found the ring full, as far as the kernel was asked.
    drops: Cell<u64>,
}

impl Ring {
    /// Rings for a socket that is not bound yet, for frames of up to `frame` bytes behind their
    /// Ethernet headers, and `header` bytes of those in front of what is sent.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub(super) fn new(fd: BorrowedFd<'_>, header: usize, frame: usize) -> io::Result<Self> {
        let slots = Slots { receive: RING_RECEIVE_SLOTS, send: RING_SEND_SLOTS };
        let shared = SharedRings::map(fd, slots, header, frame)?;
        let lengths = vec![0; shared.send_slots()].into_boxed_slice();
        Ok(Self {
            shared,
            arriving: 0,
            first: 0,
            waiting: 0,
            lengths,
            header,
            last_refusal: None,
            patience: Patience::default(),
            drops: Cell::new(0),
        })
    }

    /// Whether frames wait that the kernel has not taken.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether it is time to [`flush`](Self::flush), so that what was written travels while more
    /// is written.
    pub(super) fn has_batch(&self) -> bool {
        self.waiting >= BATCH
    }

    /// Whether there is room for a frame.
    pub(super) fn has_room(&self) -> bool {
        self.waiting < self.lengths.len() && self.shared.is_free(self.next())
    }

    /// Where the next frame goes, behind its headers; there is room.
    pub(super) fn place(&mut self) -> &mut [u8] {
        let (index, header) = (self.next(), self.header);
        &mut self.shared.place(index)[header..]
    }

    /// Adds the frame whose first `len` bytes are in the [`place`](Self::place); there is room.
    pub(super) fn push_placed(&mut self, header: &[u8], len: usize) {
        assert_eq!(header.len(), self.header, "headers of one kind");
        let index = self.next();
        self.shared.place(index)[..header.len()].copy_from_slice(header);
        self.lengths[index] = header.len() + len;
        self.shared.hand_over(index, self.lengths[index]);
        self.waiting += 1;
    }

    /// Adds a frame; there is room, and it is not too long.
    pub(super) fn push(&mut self, header: &[u8], frame: &[u8]) {
        self.place()[..frame.len()].copy_from_slice(frame);
        self.push_placed(header, frame.len());
    }

    /// The slot that is filled next.
    fn next(&self) -> usize {
        self.slot(self.waiting)
    }

    /// The slot that is so many behind the oldest one.
    fn slot(&self, distance: usize) -> usize {
        let index = self.first + distance;
        if index < self.lengths.len() { index } else { index - self.lengths.len() }
    }

    /// Gives the kernel what it takes. What it has no room for stays; what it refuses is counted
    /// and gone.
    ///
    /// # Errors
    ///
    /// When the socket or its interface is gone.
    pub(super) fn flush(&mut self, fd: BorrowedFd<'_>, counters: &mut Counters) -> io::Result<()> {
        while self.waiting > 0 {
            let flags = libc::MSG_DONTWAIT;
            // SAFETY: no data and no address: the kernel takes what the ring holds.
            let sent = unsafe {
                libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, flags, std::ptr::null(), 0)
            };
            let error = (sent < 0).then(io::Error::last_os_error);
            self.count_taken(usize::try_from(sent).ok(), counters);
            match error.as_ref().and_then(io::Error::raw_os_error) {
                // What is left had no room in the socket's buffer.
                None | Some(libc::EAGAIN) => return Ok(()),
                // The first one that is left was thrown away, and the kernel tries it again.
                Some(libc::ENOBUFS) if !self.patience.is_over() => return Ok(()),
                Some(libc::ENOBUFS) if self.lengths[self.first] > 0 => self.give_up(counters),
                Some(libc::EINTR) => {}
                Some(libc::ENXIO | libc::ENODEV | libc::EBADF | libc::ENOTSOCK) => {
                    return Err(error.expect("it has a number"));
                }
                code => self.refuse(code, counters),
            }
        }
        Ok(())
    }

    /// Counts the frames that the kernel took out of the ring. It says how many bytes of them it
    /// sent; frames that are too long for the interface it skips.
    fn count_taken(&mut self, sent: Option<usize>, counters: &mut Counters) {
        let (mut taken, mut given_up, mut bytes) = (0, 0, 0);
        while taken < self.waiting && !self.shared.is_waiting(self.slot(taken)) {
            let len = self.lengths[self.slot(taken)];
            given_up += usize::from(len == 0);
            bytes += len;
            taken += 1;
        }
        let missing = bytes - sent.unwrap_or(bytes).min(bytes);
        let refused = if missing == 0 { 0 } else { self.count_longest(taken, missing) };
        if refused > 0 {
            self.warn(Some(libc::EMSGSIZE));
        }
        let gone = taken - given_up - refused;
        if gone > 0 {
            self.patience.renew();
        }
        counters.send_refused += refused as u64;
        counters.sent_frames += gone as u64;
        counters.sent_bytes += (bytes - missing - gone * self.header) as u64;
        self.first = self.slot(taken);
        self.waiting -= taken;
    }

    /// How many of the oldest frames, the longest of them first, make up so many bytes.
    fn count_longest(&self, frames: usize, bytes: usize) -> usize {
        let mut lengths: Vec<usize> = (0..frames).map(|n| self.lengths[self.slot(n)]).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0;
        lengths
            .into_iter()
            .take_while(|length| {
                let wanted = sum < bytes;
                sum += length;
                wanted
            })
            .count()
    }

    /// The oldest frame is lost. The kernel looks for the next frame in its slot still: an empty one
    /// it skips, and goes on behind it.
    fn give_up(&mut self, counters: &mut Counters) {
        self.warn(Some(libc::ENOBUFS));
        self.shared.empty(self.first);
        self.lengths[self.first] = 0;
        counters.send_refused += 1;
        self.patience.renew();
    }

    /// Everything that waits is lost: the interface is down.
    fn refuse(&mut self, code: Option<i32>, counters: &mut Counters) {
        self.warn(code);
        for distance in 0..self.waiting {
            let slot = self.slot(distance);
            self.shared.take_back(slot);
            counters.send_refused += u64::from(self.lengths[slot] > 0);
        }
        self.waiting = 0;
        self.patience.renew();
    }

    /// One line for each new reason; the counter has the rest.
    fn warn(&mut self, code: Option<i32>) {
        if self.last_refusal != code {
            let error = io::Error::from_raw_os_error(code.unwrap_or(0));
            tracing::warn!(%error, "a frame could not be sent and counts as lost");
            self.last_refusal = code;
        }
    }

    /// Whether a frame waits.
    pub(super) fn has_arrived(&self) -> bool {
        self.shared.arrived(self.arriving).is_some()
    }

    /// Hands on what came, up to a batch, with the Ethernet headers; `None` for a frame that does
    /// not fit. How many there were.
    pub(super) fn receive(&mut self, mut sink: impl FnMut(Option<&[u8]>)) -> usize {
        let mut count = 0;
        while count < BATCH {
            match self.shared.arrived(self.arriving) {
                None => break,
                Some(Arrival::Frame(frame)) => sink(Some(frame)),
                Some(Arrival::Cut) => sink(None),
            }
            self.shared.release(self.arriving);
            self.arriving += 1;
            if self.arriving == self.shared.receive_slots() {
                self.arriving = 0;
            }
            count += 1;
        }
        count
    }

    /// Frames that came while every slot was full.
    pub(super) fn drops(&self, fd: BorrowedFd<'_>) -> u64 {
        self.drops.set(self.drops.get() + sys::take_ring_drops(fd));
        self.drops.get()
    }
}
