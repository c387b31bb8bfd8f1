//! A snapshot of all records, with the indexes that questions are answered from.

use super::ends::Ends;
use super::keys::Keys;
use super::pool::PoolIndex;
use super::retention::{Retention, Stories};
use super::{Kept, KeyRecord, Meta, Sources};
use crate::types::{
    AllocationId, AllocationRecord, AuditRecord, BindingId, BindingRecord, DeviceRecord,
    DeviceState, ErasureId, ErasureRecord, EventRecord, FunctionAddress, HealthRecord, HoldRecord,
    ImageId, ImageRecord, ModelRecord, NodeName, NodeRecord, OperationId, OperationRecord, Place,
    RolloutRecord, SlotAddress, Subject, Timestamp,
};
use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use tlp_codec::ids::{Epoch, NodeId, PortId};

/// The highest epoch of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EpochRecord {
    pub(super) address: FunctionAddress,
    pub(super) highest: Epoch,
}

/// A proxy that was forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ForgottenRecord {
    pub(super) node: NodeId,
    pub(super) name: NodeName,
}

/// All records at one point in time.
#[derive(Clone, Default)]
pub struct Tables {
    pub(super) meta: Meta,
    pub(super) nodes: Kept<NodeName, NodeRecord>,
    pub(super) devices: Kept<FunctionAddress, DeviceRecord>,
    pub(super) epochs: OrdMap<FunctionAddress, Epoch>,
    pub(super) allocations: Kept<AllocationId, AllocationRecord>,
    pub(super) bindings: Kept<BindingId, BindingRecord>,
    pub(super) operations: Kept<OperationId, OperationRecord>,
    /// The last ones.
    pub(super) events: Kept<u64, EventRecord>,
    pub(super) stories: Stories,
    /// Whose events are too many; all snapshots have the same.
    pub(super) sources: Arc<Sources>,
    pub(super) keys: Keys,
    /// How long what is over is kept.
    pub(super) retention: Retention,
    pub(super) audit: Kept<u64, AuditRecord>,
    pub(super) images: OrdMap<ImageId, Arc<ImageRecord>>,
    pub(super) rollout: Option<Arc<RolloutRecord>>,
    pub(super) holds: Kept<Place, HoldRecord>,
    pub(super) health: Kept<Subject, HealthRecord>,
    pub(super) models: Kept<String, ModelRecord>,
    pub(super) erasures: OrdMap<ErasureId, Arc<ErasureRecord>>,
    // Indexes.
    by_number: OrdMap<NodeId, NodeName>,
    by_slot: OrdMap<SlotAddress, BindingId>,
    by_port: OrdMap<(NodeName, PortId), BindingId>,
    by_allocation: OrdSet<(AllocationId, BindingId)>,
    by_host: OrdSet<(NodeName, BindingId)>,
    by_box: OrdSet<(NodeName, BindingId)>,
    leased: OrdSet<AllocationId>,
    running: OrdSet<OperationId>,
    /// The erasures for which devices are not lent, by where those are or were seen last, and by
    /// their serial numbers.
    owed_at: OrdSet<(SlotAddress, ErasureId)>,
    owed_by: OrdSet<(u64, ErasureId)>,
    /// The names of proxies that were forgotten, by their numbers: no more than there are numbers.
    pub(super) forgotten: OrdMap<NodeId, NodeName>,
    /// Operations that have ended.
    pub(super) ended: Ends<OperationId>,
    pub(super) pool: PoolIndex,
}

impl Tables {
    /// Counters, term and generation.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// All proxies by name.
    pub fn nodes(&self) -> &Kept<NodeName, NodeRecord> {
        &self.nodes
    }

    /// A proxy by its node number.
    pub fn node_by_number(&self, node: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(self.by_number.get(&node)?)
    }

    /// The life in which a proxy was here last.
    pub fn last_life(&self, name: &NodeName) -> Option<u32> {
        self.nodes.get(name)?.incarnation
    }

    /// The proxy that had a node number until it was forgotten. The number is given to no other.
    pub fn forgotten(&self, node: NodeId) -> Option<&NodeName> {
        self.forgotten.get(&node)
    }

    /// All functions that boxes reported, by address.
    pub fn devices(&self) -> &Kept<FunctionAddress, DeviceRecord> {
        &self.devices
    }

