//! What of a proxy's report can be; pure.

use crate::types::NodeName;
use proxy_core::control::{InventoryEntry, MappingEntry, SlotEntry};
use proxy_core::limits::MAX_FUNCTIONS;
use std::collections::BTreeSet;
use tlp_codec::ids::{SlotFunction, SlotId};

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
    let mut places = Places { name, size, seen: BTreeSet::new() };
    which(name, entries, |entry| places.see(entry.slot, entry.function))
}

/// As [`inventory`], of a box's table.
pub fn slots(name: &NodeName, size: u8, table: Vec<SlotEntry>) -> (Vec<SlotEntry>, Vec<String>) {
    let mut places = Places { name, size, seen: BTreeSet::new() };
    which(name, table, |entry| places.see(entry.slot, entry.function))
}

/// As [`inventory`], of the table of a host with so many ports: an entry for each.
pub fn ports(
    name: &NodeName,
    ports: u8,
    table: Vec<MappingEntry>,
) -> (Vec<MappingEntry>, Vec<String>) {
    let mut seen = BTreeSet::new();
    which(name, table, |MappingEntry { port, functions, .. }| {
        let beyond = |(function, _): &&(SlotFunction, _)| is_beyond(*function);
        if port.get() >= ports {
            let last = ports.saturating_sub(1);
            Some(format!("{name} reports port {port}; its ports are 0 to {last}"))
        } else if let Some((function, _)) = functions.iter().find(beyond) {
            Some(format!(
                "{name} reports function {function} at port {port}; no device is lent in more than \
                 {MAX_FUNCTIONS}"
            ))
        } else if !seen.insert(*port) {
            Some(format!("{name} reports port {port} more than once"))
        } else {
            None
        }
    })
}

fn is_beyond(function: SlotFunction) -> bool {
    usize::from(function.get()) >= MAX_FUNCTIONS
}

/// The slots and functions of a box that its report has said something of.
struct Places<'a> {
    name: &'a NodeName,
    size: u8,
    seen: BTreeSet<(SlotId, SlotFunction)>,
}

impl Places<'_> {
    /// What is wrong with one more.
    fn see(&mut self, slot: SlotId, function: SlotFunction) -> Option<String> {
        let Self { name, size, seen } = self;
        if slot.get() == 0 || slot.get() > *size {
            Some(format!("{name} reports a device in slot {slot}; its slots are 1 to {size}"))
        } else if is_beyond(function) {
            Some(format!(
                "{name} reports function {function} of slot {slot}; no device is lent in more than \
                 {MAX_FUNCTIONS}"
            ))
        } else if !seen.insert((slot, function)) {
            Some(format!("{name} reports function {function} of slot {slot} more than once"))
        } else {
            None
        }
    }
}

/// The entries with which nothing is wrong, and what is wrong with the others.
fn which<E>(
    name: &NodeName,
    entries: Vec<E>,
    mut is_wrong: impl FnMut(&E) -> Option<String>,
) -> (Vec<E>, Vec<String>) {
    let (mut sound, mut complaints) = (Vec::with_capacity(entries.len()), Vec::new());
    let mut more = 0_usize;
    for entry in entries {
        let Some(complaint) = is_wrong(&entry) else {
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
    use super::super::diff::tests::mapping;
    use super::*;
    use proxy_core::control::{Name, PathSet, PortState, SlotState};
    use tlp_codec::ids::Epoch;

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

    /// Else the epochs of slots and functions that cannot be would fill the records.
    #[test]
    fn tables_say_of_what_is_there_only() {
        let name = NodeName::new("box1").unwrap();
        let entry = |slot, function| SlotEntry {
            entry: 0,
            valid: true,
            used: false,
            state: SlotState::Free,
            slot: SlotId::new(slot).unwrap(),
            function: SlotFunction::new(function).unwrap(),
            host_node: 0,
            path_set: PathSet::FIRST,
            epoch: 7,
            windows: heapless::Vec::new(),
        };
        let whole = vec![entry(1, 0), entry(2, 0), entry(2, 7)];
        assert_eq!(slots(&name, 2, whole.clone()), (whole.clone(), Vec::new()));
        let wrong = [entry(0, 0), entry(3, 0), entry(1, 8), entry(2, 7)];
        let (sound, said) = slots(&name, 2, [whole.clone(), wrong.to_vec()].concat());
        assert_eq!((sound, said.len()), (whole, 4), "{said:?}");

        let name = NodeName::new("host1").unwrap();
        let entry = |port, function| {
            let functions = [(SlotFunction::new(function).unwrap(), Epoch::new(0, 1).unwrap())];
            let functions = functions.into_iter().collect();
            MappingEntry { functions, ..mapping(port, 1, 1, PortState::Present) }
        };
        let whole = vec![entry(0, 0), entry(1, 7)];
        assert_eq!(ports(&name, 2, whole.clone()), (whole.clone(), Vec::new()));
        let wrong = [entry(2, 0), entry(31, 0), entry(1, 0)];
        let (sound, said) = ports(&name, 2, [whole.clone(), wrong.to_vec()].concat());
        assert_eq!(sound, whole, "the first of two counts");
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("port 2; its ports are 0 to 1"), "{said:?}");
        assert_eq!(ports(&name, 2, vec![entry(0, 8)]).0, []);
    }
}
