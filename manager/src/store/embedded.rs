//! The store in one file: redb.

use super::aside::{self, Held, Identity, Pages};
use super::files::{self, WorkingCopy, beside};
use super::header_last::HeaderLast;
use super::{Change, Record, Store, StoreError, Table};
use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Between two attempts to open a file again that could not be written: each reads all of it.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);

/// Where the one record of [`Table::Meta`] is.
const META_KEY: &[u8] = b"meta";

/// One file. It is locked while it is open.
///
/// A write that fails closes it: nobody can say how much of it is on the disk, and redb does nothing
/// more with a file that failed. A later write opens it again and first puts back what the failed
/// one may have left. So what was refused is not there later, and a disk that has room again is used
/// again.
pub struct EmbeddedStore {
    path: PathBuf,
    went_back: Option<PathBuf>,
    open: Mutex<Open>,
}

/// The file, and what is known of it.
struct Open {
    /// Nothing after a write that failed.
    database: Option<Arc<Database>>,
    /// The one record of [`Table::Meta`] as it was written last. Every start of a manager changes
    /// it, so it shows whether another one was here while the file was closed.
    meta: Option<Vec<u8>>,
    /// Which file it is: young stores of the same form have the same in [`Open::meta`].
    identity: Option<Identity>,
    failure: Option<Failure>,
}

/// A write that failed.
struct Failure {
    /// What stood in the records that it would have changed, the last first.
    undo: Vec<Change>,
    /// What it would have made of [`Open::meta`].
    meta: Option<Vec<u8>>,
    /// Why it failed, or why the file could not be opened again.
    reason: String,
    /// When that was.
    at: Instant,
    /// Whether another file is in its place, or another manager has used it. It is not ours any more.
    is_replaced: bool,
    /// The database that was written. While it is copied its file cannot be opened again.
    lingers: Weak<Database>,
}

pub(super) fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(table.name())
}

impl EmbeddedStore {
    /// Opens the file, or makes it. Before, all of its pages are compared with their checksums. If
    /// those of the last write before a kill are not as they were written, the store goes back to
    /// the one before, and one generation on: what the last one gave out may be known to others.
    ///
    /// # Errors
    ///
    /// When another process has it open, it is damaged, or it cannot be read or written.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let path = &files::place_of(path)?;
        let went_back = match aside::hold(path)? {
            Some((held, Pages::Behind)) => {
                let kept = put_in_place(path, path, None).map_err(|error| error.said_of(path));
                drop(held);
                kept?
            }
            _ => None,
        };
        Ok(Self { went_back, ..Self::open_looked_at(path)? })
    }

    /// As [`EmbeddedStore::open`], of a file that somebody closed.
    ///
    /// # Errors
    ///
    /// As of [`EmbeddedStore::open`], and when its last write is not there.
    pub fn open_closed(path: &Path) -> Result<Self, StoreError> {
        if let Some((_, Pages::Behind)) = aside::hold(path)? {
            let reason = "its last write is not there".to_owned();
            return Err(StoreError::Damaged { path: path.to_owned(), reason });
        }
        Self::open_looked_at(path)
    }

    /// Opens a file whose pages somebody has compared, or a new one.
    pub(super) fn open_looked_at(path: &Path) -> Result<Self, StoreError> {
        let database = open(path)?;
        let mut store = Self {
            path: path.to_owned(),
            went_back: None,
            open: Mutex::new(Open { database: None, meta: None, identity: None, failure: None }),
        };
        let meta = store.meta_in(&database)?;
        let metadata = fs::metadata(path).map_err(|e| StoreError::io(path, "read", e))?;
        let now = store.open.get_mut().unwrap_or_else(PoisonError::into_inner);
        (now.database, now.meta) = (Some(Arc::new(database)), meta);
        now.identity = Some(Identity::of(&metadata));
        Ok(store)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the file is as it was, if opening it went back to the write before the last.
    pub fn went_back(&self) -> Option<&Path> {
        self.went_back.as_deref()
    }

    fn error(&self, doing: &'static str, error: impl Into<redb::Error>) -> StoreError {
        any_error(&self.path, doing, error.into())
    }
}

