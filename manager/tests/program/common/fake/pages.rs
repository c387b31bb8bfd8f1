//! What a pretended proxy answers from its tables, page by page.

use super::{Slot, State};
use proxy_core::control::*;
use proxy_core::limits::{PAGE, RECORDER_PIECE};
use proxy_core::recorder::Entry;
use proxy_core::stamps::StampedTlp;
use tlp_codec::ids::{Bdf, NodeId, OutstandingRef, PortId, SlotFunction, SlotId};

/// One read of the host from each binding that is recorded, again and again: each end's clock
/// counts the pages.
pub(super) fn recorder_page(state: &mut State, host: bool, from: u64) -> RecorderPage {
    state.recorder_pages += 1;
    let time = state.recorder_pages * 1_000_000;
    let entry = OutstandingRef { index: 1, generation: state.recorder_pages as u16 };
    let (ask, answer) = if host {
        ([0, 10, 20, 0, 0, 0], [0, 0, 0, 520, 530, 540])
    } else {
        ([0, 0, 0, 100, 110, 120], [300, 310, 320, 0, 0, 0])
    };
    let mut bytes = heapless::Vec::new();
    for recorded in &state.recorded {
        if recorded.frames > 0 {
            put(&mut bytes, &Entry::Lost { entries: 3 }, &[]);
            continue;
        }
        for (tlp, at) in
            [(StampedTlp::Request(entry), ask), (StampedTlp::Completion(entry), answer)]
        {
            let sends = (tlp == StampedTlp::Request(entry)) == host;
            let here = |stage: usize| (stage < 3) == sends;
            let at = std::array::from_fn(|stage| here(stage).then(|| time + at[stage]));
            let (peer, binding) = (recorded.peer, recorded.binding);
            let stamps = StampEntry { peer, binding, from_host: true, tlp, at };
            let (id, length) = (u32::from(tlp != StampedTlp::Request(entry)), 12);
            if recorded.tlps > 0 {
                let tlp = Entry::Tlp { id, length, stamps: stamps.clone() };
                put(&mut bytes, &tlp, &[0, 0, 0, 1, 0, 0, 5, 0x0f, 0xfe, 0, 0, 0x10]);
            }
            put(&mut bytes, &Entry::Stamps { id, stamps }, &[]);
        }
    }
    let requests = state.recorded.iter().map(|_| state.recorder_pages).collect();
    let end = from + bytes.len() as u64;
    RecorderPage { first: from, end, lost: 0, now: time + 1000, requests, bytes }
}

fn put(page: &mut heapless::Vec<u8, RECORDER_PIECE>, entry: &Entry, bytes: &[u8]) {
    let mut buffer = [0; 128];
    let head = postcard::to_slice(entry, &mut buffer).unwrap();
    page.extend_from_slice(&((head.len() + bytes.len()) as u16).to_le_bytes()).unwrap();
    page.extend_from_slice(head).unwrap();
    page.extend_from_slice(bytes).unwrap();
}

pub(super) fn mapping_page(state: &State, role: RoleKind, from: u16) -> Reply {
    let RoleKind::Host { ports } = role else { unreachable!() };
    let entry = |port: u8| {
        let bound = state.ports.get(&port);
        MappingEntry {
            port: PortId::new(port).unwrap(),
            used: bound.is_some(),
            state: bound.map_or(PortState::Empty, |(_, state)| *state),
            buses: (port + 2, port + 2),
            device: Bdf::from_bits(u16::from(port + 2) << 8),
            memory: bound.map(|_| (0xe000_0000, 0xe00f_ffff)),
            prefetchable: None,
            io: None,
            box_node: bound.map_or(0, |(b, _)| b.box_node.get()),
            slot: bound.map_or(0, |(b, _)| b.slot.get()),
            functions: bound.map(|(b, _)| b.functions.clone()).unwrap_or_default(),
            path_set: bound.map_or(PathSet::FIRST, |(b, _)| b.path_set),
            configured: state.enumerates
                && bound.is_some_and(|(_, state)| *state == PortState::Present),
        }
    };
    let from = from.min(ports.into()) as u8;
    let entries = (from..ports).map(entry).take(PAGE).collect();
    Reply::Mapping { root_complex: state.root_complex, entries, next: None }
}

pub(super) fn slot_page(state: &State, from: u16) -> Reply {
    let entry = |(index, slot): (usize, &Slot)| SlotEntry {
        entry: index as u16,
        valid: slot.state != SlotState::Empty,
        used: slot.bound.is_some(),
        state: slot.state,
        slot: SlotId::new(index as u8 + 1).unwrap(),
        function: SlotFunction::ZERO,
        host_node: slot.bound.as_ref().map_or(0, |b| b.host.get()),
        path_set: slot.bound.as_ref().map_or(PathSet::FIRST, |b| b.path_set),
        epoch: slot.highest,
        windows: slot.bound.as_ref().map(|b| b.windows.clone()).unwrap_or_default(),
    };
    let (from, end) = page_of(state.slots.len(), from);
    let entries = state.slots.iter().enumerate().take(end).skip(from).map(entry).collect();
    Reply::Slots { entries, next: (end < state.slots.len()).then_some(end as u16) }
}

/// Two entries a page, so that there are several pages.
fn page_of(count: usize, from: u16) -> (usize, usize) {
    let from = usize::from(from).min(count);
    (from, (from + 2).min(count))
}

/// Whether it is known which device is in a slot: there is one, and the box has looked at it.
fn is_known(slot: &Slot) -> bool {
    !matches!(slot.state, SlotState::Empty | SlotState::Probing)
}

/// What the device in a slot has for a serial number: its own, else one of box and slot.
pub(super) fn serial_of(node: Option<NodeId>, index: u8, slot: &Slot) -> u64 {
    if !is_known(slot) {
        return 0;
    }
    let number = node.map_or(0, |node| u64::from(node.get()));
    slot.serial.unwrap_or(0x1122_3344_0000_7700 + (number << 16) + u64::from(index))
}

pub fn inventory_page(state: &State, from: u16) -> Reply {
    let entry = |(index, slot): (usize, &Slot)| InventoryEntry {
        slot: SlotId::new(index as u8 + 1).unwrap(),
        function: SlotFunction::ZERO,
        state: slot.state,
        model: Name::try_from(slot.model.as_str()).unwrap(),
        id: if is_known(slot) { (0x1af4, slot.device) } else { (0, 0) },
        subsystem: if is_known(slot) { (0x1af4, 1) } else { (0, 0) },
        class: if is_known(slot) { 0x01_0802 } else { 0 },
        revision: u8::from(is_known(slot)),
        serial: serial_of(state.node, index as u8, slot),
        bars: [16384, 0, 1 << 20, 0, 0, 0],
        highest_epoch: slot.highest,
    };
    let (from, end) = page_of(state.slots.len(), from);
    let entries = state.slots.iter().enumerate().take(end).skip(from).map(entry).collect();
    Reply::Inventory { entries, next: (end < state.slots.len()).then_some(end as u16) }
}

pub(super) fn counter_page(state: &State, from: u16) -> Reply {
    let name = |text: &str| Name::try_from(text).unwrap();
    let (entries, next) = match from {
        0 => ([(name("frames.sent"), 3), (name("frames.bad_crc"), 0)], Some(2)),
        _ => ([(name("tlps.sent"), 7), (name("tlps.dropped"), 1)], None),
    };
    let own = state.counters.iter().filter(|_| from != 0);
    let own = own.map(|(text, value)| (name(text), *value));
    Reply::Counters { entries: entries.into_iter().chain(own).collect(), next }
}
