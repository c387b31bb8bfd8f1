//! One change of the records.

use super::pool::Facts;
use super::stored::Stored;
use super::tables::{EpochRecord, ForgottenRecord};
use super::writes::{Touched, Writes};
use super::{MAX_ENDED_ERASURES, MAX_MODELS, Meta, Tables, generation_after};
use crate::store::{Change, StoreError};
use crate::types::{
    AllocationId, AllocationRecord, BindingId, BindingRecord, DeviceRecord, DeviceState, ErasureId,
    ErasureRecord, FunctionAddress, HealthRecord, HoldRecord, ImageRecord, Inventory,
    InventoryRecord, MAX_IMAGES, ModelRecord, NodeName, NodeRecord, OperationId, OperationRecord,
    Place, Problem, ProblemCode, RolloutRecord, Subject, Timestamp,
};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use tlp_codec::ids::{Epoch, NodeId};

/// How far above the numbers that were given out a proxy's claim moves the next one.
const CLAIM_GAP: u32 = 1024;
/// The last epochs of a generation, which a host cannot use up by what it says.
const LAST_EPOCHS: u32 = 0x1_0000;

/// A copy of the records that is being changed, and what has changed in it. Reads what it wrote.
pub struct Txn {
    pub(super) tables: Tables,
    writes: Writes,
    /// The counters are written once, however many numbers were given out.
    meta_changed: bool,
    pub(super) touched: Touched,
    pub(super) now: Timestamp,
    /// The first operation that was begun here.
    begun: Option<OperationId>,
    /// Whether an operation ended here.
    ended: bool,
}

/// What came of a change.
pub(super) struct Made {
    /// The records.
    pub(super) tables: Tables,
    /// What is to be written.
    pub(super) writes: Writes,
    /// Whom it concerns.
    pub(super) touched: Touched,
}

impl Deref for Txn {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.tables
    }
}

impl Txn {
    /// Begins a change of a copy that is never written, to try things out; [`super::Records`] makes
    /// those that are.
    pub fn new(tables: Tables) -> Self {
        Self::at(Timestamp::now(), tables)
    }

    /// Begins one at that time.
    pub(super) fn at(now: Timestamp, tables: Tables) -> Self {
        Self {
            tables,
            writes: Writes::default(),
            meta_changed: false,
            touched: Touched::default(),
            now,
            begun: None,
            ended: false,
        }
    }

    /// What came of it: the records, what is to be written, and the bindings that were changed.
    pub fn finish(self) -> (Tables, Vec<Change>, BTreeSet<BindingId>) {
        let Made { tables, writes, touched } = self.take_apart();
        (tables, writes.encode(), touched.bindings)
    }

    /// As [`Txn::finish`], with what is to be written not yet in bytes.
    pub(super) fn take_apart(mut self) -> Made {
        if self.meta_changed {
            let meta = Arc::new(self.tables.meta.clone());
            self.writes.put(&meta);
        }
        Made { tables: self.tables, writes: self.writes, touched: self.touched }
    }

    /// What the tables are with this change, for whoever keeps them without a store.
    pub fn into_tables(self) -> Tables {
        self.tables
    }

    /// The time that everything in this change gets.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What the wall clock says.
    #[cfg(test)]
    pub(super) fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    pub(super) fn put<T: Stored>(&mut self, record: &Arc<T>) {
        self.writes.put(record);
    }

    pub(super) fn delete<T: Stored>(&mut self, id: &T::Id) {
        self.writes.remove::<T>(id);
    }

    pub(super) fn with_meta<R>(&mut self, change: impl FnOnce(&mut Meta) -> R) -> R {
        self.meta_changed = true;
        change(&mut self.tables.meta)
    }

    /// Begins the next term, as every start of a manager does. `path` is for error messages.
    ///
    /// # Errors
    ///
    /// When a later manager was here and the epochs have no generation left.
    pub fn begin_term(&mut self, path: &Path) -> Result<(), StoreError> {
        let (shown, before) = (self.highest_generation(), self.meta().generation);
        self.with_meta(|meta| meta.begin_term(path, shown))?;
        self.generation_was(before);
        Ok(())
    }

