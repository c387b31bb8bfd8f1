//! Placement on small pools that are made here.

mod brute;
mod by_slot;
mod held;
mod rules;

use super::*;
use crate::records::Txn;
use crate::types::{
    AllocationId, AllocationRecord, BindingId, BindingRecord, Desired, DeviceRecord, DeviceState,
    FunctionAddress, FunctionEpoch, HoldKind, HoldRecord, Inventory, NodeRecord, PciIdentity,
    Phase, Timestamp,
};
use std::collections::BTreeSet;
use tlp_codec::ids::Epoch;

pub(super) fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn time() -> Timestamp {
    Timestamp::try_from("2026-01-01T00:00:00.000Z".to_owned()).unwrap()
}

/// A pool that is being made.
pub(super) struct Pool {
    txn: Txn,
    away: BTreeSet<NodeName>,
    connecting: BTreeSet<NodeName>,
    next_binding: u64,
    next_port: u8,
    /// Spares that are kept.
    pub(super) spares: SparesConfig,
}

impl Pool {
    pub(super) fn new() -> Self {
        let txn = Txn::new(Tables::default());
        let (away, connecting) = (BTreeSet::new(), BTreeSet::new());
        let mut pool = Self {
            txn,
            away,
            connecting,
            next_binding: 1,
            next_port: 0,
            spares: SparesConfig::default(),
        };
        pool.node("other", Role::Host, 255);
        pool
    }

    fn node(&mut self, text: &str, role: Role, size: u8) {
        let known = self.txn.nodes().get(&name(text)).map(|node| node.node);
        let node = known.unwrap_or_else(|| self.txn.new_node_id().unwrap());
        let record = NodeRecord::new(name(text), node, role, size, time());
        self.txn.put_node(record);
    }

    /// A host with so many ports, of which those are used.
    pub(super) fn host(&mut self, text: &str, ports: u8, used: &[u8]) {
        self.node(text, Role::Host, ports);
        for port in used {
            let slot = format!("fill-{text}/{}", port + 1);
            self.bind(&slot, text, *port, Desired::Bound);
        }
    }

    pub(super) fn away(&mut self, text: &str) {
        self.away.insert(name(text));
    }

    /// A box with these slots: what can be done with each and its model.
    pub(super) fn add_box(&mut self, text: &str, slots: &[(SlotStatus, &str)]) {
        self.node(text, Role::Box, slots.len() as u8);
        for (index, (status, model)) in slots.iter().enumerate() {
            self.slot(&format!("{text}/{}", index + 1), *status, model);
        }
    }

    pub(super) fn slot(&mut self, text: &str, status: SlotStatus, model: &str) {
        let state = match status {
            SlotStatus::Empty
            | SlotStatus::Held
            | SlotStatus::Erasing
            | SlotStatus::Unerased
            | SlotStatus::Exhausted
            | SlotStatus::Contested => {
                return;
            }
            SlotStatus::Free => DeviceState::Free,
            SlotStatus::Used | SlotStatus::Stray => DeviceState::Bound,
            SlotStatus::Releasing => DeviceState::Releasing,
            SlotStatus::Probing => DeviceState::Probing,
            SlotStatus::Quarantined => DeviceState::Quarantined,
        };
        // Models that begin with "gpu" are display controllers, the others NVMe.
        let class = if model.starts_with("gpu") { 0x03_0200 } else { 0x01_0802 };
        let slot: SlotAddress = text.parse().unwrap();
        let serial = u64::from(slot.slot().get()) + 0x100 * u64::from(model.len() as u32);
        // No two boxes have the same devices; tests name those of one.
        let of_box =
            slot.box_name().as_str().bytes().filter(|_| *slot.box_name().as_str() != *"plain1");
        let serial = serial
            + of_box.fold(0, |sum: u64, byte| sum * 31 % 0xffff + u64::from(byte)) * (1 << 32);
        self.txn.put_device(DeviceRecord {
            address: FunctionAddress { slot, function: SlotFunction::ZERO },
            state,
            model: model.to_owned(),
            pci: PciIdentity {
                vendor: 0x10de,
                device: 0x2330,
                subsystem_vendor: 0,
                subsystem: 0,
                class,
                revision: 0,
            },
            serial,
            bars: [0; 6],
            since: time(),
        });
        let desired = match status {
            SlotStatus::Used => Desired::Bound,
            SlotStatus::Releasing => Desired::Forced,
            _ => return,
        };
        let port = self.next_port;
        self.next_port += 1;
        self.bind(text, "other", port, desired);
    }

