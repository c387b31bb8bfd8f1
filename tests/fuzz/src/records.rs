//! The records of a store, whatever bytes they are: each that does not read is named with a reason,
//! and when those are taken out, or there are none, a manager starts on what is left.
//!
//! The file that they are in is not here: redb panics on some damage, which the manager catches and
//! the fuzzer would not. `manager/src/store/check/tests.rs` damages files.

use crate::input::Input;
use crate::pool::Memory;
use manager::records::{Inspection, Records, inspect, next_generation};
use manager::store::{Change, Record, Store, StoreError, Table};
use std::path::Path;
use std::sync::Arc;

const MAX_RECORDS: usize = 100;

/// A store of an earlier version is copied before it is brought up to date.
#[derive(Default)]
struct Copied(Memory);

impl Store for Copied {
    fn read(&self, table: Table) -> Result<Vec<Record>, StoreError> {
        self.0.read(table)
    }

    fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        self.0.commit(changes)
    }

    fn copy(&self, _to: &Path) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A record as [`run`] takes it.
pub fn encode(table: Table, key: &[u8], value: &[u8]) -> Vec<u8> {
    let number = Table::ALL.iter().position(|known| *known == table).expect("they are all there");
    let value_len = (value.len() as u16).to_le_bytes();
    [&[number as u8, key.len() as u8][..], key, &value_len, value].concat()
}

/// Takes records: table, length of the key, key, length of the value, value.
pub fn run(data: &[u8]) {
    let path = Path::new("/nonexistent/pool");
    let store = Arc::new(Copied::default());
    // It has counters, unless the input has others.
    drop(Records::open(store.clone(), path).expect("it is empty"));
    let mut input = Input::new(data);
    for _ in 0..MAX_RECORDS {
        if input.is_empty() {
            break;
        }
        let table = Table::ALL[usize::from(input.u8()) % Table::ALL.len()];
        let length = usize::from(input.u8());
        let key = input.bytes(length).to_vec();
        let length = usize::from(input.u16());
        let value = Some(input.bytes(length).to_vec());
        store.commit(&[Change { table, key, value }]).expect("memory can be written");
    }
    // Of a file with damaged pages the counters are looked at more closely.
    look(store.as_ref(), false, path);
    let Some(found) = look(store.as_ref(), true, path) else { return };
    let changes: Option<Vec<_>> = found
        .damaged
        .iter()
        .map(|damage| {
            let (table, (key, _)) = damage.record.clone()?;
            Some(Change { table, key, value: None })
        })
        .collect();
    // What cannot be taken out cannot be repaired.
    let Some(changes) = changes else { return };
    store.commit(&changes).expect("memory can be written");
    match next_generation(store.as_ref(), path, found.shown_generation) {
        Err(StoreError::GenerationsExhausted(_)) => return,
        moved => drop(moved.expect("what reads can be used")),
    }
    let above = |found: &Inspection| found.generation > found.shown_generation;
    let again = look(store.as_ref(), true, path).expect("it is of this version");
    assert!(again.damaged.is_empty(), "{again:?}");
    assert!(again.shown_generation == u8::MAX || above(&again), "{again:?}");
    Records::open(store, path).expect("a manager starts on it");
}

/// What there is; nothing if it is of a later version.
fn look(store: &Copied, whole: bool, path: &Path) -> Option<Inspection> {
    let mut read = |table| (store.read(table).expect("memory can be read"), None);
    let found = match inspect(&mut read, whole, path) {
        Err(StoreError::LaterSchema { .. }) => return None,
        found => found.expect("that is all that can be wrong"),
    };
    for damage in &found.damaged {
        assert!(!damage.reason.is_empty(), "{damage:?}");
        let shown = damage.key.as_deref().unwrap_or_default();
        assert!(!shown.contains(char::is_control), "{damage:?}");
    }
    Some(found)
}
