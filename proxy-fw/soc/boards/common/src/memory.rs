//! What is allocated at the start, and never after.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Largest alignment of what is allocated.
const ALIGN: usize = 16;

/// Smallest alignment: buffers of bytes, too, begin at a word, so that a word at a time is copied.
const WORD: usize = align_of::<u32>();

/// `SIZE` bytes, handed out from the front; what is given back is lost. A board's global allocator.
#[repr(C, align(16))]
pub struct Arena<const SIZE: usize> {
    bytes: UnsafeCell<[u8; SIZE]>,
    used: AtomicUsize,
}

// SAFETY: parts of it are handed out once each.
unsafe impl<const SIZE: usize> Sync for Arena<SIZE> {}

impl<const SIZE: usize> Arena<SIZE> {
    /// One of which nothing is in use.
    #[expect(clippy::new_without_default, reason = "it is for a static")]
    pub const fn new() -> Self {
        Self { bytes: UnsafeCell::new([0; SIZE]), used: AtomicUsize::new(0) }
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes of the program's variables, the arena's own left out. What lies between those with a
    /// value and the others, so that pages begin where they must, depends on the length of the
    /// code, and is nobody's.
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

// SAFETY: each byte of the arena belongs to one allocation at most, for good.
unsafe impl<const SIZE: usize> GlobalAlloc for Arena<SIZE> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
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
