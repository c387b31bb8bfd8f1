//! What is at the places of a card.

use crate::board::{PlaceState, Places, SlotWire};
use proxy_core::boxes::BoxRole;
use proxy_core::control::SlotState;
use proxy_core::host::HostRole;
use tlp_codec::ids::SlotId;

/// Those of a box: its slots.
pub(super) fn of_box(role: &BoxRole) -> Places {
    of_slots(role.slots(), role.slot_entries().map(|entry| (entry.slot, entry.state)))
}

/// Those of slots, by the states of the functions in them.
fn of_slots(
    slots: impl Iterator<Item = SlotId>,
    functions: impl Iterator<Item = (SlotId, SlotState)>,
) -> Places {
    let mut places: Places = slots.map(|slot| (SlotWire(slot.get()), PlaceState::Empty)).collect();
    for (slot, function) in functions {
        let at = places.iter_mut().find(|(at, _)| at.0 == slot.get());
        let (_, state) = at.expect("a function is in a slot");
        *state = (*state).max(function.into());
    }
    places
}

/// That of a host: its root complex.
pub(super) fn of_host(role: &HostRole) -> Places {
    let ports = role.switch().port_ids();
    let ports = ports.map(|port| PlaceState::from(role.mapping_entry(port).state));
    let state = if role.has_root_complex() { ports.max() } else { None };
    [(SlotWire::HOST, state.unwrap_or(PlaceState::Empty))].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::CardRole;
    use PlaceState::{Changing, Empty, Failed, Free, InUse};
    use core::time::Duration;
    use proxy_core::boxes::BoxConfig;
    use proxy_core::control::{Name, PortState};
    use proxy_core::host::HostConfig;
    use proxy_core::role::Role;
    use proxy_core::time::Instant;
    use std::vec::Vec;

    fn states(role: &impl CardRole) -> Vec<(u8, PlaceState)> {
        role.places().iter().map(|(at, state)| (at.0, *state)).collect()
    }

    #[test]
    fn a_slot_is_what_its_device_is() {
        let mut role = BoxRole::new(&BoxConfig { slots: 3, recorder: 0, ..BoxConfig::default() });
        let of_second = |state| [(1, Empty), (2, state), (3, Empty)];
        assert_eq!(states(&role), of_second(Empty));
        let (slot, now) = (SlotId::new(2).unwrap(), Instant::ZERO + Duration::from_secs(1));
        role.device_inserted(now, slot, Name::try_from("silent").unwrap());
        assert_eq!(states(&role), of_second(Changing));
        // It answers nothing.
        for tenths in 0..100 {
            let now = now + Duration::from_millis(100 * tenths);
            let mut tlp = [0; proxy_core::limits::TLP_BUFFER];
            while role.poll_tlp(now, slot, proxy_core::link::ClassSet::ALL, &mut tlp).is_some() {}
            role.handle_timeout(now);
        }
        assert_eq!(states(&role), of_second(Failed));
        role.device_removed(now, slot);
        assert_eq!(states(&role), of_second(Empty));
    }

    #[test]
    fn a_slot_of_several_functions_is_in_use_when_one_is() {
        let slots = [1, 2].map(|slot| SlotId::new(slot).unwrap());
        use SlotState::{Bound, Quarantined, Releasing};
        let functions = [
            (slots[0], SlotState::Free),
            (slots[0], Bound),
            (slots[0], Releasing),
            (slots[1], Quarantined),
            (slots[1], SlotState::Free),
        ];
        let places = of_slots(slots.into_iter(), functions.into_iter());
        assert_eq!(places, [(SlotWire(1), InUse), (SlotWire(2), Failed)]);
    }

    #[test]
    fn a_hosts_place_is_its_root_complex() {
        let mut role = HostRole::new(&HostConfig::default()).unwrap();
        assert_eq!(states(&role), [(0, Empty)]);
        role.set_root_complex(true);
        assert_eq!(states(&role), [(0, Free)]);
        role.set_root_complex(false);
        assert_eq!(states(&role), [(0, Empty)]);
    }

    #[test]
    fn of_several_the_one_counts_that_is_in_use_and_then_the_one_that_changes() {
        let slots = [
            (SlotState::Empty, Empty),
            (SlotState::Free, Free),
            (SlotState::Quarantined, Failed),
            (SlotState::Probing, Changing),
            (SlotState::Releasing, Changing),
            (SlotState::Bound, InUse),
        ];
        let ports = [
            (PortState::Empty, Free),
            (PortState::Placeholder, Free),
            (PortState::Failed, Failed),
            (PortState::Linking, Changing),
            (PortState::Removing, Changing),
            (PortState::Present, InUse),
        ];
        let slots = slots.map(|(of, state)| (PlaceState::from(of), state));
        let ports = ports.map(|(of, state)| (PlaceState::from(of), state));
        for of in [slots, ports] {
            assert!(of.iter().all(|(found, expected)| found == expected), "{of:?}");
            assert!(of.is_sorted());
        }
    }
}
