//! Where the records are kept: tables of bytes under keys, written in atomic, durable batches.
//!
//! The store knows nothing about what it holds; [`crate::records`] does. That keeps what a store
//! has to do small enough for another one (a replicated one) to take its place.

mod aside;
mod check;
mod embedded;
mod files;
mod header_last;
mod upgrade;

pub use check::{Report, check};
pub use embedded::{EmbeddedStore, Restored, restore};
pub(crate) use files::{WorkingCopy, beside, leads_to, rename};
pub use upgrade::kept;
pub(crate) use upgrade::upgrade;

use std::path::{Path, PathBuf};

/// Version of what the records look like in the store. A store of a later version is refused.
pub const SCHEMA_VERSION: u64 = 3;

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// The tables.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Table {
            $($(#[$doc])* $name,)+
        }

        impl Table {
            /// Every table.
            pub const ALL: &[Table] = &[$(Self::$name,)+];

            /// Its name in the store.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

tables! {
    /// One record: counters, term, generation.
    Meta = "meta",
    /// Proxies by name.
    Nodes = "nodes",
    /// Devices by box, slot and function.
    Devices = "devices",
    /// Highest epochs by box, slot and function.
    Epochs = "epochs",
    /// Allocations by number.
    Allocations = "allocations",
    /// Bindings by number.
    Bindings = "bindings",
    /// Operations by number.
    Operations = "operations",
    /// Events by number.
    Events = "events",
    /// Firmware images by their identifier: the time they came (8 bytes, milliseconds since 1970,
    /// big-endian), then the image.
    Images = "images",
    /// One record: the latest rollout of firmware.
    Rollout = "rollout",
    /// What is held back, by place.
    Holds = "holds",
    /// What is not healthy, by subject.
    Health = "health",
    /// How often devices of a model failed, by model.
    Models = "models",
    /// The audit log by number.
    Audit = "audit",
    /// Erasures by number.
    Erasures = "erasures",
    /// One record: what a file says of the pool.
    Inventory = "inventory",
    /// Clients' idempotency keys by the key.
    Keys = "keys",
    /// Proxies that were forgotten, by their node numbers (2 bytes, big-endian).
    Forgotten = "forgotten",
}

/// One entry of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which table.
    pub table: Table,
    /// Which record.
    pub key: Vec<u8>,
    /// What it is from now on; `None` takes it out.
    pub value: Option<Vec<u8>>,
}

/// A durable store.
pub trait Store: Send + Sync {
    /// Every record of a table, by key.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    fn read(&self, table: Table) -> Result<Vec<Record>, StoreError>;

    /// Writes a batch: all of it or nothing, and on the disk before it returns.
    ///
    /// # Errors
    ///
    /// When the store cannot be written; then nothing of the batch is there.
    fn commit(&self, changes: &[Change]) -> Result<(), StoreError>;

    /// Writes all that is there at one moment to a new file that [`restore`] takes, and on the disk
    /// before it returns. Others read and write meanwhile.
    ///
    /// # Errors
    ///
    /// When the store cannot be read, the file cannot be written, or the store is no file.
    fn copy(&self, to: &Path) -> Result<(), StoreError> {
        let none = std::io::Error::from(std::io::ErrorKind::Unsupported);
        Err(StoreError::io(to, "written", none))
    }

    /// Whether [`Store::commit`] never waits for anything, so that it needs no thread of its own.
    fn is_in_memory(&self) -> bool {
        false
    }
}

/// Key and value of one record.
pub type Record = (Vec<u8>, Vec<u8>);

/// Why a store cannot be used. Each names the file and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error(
        "the store {} is in use by another process; stop the other dxpu-manager, or give this one \
         another file with --store", .0.display()
    )]
    Locked(PathBuf),
    /// The file is not what it should be.
    #[error(
        "the store {} is damaged ({reason}); move it away and put a backup in its place with \
         `dxpu-manager restore`", path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Its pages do not agree with their checksums.
    #[error(
        "the store {} has pages that are not as they were written ({reason}); put a backup in its \
         place with `dxpu-manager restore`, or see with `dxpu-manager store check` what of it still \
         reads and make a store of that with `dxpu-manager store check --repair`", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It is to be restored and cannot.
    #[error(
        "the backup {} cannot be restored ({reason}), and nothing was changed; take another one{}",
        path.display(), or_see_what_reads(*.opens, path)
    )]
    Backup {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// Whether it is a store at all, of which some records may read.
        opens: bool,
    },
    /// One record does not read.
    #[error(
        "the store {} has a record that does not read (table {table}, key {key}: {reason}); see what \
         else does not read and take it out with `dxpu-manager store check --repair`, or put a \
         backup in its place with `dxpu-manager restore`", path.display()
    )]
    CorruptRecord {
        /// The file.
        path: PathBuf,
        /// The table.
        table: &'static str,
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It was written by a later version.
    #[error(
        "the store {} has schema version {found}, this dxpu-manager knows {SCHEMA_VERSION}; run \
         the version that wrote it", path.display()
    )]
    LaterSchema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// The operating system does not let us.
    #[error(
        "{} cannot be {doing}: {source}; check that its folder exists, that it can be \
         read and written by this user, and that the disk has room", path.display()
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A write failed, and it is opened again before the next.
    #[error(
        "the store {} could not be written and is closed until that works again: {reason}",
        path.display()
    )]
    Closed {
        /// The file.
        path: PathBuf,
        /// Why it could not be written.
        reason: String,
    },
    /// While it was closed after a write that failed, somebody else changed it.
    #[error(
        "the store {} was used by another manager, or replaced, after this one could not write it; \
         stop one of them and restart this one", .0.display()
    )]
    Replaced(PathBuf),
    /// The 256 generations of epochs are used up.
    #[error("the store {} was restored 255 times; its epochs have no generation left", .0.display())]
    GenerationsExhausted(PathBuf),
}

