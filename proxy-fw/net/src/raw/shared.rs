//! The memory that a socket's packet rings share with the kernel: TPACKET_V2 of `AF_PACKET`
//! (Linux, Documentation/networking/packet_mmap.rst and linux/if_packet.h).
//!
//! A ring is a row of slots. The first word of each says whose it is, the kernel's or ours; only
//! its owner touches the rest, and hands it over with one store. All of that is in this file,
//! behind functions that are safe because an index is checked and each looks at the word first.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// Slots begin at multiples of this (`TPACKET_ALIGNMENT`).
const ALIGNMENT: usize = 16;
/// Bytes in front of the Ethernet payload of a frame that came: the slot's header, the sender's
/// address and the Ethernet header, aligned (`tpacket_rcv` in net/packet/af_packet.c).
const RECEIVE_HEADROOM: usize =
    (size_of::<libc::tpacket2_hdr>() + size_of::<libc::sockaddr_ll>() + 16)
        .next_multiple_of(ALIGNMENT);
/// Where a frame that is to be sent begins in its slot: behind the header (`tpacket_parse_header`).
const SEND_HEADROOM: usize = size_of::<libc::tpacket2_hdr>().next_multiple_of(ALIGNMENT);
/// The kernel allocates a ring in blocks of so many bytes; no slot crosses from one to the next.
const BLOCK: usize = 128 << 10;

/// Where the slots of one ring lie.
struct Layout {
    slot: usize,
    blocks: usize,
    /// Of each slot, from the beginning of the mapping.
    offsets: Box<[usize]>,
}

impl Layout {
    /// At least `slots` slots of `len` bytes, from `start` on; full blocks of them.
    fn new(start: usize, slots: usize, len: usize) -> Self {
        let slot = len.next_multiple_of(ALIGNMENT);
        let per_block = BLOCK / slot;
        assert!(per_block > 0, "a slot of {slot} bytes is larger than a block");
        let blocks = slots.div_ceil(per_block);
        let offsets = (0..blocks * per_block)
            .map(|index| start + index / per_block * BLOCK + index % per_block * slot)
            .collect();
        Self { slot, blocks, offsets }
    }

    fn bytes(&self) -> usize {
        self.blocks * BLOCK
    }

    fn request(&self) -> libc::tpacket_req {
        libc::tpacket_req {
            tp_block_size: BLOCK as libc::c_uint,
            tp_block_nr: self.blocks as libc::c_uint,
            tp_frame_size: self.slot as libc::c_uint,
            tp_frame_nr: self.offsets.len() as libc::c_uint,
        }
    }
}

/// What lies in a slot of the receive ring.
pub(super) enum Arrival<'a> {
    /// A frame with its Ethernet header.
    Frame(&'a [u8]),
    /// A frame that is longer than the slot.
    Cut,
}

/// Both rings of one socket.
pub(super) struct SharedRings {
    start: NonNull<u8>,
    len: usize,
    receive: Layout,
    send: Layout,
}

// SAFETY: the mapping belongs to this value alone and stays where it is until it is dropped; which
// thread touches it makes no difference.
unsafe impl Send for SharedRings {}