    /// Enters anew what may have epochs again, since a generation has begun.
    fn generation_was(&mut self, before: u8) {
        if self.meta().generation != before {
            self.tables.reenter_pool();
        }
    }

    /// Leaves out what may have been given out since a backup was made of which these are the
    /// tables. `path` is for error messages; `shown` the generation of an epoch that they lack, or 0.
    ///
    /// # Errors
    ///
    /// When the epochs have no generation left.
    pub fn begin_generation(&mut self, path: &Path, shown: u8) -> Result<(), StoreError> {
        let (shown, before) = (self.highest_generation().max(shown), self.meta().generation);
        self.with_meta(|meta| meta.begin_generation(path, shown))?;
        self.generation_was(before);
        Ok(())
    }

    /// As [`begin_generation`](Self::begin_generation), of a backup that takes the place of a store,
    /// which gave out what `replaced` says.
    pub(super) fn begin_in_place_of(
        &mut self,
        path: &Path,
        replaced: Option<&Meta>,
    ) -> Result<(), StoreError> {
        let (shown, before, now) = (self.highest_generation(), self.meta().generation, self.now);
        self.with_meta(|meta| meta.begin_in_place_of(path, shown, replaced, now))?;
        self.generation_was(before);
        Ok(())
    }

    /// Remembers that a proxy obeyed this term, so that the next start begins above it. Terms that
    /// would leave no room above are not believed.
    pub fn learn_term(&mut self, term: u64) {
        if term < u64::MAX / 2 && term > self.meta().highest_term_seen {
            self.with_meta(|meta| meta.highest_term_seen = term);
        }
    }

    /// Gives out a node number, or `None` when all were.
    pub fn new_node_id(&mut self) -> Option<NodeId> {
        let mut next = self.meta().next_node;
        loop {
            let node = NodeId::new(u16::try_from(next).ok()?).ok()?;
            next += 1;
            // Proxies may have numbers from before the records were restored, or far above, and be
            // forgotten since.
            if self.node_by_number(node).is_none() && self.forgotten(node).is_none() {
                self.with_meta(|meta| meta.next_node = next);
                return Some(node);
            }
        }
    }

    /// Remembers that a proxy has a number that this store did not give out: an earlier one did, and
    /// those below it may be with proxies that come later. A claim far above what was given out is
    /// not believed so far, or a single one would leave no numbers.
    pub fn learn_node_id(&mut self, node: NodeId) {
        let (number, next) = (u32::from(node.get()), self.meta().next_node);
        if (next..next + CLAIM_GAP).contains(&number) {
            self.with_meta(|meta| meta.next_node = number + 1);
        }
    }

    /// Gives out an allocation number.
    pub fn new_allocation_id(&mut self) -> AllocationId {
        AllocationId(self.with_meta(|meta| take(&mut meta.next_allocation)))
    }

    /// Gives out a binding number.
    pub fn new_binding_id(&mut self) -> BindingId {
        BindingId(self.with_meta(|meta| take(&mut meta.next_binding)))
    }

    /// Gives out an operation number.
    pub fn new_operation_id(&mut self) -> OperationId {
        let id = OperationId(self.with_meta(|meta| take(&mut meta.next_operation)));
        self.begun = self.begun.or(Some(id));
        id
    }

    /// Adds what belongs to every change in which something is done: the entry of the request on
    /// whose behalf it is, and that what has been kept for its time goes. Not before its end, so that
    /// nothing goes that it still looks at.
    pub(super) fn complete(&mut self) {
        if !self.meta_changed && self.writes.is_empty() {
            return;
        }
        if self.ended {
            self.drop_operations();
        }
        if let Some(entry) = crate::audit::take(self.begun) {
            self.audit(entry);
        }
    }

