//! What of a store does not read, record by record.

use super::keys::KeyRecord;
use super::load::{image, readable};
use super::meta::Meta;
use super::tables::{EpochRecord, ForgottenRecord};
use crate::store::{Record, SCHEMA_VERSION, StoreError, Table};
use crate::types::{
    AllocationRecord, AuditRecord, BindingRecord, DeviceRecord, ErasureRecord, EventRecord,
    HealthRecord, HoldRecord, InventoryRecord, ModelRecord, NodeRecord, OperationRecord,
    RolloutRecord,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::path::Path;

/// Something that does not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// In which table.
    pub table: &'static str,
    /// Which record; nothing if it is the table, all of it or what of it cannot be reached.
    pub key: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// Where it is and what stands there; nothing if it cannot be taken out.
    #[serde(skip)]
    pub record: Option<(Table, Record)>,
}

impl Damage {
    fn of_record(table: Table, record: Record, reason: String) -> Self {
        let key = Some(readable(&record.0));
        // Without its counters a store would give out again what it gave out before.
        let record = (table != Table::Meta).then_some((table, record));
        Self { table: table.name(), key, reason, record }
    }

    fn of_table(table: Table, reason: String) -> Self {
        Self { table: table.name(), key: None, reason, record: None }
    }
}

/// What a store has.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Records of all tables.
    pub records: usize,
    /// Those that do not read.
    pub damaged: Vec<Damage>,
    /// Version of the form of the records, as far as that reads.
    pub schema: u64,
}

/// Looks at every record of every table. `read` gives those of a table, and why they are not all of
/// them, if they are not. `whole` is whether what it reads from is whole. `path` is for error
/// messages.
///
/// # Errors
///
/// When a later version wrote it: what reads is that version's to say.
pub fn inspect(
    read: &mut dyn FnMut(Table) -> (Vec<Record>, Option<String>),
    whole: bool,
    path: &Path,
) -> Result<Inspection, StoreError> {
    let mut found = Inspection::default();
    let mut allocations = BTreeSet::new();
    let mut bindings = Vec::new();
    for &table in Table::ALL {
        let (records, missing) = read(table);
        found.damaged.extend(missing.map(|reason| Damage::of_table(table, reason)));
        if table == Table::Meta {
            found.schema = schema(&records, path)?;
        }
        found.records += records.len();
        for record in records {
            if let Err(reason) = fault(table, &record.1) {
                found.damaged.push(Damage::of_record(table, record, reason));
                continue;
            }
            match table {
                Table::Allocations => drop(allocations.insert(record.0)),
                Table::Bindings => bindings.push(record),
                _ => {}
            }
        }
    }
    for record in bindings {
        let binding: BindingRecord = serde_json::from_slice(&record.1).expect("it was read before");
        let allocation = binding.allocation;
        if !allocations.contains(&allocation.0.to_be_bytes()[..]) {
            let reason = format!("there is no {allocation}, for which it was made");
            found.damaged.push(Damage::of_record(Table::Bindings, record, reason));
        }
    }
    let meta_is_named = found.damaged.iter().any(|damage| damage.table == Table::Meta.name());
    let is_empty = whole && found.records == 0;
    if found.schema == 0 && !is_empty && !meta_is_named {
        let reason = "it has no counters, from which numbers are given out".to_owned();
        found.damaged.push(Damage::of_table(Table::Meta, reason));
    }
    Ok(found)
}

/// The version that the records say; 0 if there is none or it does not read.
fn schema(meta: &[Record], path: &Path) -> Result<u64, StoreError> {
    let Some((_, value)) = meta.last() else { return Ok(0) };
    let value: serde_json::Value = serde_json::from_slice(value).unwrap_or_default();
    let found = value.get("schema").and_then(serde_json::Value::as_u64).unwrap_or(0);
    if found > SCHEMA_VERSION {
        return Err(StoreError::LaterSchema { path: path.to_owned(), found });
    }
    Ok(found)
}

/// Why a record does not read.
fn fault(table: Table, value: &[u8]) -> Result<(), String> {
    fn json<T: DeserializeOwned>(value: &[u8]) -> Result<(), String> {
        serde_json::from_slice::<T>(value).map(drop).map_err(|error| error.to_string())
    }
    match table {
        Table::Meta => json::<Meta>(value),
        Table::Nodes => json::<NodeRecord>(value),
        Table::Devices => json::<DeviceRecord>(value),
        Table::Epochs => json::<EpochRecord>(value),
        Table::Allocations => json::<AllocationRecord>(value),
        Table::Bindings => json::<BindingRecord>(value),
        Table::Operations => json::<OperationRecord>(value),
        Table::Events => json::<EventRecord>(value),
        Table::Images => image(value).map(drop),
        Table::Rollout => json::<RolloutRecord>(value),
        Table::Holds => json::<HoldRecord>(value),
        Table::Health => json::<HealthRecord>(value),
        Table::Models => json::<ModelRecord>(value),
        Table::Audit => json::<AuditRecord>(value),
        Table::Erasures => json::<ErasureRecord>(value),
        Table::Inventory => json::<InventoryRecord>(value),
        Table::Keys => json::<KeyRecord>(value),
        Table::Forgotten => json::<ForgottenRecord>(value),
    }
}
