//! Memory that the card's blocks reach: rings, buffers, and what outlasts a reset.

use crate::hardware::Registers;
use crate::layout::{
    MAC_FABRIC, MAC_OTHER, MAC_TRANSMIT, MAX_FRAME, RETAINED, SHARED, TLP_RECEIVE, TLP_TRANSMIT,
};
use card_regs::Mmio;
use core::sync::atomic::{AtomicBool, Ordering};
use proxy_core::limits::TLP_BUFFER;
use soc::blocks::mac::{MacPort, MacRings};
use soc::blocks::tlp::{TlpPort, TlpRings};
use soc::blocks::{Buffers, Ring};

/// Bytes of a descriptor.
const DESCRIPTOR: u32 = 16;

/// Frames begin at addresses with 2 in the low bits, which aligns what is behind their header.
const FRAME_OFFSET: u32 = 2;

/// Where each part is, one behind the other.
const RECEIVE: u32 = SHARED.start;
const TRANSMIT: u32 = RECEIVE + (DESCRIPTOR << TLP_RECEIVE);
const FABRIC: u32 = TRANSMIT + (DESCRIPTOR << TLP_TRANSMIT);
const OTHER: u32 = FABRIC + (DESCRIPTOR << MAC_FABRIC);
const FRAMES: u32 = OTHER + (DESCRIPTOR << MAC_OTHER);
const TLPS: u32 = FRAMES + (DESCRIPTOR << MAC_TRANSMIT);
/// Bytes of all rings.
pub(crate) const RINGS: u32 = TLPS - RECEIVE;
const FRAME_BUFFERS: u32 = TLPS + TLP_COUNT as u32 * TLP_BUFFER as u32;

/// Buffers of TLPs: a descriptor's each.
const TLP_COUNT: u16 = (1 << TLP_RECEIVE) + (1 << TLP_TRANSMIT);

/// Buffers of frames, the same way.
const FRAME_COUNT: u16 = (1 << MAC_FABRIC) + (1 << MAC_OTHER) + (1 << MAC_TRANSMIT);
const FRAME_APART: u32 = (FRAME_OFFSET + MAX_FRAME as u32).next_multiple_of(4);

const _: () = {
    assert!(TLP_BUFFER.is_multiple_of(4) && TLPS.is_multiple_of(4), "TLPs lie at multiples of 4");
    let end = FRAME_BUFFERS + FRAME_COUNT as u32 * FRAME_APART;
    assert!(end <= RETAINED, "the shared memory has room for it all");
};

/// A ring's words.
pub(crate) type Words = Mmio<{ DESCRIPTOR << TLP_RECEIVE }>;

/// Ports as this board has them.
pub(crate) type Mac = MacPort<Registers, Words, SharedBuffers>;
/// See [`Mac`].
pub(crate) type Pcie = TlpPort<Registers, Words, SharedBuffers>;

/// Buffers in the shared memory.
pub(crate) struct SharedBuffers {
    start: u32,
    apart: u32,
    count: u16,
    room: u16,
}

impl Buffers for SharedBuffers {
    fn count(&self) -> u16 {
        self.count
    }

    fn room(&self) -> u16 {
        self.room
    }

    fn address(&self, index: u16) -> u32 {
        assert!(index < self.count, "there is such a buffer");
        self.start + u32::from(index) * self.apart
    }

    fn bytes(&mut self, index: u16) -> &mut [u8] {
        let start = core::ptr::with_exposed_provenance_mut(self.address(index) as usize);
        // SAFETY: memory that only this value gives out, once (`take`), a buffer at a time while it
        // is borrowed. Bytes have no wrong values. The drivers do not ask for a buffer that the
        // hardware has (`Buffers`), which their tests hold them to.
        unsafe { core::slice::from_raw_parts_mut(start, self.room.into()) }
    }

    // The core does not cache this memory, and queues have their fences.
    fn lend(&mut self, _: u16) {}

    fn reclaim(&mut self, _: u16) {}
}

/// All of the shared memory that the ports use.
pub(crate) struct Parts {
    pub(crate) mac_rings: MacRings<Words>,
    pub(crate) frames: SharedBuffers,
    pub(crate) tlp_rings: TlpRings<Words>,
    pub(crate) tlps: SharedBuffers,
}

/// Hands it out.
///
/// # Panics
///
/// The second time.
pub(crate) fn take() -> Parts {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    assert!(!TAKEN.swap(true, Ordering::Relaxed), "there is one shared memory");
    let ring = |start: u32, order: u32| {
        // SAFETY: words of memory that nobody else has; drivers stay inside their ring, which is no
        // longer than the longest.
        let words = unsafe { Mmio::new(start as usize) };
        Ring::new(words, start, order)
    };
    Parts {
        mac_rings: MacRings {
            fabric: ring(FABRIC, MAC_FABRIC),
            other: ring(OTHER, MAC_OTHER),
            transmit: ring(FRAMES, MAC_TRANSMIT),
        },
        frames: SharedBuffers {
            start: FRAME_BUFFERS + FRAME_OFFSET,
            apart: FRAME_APART,
            count: FRAME_COUNT,
            room: MAX_FRAME,
        },
        tlp_rings: TlpRings {
            receive: ring(RECEIVE, TLP_RECEIVE),
            transmit: ring(TRANSMIT, TLP_TRANSMIT),
        },
        tlps: SharedBuffers {
            start: TLPS,
            apart: TLP_BUFFER as u32,
            count: TLP_COUNT,
            room: TLP_BUFFER as u16,
        },
    }
}

/// Gives what outlasts a reset to somebody for a moment.
pub(crate) fn with_retained<R>(user: impl FnOnce(&mut [u8; soc::reset::RETAINED]) -> R) -> R {
    let kept = RETAINED as usize as *mut [u8; soc::reset::RETAINED];
    // SAFETY: memory in which nothing else is (above), bytes have no wrong values, and nobody else
    // has it: users do not call this again, and the one handler of interrupts that uses it comes
    // between and does not return.
    user(unsafe { &mut *kept })
}