    /// Gives out an epoch of a function: above every one that it has had.
    ///
    /// # Errors
    ///
    /// When the generation's epochs of this function are used up.
    pub fn new_epoch(&mut self, address: &FunctionAddress) -> Result<Epoch, Problem> {
        let epoch = self.next_epoch(address).ok_or_else(|| {
            let generation = self.meta().generation;
            // What came of it if the store was restored.
            let highest = self.highest_epoch(address).map_or(generation, Epoch::generation);
            let after = generation_after(generation, self.highest_generation());
            let above = after.is_some_and(|after| after > highest);
            let how = match above {
                true => "it can be lent again after the store's generation went up (dxpu-manager restore)",
                false => "no generation is left above them; move its device to another slot",
            };
            let detail = format!("function {address} has had all its epochs; {how}");
            Problem::new(ProblemCode::EpochsExhausted, detail)
        })?;
        self.learn_epoch(address, epoch);
        Ok(epoch)
    }

    /// Remembers that a function has had this epoch.
    pub fn learn_epoch(&mut self, address: &FunctionAddress, epoch: Epoch) {
        if self.highest_epoch(address).is_none_or(|highest| epoch > highest) {
            let record = Arc::new(EpochRecord { address: address.clone(), highest: epoch });
            self.put(&record);
            let had = self.next_epoch(address).is_some();
            self.tables.epochs.insert(address.clone(), epoch);
            if had != self.next_epoch(address).is_some() {
                self.tables.refresh_slot(&address.slot);
            }
        }
    }

    /// As [`learn_epoch`](Self::learn_epoch), what a host says of a function in somebody's box. Of the last
    /// epochs of a generation, and of generations that none would be begun above, only the box is
    /// believed: a host that lies could use them up, and nobody would have the device any more.
    pub fn learn_epoch_of_host(&mut self, address: &FunctionAddress, epoch: Epoch) {
        let (own, generation) = (self.meta().generation, epoch.generation());
        let is_followed =
            generation <= own || generation_after(own, generation).is_some_and(|g| g > generation);
        if is_followed && epoch.counter() <= Epoch::MAX_COUNTER - LAST_EPOCHS {
            self.learn_epoch(address, epoch);
        }
    }

    /// Which life of a proxy is here, if that is news.
    pub fn learn_life(&mut self, name: &NodeName, incarnation: u32) {
        let known = self.nodes().get(name).filter(|node| node.incarnation != Some(incarnation));
        if let Some(known) = known.cloned() {
            self.put_node(NodeRecord { incarnation: Some(incarnation), ..known });
        }
    }

    /// Adds or replaces a proxy.
    pub fn put_node(&mut self, record: NodeRecord) {
        let record = Arc::new(record);
        if self.tables.forgotten.remove(&record.node).is_some() {
            self.delete::<ForgottenRecord>(&record.node);
        }
        self.put(&record);
        let name = record.name.clone();
        let same = |old: &NodeRecord| {
            (old.node, old.role, old.size) == (record.node, record.role, record.size)
        };
        let known = self.tables.nodes.get(&name).is_some_and(same);
        self.tables.insert_node(record);
        if !known {
            self.tables.refresh_box(&name);
        }
    }

    /// Takes a proxy out. Its number is given to no other.
    pub fn remove_node(&mut self, name: &NodeName) {
        let Some(node) = self.nodes().get(name).map(|record| record.node) else { return };
        self.delete::<NodeRecord>(name);
        self.tables.remove_node(name);
        let record = ForgottenRecord { node, name: name.clone() };
        self.tables.forgotten.insert(node, record.name.clone());
        self.put(&Arc::new(record));
    }

    /// Adds or replaces a device's function. One that is known just so is not written again.
    pub fn put_device(&mut self, record: DeviceRecord) {
        if self.tables.devices.get(&record.address).is_some_and(|known| *known == record) {
            return;
        }
        let record = Arc::new(record);
        self.put(&record);
        let slot = record.address.slot.clone();
        self.tables.devices.insert(record.address.clone(), record);
        self.tables.refresh_slot(&slot);
    }

