//! The user side of the PCIe block: one queue of TLPs in each direction for all slots.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use super::queue::Queue;
use super::slot::Slot;
use crate::Bus;

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x800;
/// How many `slot` there are.
pub const SLOT_COUNT: usize = 16;

/// The user side of the PCIe block: one queue of TLPs in each direction for all slots.
#[derive(Clone, Copy, Debug)]
pub struct Tlp<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Tlp<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// TLPs and events from the slots. Firmware gives it empty buffers, as many as it grants TLPs
    /// and some more for events. What finds none waits, and with it what its slot says next.
    #[inline(always)]
    pub const fn receive(self) -> Queue<B> {
        Queue::at(self.bus, self.base)
    }

    /// TLPs to the slots.
    #[inline(always)]
    pub const fn transmit(self) -> Queue<B> {
        Queue::at(self.bus, self.base + 0x20)
    }

    /// One PCIe port: to a device (box role), or slot 0 to the host (host role).
    ///
    /// None if `index` is not below [`SLOT_COUNT`].
    #[inline(always)]
    pub const fn slot(self, index: usize) -> Option<Slot<B>> {
        if index < SLOT_COUNT {
            Some(Slot::at(self.bus, self.base + 0x400 + index as u32 * 0x40))
        } else {
            None
        }
    }
}
