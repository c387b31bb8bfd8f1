//! Stores of earlier versions, brought to this one's.
//!
//! Each version has one step from the one before. All steps that a store needs are one durable
//! batch, so that it has one version or the other. Before, a copy is kept beside it.

use super::{Change, SCHEMA_VERSION, Store, StoreError, Table};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a step changes, on top of what is in the store.
pub(crate) struct Draft<'a> {
    store: &'a dyn Store,
    changes: BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>>,
}

impl Draft<'_> {
    /// Every record of a table as the steps before have left it.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    pub(crate) fn read(&self, table: Table) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, StoreError> {
        let mut records: BTreeMap<_, _> = self.store.read(table)?.into_iter().collect();
        for ((of, key), value) in &self.changes {
            match value {
                _ if *of != table => {}
                Some(value) => drop(records.insert(key.clone(), value.clone())),
                None => drop(records.remove(key)),
            }
        }
        Ok(records)
    }

    /// Adds, replaces or takes out a record.
    pub(crate) fn put(&mut self, table: Table, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.changes.insert((table, key), value);
    }
}

/// From one version to the next.
pub(crate) type Step = fn(&mut Draft) -> Result<(), StoreError>;

/// Step `n` leads from version `n + 1` to the one after it.
const STEPS: &[Step] = &[
    // Records of version 1 read as they are: what version 2 has more has a default. Version 2 has
    // kinds of operations, events and records that a version 1 would call damage.
    |_| Ok(()),
    keys_of_operations,
];

const _: () = assert!(STEPS.len() as u64 == SCHEMA_VERSION - 1, "each version has its step");

/// Version 3 has clients' idempotency keys in a table of their own.
fn keys_of_operations(draft: &mut Draft) -> Result<(), StoreError> {
    for (id, value) in draft.read(Table::Operations)? {
        // What does not read is named when all records are read.
        let Ok(mut operation) = serde_json::from_slice::<serde_json::Value>(&value) else {
            continue;
        };
        let Some(fields) = operation.as_object_mut() else { continue };
        let request = fields.remove("client_request");
        let request = request.as_ref().and_then(serde_json::Value::as_str);
        let key = fields.get("client_key").and_then(serde_json::Value::as_str);
        if let (Some(key), Some(request)) = (key, request) {
            let record = serde_json::json!({
                "key": key,
                "operation": fields["id"],
                "digest": crate::records::digest(request),
                "since": fields["started"],
            });
            let key = key.as_bytes().to_vec();
            draft.put(Table::Keys, key, Some(record.to_string().into_bytes()));
        }
        draft.put(Table::Operations, id, Some(operation.to_string().into_bytes()));
    }
    Ok(())
}

/// Where the copy of a store of an earlier version is kept.
pub fn kept(path: &Path, version: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".schema-{version}"));
    PathBuf::from(name)
}

/// Brings a store of version `found` to this one's. `path` is its file.
///
/// # Errors
///
/// When it cannot be read or written, or its copy cannot be kept. Then it is as it was.
pub(crate) fn upgrade(store: &dyn Store, path: &Path, found: u64) -> Result<(), StoreError> {
    run(store, path, found, STEPS)
}