/// Why something could not be done with a file.
pub(super) fn any_error(path: &Path, doing: &'static str, error: redb::Error) -> StoreError {
    match error {
        redb::Error::Io(source) => StoreError::io(path, doing, source),
        redb::Error::PreviousIo => {
            let source = std::io::Error::other("an earlier write failed");
            StoreError::io(path, doing, source)
        }
        other => StoreError::Corrupt { path: path.to_owned(), reason: other.to_string() },
    }
}

/// Opens a file, or makes it.
fn open(path: &Path) -> Result<Database, StoreError> {
    // An empty or foreign file must not be taken for a new store.
    if let Ok(metadata) = fs::metadata(path)
        && metadata.is_file()
        && metadata.len() == 0
    {
        let reason = "the file is empty".to_owned();
        return Err(StoreError::Corrupt { path: path.to_owned(), reason });
    }
    let is_new = File::create_new(path).is_ok();
    // redb panics on some damage that its checks do not foresee; that must not look like a
    // mistake of the manager.
    let create = || Builder::new().create_with_backend(HeaderLast::open(path)?);
    let opened = std::panic::catch_unwind(create).unwrap_or_else(|_| {
        Err(DatabaseError::Storage(StorageError::Corrupted("its structure".into())))
    });
    opened.map_err(|error| {
        let error = open_error(path, error);
        // What was begun would be taken for a damaged store, and nothing is in it.
        if is_new && !matches!(error, StoreError::Locked(_)) {
            let _ = fs::remove_file(path);
        }
        error
    })
}

/// Why a file could not be opened.
pub(super) fn open_error(path: &Path, error: DatabaseError) -> StoreError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::Locked(path.to_owned()),
        DatabaseError::Storage(error) => storage_error(path, "opened", error),
        other => StoreError::Corrupt { path: path.to_owned(), reason: other.to_string() },
    }
}

pub(super) fn storage_error(path: &Path, doing: &'static str, error: StorageError) -> StoreError {
    match error {
        // What is no redb file at all is reported as invalid data.
        StorageError::Io(source) if source.kind() == std::io::ErrorKind::InvalidData => {
            StoreError::Corrupt { path: path.to_owned(), reason: source.to_string() }
        }
        StorageError::Io(source) if source.kind() == std::io::ErrorKind::UnexpectedEof => {
            StoreError::Corrupt { path: path.to_owned(), reason: "the file is cut short".into() }
        }
        StorageError::Io(source) => StoreError::io(path, doing, source),
        other => StoreError::Corrupt { path: path.to_owned(), reason: other.to_string() },
    }
}

impl EmbeddedStore {
    fn now(&self) -> MutexGuard<'_, Open> {
        // Whoever panicked with it left it closed or as it was.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database; opened again, and put right, if a write failed before.
    fn database(&self, now: &mut Open) -> Result<Arc<Database>, StoreError> {
        if let Some(database) = &now.database {
            return Ok(database.clone());
        }
        let failure = now.failure.as_ref().expect("only a failure closes it");
        if failure.is_replaced {
            return Err(StoreError::Replaced(self.path.clone()));
        }
        // It would seem to be in use by another manager.
        let is_ours = failure.lingers.strong_count() > 0;
        if is_ours || failure.at.elapsed() < REOPEN_PAUSE {
            return Err(self.closed(&failure.reason));
        }
        match self.reopen(now, failure) {
            Ok(database) => {
                tracing::info!("the store {} can be written again", self.path.display());
                let database = Arc::new(database);
                (now.database, now.failure) = (Some(database.clone()), None);
                Ok(database)
            }
            Err(error) => {
                let failure = now.failure.as_mut().expect("it was there");
                (failure.reason, failure.at) = (error.to_string(), Instant::now());
                failure.is_replaced = matches!(error, StoreError::Replaced(_));
                Err(error)
            }
        }
    }

