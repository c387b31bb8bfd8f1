//! Whether a slot can be lent, as far as the records know.

use super::super::Tables;
use crate::types::{DeviceRecord, DeviceState, ErasureState, SlotAddress, SlotStatus};

impl Tables {
    /// What can be done with a slot. Placement takes no slot that is not free by this; whatever
    /// this goes by has to enter the slot anew when it changes.
    pub fn slot_status(&self, slot: &SlotAddress) -> SlotStatus {
        if let Some(binding) = self.binding_at_slot(slot) {
            return match binding.desired.is_release() {
                true => SlotStatus::Releasing,
                false => SlotStatus::Used,
            };
        }
        let there = |d: &&DeviceRecord| d.state != DeviceState::Empty;
        let (mut empty, mut worst) = (true, SlotStatus::Free);
        for device in self.functions(slot).filter(there) {
            empty = false;
            let status = match device.state {
                DeviceState::Quarantined => SlotStatus::Quarantined,
                DeviceState::Bound => SlotStatus::Stray,
                DeviceState::Releasing => SlotStatus::Releasing,
                DeviceState::Probing => SlotStatus::Probing,
                DeviceState::Free | DeviceState::Empty => SlotStatus::Free,
            };
            if rank(status) > rank(worst) {
                worst = status;
            }
        }
        let erasure = self.erasure_at(slot).map(|erasure| match erasure.state {
            ErasureState::Running if erasure.slot == *slot => SlotStatus::Erasing,
            _ => SlotStatus::Unerased,
        });
        match (worst, erasure) {
            _ if empty => SlotStatus::Empty,
            (_, Some(status)) => status,
            (SlotStatus::Quarantined, _) => worst,
            _ if self.same_serial(slot).next().is_some() => SlotStatus::Contested,
            _ if self.hold_of(slot).is_some() => SlotStatus::Held,
            (SlotStatus::Free, None) if self.is_exhausted(slot) => SlotStatus::Exhausted,
            _ => worst,
        }
    }

    /// Whether a function in the slot has had all its epochs.
    fn is_exhausted(&self, slot: &SlotAddress) -> bool {
        let there = |d: &&DeviceRecord| d.state != DeviceState::Empty;
        self.functions(slot).filter(there).any(|device| self.next_epoch(&device.address).is_none())
    }
}

/// Of several functions' states, the one with the highest rank is the slot's.
const fn rank(status: SlotStatus) -> u8 {
    match status {
        SlotStatus::Quarantined => 4,
        SlotStatus::Stray => 3,
        SlotStatus::Releasing => 2,
        SlotStatus::Probing => 1,
        _ => 0,
    }
}
