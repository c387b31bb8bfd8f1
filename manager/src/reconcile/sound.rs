//! What of a box's report can be; pure.

use crate::types::NodeName;
use proxy_core::control::InventoryEntry;
use proxy_core::limits::MAX_FUNCTIONS;
use std::collections::BTreeSet;

/// Complaints about one report; of further ones only the number is said.
pub const MAX_COMPLAINTS: usize = 8;

/// The entries of an inventory that can be, and what is wrong with the others, for a person: a slot
/// that a box of `size` slots does not have, a function that no binding has room for, or one that was there
/// before. Of two entries of
/// one function the first counts.
pub fn inventory(
    name: &NodeName,
    size: u8,
    entries: Vec<InventoryEntry>,
) -> (Vec<InventoryEntry>, Vec<String>) {
    let mut seen = BTreeSet::new();
    let (mut sound, mut complaints) = (Vec::with_capacity(entries.len()), Vec::new());
    let mut more = 0_usize;
    for entry in entries {
        let (slot, function) = (entry.slot, entry.function);
        let complaint = if slot.get() == 0 || slot.get() > size {
            format!("{name} reports a device in slot {slot}; its slots are 1 to {size}")
        } else if usize::from(function.get()) >= MAX_FUNCTIONS {
            format!(
                "{name} reports function {function} of slot {slot}; no device is lent in more than \
                 {MAX_FUNCTIONS}"
            )
        } else if !seen.insert((slot, function)) {
            format!("{name} reports function {function} of slot {slot} more than once")
        } else {
            sound.push(entry);
            continue;
        };
        if complaints.contains(&complaint) {
            continue;
        }
        if complaints.len() < MAX_COMPLAINTS { complaints.push(complaint) } else { more += 1 }
    }
    if more > 0 {
        complaints.push(format!("{name}: and {more} more entries that cannot be"));
    }
    (sound, complaints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy_core::control::{Name, SlotState};
    use tlp_codec::ids::{SlotFunction, SlotId};

    fn entry(slot: u8, model: &str) -> InventoryEntry {
        InventoryEntry {
            slot: SlotId::new(slot).unwrap(),
            function: SlotFunction::ZERO,
            state: SlotState::Free,
            model: Name::try_from(model).unwrap(),
            id: (1, 2),
            subsystem: (1, 2),
            class: 0x01_0802,
            revision: 0,
            serial: slot.into(),
            bars: [0; 6],
            highest_epoch: 0,
        }
    }

    #[test]
    fn what_cannot_be_is_left_out_and_named() {
        let name = NodeName::new("box1").unwrap();
        let whole: Vec<_> = (1..=4).map(|slot| entry(slot, "a")).collect();
        assert_eq!(inventory(&name, 4, whole.clone()), (whole.clone(), Vec::new()));
        let mut lies = whole.clone();
        lies.extend([entry(2, "b"), entry(2, "c"), entry(5, "a"), entry(255, "a")]);
        let function = |number| {
            let function = SlotFunction::new(number).unwrap();
            InventoryEntry { function, ..entry(3, "a") }
        };
        let all = [whole.clone(), (1..8).map(function).collect()].concat();
        assert_eq!(inventory(&name, 4, all.clone()), (all.clone(), Vec::new()));
        let more = [all.clone(), vec![function(8), function(255)]].concat();
        let (left, said) = inventory(&name, 4, more);
        assert_eq!((left, said.len()), (all, 2));
        assert!(said[0].contains("function 8 of slot 3"), "{said:?}");
        let (sound, complaints) = inventory(&name, 4, lies);
        assert_eq!(sound, whole, "the first of two counts");
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[0].contains("more than once"), "{complaints:?}");
        assert!(complaints[1].contains("slot 5; its slots are 1 to 4"), "{complaints:?}");
    }

    #[test]
    fn complaints_have_an_end() {
        let name = NodeName::new("box1").unwrap();
        let lies: Vec<_> = (2..=255).map(|slot| entry(slot, "a")).collect();
        let (sound, complaints) = inventory(&name, 1, lies);
        assert_eq!((sound.len(), complaints.len()), (0, MAX_COMPLAINTS + 1));
        assert!(complaints.last().unwrap().contains("246 more"), "{complaints:?}");
    }
}