    fn reopen(&self, now: &Open, failure: &Failure) -> Result<Database, StoreError> {
        let replaced = || StoreError::Replaced(self.path.clone());
        let is_ours = |found| found == now.meta || found == failure.meta;
        // redb writes what it opens: what somebody else put there is only looked at. One that was taken
        // away is not found, and none is made.
        let held = Held::take(&self.path)?;
        if held.identity(&self.path)? != now.identity.expect("it was open") {
            return Err(replaced());
        }
        let (found, read) = meta_of(&held, &self.path);
        read?;
        if !is_ours(found) {
            return Err(replaced());
        }
        drop(held);
        let database = open(&self.path)?;
        // Somebody may have had it between the two.
        if !is_ours(self.meta_in(&database)?) {
            return Err(replaced());
        }
        self.write(&database, &failure.undo).map_err(|(error, _)| error)?;
        Ok(database)
    }

    fn closed(&self, reason: &str) -> StoreError {
        StoreError::Closed { path: self.path.clone(), reason: reason.to_owned() }
    }

    fn meta_in(&self, database: &Database) -> Result<Option<Vec<u8>>, StoreError> {
        let records = self.read_from(database, Table::Meta)?;
        Ok(records.into_iter().find(|(key, _)| key == META_KEY).map(|(_, value)| value))
    }

    fn read_from(&self, database: &Database, table: Table) -> Result<Vec<Record>, StoreError> {
        let read = database.begin_read().map_err(|e| self.error("read", e))?;
        let opened = match read.open_table(definition(table)) {
            Ok(opened) => opened,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(self.error("read", error)),
        };
        let mut records = Vec::new();
        for entry in opened.iter().map_err(|e| self.error("read", e))? {
            let (key, value) = entry.map_err(|e| self.error("read", e))?;
            records.push((key.value().to_vec(), value.value().to_vec()));
        }
        Ok(records)
    }

    /// Writes a batch. The error comes with what stood before in the records that it had reached,
    /// the last first.
    fn write(
        &self,
        database: &Database,
        changes: &[Change],
    ) -> Result<(), (StoreError, Vec<Change>)> {
        let mut undo = Vec::with_capacity(changes.len());
        let written = self.write_remembering(database, changes, &mut undo);
        undo.reverse();
        written.map_err(|error| (error, undo))
    }

    fn write_remembering(
        &self,
        database: &Database,
        changes: &[Change],
        undo: &mut Vec<Change>,
    ) -> Result<(), StoreError> {
        let mut write = database.begin_write().map_err(|e| self.error("written", e))?;
        write.set_durability(Durability::Immediate).expect("no savepoint is in use");
        // The manager's come by table: each is opened once.
        for changes in changes.chunk_by(|one, next| one.table == next.table) {
            let name = definition(changes[0].table);
            let mut table = write.open_table(name).map_err(|e| self.error("written", e))?;
            for Change { table: of, key, value } in changes {
                let before = match value {
                    Some(value) => table.insert(key.as_slice(), value.as_slice()),
                    None => table.remove(key.as_slice()),
                };
                let before = before.map_err(|e| self.error("written", e))?;
                let value = before.map(|value| value.value().to_vec());
                undo.push(Change { table: *of, key: key.clone(), value });
            }
        }
        write.commit().map_err(|e| self.error("written", e))
    }
}

impl Store for EmbeddedStore {
    fn read(&self, table: Table) -> Result<Vec<Record>, StoreError> {
        let database = self.database(&mut self.now())?;
        self.read_from(&database, table)
    }

