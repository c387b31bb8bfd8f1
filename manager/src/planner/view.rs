//! The pool as placement sees it.

use super::held::held_slot;
use crate::records::Tables;
use crate::types::{
    BindingRecord, DeviceRecord, DeviceState, NodeName, Owner, Role, SlotAddress, SlotStatus,
};
use std::collections::{BTreeMap, BTreeSet};
use tlp_codec::ids::{PortId, SlotFunction, SlotId};

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// Whether it is connected and its table is known.
    pub connected: bool,
    /// Its ports.
    pub ports: u8,
    /// Those that nothing uses, lowest first.
    pub free_ports: Vec<PortId>,
}

/// A slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// Where it is.
    pub address: SlotAddress,
    /// What can be done with it.
    pub status: SlotStatus,
    /// The first function's model, or empty.
    pub model: String,
    /// Its functions, lowest first; empty where there is no device.
    pub functions: Vec<SlotFunction>,
    /// Who has it.
    pub owner: Option<Owner>,
}

/// The functions of what is in a slot, lowest first.
pub(super) fn functions<'a>(
    tables: &'a Tables,
    address: &SlotAddress,
) -> impl Iterator<Item = &'a DeviceRecord> {
    tables.functions(address).filter(|d| d.state != DeviceState::Empty)
}

/// That a slot that is not lent is not free: what is with it, and since when.
pub(super) fn not_free(tables: &Tables, slot: &SlotAddress, status: SlotStatus) -> String {
    use SlotStatus::{Erasing, Held, Probing, Quarantined, Releasing, Stray, Unerased};
    if let Some(hold) = tables.hold_of(slot).filter(|_| status == Held) {
        return held_slot(slot, hold);
    }
    let since = match status {
        Erasing | Unerased => {
            let erasure = tables.erasure_at(slot);
            erasure.map(|erasure| format!(" ({}, since {})", erasure.id, erasure.since))
        }
        Releasing | Probing | Stray | Quarantined => {
            // Of several functions, the one that became so last.
            let since = functions(tables, slot).map(|device| device.since).max();
            since.map(|since| format!(" (since {since})"))
        }
        _ => None,
    };
    format!("slot {slot} {}{}", status.explanation(), since.unwrap_or_default())
}

/// The ports of a host that nothing uses, lowest first.
pub fn free_ports(tables: &Tables, live: &impl Liveness, name: &NodeName) -> Vec<PortId> {
    let size = tables.nodes().get(name).map_or(0, |node| node.size);
    let mut used = live.stray_ports(name);
    used.extend(tables.bindings_at(name).filter(|b| b.host == *name).map(|b| b.port));
    let ports = (0..size).filter_map(|port| PortId::new(port).ok());
    ports.filter(|port| !used.contains(port)).collect()
}

impl SlotView {
    /// Whether the model is the one that is wanted, if one is.
    pub fn has_model(&self, wanted: Option<&str>) -> bool {
        wanted.is_none_or(|wanted| wanted.eq_ignore_ascii_case(&self.model))
    }

    /// A slot as the records have it.
    pub fn of(tables: &Tables, address: SlotAddress) -> Self {
        let owner = tables.binding_at_slot(&address).map(BindingRecord::owner);
        Self {
            status: tables.slot_status(&address),
            model: tables.model_in(&address).to_owned(),
            functions: functions(tables, &address).map(|d| d.address.function).collect(),
            owner,
            address,
        }
    }
}

/// A box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxView {
    /// Whether it is connected and its tables are known.
    pub connected: bool,
    /// Whether it is connected and its tables are being read.
    pub connecting: bool,
    /// Its slots by number, numbered from 1.
    pub size: u8,
    /// Every slot.
    pub slots: Vec<SlotView>,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// Hosts.
    pub hosts: BTreeMap<NodeName, HostView>,
    /// Boxes.
    pub boxes: BTreeMap<NodeName, BoxView>,
}

/// What is known of connected proxies besides the records.
pub trait Liveness {
    /// Whether a proxy is connected, its tables have been read, and it is not about to restart.
    fn is_ready(&self, name: &NodeName) -> bool;

    /// Whether a proxy is connected and its tables are being read, or is about to restart, or may be
    /// on its way back to a manager that has just started.
    fn is_connecting(&self, name: &NodeName) -> bool;

    /// How many paths a proxy has, if it is connected.
    fn paths(&self, name: &NodeName) -> Option<usize> {
        let _ = name;
        None
    }

    /// Ports of a host that its table shows in use although no record says so.
    fn stray_ports(&self, host: &NodeName) -> BTreeSet<PortId>;

    /// That a host has no root complex and what comes of that, for a person who lends it
    /// something; nothing if it has one.
    fn without_root_complex(&self, host: &NodeName) -> Option<String>;
}

/// Everybody is there and every port is free but those that the records say: for models and
/// measurements of placement alone.
#[derive(Clone, Copy, Debug)]
pub struct Everybody;

impl Liveness for Everybody {
    fn is_ready(&self, _: &NodeName) -> bool {
        true
    }

    fn is_connecting(&self, _: &NodeName) -> bool {
        false
    }

    fn stray_ports(&self, _: &NodeName) -> BTreeSet<PortId> {
        BTreeSet::new()
    }

    fn without_root_complex(&self, _: &NodeName) -> Option<String> {
        None
    }
}

impl PoolView {
    /// The pool as the records and the connections have it.
    pub fn of(tables: &Tables, live: &impl Liveness) -> Self {
        let mut pool = Self::default();
        for (name, node) in tables.nodes() {
            let (connected, connecting) = (live.is_ready(name), live.is_connecting(name));
            match node.role {
                Role::Host => {
                    let free_ports = free_ports(tables, live, name);
                    let view = HostView { connected, ports: node.size, free_ports };
                    pool.hosts.insert(name.clone(), view);
                }
                Role::Box => {
                    let slots = slots(tables, name, node.size).collect();
                    let view = BoxView { connected, connecting, size: node.size, slots };
                    pool.boxes.insert(name.clone(), view);
                }
            }
        }
        pool
    }
}

/// The slots of a box, by number.
pub fn slots<'a>(
    tables: &'a Tables,
    name: &'a NodeName,
    size: u8,
) -> impl Iterator<Item = SlotView> + use<'a> {
    let addresses = (1..=size).map(move |slot| {
        let slot = SlotId::new(slot).expect("every byte is a slot number");
        SlotAddress::new(name.clone(), slot).expect("they begin with 1")
    });
    addresses.map(move |address| SlotView::of(tables, address))
}
