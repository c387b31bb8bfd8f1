//! What is allocated at the start, and never after.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes for all that is made at the start.
const SIZE: usize = 3 << 20;

#[repr(C, align(16))]
struct Arena(UnsafeCell<[u8; SIZE]>);

// SAFETY: parts of it are handed out once each.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([0; SIZE]));

/// Hands out the arena from its front; what is given back is lost.
struct Bump {
    used: AtomicUsize,
}

#[global_allocator]
static BUMP: Bump = Bump { used: AtomicUsize::new(0) };

/// Bytes of variables, the arena left out.
pub(crate) fn variables() -> usize {
    unsafe extern "C" {
        static __sdata: u8;
        static __ebss: u8;
    }
    let (start, end) = (&raw const __sdata, &raw const __ebss);
    end.addr() - start.addr() - SIZE
}

/// Bytes of the arena in use.
pub(crate) fn used() -> usize {
    BUMP.used.load(Ordering::Relaxed)
}

// SAFETY: each byte of the arena belongs to one allocation at most, for good.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = self.used.load(Ordering::Relaxed);
        let Some(start) = used.checked_next_multiple_of(layout.align()) else {
            return core::ptr::null_mut();
        };
        let end = start.saturating_add(layout.size());
        if layout.align() > align_of::<Arena>() || end > SIZE {
            return core::ptr::null_mut();
        }
        // One hart without interrupts: nobody comes between.
        self.used.store(end, Ordering::Relaxed);
        // SAFETY: start is inside the arena.
        unsafe { ARENA.0.get().cast::<u8>().add(start) }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}