    fn copy(&self, to: &Path) -> Result<(), StoreError> {
        let database = self.database(&mut self.now())?;
        let read = database.begin_read().map_err(|e| self.error("read", e))?;
        if to.exists() {
            let there = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(StoreError::io(to, "written", there));
        }
        let copy = Self::open_looked_at(to)?;
        let copied = copy.database(&mut copy.now())?;
        let mut write = copied.begin_write().map_err(|e| copy.error("written", e))?;
        write.set_durability(Durability::Immediate).expect("no savepoint is in use");
        for table in Table::ALL {
            let from = match read.open_table(definition(*table)) {
                Ok(from) => from,
                Err(redb::TableError::TableDoesNotExist(_)) => continue,
                Err(error) => return Err(self.error("read", error)),
            };
            let mut into =
                write.open_table(definition(*table)).map_err(|e| copy.error("written", e))?;
            for entry in from.iter().map_err(|e| self.error("read", e))? {
                let (key, value) = entry.map_err(|e| self.error("read", e))?;
                let written = into.insert(key.value(), value.value()).map(drop);
                written.map_err(|e| copy.error("written", e))?;
            }
        }
        write.commit().map_err(|e| copy.error("written", e))
    }

    fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        // One at a time: what failed has to be put right before anything else is written.
        let mut now = self.now();
        let database = self.database(&mut now)?;
        let written = self.write(&database, changes);
        let of_meta = |change: &&Change| change.table == Table::Meta && change.key == META_KEY;
        let meta = changes.iter().rfind(of_meta).map(|change| change.value.clone());
        let meta = meta.unwrap_or_else(|| now.meta.clone());
        written.map_err(|(error, undo)| {
            now.database = None;
            now.failure = Some(Failure {
                undo,
                meta: meta.clone(),
                reason: error.to_string(),
                at: Instant::now(),
                is_replaced: false,
                lingers: Arc::downgrade(&database),
            });
            error
        })?;
        now.meta = meta;
        Ok(())
    }
}

/// Puts a backup in the place of a store and moves it one generation on, so that no epoch, term
/// or number that was given out after the backup was made can come again: above what the store gave
/// out that was there, if that can be read, since the same backup may have been restored before. The
/// backup is a copy of a store whose manager did not run. The store that was there is kept beside it,
/// with `.before` added to its name, or `.before.1` and so on.
///
/// Where the backup's last write is not there as it was written, it is what was there before it.
///
/// # Errors
///
/// When the backup is damaged or in use, the store is in use, or a file cannot be written. Then
/// there is what was there before, and nothing else.
pub fn restore(backup: &Path, path: &Path) -> Result<Restored, StoreError> {
    let path = &files::place_of(path)?;
    // It is not held from here on: it may be the store.
    let looked = aside::hold(backup).map_err(|error| error.of_backup(backup))?;
    let went_back = matches!(looked, Some((_, Pages::Behind)));
    drop(looked);
    // Whoever has the store open must go first. A damaged one is what a restore is for.
    let held = match Held::take(path) {
        Err(error @ StoreError::Locked(_)) => return Err(error),
        held => held.ok(),
    };
    let replaced = held.as_ref().and_then(|held| meta_of(held, path).0);
    let kept =
        put_in_place(backup, path, replaced.as_deref()).map_err(|error| error.of_backup(backup))?;
    Ok(Restored { went_back, kept })
}

/// What became of a store that was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Whether the backup's last write was not there as it was written.
    pub went_back: bool,
    /// Where the store is that was there before.
    pub kept: Option<PathBuf>,
}

/// The one record of [`Table::Meta`] of a file that somebody holds, as far as it can be read.
fn meta_of(held: &Held, path: &Path) -> (Option<Vec<u8>>, Result<(), StoreError>) {
    let (records, read) = aside::read_after_repair(held.file(), path, Table::Meta);
    (records.into_iter().find(|(key, _)| key == META_KEY).map(|(_, value)| value), read)
}