    /// The functions in one slot, lowest first.
    pub fn functions<'a>(
        &'a self,
        slot: &SlotAddress,
    ) -> impl Iterator<Item = &'a DeviceRecord> + use<'a> {
        let first =
            FunctionAddress { slot: slot.clone(), function: tlp_codec::ids::SlotFunction::ZERO };
        let slot = slot.clone();
        self.devices.range(first..).map(|(_, d)| d).take_while(move |d| d.address.slot == slot)
    }

    /// The functions in one box.
    pub fn devices_of(&self, name: &NodeName) -> impl Iterator<Item = &DeviceRecord> {
        let first = tlp_codec::ids::SlotId::new(1).expect("1 is a slot");
        let slot = SlotAddress::new(name.clone(), first).expect("1 is a slot of a box");
        let from = FunctionAddress { slot, function: tlp_codec::ids::SlotFunction::ZERO };
        let name = name.clone();
        self.devices
            .range(from..)
            .map(|(_, d)| d)
            .take_while(move |d| *d.address.slot.box_name() == name)
    }

    /// The highest epoch that a function has had.
    pub fn highest_epoch(&self, address: &FunctionAddress) -> Option<Epoch> {
        self.epochs.get(address).copied()
    }

    /// The next epoch of a function; nothing if it has had all of this generation and of those above it
    /// that it was lent under.
    pub(super) fn next_epoch(&self, address: &FunctionAddress) -> Option<Epoch> {
        let generation = self.meta().generation;
        match self.highest_epoch(address) {
            Some(highest) if highest.generation() >= generation => highest.next(),
            _ => Some(Epoch::new(generation, 1).expect("1 is a counter")),
        }
    }

    /// The highest generation of an epoch that a function has had.
    pub fn highest_generation(&self) -> u8 {
        let bound = self.bindings.values().flat_map(|binding| &binding.functions);
        let epochs = self.epochs.values().copied().chain(bound.map(|function| function.epoch));
        epochs.map(Epoch::generation).max().unwrap_or(0)
    }

    /// All allocations.
    pub fn allocations(&self) -> &Kept<AllocationId, AllocationRecord> {
        &self.allocations
    }

    /// The allocations that end by themselves.
    pub fn leased(&self) -> impl Iterator<Item = &AllocationRecord> {
        self.leased.iter().map(|id| &self.allocations[id])
    }

    /// All bindings.
    pub fn bindings(&self) -> &Kept<BindingId, BindingRecord> {
        &self.bindings
    }

    /// The binding that has a slot.
    pub fn binding_at_slot(&self, slot: &SlotAddress) -> Option<&BindingRecord> {
        self.bindings.get(self.by_slot.get(slot)?)
    }

    /// The binding that has a host's port.
    pub fn binding_at_port(&self, host: &NodeName, port: PortId) -> Option<&BindingRecord> {
        self.bindings.get(self.by_port.get(&(host.clone(), port))?)
    }

    /// The bindings of an allocation.
    pub fn bindings_of(&self, id: AllocationId) -> impl Iterator<Item = &BindingRecord> {
        self.by_allocation
            .range((id, BindingId(0))..=(id, BindingId(u64::MAX)))
            .map(|(_, binding)| &self.bindings[binding])
    }

    /// The bindings that a proxy, host or box, takes part in.
    pub fn bindings_at(&self, name: &NodeName) -> impl Iterator<Item = &BindingRecord> {
        let range = (name.clone(), BindingId(0))..=(name.clone(), BindingId(u64::MAX));
        let hosts = self.by_host.range(range.clone());
        hosts.chain(self.by_box.range(range)).map(|(_, binding)| &self.bindings[binding])
    }

    /// The bindings that an operation works on. Each has a step in it.
    pub fn bindings_under(&self, operation: &OperationRecord) -> Vec<BindingRecord> {
        let ids: BTreeSet<BindingId> = operation.steps.iter().map(|step| step.binding).collect();
        let own = |binding: &&BindingRecord| binding.operation == Some(operation.id);
        let found: Vec<BindingRecord> =
            ids.iter().filter_map(|id| self.bindings.get(id)).filter(own).cloned().collect();
        debug_assert_eq!(found.len(), self.bindings.values().filter(own).count());
        found
    }

    /// All operations that are kept.
    pub fn operations(&self) -> &Kept<OperationId, OperationRecord> {
        &self.operations
    }

    /// The operations that have not ended.
    pub fn running(&self) -> impl Iterator<Item = &OperationRecord> {
        self.running.iter().map(|id| &self.operations[id])
    }

    /// How many operations have ended and are kept.
    pub fn ended_count(&self) -> usize {
        self.ended.len()
    }

    /// The last events, by number. Older ones of operations: [`Tables::story`].
    pub fn events(&self) -> &Kept<u64, EventRecord> {
        &self.events
    }

    /// How many events each proxy may cause.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The audit log, by number.
    pub fn audit(&self) -> &Kept<u64, AuditRecord> {
        &self.audit
    }

    pub(super) fn events_mut(&mut self) -> &mut Kept<u64, EventRecord> {
        &mut self.events
    }

    pub(super) fn audit_mut(&mut self) -> &mut Kept<u64, AuditRecord> {
        &mut self.audit
    }

    /// The firmware images, by identifier.
    pub fn images(&self) -> &OrdMap<ImageId, Arc<ImageRecord>> {
        &self.images
    }

    /// The latest rollout of firmware.
    pub fn rollout(&self) -> Option<&Arc<RolloutRecord>> {
        self.rollout.as_ref()
    }

    /// What is held back.
    pub fn holds(&self) -> &Kept<Place, HoldRecord> {
        &self.holds
    }

    /// What is not healthy, or was not lately.
    pub fn health(&self) -> &Kept<Subject, HealthRecord> {
        &self.health
    }

    /// How often devices failed, by model.
    pub fn models(&self) -> &Kept<String, ModelRecord> {
        &self.models
    }

    /// All erasures that are kept.
    pub fn erasures(&self) -> &OrdMap<ErasureId, Arc<ErasureRecord>> {
        &self.erasures
    }

    /// The erasure for which what is in a slot cannot be lent: it goes on, waits, or failed and was
    /// required. A device is known by its serial number and its kind; one that has no number by its
    /// slot and its kind: it may be the numbered one of that kind that was there, so that the same
    /// keeps it from being lent. Of an empty slot, the latest of what was taken out of it.
    pub fn erasure_at(&self, slot: &SlotAddress) -> Option<&Arc<ErasureRecord>> {
        // Most of the time there is none.
        if self.owed_at.is_empty() {
            return None;
        }
        if self.present(slot).next().is_none() {
            return self.owed_at(slot).next_back();
        }
        if self.present(slot).any(|device| device.serial != 0) {
            return self.present(slot).find_map(|device| self.owed_of(device).next_back());
        }
        let kinds = || self.present(slot).map(|device| device.pci.kind());
        let mine = |erasure: &&Arc<ErasureRecord>| kinds().any(|kind| erasure.may_be(kind));
        let unnumbered = self.owed_at(slot).filter(mine).rfind(|e| e.serial().is_none());
        unnumbered.or_else(|| self.owed_at(slot).rfind(mine))
    }

    /// What is in a slot; nothing if it is empty.
    pub fn present<'a>(
        &'a self,
        slot: &SlotAddress,
    ) -> impl Iterator<Item = &'a DeviceRecord> + use<'a> {
        self.functions(slot).filter(|device| device.state != DeviceState::Empty)
    }

    /// The erasures for which devices with this serial number may not be lent, earliest first.
    pub fn owed_by_serial(
        &self,
        serial: u64,
    ) -> impl DoubleEndedIterator<Item = &Arc<ErasureRecord>> {
        let range = (serial, ErasureId(0))..=(serial, ErasureId(u64::MAX));
        self.owed_by.range(range).map(|(_, id)| &self.erasures[id])
    }

    /// The erasures for which this device, known by its serial number, cannot be lent, earliest
    /// first.
    pub fn owed_of(
        &self,
        device: &DeviceRecord,
    ) -> impl DoubleEndedIterator<Item = &Arc<ErasureRecord>> {
        let (serial, kind) = (device.serial, device.pci.kind());
        self.owed_by_serial(serial).filter(move |erasure| erasure.is_of(serial, kind))
    }

    /// The erasures for which what is in a slot, or was taken out of it, cannot be lent, earliest
    /// first.
    pub fn owed_at(
        &self,
        slot: &SlotAddress,
    ) -> impl DoubleEndedIterator<Item = &Arc<ErasureRecord>> {
        let range = (slot.clone(), ErasureId(0))..=(slot.clone(), ErasureId(u64::MAX));
        self.owed_at.range(range).map(|(_, id)| &self.erasures[id])
    }

    /// As [`Tables::owed_at`], of all slots of a box.
    pub fn owed_in(&self, name: &NodeName) -> impl Iterator<Item = &Arc<ErasureRecord>> {
        let first = tlp_codec::ids::SlotId::new(1).expect("1 is a slot");
        let slot = SlotAddress::new(name.clone(), first).expect("1 is a slot of a box");
        let all = self.owed_at.range((slot, ErasureId(0))..);
        let own = all.take_while(move |(slot, _)| slot.box_name() == name);
        own.map(|(_, id)| &self.erasures[id])
    }

    /// All erasures for which devices cannot be lent.
    pub fn unerased(&self) -> impl Iterator<Item = &Arc<ErasureRecord>> {
        self.owed_at.iter().map(|(_, id)| &self.erasures[id])
    }

    pub(super) fn insert_erasure(&mut self, record: Arc<ErasureRecord>) {
        let before = self.erasures.insert(record.id, record.clone());
        for old in before.iter() {
            self.owed_at.remove(&(old.slot.clone(), old.id));
            for serial in old.serials() {
                self.owed_by.remove(&(serial, old.id));
            }
        }
        if record.is_open() {
            self.owed_at.insert((record.slot.clone(), record.id));
            for serial in record.serials() {
                self.owed_by.insert((serial, record.id));
            }
        }
        self.refresh_slot(&record.slot);
        if let Some(before) = before.filter(|before| before.slot != record.slot) {
            self.refresh_slot(&before.slot);
        }
        self.reenter_sharing(record.serials());
    }

    pub(super) fn insert_node(&mut self, record: Arc<NodeRecord>) {
        self.by_number.insert(record.node, record.name.clone());
        self.nodes.insert(record.name.clone(), record);
    }

    pub(super) fn remove_node(&mut self, name: &NodeName) {
        self.leave_box(name);
        if let Some(record) = self.nodes.remove(name) {
            self.by_number.remove(&record.node);
        }
    }

    pub(super) fn insert_allocation(&mut self, record: Arc<AllocationRecord>) {
        match record.lease {
            Some(_) => self.leased.insert(record.id),
            None => self.leased.remove(&record.id),
        };
        self.allocations.insert(record.id, record);
    }

    pub(super) fn remove_allocation(&mut self, id: AllocationId) {
        self.leased.remove(&id);
        self.allocations.remove(&id);
    }

    pub(super) fn insert_binding(&mut self, record: Arc<BindingRecord>) {
        let id = record.id;
        // Most changes are of its phase, which no index and no slot goes by.
        if let Some(old) = self.bindings.get(&id)
            && (&old.slot, &old.host, old.port) == (&record.slot, &record.host, record.port)
            && old.allocation == record.allocation
            && old.desired.is_release() == record.desired.is_release()
        {
            self.bindings.insert(id, record);
            return;
        }
        self.by_slot.insert(record.slot.clone(), id);
        self.by_port.insert((record.host.clone(), record.port), id);
        self.by_allocation.insert((record.allocation, id));
        self.by_host.insert((record.host.clone(), id));
        self.by_box.insert((record.slot.box_name().clone(), id));
        let slot = record.slot.clone();
        self.bindings.insert(id, record);
        self.refresh_slot(&slot);
    }

    pub(super) fn remove_binding(&mut self, id: BindingId) -> Option<Arc<BindingRecord>> {
        let record = self.bindings.remove(&id)?;
        self.by_slot.remove(&record.slot);
        self.by_port.remove(&(record.host.clone(), record.port));
        self.by_allocation.remove(&(record.allocation, id));
        self.by_host.remove(&(record.host.clone(), id));
        self.by_box.remove(&(record.slot.box_name().clone(), id));
        self.refresh_slot(&record.slot);
        Some(record)
    }

    pub(super) fn insert_operation(&mut self, record: Arc<OperationRecord>) {
        if record.state.is_final() {
            self.running.remove(&record.id);
            self.keys.end(record.id, over_since(&record));
            self.ended.insert(record.id);
        } else {
            self.running.insert(record.id);
        }
        self.operations.insert(record.id, record);
    }

    pub(super) fn remove_operation(&mut self, id: OperationId) -> Option<Arc<OperationRecord>> {
        let record = self.operations.remove(&id)?;
        self.running.remove(&id);
        self.ended.remove(&id);
        Some(record)
    }

    pub(super) fn insert_key(&mut self, record: Arc<KeyRecord>) {
        let ended = self.key_ended(&record);
        self.keys.insert(record, ended);
    }

    /// When the operation of a key ended; nothing while it runs.
    pub(super) fn key_ended(&self, record: &KeyRecord) -> Option<Timestamp> {
        match (self.operations.get(&record.operation), &record.outcome) {
            (Some(operation), _) if !operation.state.is_final() => None,
            (Some(operation), _) => Some(over_since(operation)),
            (None, Some(outcome)) => Some(over_since(outcome)),
            (None, None) => Some(record.since),
        }
    }
}

/// When an operation ended.
pub(super) fn over_since(operation: &OperationRecord) -> Timestamp {
    operation.ended.unwrap_or(operation.started)
}