/// What else can be done with a backup that is not restored.
fn or_see_what_reads(opens: bool, path: &Path) -> String {
    if !opens {
        return String::new();
    }
    format!(", or see what of it reads with `dxpu-manager store check --store {}`", path.display())
}

impl StoreError {
    /// An error of the operating system at `path`.
    pub fn io(path: &Path, doing: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), doing, source }
    }

    /// Whether it is not about what the file holds, so that the same store may be of use later: who
    /// has it lets go of it, or its disk has room again.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Locked(_) | Self::Io { .. } | Self::Closed { .. })
    }

    /// What is wrong with a copy's content, said of the file that it is a copy of.
    pub(crate) fn said_of(self, path: &Path) -> Self {
        let path = path.to_owned();
        match self {
            Self::Corrupt { reason, .. } => Self::Corrupt { path, reason },
            Self::Damaged { reason, .. } => Self::Damaged { path, reason },
            Self::CorruptRecord { table, key, reason, .. } => {
                Self::CorruptRecord { path, table, key, reason }
            }
            Self::LaterSchema { found, .. } => Self::LaterSchema { path, found },
            Self::GenerationsExhausted(_) => Self::GenerationsExhausted(path),
            Self::Backup { .. }
            | Self::Locked(_)
            | Self::Io { .. }
            | Self::Closed { .. }
            | Self::Replaced(_) => self,
        }
    }

    /// What is wrong with a backup that is restored, or with a copy of it.
    pub(crate) fn of_backup(self, path: &Path) -> Self {
        let opens = !matches!(self, Self::Corrupt { .. });
        let reason = match self {
            Self::Corrupt { reason, .. } => reason,
            Self::Damaged { reason, .. } => {
                format!("its pages are not as they were written: {reason}")
            }
            Self::CorruptRecord { table, key, reason, .. } => {
                format!("it has a record that does not read: table {table}, key {key}: {reason}")
            }
            other => return other.said_of(path),
        };
        Self::Backup { path: path.to_owned(), reason, opens }
    }
}

#[cfg(test)]
pub(crate) use taking::Taking;

#[cfg(test)]
mod taking {
    use super::{Change, Record, Store, StoreError, Table};

    /// For tests: a store that takes everything, and has nothing.
    pub(crate) struct Taking;

    impl Store for Taking {
        fn read(&self, _: Table) -> Result<Vec<Record>, StoreError> {
            Ok(Vec::new())
        }

        fn commit(&self, _: &[Change]) -> Result<(), StoreError> {
            Ok(())
        }
    }
}
