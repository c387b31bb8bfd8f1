//! Looks for what does not read in a store that no manager has open, and takes it out.
//!
//! All of that is done to a copy, or, where pages are damaged, to a new store of what reads. The
//! store itself is never written: what was repaired takes its place in one move, and it is kept.

use super::aside::{self, Held, Pages};
use super::files::{self, WorkingCopy, beside};
use super::{Change, EmbeddedStore, SCHEMA_VERSION, Store, StoreError, Table, kept};
use crate::records::{Damage, Inspection, inspect, next_generation};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The store.
    pub store: PathBuf,
    /// Its records, those that do not read among them.
    pub records: usize,
    /// Whether its pages agree with their checksums. If not, records that read may not be what was
    /// written.
    pub whole: bool,
    /// Whether its last write is not there as it was written. These are the records of the one before,
    /// to which whoever opens it goes back.
    pub goes_back: bool,
    /// What does not read.
    pub damaged: Vec<Damage>,
    /// Generation of the epochs that it gives out; 0 if its counters do not read.
    pub generation: u8,
    /// The highest generation of an epoch that its other records show. A later one is of a box that
    /// was in another pool, or the counters are not as they were written.
    pub shown_generation: u8,
    /// What became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repaired: Option<Repaired>,
}

/// What a repair left.
#[derive(Clone, Debug, Serialize)]
pub struct Repaired {
    /// The store as it was.
    pub kept: PathBuf,
    /// The records that were taken out, as JSON.
    pub taken_out: PathBuf,
    /// The generation that it begins: above all that its records showed.
    pub generation: u8,
}

impl Report {
    fn of(path: &Path, found: Inspection, whole: bool) -> Self {
        Self {
            store: path.to_owned(),
            records: found.records,
            whole,
            goes_back: false,
            damaged: found.damaged,
            generation: found.generation,
            shown_generation: found.shown_generation,
            repaired: None,
        }
    }

    /// Whether all that was written reads, or does now.
    pub fn is_good(&self) -> bool {
        self.repaired.is_some() || (self.whole && !self.goes_back && self.damaged.is_empty())
    }

    /// Whether a repair leaves nothing that does not read. Where pages are damaged, tables may have
    /// lost records, but not the counters.
    pub fn is_repairable(&self) -> bool {
        let is_lost = |damage: &Damage| !self.whole && damage.table != Table::Meta.name();
        self.damaged.iter().all(|damage| damage.record.is_some() || is_lost(damage))
    }
}

/// Reads every record of a store that no manager has open, and of one with damaged pages what can be
/// reached. With `repair` those that do not read are taken out, if that is all that is wrong, or a
/// new store is made of those that were reached; and the store goes to the next generation that is
/// above all that its records show, as one that is restored does: epochs and numbers that only those
/// records knew do not come again.
///
/// # Errors
///
/// When the store is in use, is no store, was written by a later version, or a file cannot be read
/// or written. Then it is as it was.
pub fn check(path: &Path, repair: bool) -> Result<Report, StoreError> {
    let path = &files::place_of(path)?;
    // A manager that has it open has its lock, and none gets it meanwhile.
    let held = Held::take(path)?;
    let file = held.file();
    if file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
        // Of an empty file redb would make a store.
        let reason = "the file is empty".to_owned();
        return Err(StoreError::Corrupt { path: path.to_owned(), reason });
    }
    let copy = beside(path, ".checking");
    let checked = match aside::look(file, path)? {
        Pages::Whole | Pages::Unfinished => checked_copy(path, &copy, false, repair),
        Pages::Behind => checked_copy(path, &copy, true, repair),
        Pages::Damaged(_) => damaged_pages(path, file, &copy, repair),
    };
    // After a repair it is not there any more.
    let _ = fs::remove_file(&copy);
    // What is wrong with the copy is wrong with the store.
    checked.map_err(|error| error.said_of(path))
}