    fn bind(&mut self, slot: &str, host: &str, port: u8, desired: Desired) {
        let id = BindingId(self.next_binding);
        self.next_binding += 1;
        let allocation = AllocationId(9);
        self.txn.put_allocation(sample_allocation());
        self.txn.add_binding(BindingRecord {
            id,
            allocation,
            slot: slot.parse().unwrap(),
            functions: vec![FunctionEpoch {
                function: SlotFunction::ZERO,
                epoch: Epoch::new(0, 1).unwrap(),
            }],
            host: name(host),
            port: PortId::new(port).unwrap(),
            model: String::new(),
            demand: None,
            path_set: None,
            phase: Phase::Reserved,
            desired,
            box_incarnation: None,
            host_incarnation: None,
            operation: None,
            trouble: None,
            since: time(),
            changed: time(),
        });
    }

    pub(super) fn inventory(&mut self, document: serde_json::Value) {
        let inventory: Inventory = serde_json::from_value(document).unwrap();
        assert_eq!(inventory.faults(), []);
        self.txn.put_inventory(inventory);
    }

    pub(super) fn plan(&self, request: &PlanRequest) -> Result<Plan, Problem> {
        plan_prepared(&self.prepared(request)?, &self.txn, self)
    }

    pub(super) fn explain(&self, request: &PlanRequest) -> Explanation {
        explain(&self.prepared(request).unwrap(), &self.txn, self).unwrap()
    }

    fn prepared(&self, request: &PlanRequest) -> Result<Prepared, Problem> {
        Ok(Prepared::read(request.clone())?.keeping(&self.spares))
    }

    /// So many of a model are kept.
    pub(super) fn keep(&mut self, model: &str, keep: u32) {
        let config = crate::spares::ModelConfig { keep, ..Default::default() };
        self.spares.models.insert(model.to_owned(), config);
    }
}

fn sample_allocation() -> AllocationRecord {
    let text =
        r#"{"id":"alloc-9","host":"other","reason":null,"since":"2026-01-01T00:00:00.000Z"}"#;
    serde_json::from_str(text).unwrap()
}

impl Liveness for Pool {
    fn is_ready(&self, name: &NodeName) -> bool {
        !self.away.contains(name)
    }

    fn is_connecting(&self, name: &NodeName) -> bool {
        self.connecting.contains(name)
    }

    fn stray_ports(&self, _: &NodeName) -> BTreeSet<PortId> {
        BTreeSet::new()
    }

    fn without_root_complex(&self, _: &NodeName) -> Option<String> {
        None
    }
}

pub(super) fn ask(count: u32) -> PlanRequest {
    PlanRequest { count, ..PlanRequest::for_host(name("host1")) }
}

pub(super) fn wish(count: u32, change: impl FnOnce(&mut Wishes)) -> PlanRequest {
    let mut request = ask(count);
    change(&mut request.wishes);
    request
}

pub(super) fn at(text: &str) -> PlanRequest {
    let address: SlotAddress = text.parse().unwrap();
    let mut request = wish(1, |wishes| wishes.box_name = Some(address.box_name().clone()));
    request.slot = Some(address.slot());
    request
}

pub(super) fn slots(plan: &Plan) -> Vec<String> {
    plan.iter().map(|p| p.slot.to_string()).collect()
}
