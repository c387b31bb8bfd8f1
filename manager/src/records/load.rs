//! Reads all records out of a store.

use super::pool::Facts;
use super::stored::{self, Stored, readable};
use super::tables::{EpochRecord, ForgottenRecord, Tables, over_since};
use super::{KeyRecord, Meta};
use crate::store::{Record, SCHEMA_VERSION, Store, StoreError, Table};
use crate::types::{
    AllocationRecord, AuditRecord, BindingRecord, DeviceRecord, ErasureRecord, EventRecord,
    HealthRecord, HoldRecord, ImageRecord, InventoryRecord, ModelRecord, NodeRecord,
    OperationRecord, RolloutRecord,
};
use std::path::Path;
use std::sync::Arc;

/// Reads all records.
pub(super) fn load(store: &dyn Store, path: &Path) -> Result<Tables, StoreError> {
    let mut tables = Tables::default();
    if let Some(meta) = store.read(Table::Meta)?.pop() {
        // The version first: what else is in there is that version's to know.
        let found = schema(&meta).map_err(|why| corrupt::<Meta>(path, &meta, why))?;
        if found > SCHEMA_VERSION {
            return Err(StoreError::LaterSchema { path: path.to_owned(), found });
        }
        if found < SCHEMA_VERSION {
            crate::store::upgrade(store, path, found)?;
            return load(store, path);
        }
    }
    if let Some(meta) = read::<Meta>(store, path)?.pop() {
        tables.meta = meta;
    }
    for record in read::<NodeRecord>(store, path)? {
        tables.insert_node(Arc::new(record));
    }
    for record in read::<ForgottenRecord>(store, path)? {
        tables.forgotten.insert(record.node, record.name);
    }
    for record in read::<DeviceRecord>(store, path)? {
        tables.devices.insert(record.address.clone(), record);
    }
    for record in read::<EpochRecord>(store, path)? {
        tables.epochs.insert(record.address, record.highest);
    }
    for record in read::<AllocationRecord>(store, path)? {
        tables.insert_allocation(Arc::new(record));
    }
    // What is left of the order in which they ended.
    let mut operations = read::<OperationRecord>(store, path)?;
    operations.sort_by_key(over_since);
    for record in operations {
        tables.insert_operation(Arc::new(record));
    }
    for record in read::<BindingRecord>(store, path)? {
        // A repair may have taken the operation out: the binding goes on by itself.
        let operation = record.operation.filter(|id| tables.operations.get(id).is_some());
        tables.insert_binding(Arc::new(BindingRecord { operation, ..record }));
    }
    let mut keys = read::<KeyRecord>(store, path)?;
    keys.sort_by_key(|record| tables.key_ended(record));
    for record in keys {
        tables.insert_key(Arc::new(record));
    }
    tables.sort_events(read::<EventRecord>(store, path)?);
    for record in read::<AuditRecord>(store, path)? {
        tables.audit.insert(record.sequence, record);
    }
    for record in read::<ImageRecord>(store, path)? {
        tables.images.insert(record.label.id, Arc::new(record));
    }
    for record in read::<HoldRecord>(store, path)? {
        tables.holds.insert(record.place.clone(), record);
    }
    for record in read::<HealthRecord>(store, path)? {
        tables.health.insert(record.subject.clone(), record);
    }
    for record in read::<ModelRecord>(store, path)? {
        tables.models.insert(record.model.clone(), record);
    }
    for record in read::<ErasureRecord>(store, path)? {
        tables.insert_erasure(Arc::new(record));
    }
    tables.rollout = read::<RolloutRecord>(store, path)?.pop().map(Arc::new);
    let inventory = read::<InventoryRecord>(store, path)?.pop();
    tables.refresh_pool(Arc::new(Facts::new(inventory.unwrap_or_default())));
    Ok(tables)
}

/// The version of what the records look like; 0 if it does not say.
fn schema((_, value): &Record) -> Result<u64, String> {
    let meta: serde_json::Value = serde_json::from_slice(value).map_err(|e| e.to_string())?;
    Ok(meta.get("schema").and_then(serde_json::Value::as_u64).unwrap_or(0))
}

fn read<T: Stored>(store: &dyn Store, path: &Path) -> Result<Vec<T>, StoreError> {
    let records = store.read(T::TABLE)?.into_iter();
    records
        .map(|record| stored::read(&record).map_err(|why| corrupt::<T>(path, &record, why)))
        .collect()
}

fn corrupt<T: Stored>(path: &Path, (key, _): &Record, reason: String) -> StoreError {
    let (table, key) = (T::TABLE.name(), readable(T::TABLE, key));
    StoreError::CorruptRecord { path: path.to_owned(), table, key, reason }
}