/// Puts a copy of a store, one generation on, in the place of one that nobody has open, which gave out
/// what `replaced` says. The one that was there is kept: gives where.
fn put_in_place(
    from: &Path,
    path: &Path,
    replaced: Option<&[u8]>,
) -> Result<Option<PathBuf>, StoreError> {
    let new = WorkingCopy::of(from, beside(path, ".restoring"))?;
    let store = EmbeddedStore::open_looked_at(new.path())?;
    crate::records::in_place_of(&store, new.path(), replaced)?;
    drop(store);
    // There is a store under this name at any time: a manager that found none would make an empty
    // one, whose numbers begin anew.
    let kept = path.exists().then(|| files::keep(path)).transpose()?;
    files::replace(new.path(), path)?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_store_that_failed_while_it_is_copied_is_in_use_by_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(&folder.path().join("store.redb")).unwrap();
        let copied = store.database(&mut store.now()).unwrap();
        failed(&store, Arc::downgrade(&copied));
        let refused = store.commit(&[]).unwrap_err().to_string();
        assert!(refused.contains("no room") && !refused.contains("another"), "{refused}");
        drop(copied);
        store.commit(&[]).unwrap();
    }

    /// As after a write that failed, when it is to be opened again, though somebody may have it still.
    fn failed(store: &EmbeddedStore, lingers: Weak<Database>) {
        let mut now = store.now();
        now.database = None;
        now.failure = Some(Failure {
            undo: Vec::new(),
            meta: now.meta.clone(),
            reason: "no room".to_owned(),
            at: Instant::now() - REOPEN_PAUSE,
            is_replaced: false,
            lingers,
        });
    }

    #[test]
    fn what_another_one_put_in_its_place_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other, third] = ["store", "other", "third"].map(|name| folder.path().join(name));
        let store = EmbeddedStore::open(&path).unwrap();
        let meta = |value: &[u8]| {
            [Change { table: Table::Meta, key: META_KEY.to_vec(), value: Some(value.to_vec()) }]
        };
        store.commit(&meta(b"ours")).unwrap();
        failed(&store, Weak::new());

        // Half of it is no reason to give it up: it comes back where it was.
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        store.commit(&meta(b"ours")).unwrap_err();
        assert!(fs::read(&path).unwrap() == whole[..whole.len() / 2]);
        fs::write(&path, &whole).unwrap();
        store.now().failure.as_mut().unwrap().at -= REOPEN_PAUSE;
        store.commit(&meta(b"ours")).unwrap();

        // One of another manager, and one that holds the same and is another file.
        store.copy(&third).unwrap();
        EmbeddedStore::open(&other).unwrap().commit(&meta(b"theirs")).unwrap();
        let ours = fs::read(&path).unwrap();
        for (foreign, renamed) in
            [(fs::read(&other).unwrap(), false), (fs::read(&third).unwrap(), true)]
        {
            failed(&store, Weak::new());
            match renamed {
                true => fs::rename(&third, &path).unwrap(),
                false => fs::write(&path, &foreign).unwrap(),
            }
            for _ in 0..3 {
                let error = store.commit(&meta(b"more")).unwrap_err();
                assert!(matches!(error, StoreError::Replaced(_)), "{error}");
                assert!(fs::read(&path).unwrap() == foreign, "it was written");
                store.now().failure.as_mut().unwrap().at -= REOPEN_PAUSE;
            }
            fs::write(&path, &ours).unwrap();
        }
    }

    /// Its number is free while it is closed, and often the next file gets it.
    #[test]
    fn a_copy_that_has_its_number_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let inode = || fs::metadata(&path).unwrap().ino();
        // Somebody else's file may get it. Some file systems give no number twice.
        for _ in 0..20 {
            let store = EmbeddedStore::open(&path).unwrap();
            failed(&store, Weak::new());
            let (bytes, before) = (fs::read(&path).unwrap(), inode());
            // Times of files are as fine as the kernel's tick.
            std::thread::sleep(Duration::from_millis(50));
            fs::remove_file(&path).unwrap();
            fs::write(&path, &bytes).unwrap();
            let error = store.commit(&[]).unwrap_err();
            assert!(matches!(error, StoreError::Replaced(_)), "{error}");
            assert!(fs::read(&path).unwrap() == bytes, "it was written");
            if inode() == before {
                break;
            }
        }
    }
}
