//! Whether the PCIe side goes on, for the watchdog.
//!
//! What waits may wait: for credits of the network, for a root complex or a device that has no room, for
//! the role that has none. None of these is a hang, however long it takes. It is one when nothing of that
//! holds something up and it is not moved all the same: a TLP is at the PCIe side that the role did not
//! refuse and nobody takes it, or the PCIe side has TLPs for which there was room and sends none.

use crate::board::{PcieSide, SlotWire};
use core::time::Duration;
use proxy_core::limits::MAX_SLOTS;
use proxy_core::link::ClassSet;
use proxy_core::time::Instant;

/// Between two looks, which cost one look at each place.
const LOOK: Duration = Duration::from_millis(250);

/// Looks, one after the other, at which nothing has moved, before the watchdog is left to bite. Looks are
/// counted and not time: where all of the card stood still, as in an emulator that is stopped, time
/// passes in which nothing could be moved.
const LOOKS: u8 = 8;

/// Time after which something that hangs is noticed at the latest: it may begin behind a look, and there
/// is one more that finds it first.
#[cfg(test)]
pub(super) const BOUND: Duration = LOOK.saturating_mul(LOOKS as u32 + 2);

/// Places by bit, by the number of their wires.
pub type PlaceBits = u32;

const _: () = assert!(MAX_SLOTS < PlaceBits::BITS as usize);

/// The bit of a place.
pub(super) fn bit(at: SlotWire) -> PlaceBits {
    1_u32.checked_shl(at.0.into()).unwrap_or(0)
}

/// What hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hang {
    /// A TLP that came in at a place, which is not taken.
    Incoming(SlotWire),
    /// The PCIe side, which does not send what it has, or does not say what came.
    Side,
}

/// The watch.
#[derive(Debug)]
pub(super) struct PcieWatch {
    next: Instant,
    /// Places, since the last look, from which TLPs were taken, or at which the role refused one.
    moved: PlaceBits,
    /// Places where TLPs wait and none is taken, at so many looks.
    waiting: PlaceBits,
    waited: u8,
    /// Looks at which the PCIe side stood still.
    still: u8,
}

impl PcieWatch {
    pub(super) const fn new() -> Self {
        Self { next: Instant::ZERO, moved: 0, waiting: 0, waited: 0, still: 0 }
    }

    /// An exchange took TLPs from these places, or was refused them by the role.
    pub(super) fn moved(&mut self, places: PlaceBits) {
        self.moved |= places;
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// Looks. What was found to hang, at the look that found it.
    pub(super) fn look(&mut self, now: Instant, pcie: &mut impl PcieSide) -> Option<Hang> {
        self.next = now + LOOK;
        let was_well = self.is_well();
        let held = core::mem::take(&mut self.moved);
        let waiting = |at: &SlotWire| pcie.next(*at, ClassSet::ALL).is_some();
        let places = (0..=MAX_SLOTS as u8).map(SlotWire).filter(|at| held & bit(*at) == 0);
        let waiting = places.filter(waiting).fold(0, |bits, at| bits | bit(at));
        // Those that waited at each look since the first.
        let still = self.waiting & waiting;
        (self.waiting, self.waited) = match still {
            0 => (waiting, u8::from(waiting != 0)),
            still => (still, self.waited.saturating_add(1)),
        };
        self.still = if pcie.stands_still() { self.still.saturating_add(1) } else { 0 };
        let hang = if self.waited > LOOKS {
            Hang::Incoming(SlotWire(self.waiting.trailing_zeros() as u8))
        } else {
            Hang::Side
        };
        (was_well && !self.is_well()).then_some(hang)
    }

    /// Whether nothing hangs.
    pub(super) fn is_well(&self) -> bool {
        self.waited <= LOOKS && self.still <= LOOKS
    }
}

#[cfg(test)]
mod tests;
