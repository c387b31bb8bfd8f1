//! Looks at a store's file without writing it: redb writes when it opens, checks and closes a file;
//! all of that goes to memory here. So a damaged file stays as it was for whoever looks next.

use super::embedded::{any_error, definition, open_error, storage_error};
use super::{Record, StoreError, Table};
use redb::{Builder, Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable};
use redb::{ReadableTableMetadata, RepairSession, StorageBackend, StorageError};
use redb::{TableError, TableHandle};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// What redb may keep of the file in memory: each page is looked at a few times only, and what
/// panics keeps it (see [`with`]).
const CACHE: usize = 16 << 20;

/// What is written is kept in blocks of this size.
const BLOCK: u64 = 4096;

/// A file that is read, with what is written to it kept in memory.
#[derive(Debug)]
struct Aside {
    file: File,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    len: u64,
    /// So much of the file counts; behind it are zeroes.
    valid: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Aside {
    fn new(file: &File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let written = Written { len, valid: len, blocks: BTreeMap::new() };
        Ok(Self { file: file.try_clone()?, written: Mutex::new(written) })
    }

    /// Makes the slot of the header that the last write did not go to look damaged, so that redb does
    /// not choose it. Where they are: redb, docs/design.md, "Database header" and "Transaction slot 0".
    fn leave_the_last_write_only(&self) -> io::Result<()> {
        const GOD_BYTE: u64 = 9;
        const PRIMARY_BIT: u8 = 1;
        const SLOTS: [u64; 2] = [64, 192];
        const CHECKSUM: u64 = 112;
        let mut god_byte = [0];
        self.read(GOD_BYTE, &mut god_byte)?;
        let place = SLOTS[usize::from(god_byte[0] & PRIMARY_BIT == 0)] + CHECKSUM;
        let mut checksum = [0; 16];
        self.read(place, &mut checksum)?;
        self.write(place, &checksum.map(|byte| !byte))
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_file(&self, valid: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = valid.saturating_sub(offset).min(out.len() as u64);
        let (there, behind) = out.split_at_mut(there as usize);
        behind.fill(0);
        self.file.read_exact_at(there, offset)
    }
}

fn within(len: u64, offset: u64, size: usize) -> io::Result<u64> {
    let end = offset.checked_add(size as u64).filter(|end| *end <= len);
    end.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

impl StorageBackend for Aside {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written();
        let end = within(written.len, offset, out.len())?;
        self.read_file(written.valid, offset, out)?;
        for (number, block) in written.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let start = number * BLOCK;
            let (from, to) = (start.max(offset), (start + BLOCK).min(end));
            out[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&block[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut written = self.written();
        written.valid = written.valid.min(len);
        written.blocks.retain(|number, _| number * BLOCK < len);
        if let Some(block) = written.blocks.get_mut(&(len / BLOCK)) {
            block[(len % BLOCK) as usize..].fill(0);
        }
        written.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written();
        let end = within(written.len, offset, data.len())?;
        let valid = written.valid;
        for number in offset / BLOCK..end.div_ceil(BLOCK) {
            let start = number * BLOCK;
            let block = match written.blocks.entry(number) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(free) => {
                    let mut block = vec![0; BLOCK as usize];
                    self.read_file(valid, start, &mut block)?;
                    free.insert(block)
                }
            };
            let (from, to) = (start.max(offset), (start + BLOCK).min(end));
            block[(from - start) as usize..(to - start) as usize]
                .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
        }
        Ok(())
    }
}

/// What the pages of a file are.
pub(super) enum Pages {
    /// They agree with their checksums.
    Whole,
    /// Whoever wrote it was killed; those of the last write agree with their checksums.
    Unfinished,
    /// Whoever wrote it was killed, and those of the last write do not agree with their checksums:
    /// redb goes back to the one before when it opens the file, without a word. Whoever asked for
    /// that write may have been answered, or not.
    Behind,
    /// They do not agree with their checksums.
    Damaged(String),
}

/// What is said of damage that redb did not foresee: it panics then.
const STRUCTURE: &str = "its structure is damaged";

fn aside(file: &File) -> Result<Aside, DatabaseError> {
    Aside::new(file).map_err(|error| DatabaseError::Storage(error.into()))
}

/// Opens a file unless it has to be repaired.
fn open(file: &File) -> Result<Database, DatabaseError> {
    open_with(aside(file)?, |repair| repair.abort())
}

fn open_with(
    aside: Aside,
    repair: impl Fn(&mut RepairSession) + 'static,
) -> Result<Database, DatabaseError> {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE).set_repair_callback(repair);
    catch_unwind(AssertUnwindSafe(|| builder.create_with_backend(aside)))
        .unwrap_or_else(|_| Err(StorageError::Corrupted(STRUCTURE.into()).into()))
}

/// Whether the last write of a file whose writer was killed is there as it was written.
fn has_last_write(file: &File) -> Result<bool, DatabaseError> {
    let aside = aside(file)?;
    aside.leave_the_last_write_only().map_err(|error| DatabaseError::Storage(error.into()))?;
    let compared = Arc::new(AtomicBool::new(false));
    let noted = compared.clone();
    let opened = open_with(aside, move |repair| {
        // redb says how far it is: 0.0 before it compares the pages, 0.6 when they agree, and 0.3
        // between the two when they did not and it goes back to the other slot.
        if repair.progress() > 0.0 {
            noted.store(repair.progress() > 0.5, Ordering::Relaxed);
            repair.abort();
        }
    });
    if let Ok(database) = opened {
        let _ = with(database, |_| ());
    }
    Ok(compared.load(Ordering::Relaxed))
}

/// Does something with a database that may make it panic.
fn with<T>(mut database: Database, act: impl FnOnce(&mut Database) -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(|| act(&mut database))) {
        Ok(done) => {
            // It writes when it closes.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
            Some(done)
        }
        Err(_) => {
            // Whatever it would do is of no use, and may panic again. That keeps its memory, up to
            // CACHE for each of the few times that this happens before the program ends.
            std::mem::forget(database);
            None
        }
    }
}

/// Compares all pages of a file with their checksums.
///
/// # Errors
///
/// When it cannot be read, is no store, or has no write that is there as it was written.
pub(super) fn look(file: &File, path: &Path) -> Result<Pages, StoreError> {
    let database = match open(file) {
        Ok(database) => database,
        Err(DatabaseError::RepairAborted) => return look_unfinished(file, path),
        Err(error) => return Err(open_error(path, error)),
    };
    let error = match with(database, Database::check_integrity) {
        Some(Ok(true)) => return Ok(Pages::Whole),
        Some(Ok(false)) => {
            let reason = "its list of free pages or its length is not what its pages say";
            return Ok(Pages::Damaged(reason.into()));
        }
        None => return Ok(Pages::Damaged(STRUCTURE.into())),
        Some(Err(DatabaseError::Storage(error))) => storage_error(path, "read", error),
        Some(Err(error)) => open_error(path, error),
    };
    match error {
        StoreError::Corrupt { reason, .. } => Ok(Pages::Damaged(reason)),
        error => Err(error),
    }
}

fn look_unfinished(file: &File, path: &Path) -> Result<Pages, StoreError> {
    if has_last_write(file).map_err(|error| open_error(path, error))? {
        return Ok(Pages::Unfinished);
    }
    // If there is nothing to go back to, it says so.
    let opened = aside(file).and_then(|aside| open_with(aside, |_| ()));
    let database = opened.map_err(|error| open_error(path, error))?;
    let _ = with(database, |_| ());
    Ok(Pages::Behind)
}

/// Takes the lock that whoever has a store open has.
///
/// # Errors
///
/// When somebody has it.
pub(super) fn lock(file: &File, path: &Path) -> Result<(), StoreError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => StoreError::Locked(path.to_owned()),
        TryLockError::Error(source) => StoreError::io(path, "locked", source),
    })
}

