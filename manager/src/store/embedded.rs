//! The store in one file: redb.

use super::{Change, Record, Store, StoreError, Table};
use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition,
};
use std::fs;
use std::path::{Path, PathBuf};

/// One file. It is locked while it is open.
pub struct EmbeddedStore {
    path: PathBuf,
    database: Database,
}

fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(table.name())
}

impl EmbeddedStore {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    ///
    /// When another process has it open, it is damaged, or it cannot be read or written.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        // An empty or foreign file must not be taken for a new store.
        if let Ok(metadata) = fs::metadata(path)
            && metadata.is_file()
            && metadata.len() == 0
        {
            let reason = "the file is empty".to_owned();
            return Err(StoreError::Corrupt { path: path.to_owned(), reason });
        }
        // redb panics on some damage that its checks do not foresee; that must not look like a
        // mistake of the manager.
        let opened = std::panic::catch_unwind(|| Database::create(path)).unwrap_or_else(|_| {
            Err(DatabaseError::Storage(StorageError::Corrupted("its structure".into())))
        });
        let database = opened.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => StoreError::Locked(path.to_owned()),
            DatabaseError::Storage(error) => storage_error(path, "opened", error),
            other => StoreError::Corrupt { path: path.to_owned(), reason: other.to_string() },
        })?;
        Ok(Self { path: path.to_owned(), database })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, doing: &'static str, error: impl Into<redb::Error>) -> StoreError {
        match error.into() {
            redb::Error::Io(source) => StoreError::io(&self.path, doing, source),
            redb::Error::PreviousIo => {
                let source = std::io::Error::other("an earlier write failed");
                StoreError::io(&self.path, doing, source)
            }
            other => StoreError::Corrupt { path: self.path.clone(), reason: other.to_string() },
        }
    }
}

fn storage_error(path: &Path, doing: &'static str, error: StorageError) -> StoreError {
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

impl Store for EmbeddedStore {
    fn read(&self, table: Table) -> Result<Vec<Record>, StoreError> {
        let read = self.database.begin_read().map_err(|e| self.error("read", e))?;
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

    fn copy(&self, to: &Path) -> Result<(), StoreError> {
        let read = self.database.begin_read().map_err(|e| self.error("read", e))?;
        if to.exists() {
            let there = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(StoreError::io(to, "written", there));
        }
        let copy = Self::open(to)?;
        let mut write = copy.database.begin_write().map_err(|e| copy.error("written", e))?;
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
        let mut write = self.database.begin_write().map_err(|e| self.error("written", e))?;
        write.set_durability(Durability::Immediate).expect("no savepoint is in use");
        for change in changes {
            let mut table =
                write.open_table(definition(change.table)).map_err(|e| self.error("written", e))?;
            match &change.value {
                Some(value) => table.insert(change.key.as_slice(), value.as_slice()).map(drop),
                None => table.remove(change.key.as_slice()).map(drop),
            }
            .map_err(|e| self.error("written", e))?;
        }
        write.commit().map_err(|e| self.error("written", e))
    }
}

/// Puts a backup in the place of a store and moves it one generation on, so that no epoch, term
/// or number that was given out after the backup was made can come again. The backup is a copy of
/// a store whose manager did not run. The store that was there is kept beside it, with `.before`
/// added to its name, or `.before.1` and so on.
///
/// # Errors
///
/// When the backup is damaged or in use, the store is in use, or a file cannot be written.
pub fn restore(backup: &Path, path: &Path) -> Result<(), StoreError> {
    fs::metadata(backup).map_err(|e| StoreError::io(backup, "read", e))?;
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    if path.exists() {
        // Whoever has it open must go first. A damaged one is what a restore is for.
        match EmbeddedStore::open(path) {
            Err(error @ StoreError::Locked(_)) => return Err(error),
            _ => tracing::debug!("{} is not in use", path.display()),
        }
    }
    let new = beside(".restoring");
    fs::copy(backup, &new).map_err(|e| StoreError::io(&new, "written", e))?;
    {
        let store = EmbeddedStore::open(&new)?;
        crate::records::next_generation(&store, &new)?;
    }
    if path.exists() {
        // There is a store under this name at any time: a manager that found none would make an
        // empty one, whose numbers begin anew.
        let before = (0..).map(|n| match n {
            0 => beside(".before"),
            n => beside(&format!(".before.{n}")),
        });
        let before = before.into_iter().find(|name| !name.exists()).expect("one of all is free");
        let kept = fs::hard_link(path, &before).or_else(|_| fs::copy(path, &before).map(drop));
        kept.map_err(|e| StoreError::io(&before, "written", e))?;
    }
    fs::rename(&new, path).map_err(|e| StoreError::io(path, "written", e))?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = fs::File::open(folder).and_then(|f| f.sync_all());
    synced.map_err(|e| StoreError::io(path, "written", e))
}
