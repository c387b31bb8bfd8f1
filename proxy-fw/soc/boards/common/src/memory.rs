//! What is allocated at the start, and never after: the arena is closed then.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Largest alignment of what is allocated.
const ALIGN: usize = 16;

/// Smallest alignment: buffers of bytes, too, begin at a word, so that a word at a time is copied.
const WORD: usize = align_of::<u32>();

/// `SIZE` bytes, handed out from the front; what is given back is lost. A board's global allocator.
#[repr(C, align(16))]
pub struct Arena<const SIZE: usize> {
    bytes: UnsafeCell<[u8; SIZE]>,
    used: AtomicUsize,
    closed: AtomicBool,
}

// SAFETY: parts of it are handed out once each.
unsafe impl<const SIZE: usize> Sync for Arena<SIZE> {}

impl<const SIZE: usize> Arena<SIZE> {
    /// One of which nothing is in use.
    #[expect(clippy::new_without_default, reason = "it is for a static")]
    pub const fn new() -> Self {
        let (used, closed) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { bytes: UnsafeCell::new([0; SIZE]), used, closed }
    }

    /// The start is over: who allocates from now on ends the card's life with a panic. What is
    /// given back is lost, so one allocation for each frame would end it, too, some hours later.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes of the program's variables, the arena's own left out. What lies between those with a
    /// value and the others, so that pages begin where they must, depends on the length of the
    /// code, and is nobody's.
    #[cfg(target_os = "none")]
    pub fn variables(&self) -> usize {
        unsafe extern "C" {
            static __sdata: u8;
            static __edata: u8;
            static __sbss: u8;
            static __ebss: u8;
        }
        let with_value = (&raw const __edata).addr() - (&raw const __sdata).addr();
        let zero = (&raw const __ebss).addr() - (&raw const __sbss).addr();
        with_value + zero - SIZE
    }
}

// SAFETY: each byte of the arena belongs to one allocation at most, for good. A panic does not
// unwind out of it: nothing unwinds on a card.
unsafe impl<const SIZE: usize> GlobalAlloc for Arena<SIZE> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.closed.load(Ordering::Relaxed) {
            panic!("{} bytes are allocated after the start", layout.size());
        }
        let used = self.used.load(Ordering::Relaxed);
        let Some(start) = used.checked_next_multiple_of(layout.align().max(WORD)) else {
            return core::ptr::null_mut();
        };
        let end = start.saturating_add(layout.size());
        if layout.align() > ALIGN || end > SIZE {
            return core::ptr::null_mut();
        }
        // One hart without interrupts: nobody comes between.
        self.used.store(end, Ordering::Relaxed);
        // SAFETY: start is inside the arena.
        unsafe { self.bytes.get().cast::<u8>().add(start) }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(arena: &Arena<256>, size: usize, align: usize) -> Option<usize> {
        // SAFETY: no layout here is empty.
        let start = unsafe { arena.alloc(Layout::from_size_align(size, align).unwrap()) };
        (!start.is_null()).then(|| start.addr() - arena.bytes.get().addr())
    }

    #[test]
    fn it_hands_out_each_byte_once_until_it_is_used_up() {
        let arena = Arena::new();
        assert_eq!(allocate(&arena, 5, 1), Some(0));
        assert_eq!(allocate(&arena, 1, 1), Some(8), "bytes begin at a word");
        assert_eq!(allocate(&arena, 32, 16), Some(16));
        assert_eq!(allocate(&arena, 8, 32), None, "nothing is aligned so");
        assert_eq!(allocate(&arena, 209, 1), None);
        assert_eq!(arena.used(), 48);
        assert_eq!(allocate(&arena, 208, 1), Some(48));
        assert_eq!(allocate(&arena, 1, 1), None);
    }

    #[test]
    #[should_panic(expected = "8 bytes are allocated after the start")]
    fn who_allocates_after_the_start_ends_it() {
        let arena = Arena::new();
        assert_eq!(allocate(&arena, 8, 8), Some(0));
        arena.close();
        allocate(&arena, 8, 8);
    }
}
