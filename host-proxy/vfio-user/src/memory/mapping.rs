//! Memory of the client, mapped into this process.

use crate::wire::DmaMap;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Bytes that are unmapped in one call: whoever maps something meanwhile, in another thread, waits for one
/// piece at most.
const UNMAPPED_AT_ONCE: usize = 64 << 20;

/// A piece of a file that is mapped and shared with the client, which reads and writes it at any
/// time.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    readable: bool,
    writable: bool,
}

// SAFETY: the pages belong to the process and not to a thread; nobody else in this process has the
// pointer.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Whether a piece that begins at this offset can be mapped on this machine.
    pub(super) fn fits(offset: u64) -> bool {
        offset.is_multiple_of(rustix::param::page_size() as u64)
    }

    /// Maps a piece of a file. The caller has seen that the file has it and never becomes shorter:
    /// an access to a page that is not in the file any more would be a SIGBUS.
    pub(super) fn new(file: &OwnedFd, map: &DmaMap) -> Result<Self, Errno> {
        let len = usize::try_from(map.size).map_err(|_| Errno::NOMEM)?;
        let mut protection = ProtFlags::empty();
        protection.set(ProtFlags::READ, map.readable);
        protection.set(ProtFlags::WRITE, map.writable);
        let flags = MapFlags::SHARED;
        // SAFETY: the kernel chooses where, so that it replaces nothing that is mapped.
        let start =
            unsafe { mmap(std::ptr::null_mut(), len, protection, flags, file, map.offset) }?;
        let start = NonNull::new(start.cast()).expect("the kernel does not choose address 0");
        let mapping = Self { start, len, readable: map.readable, writable: map.writable };
        // A guest's memory is not ours to put in a core dump. If the kernel has its reasons to
        // refuse, DMA works all the same.
        // SAFETY: it is this mapping, and the advice changes none of its contents.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontDump) };
        Ok(mapping)
    }

    /// Where an access goes. Panics when it is not all in the mapping.
    fn at(&self, at: u64, len: usize) -> *mut u8 {
        let at = usize::try_from(at).expect("in the mapping");
        assert!(at <= self.len && len <= self.len - at, "in the mapping");
        // SAFETY: `at` is not beyond the end of the mapping.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// Copies out of the mapping.
    pub(super) fn read(&self, at: u64, buf: &mut [u8]) {
        assert!(self.readable);
        let from = self.at(at, buf.len());
        let head = head_len(from.addr(), buf.len());
        let (head, rest) = buf.split_at_mut(head);
        let (body, tail) = rest.as_chunks_mut::<8>();
        // SAFETY: `at` has seen that so many bytes are in the mapping, which is readable; the body
        // begins at a multiple of 8. What the client does with a word meanwhile gives any value at
        // all.
        unsafe {
            read_words(from, head);
            let from = from.add(head.len());
            for (number, word) in body.iter_mut().enumerate() {
                let from = AtomicU64::from_ptr(from.add(8 * number).cast());
                *word = from.load(Ordering::Acquire).to_ne_bytes();
            }
            read_words(from.add(8 * body.len()), tail);
        }
    }

    /// Copies into the mapping.
    pub(super) fn write(&self, at: u64, data: &[u8]) {
        assert!(self.writable);
        let to = self.at(at, data.len());
        let (head, rest) = data.split_at(head_len(to.addr(), data.len()));
        let (body, tail) = rest.as_chunks::<8>();
        // SAFETY: `at` has seen that so many bytes are in the mapping, which is writable; the body
        // begins at a multiple of 8. Who reads a word meanwhile is the client.
        unsafe {
            write_words(to, head);
            let to = to.add(head.len());
            for (number, word) in body.iter().enumerate() {
                let to = AtomicU64::from_ptr(to.add(8 * number).cast());
                to.store(u64::from_ne_bytes(*word), Ordering::Release);
            }
            write_words(to.add(8 * body.len()), tail);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        for at in (0..self.len).step_by(UNMAPPED_AT_ONCE) {
            let len = UNMAPPED_AT_ONCE.min(self.len - at);
            // It fails only where the process has too many memory areas for one more to be cut in two;
            // then the pages stay, and nobody reaches them.
            // SAFETY: it is a piece of the mapping, and no pointer into it is kept.
            let _ = unsafe { munmap(self.start.as_ptr().add(at).cast(), len) };
        }
    }
}

/// Reads bytes, in naturally aligned words.
///
/// # Safety
///
/// They are mapped and readable.
unsafe fn read_words(from: *mut u8, buf: &mut [u8]) {
    let mut done = 0;
    while done < buf.len() {
        // SAFETY: it is in the mapping, and aligned for its length.
        unsafe {
            let word = from.add(done);
            let len = word_len(word.addr(), buf.len() - done);
            let to = &mut buf[done..done + len];
            let order = Ordering::Acquire;
            match len {
                8 => {
                    to.copy_from_slice(&AtomicU64::from_ptr(word.cast()).load(order).to_ne_bytes())
                }
                4 => {
                    to.copy_from_slice(&AtomicU32::from_ptr(word.cast()).load(order).to_ne_bytes())
                }
                2 => {
                    to.copy_from_slice(&AtomicU16::from_ptr(word.cast()).load(order).to_ne_bytes())
                }
                _ => to[0] = AtomicU8::from_ptr(word).load(order),
            }
            done += len;
        }
    }
}

/// Writes bytes, in naturally aligned words.
///
/// # Safety
///
/// Where they go is mapped and writable.
unsafe fn write_words(to: *mut u8, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        // SAFETY: it is in the mapping, and aligned for its length.
        unsafe {
            let word = to.add(done);
            let len = word_len(word.addr(), data.len() - done);
            let order = Ordering::Release;
            match data[done..done + len] {
                [a, b, c, d, e, f, g, h] => AtomicU64::from_ptr(word.cast())
                    .store(u64::from_ne_bytes([a, b, c, d, e, f, g, h]), order),
                [a, b, c, d] => {
                    AtomicU32::from_ptr(word.cast()).store(u32::from_ne_bytes([a, b, c, d]), order)
                }
                [a, b] => {
                    AtomicU16::from_ptr(word.cast()).store(u16::from_ne_bytes([a, b]), order);
                }
                _ => AtomicU8::from_ptr(word).store(data[done], order),
            }
            done += len;
        }
    }
}

/// Bytes before the first whole word of eight bytes; all, where there is none.
fn head_len(address: usize, len: usize) -> usize {
    (address.next_multiple_of(8) - address).min(len)
}

/// Bytes of the longest naturally aligned word at an address, with no more than `left` of them.
pub(super) fn word_len(address: usize, left: usize) -> usize {
    1 << address.trailing_zeros().min(3).min(left.ilog2())
}