    /// Notes that a device's function, if it is known, is in this state, and since now if it was in
    /// another one; whether it was. A slot that was empty, or is looked at, may have another device by
    /// now, with other functions: that it is free is known by the inventory only
    /// ([`put_device`](Self::put_device)), whatever else is said of it.
    pub fn device_became(&mut self, address: &FunctionAddress, state: DeviceState) -> bool {
        let known = self.tables.devices.get(address);
        let Some(device) = known.filter(|device| device.state != state) else { return false };
        let is_unknown = matches!(device.state, DeviceState::Empty | DeviceState::Probing);
        if is_unknown && state == DeviceState::Free {
            return false;
        }
        let device = DeviceRecord { state, since: self.now, ..DeviceRecord::clone(device) };
        self.put_device(device);
        true
    }

    /// Takes a device's function out.
    pub fn remove_device(&mut self, address: &FunctionAddress) {
        self.delete::<DeviceRecord>(address);
        self.tables.devices.remove(address);
        self.tables.refresh_slot(&address.slot);
    }

    /// Puts an inventory in the place of the one before.
    pub fn put_inventory(&mut self, inventory: Inventory) {
        let before = self.tables.pool().facts().record();
        let record = InventoryRecord { revision: before.revision + 1, since: self.now, inventory };
        let record = Arc::new(record);
        self.put(&record);
        self.tables.refresh_pool(Arc::new(Facts::new(InventoryRecord::clone(&record))));
    }

    /// Adds or replaces an allocation.
    pub fn put_allocation(&mut self, record: AllocationRecord) {
        let record = Arc::new(record);
        self.put(&record);
        self.tables.insert_allocation(record);
    }

    /// Takes an allocation out.
    pub fn remove_allocation(&mut self, id: AllocationId) {
        self.delete::<AllocationRecord>(&id);
        self.tables.remove_allocation(id);
    }

    /// Adds a binding.
    ///
    /// # Panics
    ///
    /// When its slot or port has another binding: no slot is ever lent twice.
    pub fn add_binding(&mut self, record: BindingRecord) {
        assert!(self.binding_at_slot(&record.slot).is_none(), "{} is lent", record.slot);
        assert!(
            self.binding_at_port(&record.host, record.port).is_none(),
            "port {} of {} is used",
            record.port,
            record.host
        );
        self.write_binding(record);
    }

    /// Replaces a binding.
    ///
    /// # Panics
    ///
    /// When it is not there, moves to another place, or goes to a phase that its phase does not
    /// lead to.
    pub fn update_binding(&mut self, record: BindingRecord) {
        let old = &self.tables.bindings[&record.id];
        assert!(
            old.phase == record.phase || old.phase.may_become(record.phase),
            "{} goes from {} to {}",
            record.id,
            old.phase,
            record.phase
        );
        assert!((&old.slot, &old.host, old.port) == (&record.slot, &record.host, record.port));
        self.write_binding(record);
    }

    fn write_binding(&mut self, record: BindingRecord) {
        let record = Arc::new(record);
        self.put(&record);
        self.touched.bindings.insert(record.id);
        self.tables.insert_binding(record);
    }

    /// Takes a binding out.
    pub fn remove_binding(&mut self, id: BindingId) {
        self.delete::<BindingRecord>(&id);
        self.touched.bindings.insert(id);
        self.tables.remove_binding(id);
    }

    /// Adds or replaces an operation. When it has ended it is kept as long as the retention says.
    ///
    /// # Panics
    ///
    /// When it goes to a state that its state does not lead to.
    pub fn put_operation(&mut self, record: OperationRecord) {
        if let Some(old) = self.operations().get(&record.id) {
            assert!(
                old.state == record.state || old.state.may_become(record.state),
                "{} goes from {} to {}",
                record.id,
                old.state,
                record.state
            );
        }
        let record = Arc::new(record);
        self.ended |= record.state.is_final();
        self.put(&record);
        self.touched.operations.insert(record.id);
        if record.state.is_final() {
            self.touched.ended.insert(record.id);
        }
        self.tables.insert_operation(record);
    }

