//! What the store alone does on the same disk: durable commits, one after the other.

use anyhow::Result;
use manager::store::{Change, EmbeddedStore, Store, Table};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a record, as those of operations are.
const RECORD: usize = 1024;

/// Commits of one record each, as many as there are in this time. How many in a second.
pub(crate) fn commits(folder: &Path, time: Duration) -> Result<f64> {
    let path = folder.join("floor.redb");
    let _ = std::fs::remove_file(&path);
    let store = EmbeddedStore::open(&path)?;
    let begun = Instant::now();
    let mut count = 0_u64;
    while begun.elapsed() < time {
        let key = (count % 1000).to_be_bytes().to_vec();
        let value = Some(vec![b'x'; RECORD]);
        store.commit(&[Change { table: Table::Operations, key, value }])?;
        count += 1;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}