/// Which file it is. Its number alone is not enough: that of a file that was removed is given to the
/// next one, and other disks count from the same. A file that is kept open would keep its number, but
/// its disk could not be unmounted to be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    inode: u64,
    /// Nothing where the file system does not say.
    made: Option<SystemTime>,
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { inode: metadata.ino(), made: metadata.created().ok() }
    }
}

/// A store's file with the lock that whoever has it open has.
#[derive(Debug)]
pub(super) struct Held(File);

impl Held {
    /// Takes the lock of the file that has a name.
    ///
    /// # Errors
    ///
    /// When it is in use or cannot be read.
    pub(super) fn take(path: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io(path, "read", error);
        let file = File::open(path).map_err(failed)?;
        lock(&file, path)?;
        let held = Self(file);
        let named = Identity::of(&fs::metadata(path).map_err(failed)?);
        // Whoever had the lock may have put another file in its place.
        if named != held.identity(path)? {
            return Err(StoreError::Locked(path.to_owned()));
        }
        Ok(held)
    }

    /// Which file it is. `path` is for the error.
    ///
    /// # Errors
    ///
    /// When the operating system does not say.
    pub(super) fn identity(&self, path: &Path) -> Result<Identity, StoreError> {
        let metadata = self.0.metadata().map_err(|error| StoreError::io(path, "read", error))?;
        Ok(Identity::of(&metadata))
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Also of what is left open after a panic.
        let _ = self.0.unlock();
    }
}