    /// Adds a firmware image, if it is not there. When too many are kept, those go that came first,
    /// but none that a rollout needs.
    pub fn add_image(&mut self, record: ImageRecord) {
        let id = record.label.id;
        if self.tables.images.contains_key(&id) {
            return;
        }
        let record = Arc::new(record);
        self.put(&record);
        self.tables.images.insert(id, record);
        while self.tables.images.len() > MAX_IMAGES {
            let needed =
                |other| other == id || self.tables.rollout.as_ref().is_some_and(|r| r.needs(other));
            let others = self.tables.images.iter().filter(|(other, _)| !needed(**other));
            let (&oldest, _) = others.min_by_key(|(_, image)| image.since).expect("two are needed");
            self.delete::<ImageRecord>(&oldest);
            self.tables.images.remove(&oldest);
        }
    }

    /// Begins a rollout in the place of the one before, or says where it stands now.
    pub fn put_rollout(&mut self, record: RolloutRecord) {
        let record = Arc::new(record);
        self.put(&record);
        self.touched.rollout = true;
        self.tables.rollout = Some(record);
    }

    /// Holds something back, or says otherwise why.
    pub fn put_hold(&mut self, record: HoldRecord) {
        let record = Arc::new(record);
        self.put(&record);
        let place = record.place.clone();
        self.tables.holds.insert(place.clone(), record);
        self.tables.refresh_place(&place);
    }

    /// Does not hold something back any more.
    pub fn remove_hold(&mut self, place: &Place) -> Option<Arc<HoldRecord>> {
        let record = self.tables.holds.remove(place)?;
        self.delete::<HoldRecord>(place);
        self.tables.refresh_place(place);
        Some(record)
    }

    /// Adds or replaces how well something is.
    pub fn put_health(&mut self, record: HealthRecord) {
        let record = Arc::new(record);
        self.put(&record);
        self.tables.health.insert(record.subject.clone(), record);
    }

    /// Forgets how well something is: it is healthy, or gone.
    pub fn remove_health(&mut self, subject: &Subject) {
        self.delete::<HealthRecord>(subject);
        self.tables.health.remove(subject);
    }

    /// Adds or replaces how often devices of a model failed. When there are too many models, the one goes
    /// that failed least, and last for the first time: a box may make up names.
    pub fn put_model(&mut self, record: ModelRecord) {
        let models = &self.tables.models;
        if models.len() >= MAX_MODELS && !models.contains_key(&record.model) {
            let least = models.values().min_by_key(|m| (m.failures, Reverse(m.since)));
            if let Some(least) = least.map(|known| known.model.clone()) {
                self.delete::<ModelRecord>(&least);
                self.tables.models.remove(&least);
            }
        }
        let record = Arc::new(record);
        self.put(&record);
        self.tables.models.insert(record.model.clone(), record);
    }

    /// Gives out an erasure number.
    pub fn new_erasure_id(&mut self) -> ErasureId {
        ErasureId(self.with_meta(|meta| take(&mut meta.next_erasure)))
    }

    /// Adds or replaces an erasure.
    ///
    /// # Panics
    ///
    /// When it goes to a state that its state does not lead to.
    pub fn put_erasure(&mut self, record: ErasureRecord) {
        if let Some(old) = self.tables.erasures.get(&record.id) {
            let may = old.state == record.state || old.state.may_become(record.state);
            assert!(may, "{} goes from {} to {}", record.id, old.state, record.state);
        }
        let record = Arc::new(record);
        self.put(&record);
        self.touched.erasures = true;
        self.tables.insert_erasure(record);
        while self.tables.erasures.len() > MAX_ENDED_ERASURES {
            let ended = self.tables.erasures.values().find(|e| !e.is_open());
            let Some(oldest) = ended.map(|e| e.id) else {
                return;
            };
            self.delete::<ErasureRecord>(&oldest);
            self.tables.erasures.remove(&oldest);
        }
    }
}

pub(super) fn take(counter: &mut u64) -> u64 {
    let value = *counter;
    *counter += 1;
    value
}