fn checked_copy(
    path: &Path,
    copy: &Path,
    goes_back: bool,
    repair: bool,
) -> Result<Report, StoreError> {
    let copy = WorkingCopy::of(path, copy.to_owned())?;
    let copy = copy.path();
    let store = EmbeddedStore::open_looked_at(copy)?;
    let mut read = |table| match store.read(table) {
        Ok(records) => (records, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let found = inspect(&mut read, true, path)?;
    let schema = found.schema;
    let mut report = Report { goes_back, ..Report::of(path, found, true) };
    if repair && !report.is_good() && report.is_repairable() {
        take_out(&store, &report.damaged)?;
        report.repaired = Some(finish(&report, copy, store, schema)?);
    }
    Ok(report)
}

/// Makes a store that was repaired one that is used.
fn finish(
    report: &Report,
    new: &Path,
    store: EmbeddedStore,
    schema: u64,
) -> Result<Repaired, StoreError> {
    // What showed it may be among what was taken out.
    let generation = next_generation(&store, new, report.shown_generation)?;
    drop(store);
    if schema < SCHEMA_VERSION {
        // What was brought up is kept as it was already.
        let _ = fs::remove_file(kept(new, schema));
    }
    let (kept, taken_out) = put_in_place(&report.store, new, &report.damaged)?;
    Ok(Repaired { kept, taken_out, generation })
}

/// As [`checked_copy`], of a file whose pages are damaged. With `repair` what reads of it is written
/// to a new store.
fn damaged_pages(path: &Path, file: &File, new: &Path, repair: bool) -> Result<Report, StoreError> {
    // Each table is read once: where that panics, redb is left open with its cache.
    let mut reached = Vec::new();
    let mut read = |table| {
        let (records, missing) = aside::read_what_reads(file, table);
        if repair {
            reached.push((table, records.clone()));
        }
        (records, missing)
    };
    let found = inspect(&mut read, false, path)?;
    let schema = found.schema;
    let mut report = Report::of(path, found, false);
    if !repair || !report.is_repairable() {
        return Ok(report);
    }
    // One that is there is of a repair that did not come to its end.
    let _ = fs::remove_file(new);
    let store = EmbeddedStore::open(new)?;
    let taken = report.damaged.iter().filter_map(|damage| damage.record.as_ref());
    let taken: BTreeSet<_> = taken.map(|(table, (key, _))| (*table, key.as_slice())).collect();
    for (table, records) in reached {
        let good = records.into_iter().filter(|(key, _)| !taken.contains(&(table, key.as_slice())));
        let change = |(key, value)| Change { table, key, value: Some(value) };
        store.commit(&good.map(change).collect::<Vec<_>>())?;
    }
    report.repaired = Some(finish(&report, new, store, schema)?);
    Ok(report)
}

fn take_out(store: &dyn Store, damaged: &[Damage]) -> Result<(), StoreError> {
    let changes = damaged.iter().filter_map(|damage| damage.record.as_ref());
    let changes =
        changes.map(|(table, (key, _))| Change { table: *table, key: key.clone(), value: None });
    store.commit(&changes.collect::<Vec<_>>())
}

/// A record as it is written to the file of those that were taken out; or a table of which records
/// could not be reached.
#[derive(Serialize)]
struct TakenOut<'a> {
    #[serde(flatten)]
    damage: &'a Damage,
    key_hex: Option<String>,
    /// What stood there, if that is text.
    text: Option<&'a str>,
    value_hex: Option<String>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes what was taken out, keeps the store and puts its repaired copy in its place; all of it is
/// on the disk when this returns. Gives where the store as it was is, and what was taken out.
fn put_in_place(
    path: &Path,
    copy: &Path,
    damaged: &[Damage],
) -> Result<(PathBuf, PathBuf), StoreError> {
    let taken: Vec<TakenOut> = damaged
        .iter()
        .map(|damage| {
            let record = damage.record.as_ref().map(|(_, record)| record);
            let text = record.and_then(|(_, value)| std::str::from_utf8(value).ok());
            let key_hex = record.map(|(key, _)| hex(key));
            TakenOut { damage, key_hex, text, value_hex: record.map(|(_, value)| hex(value)) }
        })
        .collect();
    // What an earlier repair left is not overwritten.
    let free = (1_u32..).map(|n| beside(path, &format!(".damaged-{n}")));
    let mut free = free.filter(|kept| !kept.exists() && !beside(kept, ".json").exists());
    let kept = free.next().expect("some number is free");
    let taken_out = beside(&kept, ".json");
    let written = |path: &Path| {
        let path = path.to_owned();
        move |error| StoreError::io(&path, "written", error)
    };
    let text = serde_json::to_string_pretty(&taken).expect("it is JSON");
    let mut file = File::create_new(&taken_out).map_err(written(&taken_out))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(written(&taken_out))?;
    File::open(copy).and_then(|file| file.sync_all()).map_err(written(copy))?;
    // A second name first, so that there is a store at every moment.
    fs::hard_link(path, &kept)
        .or_else(|_| fs::copy(path, &kept).and_then(|_| File::open(&kept)?.sync_all()))
        .map_err(written(&kept))?;
    files::replace(copy, path)?;
    Ok((kept, taken_out))
}

#[cfg(test)]
mod tests;