fn run(store: &dyn Store, path: &Path, found: u64, steps: &[Step]) -> Result<(), StoreError> {
    let copy = kept(path, found);
    // One that is there is of an upgrade that did not come to its end, or of a store before this.
    match std::fs::remove_file(&copy) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(StoreError::io(&copy, "removed", error));
        }
        _ => {}
    }
    store.copy(&copy)?;
    let mut draft = Draft { store, changes: BTreeMap::new() };
    for step in steps.iter().skip((found.max(1) - 1) as usize) {
        step(&mut draft)?;
    }
    let key = b"meta".to_vec();
    let meta = draft.read(Table::Meta)?.remove(&key).unwrap_or_default();
    let mut meta: serde_json::Value =
        serde_json::from_slice(&meta).map_err(|error| StoreError::CorruptRecord {
            path: path.to_owned(),
            table: Table::Meta.name(),
            key: "meta".into(),
            reason: error.to_string(),
        })?;
    let now = steps.len() as u64 + 1;
    meta["schema"] = now.into();
    draft.put(Table::Meta, key, Some(meta.to_string().into_bytes()));
    let changes = draft.changes.into_iter();
    let changes = changes.map(|((table, key), value)| Change { table, key, value });
    store.commit(&changes.collect::<Vec<_>>())?;
    tracing::info!(
        "the store {} had schema version {found} and has {now} now; as it was it is kept in {}",
        path.display(),
        copy.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::EmbeddedStore;

    fn old(path: &Path) -> EmbeddedStore {
        let store = EmbeddedStore::open(path).unwrap();
        let put = |table, key: &[u8], value: &str| Change {
            table,
            key: key.to_vec(),
            value: Some(value.as_bytes().to_vec()),
        };
        let meta = put(Table::Meta, b"meta", r#"{"schema":1,"term":7}"#);
        store.commit(&[meta, put(Table::Nodes, b"a", "1"), put(Table::Nodes, b"b", "2")]).unwrap();
        store
    }

    fn double(draft: &mut Draft) -> Result<(), StoreError> {
        for (key, value) in draft.read(Table::Nodes)? {
            draft.put(Table::Nodes, key, Some([value.clone(), value].concat()));
        }
        Ok(())
    }

    fn drop_first(draft: &mut Draft) -> Result<(), StoreError> {
        let first = draft.read(Table::Nodes)?.into_keys().next();
        draft.put(Table::Nodes, first.unwrap(), None);
        Ok(())
    }

    #[test]
    fn steps_stand_on_those_before_them_and_the_old_store_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let store = old(&path);
        run(&store, &path, 1, &[double, drop_first, double]).unwrap();
        assert_eq!(store.read(Table::Nodes).unwrap(), [(b"b".to_vec(), b"2222".to_vec())]);
        let meta = store.read(Table::Meta).unwrap().remove(0).1;
        let meta: serde_json::Value = serde_json::from_slice(&meta).unwrap();
        assert_eq!(meta, serde_json::json!({ "schema": 4, "term": 7 }));
        let before = EmbeddedStore::open(&kept(&path, 1)).unwrap();
        let nodes = [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())];
        assert_eq!(before.read(Table::Nodes).unwrap(), nodes);
    }

    #[test]
    fn keys_of_operations_move_to_a_table_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let store = EmbeddedStore::open(&path).unwrap();
        let put = |table, key: &[u8], value: &str| Change {
            table,
            key: key.to_vec(),
            value: Some(value.as_bytes().to_vec()),
        };
        let keyed = r#"{"id":"op-1","client_key":"k","client_request":"{}","started":"T"}"#;
        let changes = [
            put(Table::Meta, b"meta", r#"{"schema":2}"#),
            put(Table::Operations, &1_u64.to_be_bytes(), keyed),
            put(Table::Operations, &2_u64.to_be_bytes(), r#"{"id":"op-2","started":"T"}"#),
        ];
        store.commit(&changes).unwrap();
        run(&store, &path, 2, STEPS).unwrap();
        let read = |table| {
            let records = store.read(table).unwrap().into_iter();
            records.map(|(_, value)| serde_json::from_slice(&value).unwrap()).collect::<Vec<_>>()
        };
        let keys: Vec<serde_json::Value> = read(Table::Keys);
        let digest = crate::records::digest("{}");
        let expected = serde_json::json!({
            "key": "k", "operation": "op-1", "digest": digest, "since": "T",
        });
        assert_eq!(keys, [expected]);
        let operations: Vec<serde_json::Value> = read(Table::Operations);
        let first = serde_json::json!({ "id": "op-1", "client_key": "k", "started": "T" });
        assert_eq!(operations, [first, serde_json::json!({ "id": "op-2", "started": "T" })]);
    }

    #[test]
    fn a_step_that_fails_leaves_the_store_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let store = old(&path);
        let before = [Table::Meta, Table::Nodes].map(|table| store.read(table).unwrap());
        let fails: Step = |_| Err(StoreError::GenerationsExhausted("x".into()));
        run(&store, &path, 1, &[double, fails]).unwrap_err();
        assert_eq!([Table::Meta, Table::Nodes].map(|table| store.read(table).unwrap()), before);
        // Once more is no worse for the copy that is there.
        run(&store, &path, 1, &[double]).unwrap();
    }
}