impl SharedRings {
    /// Gives a socket that is not bound yet its rings and maps them. Frames are of up to `frame`
    /// bytes behind their Ethernet header; those that are sent have a header of `send_header`.
    ///
    /// # Errors
    ///
    /// What the kernel refused: it may have no such rings, or no memory for them.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        slots: Slots,
        send_header: usize,
        frame: usize,
    ) -> io::Result<Self> {
        let receive = Layout::new(0, slots.receive, RECEIVE_HEADROOM + frame);
        let send_slot = SEND_HEADROOM + send_header + frame;
        let send = Layout::new(receive.bytes(), slots.send, send_slot);
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        sys::set_int(fd, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        // What cannot be sent is skipped and does not stop what is behind it.
        sys::set_int(fd, libc::SOL_PACKET, libc::PACKET_LOSS, 1)?;
        for (name, ring) in [(libc::PACKET_RX_RING, &receive), (libc::PACKET_TX_RING, &send)] {
            // SAFETY: both options take a tpacket_req, which has no pointers.
            unsafe { sys::set_option(fd, libc::SOL_PACKET, name, &ring.request())? };
        }
        let len = receive.bytes() + send.bytes();
        // SAFETY: a new mapping wherever the kernel likes; the receive ring comes first in it.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at zero");
        Ok(Self { start, len, receive, send })
    }

    pub(super) fn receive_slots(&self) -> usize {
        self.receive.offsets.len()
    }

    pub(super) fn send_slots(&self) -> usize {
        self.send.offsets.len()
    }

    /// What came into a slot of the receive ring; none while the slot is the kernel's.
    pub(super) fn arrived(&self, index: usize) -> Option<Arrival<'_>> {
        let offset = self.receive.offsets[index];
        let status = self.status(offset).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot begins with a tpacket2_hdr, aligned, and is ours until `release`, which
        // needs `self` mutable: the kernel wrote it before the status word that was read.
        let header = unsafe { self.at(offset).cast::<libc::tpacket2_hdr>().read() };
        let (begin, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        if header.tp_len != header.tp_snaplen {
            return Some(Arrival::Cut);
        }
        assert!(
            begin + len <= self.receive.slot,
            "the kernel says that a slot is longer than it is"
        );
        // SAFETY: these bytes are within the slot, and nobody writes to them while it is ours.
        let frame = unsafe { std::slice::from_raw_parts(self.at(offset + begin).as_ptr(), len) };
        Some(Arrival::Frame(frame))
    }

    /// Gives a slot of the receive ring back to the kernel.
    pub(super) fn release(&mut self, index: usize) {
        let status = self.status(self.receive.offsets[index]);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    /// Whether a slot of the send ring is ours and empty.
    pub(super) fn is_free(&self, index: usize) -> bool {
        self.send_status(index).load(Ordering::Acquire) == libc::TP_STATUS_AVAILABLE
    }

    /// Whether the kernel has not looked at what was [handed over](Self::hand_over) yet.
    pub(super) fn is_waiting(&self, index: usize) -> bool {
        self.send_status(index).load(Ordering::Acquire) == libc::TP_STATUS_SEND_REQUEST
    }

    /// Where a frame goes in a slot of the send ring, its headers first.
    ///
    /// # Panics
    ///
    /// When the slot is not free.
    pub(super) fn place(&mut self, index: usize) -> &mut [u8] {
        assert!(self.is_free(index), "a slot of the kernel's was to be filled");
        let bytes = self.at(self.send.offsets[index] + SEND_HEADROOM).as_ptr();
        // SAFETY: these bytes are within the slot, which is ours until `hand_over`, which needs
        // `self` mutable; the kernel zeroed them when it made the ring.
        unsafe { std::slice::from_raw_parts_mut(bytes, self.send.slot - SEND_HEADROOM) }
    }

    /// Gives the kernel a slot of the send ring with a frame of `len` bytes, headers included.
    ///
    /// # Panics
    ///
    /// When the slot is not free, or the frame too long.
    pub(super) fn hand_over(&mut self, index: usize, len: usize) {
        assert!(self.is_free(index), "a slot of the kernel's was to be filled");
        assert!(SEND_HEADROOM + len <= self.send.slot, "a frame of {len} bytes in a slot");
        self.set_len(index, len);
        self.send_status(index).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
    }

    /// Makes a frame that [waits](Self::is_waiting) one of no bytes, which the kernel skips as no frame
    /// (`dev_validate_header` in linux/netdevice.h). It looks at the send ring only during a system
    /// call.
    ///
    /// # Panics
    ///
    /// When none waits there.
    pub(super) fn empty(&mut self, index: usize) {
        assert!(self.is_waiting(index), "what does not wait cannot be given up");
        self.set_len(index, 0);
    }

    fn set_len(&mut self, index: usize, len: usize) {
        let field = self.at(self.send.offsets[index] + offset_of!(libc::tpacket2_hdr, tp_len));
        // SAFETY: the slot begins with a tpacket2_hdr, aligned, and the kernel does not look at it now.
        unsafe { field.cast::<u32>().write(len as u32) };
    }

    /// Takes a frame back that [waits](Self::is_waiting). The kernel looks at the send ring only
    /// during a system call.
    pub(super) fn take_back(&mut self, index: usize) {
        self.send_status(index).store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
    }

    fn send_status(&self, index: usize) -> &AtomicU32 {
        self.status(self.send.offsets[index])
    }

    /// The word that says whose the slot at `offset` is.
    fn status(&self, offset: usize) -> &AtomicU32 {
        let word = self.at(offset + offset_of!(libc::tpacket2_hdr, tp_status));
        // SAFETY: a slot begins with its status, 16-byte aligned and within the mapping, and both
        // sides access it as one word only.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len, "an offset beyond the mapping");
        // SAFETY: within the mapping.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for SharedRings {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, whole, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// How many slots each ring has at least.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    pub(super) receive: usize,
    pub(super) send: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap_or_cross_blocks() {
        for (start, slots, len) in [(0, 1024, 9080), (3 * BLOCK, 256, 9050), (0, 7, 592)] {
            let layout = Layout::new(start, slots, len);
            assert!(layout.offsets.len() >= slots && layout.slot >= len);
            let mut end = start;
            for &offset in &layout.offsets {
                assert!(offset >= end && offset % ALIGNMENT == 0);
                end = offset + layout.slot;
                assert_eq!(offset / BLOCK, (end - 1) / BLOCK);
            }
            assert!(end <= start + layout.bytes());
            let request = layout.request();
            let per_block = request.tp_block_size / request.tp_frame_size;
            assert_eq!(request.tp_frame_nr, per_block * request.tp_block_nr);
        }
    }
}
