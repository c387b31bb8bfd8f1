//! Memory of the client, mapped into this process.

use crate::wire::DmaMap;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

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
        let mut done = 0;
        while done < buf.len() {
            // SAFETY: `done` is below the length that `at` has seen to be in the mapping.
            let word = unsafe { from.add(done) };
            let len = word_len(word.addr(), buf.len() - done);
            let to = &mut buf[done..done + len];
            // SAFETY: the word is in the mapping, which is readable, and aligned; what the client
            // does with it meanwhile is atomic or its own fault, and gives any value at all.
            unsafe {
                match len {
                    8 => to.copy_from_slice(&load_64(word).to_ne_bytes()),
                    4 => to.copy_from_slice(
                        &AtomicU32::from_ptr(word.cast()).load(Ordering::Acquire).to_ne_bytes(),
                    ),
                    2 => to.copy_from_slice(
                        &AtomicU16::from_ptr(word.cast()).load(Ordering::Acquire).to_ne_bytes(),
                    ),
                    _ => to[0] = AtomicU8::from_ptr(word).load(Ordering::Acquire),
                }
            }
            done += len;
        }
    }

    /// Copies into the mapping.
    pub(super) fn write(&self, at: u64, data: &[u8]) {
        assert!(self.writable);
        let to = self.at(at, data.len());
        let mut done = 0;
        while done < data.len() {
            // SAFETY: `done` is below the length that `at` has seen to be in the mapping.
            let word = unsafe { to.add(done) };
            let len = word_len(word.addr(), data.len() - done);
            let from = &data[done..done + len];
            // SAFETY: the word is in the mapping, which is writable, and aligned; who reads it
            // meanwhile is the client.
            unsafe {
                match *from {
                    [a, b, c, d, e, f, g, h] => {
                        store_64(word, u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
                    }
                    [a, b, c, d] => AtomicU32::from_ptr(word.cast())
                        .store(u32::from_ne_bytes([a, b, c, d]), Ordering::Release),
                    [a, b] => AtomicU16::from_ptr(word.cast())
                        .store(u16::from_ne_bytes([a, b]), Ordering::Release),
                    _ => AtomicU8::from_ptr(word).store(from[0], Ordering::Release),
                }
            }
            done += len;
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // It fails only where the process has too many memory areas for one more to be cut in two;
        // then the pages stay, and nobody reaches them.
        // SAFETY: it is the whole mapping, and no pointer into it is kept.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// # Safety
///
/// The word is mapped, readable and aligned.
unsafe fn load_64(word: *mut u8) -> u64 {
    // SAFETY: as the caller says.
    unsafe { AtomicU64::from_ptr(word.cast()) }.load(Ordering::Acquire)
}

/// # Safety
///
/// The word is mapped, writable and aligned.
unsafe fn store_64(word: *mut u8, value: u64) {
    // SAFETY: as the caller says.
    unsafe { AtomicU64::from_ptr(word.cast()) }.store(value, Ordering::Release);
}

/// Bytes of the longest naturally aligned word at an address, with no more than `left` of them.
pub(super) fn word_len(address: usize, left: usize) -> usize {
    1 << address.trailing_zeros().min(3).min(left.ilog2())
}
