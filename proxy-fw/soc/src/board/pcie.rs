//! The user side of the PCIe block: TLPs in both directions, and the wires beside them.

use proxy_core::boxes::SlotSignal;
use proxy_core::config_space::ResetKind;
use proxy_core::control::Name;
use proxy_core::limits::MAX_SLOTS;
use proxy_core::link::ClassSet;

/// A place where TLPs go in and out: on a box the device of a slot, numbered from 1; on a host
/// the root port, which is [`SlotWire::HOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotWire(pub u8);

impl SlotWire {
    /// The host's root port.
    pub const HOST: Self = Self(0);
}

/// TLPs by class (posted, non-posted, completion) that are stored at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows(pub [u8; 3]);

impl Windows {
    /// Of all classes.
    pub const fn total(self) -> usize {
        let [posted, non_posted, completion] = self.0;
        posted as usize + non_posted as usize + completion as usize
    }

    /// Those of each slot of a box with so many (at least 1), which share the memory that [`MAX_SLOTS`]
    /// with these have: the more wait at a slot, the more TLPs share a frame and a turn. Of no class are
    /// there more than `most`.
    pub fn of_each(self, slots: u8, most: Self) -> Self {
        let times = MAX_SLOTS / usize::from(slots).clamp(1, MAX_SLOTS);
        let each = |class: usize| (usize::from(self.0[class]) * times).min(most.0[class].into());
        Self([0, 1, 2].map(|class| each(class) as u8))
    }
}

/// What happened at the PCIe side beside TLPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Box: a device is in the slot, of this model as the board's configuration calls it.
    Inserted(SlotWire, Name),
    /// Box: no device is in the slot any more.
    Removed(SlotWire),
    /// Host: the root complex resets the card's link, or asserts PERST#.
    Reset(ResetKind),
    /// Host: a root complex is there, or is none any more.
    RootComplex(bool),
}

/// The PCIe side of a card. No call waits.
pub trait PcieSide {
    /// The next thing that happened beside TLPs. It happened before the TLPs that
    /// [`next`](Self::next) gives now.
    fn happening(&mut self) -> Option<Happening>;

    /// Whether the last look left something that came in, so that the next should not wait for an
    /// interrupt.
    fn has_more(&self) -> bool;

    /// The TLP that comes next at a place, of those that came in and are of one of these classes.
    /// It passes others only where PCI Express lets it (Base 5.0, section 2.4.1): posted ones pass
    /// what is no posted one, completions pass non-posted ones.
    fn next(&mut self, at: SlotWire, of: ClassSet) -> Option<&[u8]>;

    /// Takes away the TLP that [`next`](Self::next) gave last at a place, which makes room for a
    /// further one.
    fn take(&mut self, at: SlotWire);

    /// Which classes of TLPs can go out at a place now.
    fn room(&mut self, at: SlotWire) -> ClassSet;

    /// Sends out, at a place that has [room](Self::room) for its class, the TLP that `write` writes
    /// into the [`TLP_BUFFER`] bytes that it gets, as long as it says. `None` of it: nothing is
    /// sent. Whether something was.
    ///
    /// [`TLP_BUFFER`]: proxy_core::limits::TLP_BUFFER
    ///
    /// # Panics
    ///
    /// May panic when there is no room.
    fn send_with(&mut self, at: SlotWire, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool;

    /// As [`send_with`](Self::send_with), a TLP that is there already.
    ///
    /// # Panics
    ///
    /// When there is no room.
    fn send(&mut self, at: SlotWire, tlp: &[u8]) {
        let sent = self.send_with(at, |room| {
            room[..tlp.len()].copy_from_slice(tlp);
            Some(tlp.len())
        });
        assert!(sent, "there was room");
    }

    /// Whether a slot's wires can be driven now.
    fn can_signal(&mut self, at: SlotWire) -> bool;

    /// Drives a slot's wires, behind the TLPs that were sent before; until they are driven there is
    /// [room](Self::room) for none. What came in from the slot
    /// and was not taken is thrown away: a device that is reset says nothing any more.
    ///
    /// # Panics
    ///
    /// May panic when it [cannot](Self::can_signal) now.
    fn signal(&mut self, at: SlotWire, signal: SlotSignal);

    /// Whether it stands still: it has TLPs for which there was room, and has sent none of them since
    /// this was asked last, or it has stopped. What waits until a device or a root complex has room
    /// is no standstill. Asked some times a second; when it is said time and again, the watchdog is
    /// left to bite.
    fn stands_still(&mut self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_slots_share_what_all_have() {
        let (sixteenth, most) = (Windows([7, 2, 4]), Windows([32, 16, 32]));
        let all = MAX_SLOTS as u8;
        assert_eq!(sixteenth.of_each(all, most), sixteenth);
        assert_eq!(sixteenth.of_each(4, most), Windows([28, 8, 16]));
        assert_eq!(sixteenth.of_each(1, most), most);
        for slots in 1..=all {
            let each = sixteenth.of_each(slots, most);
            assert!(each.total() * usize::from(slots) <= sixteenth.total() * MAX_SLOTS, "{slots}");
            assert!(each.0.iter().zip(sixteenth.0).all(|(each, least)| *each >= least), "{slots}");
        }
    }
}
