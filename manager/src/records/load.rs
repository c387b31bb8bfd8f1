//! Reads all records out of a store.

use super::KeyRecord;
use super::pool::Facts;
use super::tables::{EpochRecord, ForgottenRecord, Tables};
use crate::store::{SCHEMA_VERSION, Store, StoreError, Table};
use crate::types::{
    AllocationRecord, AuditRecord, BindingRecord, DeviceRecord, ErasureRecord, EventRecord,
    HealthRecord, HoldRecord, ImageLabel, ImageRecord, InventoryRecord, ModelRecord, NodeRecord,
    OperationRecord, RolloutRecord, Timestamp,
};
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;

/// Reads all records.
pub(super) fn load(store: &dyn Store, path: &Path) -> Result<Tables, StoreError> {
    let mut tables = Tables::default();
    if let Some(meta) = read::<serde_json::Value>(store, path, Table::Meta)?.pop() {
        // The version first: what else is in there is that version's to know.
        let found = meta.get("schema").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if found > SCHEMA_VERSION {
            return Err(StoreError::LaterSchema { path: path.to_owned(), found });
        }
        if found < SCHEMA_VERSION {
            crate::store::upgrade(store, path, found)?;
            return load(store, path);
        }
        tables.meta = serde_json::from_value(meta).map_err(|error| StoreError::CorruptRecord {
            path: path.to_owned(),
            table: Table::Meta.name(),
            key: "meta".into(),
            reason: error.to_string(),
        })?;
    }
    for record in read::<NodeRecord>(store, path, Table::Nodes)? {
        tables.insert_node(Arc::new(record));
    }
    for record in read::<ForgottenRecord>(store, path, Table::Forgotten)? {
        tables.forgotten.insert(record.node, record.name);
    }
    for record in read::<DeviceRecord>(store, path, Table::Devices)? {
        tables.devices.insert(record.address.clone(), record);
    }
    for record in read::<EpochRecord>(store, path, Table::Epochs)? {
        tables.epochs.insert(record.address, record.highest);
    }
    for record in read::<AllocationRecord>(store, path, Table::Allocations)? {
        tables.insert_allocation(Arc::new(record));
    }
    for record in read::<BindingRecord>(store, path, Table::Bindings)? {
        tables.insert_binding(Arc::new(record));
    }
    for record in read::<OperationRecord>(store, path, Table::Operations)? {
        tables.insert_operation(Arc::new(record));
    }
    for record in read::<KeyRecord>(store, path, Table::Keys)? {
        tables.insert_key(Arc::new(record));
    }
    tables.sort_events(read::<EventRecord>(store, path, Table::Events)?);
    for record in read::<AuditRecord>(store, path, Table::Audit)? {
        tables.audit.insert(record.sequence, record);
    }
    for (key, value) in store.read(Table::Images)? {
        let record = image(&value).map_err(|reason| StoreError::CorruptRecord {
            path: path.to_owned(),
            table: Table::Images.name(),
            key: readable(&key),
            reason,
        })?;
        tables.images.insert(record.label.id, Arc::new(record));
    }
    for record in read::<HoldRecord>(store, path, Table::Holds)? {
        tables.holds.insert(record.place.clone(), record);
    }
    for record in read::<HealthRecord>(store, path, Table::Health)? {
        tables.health.insert(record.subject.clone(), record);
    }
    for record in read::<ModelRecord>(store, path, Table::Models)? {
        tables.models.insert(record.model.clone(), record);
    }
    for record in read::<ErasureRecord>(store, path, Table::Erasures)? {
        tables.insert_erasure(Arc::new(record));
    }
    tables.rollout = read::<RolloutRecord>(store, path, Table::Rollout)?.pop().map(Arc::new);
    let inventory = read::<InventoryRecord>(store, path, Table::Inventory)?.pop();
    tables.refresh_pool(Arc::new(Facts::new(inventory.unwrap_or_default())));
    Ok(tables)
}

/// An image as it stands in the store.
pub(super) fn image(value: &[u8]) -> Result<ImageRecord, String> {
    let (since, bytes) = value.split_first_chunk::<8>().ok_or("it is too short")?;
    let label = ImageLabel::of(bytes).map_err(|problem| problem.detail)?;
    let since = Timestamp::from_millis(u64::from_be_bytes(*since));
    Ok(ImageRecord { label, since, bytes: bytes.to_vec() })
}

fn read<T: DeserializeOwned>(
    store: &dyn Store,
    path: &Path,
    table: Table,
) -> Result<Vec<T>, StoreError> {
    let parse = |(key, value): (Vec<u8>, Vec<u8>)| {
        serde_json::from_slice(&value).map_err(|error| StoreError::CorruptRecord {
            path: path.to_owned(),
            table: table.name(),
            key: readable(&key),
            reason: error.to_string(),
        })
    };
    store.read(table)?.into_iter().map(parse).collect()
}

/// A key as a person can look for it.
pub(super) fn readable(key: &[u8]) -> String {
    match <[u8; 8]>::try_from(key) {
        Ok(number) => u64::from_be_bytes(number).to_string(),
        Err(_) => String::from_utf8_lossy(key).into_owned(),
    }
}
