//! Writes that go past the caches, as memory of a device wants them.

/// Writes `bytes` bytes from `from` to `to`, so that all are on their way to the device when this
/// returns.
///
/// # Safety
/// So many bytes can be read at `from` and written at `to`, and they do not overlap.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn write(to: *mut u8, from: *const u8, bytes: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const LINE: usize = size_of::<__m128i>();
    let head = to.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    let tail = head + lines * LINE;
    // SAFETY: all lies within the bytes of both; `to` is aligned to a line from `head` on.
    unsafe {
        plain(to, from, head);
        for line in 0..lines {
            let at = head + line * LINE;
            let value = _mm_loadu_si128(from.add(at).cast());
            _mm_stream_si128(to.add(at).cast(), value);
        }
        plain(to.add(tail), from.add(tail), bytes - tail);
        // Writes that may be combined come before whatever is written next.
        _mm_sfence();
    }
}

/// As on x86_64, in words: the compiler has no stores past the caches here, and the mapping has none.
///
/// # Safety
/// As on x86_64.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn write(to: *mut u8, from: *const u8, bytes: usize) {
    const WORD: usize = size_of::<u64>();
    let head = to.align_offset(WORD).min(bytes);
    let words = (bytes - head) / WORD;
    let tail = head + words * WORD;
    // SAFETY: all lies within the bytes of both; `to` is aligned to a word from `head` on.
    unsafe {
        plain(to, from, head);
        for word in 0..words {
            let at = head + word * WORD;
            let value = from.add(at).cast::<u64>().read_unaligned();
            to.add(at).cast::<u64>().write_volatile(value);
        }
        plain(to.add(tail), from.add(tail), bytes - tail);
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
}

/// Byte by byte: what is left before and after.
///
/// # Safety
/// As of `write`.
unsafe fn plain(to: *mut u8, from: *const u8, bytes: usize) {
    for at in 0..bytes {
        // SAFETY: within the bytes of both.
        unsafe { to.add(at).write_volatile(from.add(at).read()) };
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn every_byte_comes_at_its_place_and_no_other() {
        let from: Vec<u8> = (0..200_u32).map(|byte| (byte * 7 + 1) as u8).collect();
        for start in 0..20 {
            for length in [0, 1, 3, 15, 16, 17, 31, 64, 100, 150] {
                let mut to = vec![0_u8; 200];
                // SAFETY: `start` and `length` are at most 170 together.
                unsafe { write(to.as_mut_ptr().add(start), from.as_ptr().add(3), length) };
                let mut wanted = vec![0_u8; 200];
                wanted[start..start + length].copy_from_slice(&from[3..3 + length]);
                assert_eq!(to, wanted, "{length} bytes at {start}");
            }
        }
    }
}
