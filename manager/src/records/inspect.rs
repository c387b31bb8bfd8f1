//! What of a store does not read, record by record.

use super::keys::KeyRecord;
use super::meta::{Meta, Shown};
use super::stored::{self, Key, Stored, number, readable};
use super::tables::{EpochRecord, ForgottenRecord};
use crate::store::{Record, SCHEMA_VERSION, StoreError, Table};
use crate::types::{
    AllocationRecord, AuditRecord, BindingRecord, DeviceRecord, ErasureRecord, EventRecord,
    HealthRecord, HoldRecord, ImageRecord, InventoryRecord, ModelRecord, NodeRecord,
    OperationRecord, RolloutRecord,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Something that does not read, or is not the record of its key.
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
        let key = Some(readable(table, &record.0));
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
    /// Generation of epochs that the counters say, as far as they read.
    pub generation: u8,
    /// The highest generation of an epoch that the other records show. It is later than the
    /// counters' own where a box was in a pool of a later one.
    pub shown_generation: u8,
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
    let (mut nodes, mut bindings) = (Vec::new(), Vec::new());
    let (mut meta, mut shown) = (None, Shown::default());
    for &table in Table::ALL {
        let (records, missing) = read(table);
        found.damaged.extend(missing.map(|reason| Damage::of_table(table, reason)));
        if table == Table::Meta {
            found.schema = schema(&records, path)?;
        }
        found.records += records.len();
        for record in records {
            if let Err(reason) = fault(table, &record, &mut shown) {
                found.damaged.push(Damage::of_record(table, record, reason));
                continue;
            }
            match table {
                Table::Meta => meta = Some(record),
                Table::Nodes => nodes.push(record),
                Table::Allocations => drop(allocations.insert(record.0)),
                Table::Bindings => bindings.push(record),
                _ => {}
            }
        }
    }
    bindings.retain(|record| {
        let binding: BindingRecord = stored::read(record).expect("it was read before");
        let allocation = binding.allocation;
        let has_one = allocations.contains(&allocation.key());
        if !has_one {
            let reason = format!("there is no {allocation}, for which it was made");
            found.damaged.push(Damage::of_record(Table::Bindings, record.clone(), reason));
        }
        has_one
    });
    found.damaged.extend(shared(&nodes, |node: &NodeRecord| vec![format!("number {}", node.node)]));
    found.damaged.extend(shared(&bindings, |binding: &BindingRecord| {
        vec![binding.slot.to_string(), format!("port {} of {}", binding.port, binding.host)]
    }));
    found.shown_generation = shown.generation();
    if let Some(record) = meta {
        let counters: Meta = stored::read(&record).expect("it was read before");
        found.generation = counters.generation;
        if let Some(reason) = counters.is_ahead_of(&shown).err().filter(|_| !whole) {
            found.damaged.push(Damage::of_record(Table::Meta, record, reason));
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

/// Names those of these records that have something that only one of them can have.
fn shared<T: Stored>(records: &[Record], of: impl Fn(&T) -> Vec<String>) -> Vec<Damage> {
    let mut owners: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
    for record in records {
        for owned in of(&stored::read(record).expect("it was read before")) {
            owners.entry(owned).or_default().push(record);
        }
    }
    let mut named = BTreeMap::new();
    for (owned, owners) in owners.iter().filter(|(_, owners)| owners.len() > 1) {
        for (key, _) in owners {
            let others = owners.iter().filter(|(other, _)| other != key);
            let others: Vec<_> = others.map(|(other, _)| readable(T::TABLE, other)).collect();
            let reason = format!("it has {owned}, and so has {}", others.join(", "));
            named.entry(key).or_insert(reason);
        }
    }
    let records = records.iter().filter_map(|record| Some((record, named.remove(&record.0)?)));
    records.map(|(record, reason)| Damage::of_record(T::TABLE, record.clone(), reason)).collect()
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

/// Why a record does not read, or is not the one of its key. What one that does shows is remembered.
fn fault(table: Table, record: &Record, shown: &mut Shown) -> Result<(), String> {
    fn reads<T: Stored>(record: &Record) -> Result<(), String> {
        stored::read::<T>(record).map(drop)
    }
    match table {
        Table::Meta => reads::<Meta>(record)?,
        Table::Nodes => reads::<NodeRecord>(record)?,
        Table::Devices => reads::<DeviceRecord>(record)?,
        Table::Epochs => shown.epoch(stored::read::<EpochRecord>(record)?.highest),
        Table::Allocations => reads::<AllocationRecord>(record)?,
        Table::Bindings => {
            let binding: BindingRecord = stored::read(record)?;
            binding.functions.iter().for_each(|function| shown.epoch(function.epoch));
        }
        Table::Operations => reads::<OperationRecord>(record)?,
        Table::Events => reads::<EventRecord>(record)?,
        Table::Images => reads::<ImageRecord>(record)?,
        Table::Rollout => reads::<RolloutRecord>(record)?,
        Table::Holds => reads::<HoldRecord>(record)?,
        Table::Health => reads::<HealthRecord>(record)?,
        Table::Models => reads::<ModelRecord>(record)?,
        Table::Audit => reads::<AuditRecord>(record)?,
        Table::Erasures => reads::<ErasureRecord>(record)?,
        Table::Inventory => reads::<InventoryRecord>(record)?,
        Table::Keys => {
            let key: KeyRecord = stored::read(record)?;
            shown.number(Table::Operations, key.operation.0);
        }
        Table::Forgotten => reads::<ForgottenRecord>(record)?,
    }
    if let Some(number) = number(table, &record.0) {
        shown.number(table, number);
    }
    Ok(())
}