/// Compares all pages of the file that has a name with their checksums: what they hold may still
/// read, and not be what was written. redb compares them only after a kill. Nothing if there is no
/// store: a new one is made then, and of all else it is said what it is, by who opens it.
///
/// # Errors
///
/// When they do not agree and there is nothing to go back to, or the file is in use or cannot be read.
pub(super) fn hold(path: &Path) -> Result<Option<(Held, Pages)>, StoreError> {
    if !fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0) {
        return Ok(None);
    }
    let held = Held::take(path)?;
    match look(&held.0, path)? {
        Pages::Damaged(reason) => Err(StoreError::Damaged { path: path.to_owned(), reason }),
        pages => Ok(Some((held, pages))),
    }
}

/// All records of a table that can be reached from its front or from its back, in the order of
/// their keys; and why those are not all, if they are not. A file with damaged pages may have lost
/// the whole of one that has none: nothing in it tells that from a table that is empty.
pub(super) fn read_what_reads(file: &File, table: Table) -> (Vec<Record>, Option<String>) {
    let mut front = Vec::new();
    let Err(reason) = walk(file, table, None, &mut front) else {
        let nothing = "it has no records; if it had some, they are lost";
        let missing = front.is_empty().then(|| nothing.to_owned());
        return (front, missing);
    };
    let mut back = Vec::new();
    let last = front.last().map_or(&[][..], |(key, _)| key);
    // Why it ends is known.
    let _ = walk(file, table, Some(last), &mut back);
    front.extend(back.into_iter().rev());
    let reason = format!("{reason}; {} of its records can be reached", front.len());
    (front, Some(reason))
}

/// The records of a table that can be reached from its front, also of a file whose writer was killed:
/// as they were after the last write that is whole. And whether those are all.
pub(super) fn read_after_repair(
    file: &File,
    path: &Path,
    table: Table,
) -> (Vec<Record>, Result<(), StoreError>) {
    let mut found = Vec::new();
    let database = match aside(file).and_then(|aside| open_with(aside, |_| ())) {
        Ok(database) => database,
        Err(error) => return (found, Err(open_error(path, error))),
    };
    let read = with(database, |database| walk_in(database, table, None, &mut found));
    let read = read.unwrap_or_else(|| Err(redb::Error::Corrupted(STRUCTURE.into())));
    (found, read.map_err(|error| any_error(path, "read", error)))
}

/// Reads a table from its front; or from its back, until a key.
fn walk(
    file: &File,
    table: Table,
    back_to: Option<&[u8]>,
    into: &mut Vec<Record>,
) -> Result<(), String> {
    let database = open(file).map_err(|error| error.to_string())?;
    with(database, |database| {
        walk_in(database, table, back_to, into).map_err(|error| error.to_string())
    })
    .unwrap_or_else(|| Err(STRUCTURE.into()))
}

/// Whether the list of tables, in which one is not found, may be as it was written.
fn listed(read: &ReadTransaction, table: Table) -> Result<(), redb::Error> {
    for found in read.list_tables()? {
        let name = found.name();
        if name == table.name() || Table::ALL.iter().all(|known| known.name() != name) {
            let reason =
                format!("it is not found in the list of tables, in which {name:?} is wrong");
            return Err(redb::Error::Corrupted(reason));
        }
    }
    Ok(())
}

fn walk_in(
    database: &Database,
    table: Table,
    back_to: Option<&[u8]>,
    into: &mut Vec<Record>,
) -> Result<(), redb::Error> {
    let read = database.begin_read()?;
    let opened = match read.open_table(definition(table)) {
        Err(TableError::TableDoesNotExist(_)) => return listed(&read, table),
        opened => opened?,
    };
    let mut entries = opened.iter()?;
    loop {
        let entry = match back_to {
            None => entries.next(),
            Some(_) => entries.next_back(),
        };
        let Some(entry) = entry else { break };
        let (key, value) = entry?;
        let key = key.value().to_vec();
        // Damage may lead back to where it came from.
        let in_order = into.last().is_none_or(|(last, _)| match back_to {
            None => key > *last,
            Some(_) => key < *last,
        });
        if !in_order {
            return Err(redb::Error::Corrupted("its keys are out of order".into()));
        }
        if back_to.is_some_and(|until| key.as_slice() <= until) {
            break;
        }
        into.push((key, value.value().to_vec()));
    }
    let (all, found) = (opened.len()?, into.len() as u64);
    if back_to.is_none() && all != found {
        let reason = format!("it had {all} records and {found} are found");
        return Err(redb::Error::Corrupted(reason));
    }
    Ok(())
}
