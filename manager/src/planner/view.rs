//! The pool as placement sees it.

use crate::records::Tables;
use crate::types::{
    DeviceRecord, DeviceState, ErasureState, NodeName, Owner, Role, SlotAddress, SlotStatus,
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

impl SlotView {
    /// Whether the model is the one that is wanted, if one is.
    pub fn has_model(&self, wanted: Option<&str>) -> bool {
        wanted.is_none_or(|wanted| wanted.eq_ignore_ascii_case(&self.model))
    }

    fn of(tables: &Tables, address: SlotAddress) -> Self {
        let functions: Vec<&DeviceRecord> =
            tables.functions(&address).filter(|d| d.state != DeviceState::Empty).collect();
        let binding = tables.binding_at_slot(&address);
        let erasure = tables.erasure_at(&address).map(|erasure| match erasure.state {
            ErasureState::Running => SlotStatus::Erasing,
            _ => SlotStatus::Unerased,
        });
        let any = |state| functions.iter().any(|d| d.state == state);
        let status = match binding {
            Some(binding) if binding.desired.is_release() => SlotStatus::Releasing,
            Some(_) => SlotStatus::Used,
            None if functions.is_empty() => SlotStatus::Empty,
            None if let Some(status) = erasure => status,
            None if any(DeviceState::Quarantined) => SlotStatus::Quarantined,
            None if tables.hold_of(&address).is_some() => SlotStatus::Held,
            None if any(DeviceState::Bound) => SlotStatus::Stray,
            None if any(DeviceState::Releasing) => SlotStatus::Releasing,
            None if any(DeviceState::Probing) => SlotStatus::Probing,
            None => SlotStatus::Free,
        };
        Self {
            status,
            model: functions.first().map(|d| d.model.clone()).unwrap_or_default(),
            functions: functions.iter().map(|d| d.address.function).collect(),
            owner: binding.map(|binding| Owner {
                host: binding.host.clone(),
                allocation: binding.allocation,
                since: binding.since,
            }),
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
    /// Whether a proxy is connected and its tables have been read.
    fn is_ready(&self, name: &NodeName) -> bool;

    /// Whether a proxy is connected and its tables are being read.
    fn is_connecting(&self, name: &NodeName) -> bool;

    /// Ports of a host that its table shows in use although no record says so.
    fn stray_ports(&self, host: &NodeName) -> BTreeSet<PortId>;

    /// That a host has no root complex and what comes of that, for a person who lends it
    /// something; nothing if it has one.
    fn without_root_complex(&self, host: &NodeName) -> Option<String>;
}

impl PoolView {
    /// The pool as the records and the connections have it.
    pub fn of(tables: &Tables, live: &impl Liveness) -> Self {
        let mut pool = Self::default();
        for (name, node) in tables.nodes() {
            let (connected, connecting) = (live.is_ready(name), live.is_connecting(name));
            match node.role {
                Role::Host => {
                    let stray = live.stray_ports(name);
                    let free = |port: &PortId| {
                        tables.binding_at_port(name, *port).is_none() && !stray.contains(port)
                    };
                    let ports = (0..node.size).filter_map(|port| PortId::new(port).ok());
                    let free_ports = ports.filter(free).collect();
                    let view = HostView { connected, ports: node.size, free_ports };
                    pool.hosts.insert(name.clone(), view);
                }
                Role::Box => {
                    let slots = slots(tables, name, node.size);
                    let view = BoxView { connected, connecting, size: node.size, slots };
                    pool.boxes.insert(name.clone(), view);
                }
            }
        }
        pool
    }
}

fn slots(tables: &Tables, name: &NodeName, size: u8) -> Vec<SlotView> {
    let addresses = (1..=size).map(|slot| {
        let slot = SlotId::new(slot).expect("every byte is a slot number");
        SlotAddress::new(name.clone(), slot).expect("they begin with 1")
    });
    addresses.map(|address| SlotView::of(tables, address)).collect()
}
