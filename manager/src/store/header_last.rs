//! A store's file whose header is written last.
//!
//! redb gives a commit's header and pages to the operating system in any order, the header first as
//! a rule, and then waits until all of it is on the disk. A process that is killed between the two
//! leaves a header of pages that are not there, which looks like pages that changed later. So the
//! header waits here until the pages are with the operating system. What a power cut leaves is the
//! same as without.

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};
use std::fs::OpenOptions;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct HeaderLast {
    file: FileBackend,
    /// What stands at the beginning of the file and is not written yet.
    header: Mutex<Option<Vec<u8>>>,
}

impl HeaderLast {
    /// Opens a file, or makes it.
    ///
    /// # Errors
    ///
    /// When the operating system does not let us.
    pub(super) fn open(path: &Path) -> Result<Self, DatabaseError> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self { file: FileBackend::new(file)?, header: Mutex::new(None) })
    }

    fn header(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.header.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageBackend for HeaderLast {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let header = self.header();
        self.file.read(offset, out)?;
        let waiting =
            header.as_ref().and_then(|header| header.get(usize::try_from(offset).ok()?..));
        if let Some(waiting) = waiting {
            let size = waiting.len().min(out.len());
            out[..size].copy_from_slice(&waiting[..size]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if let Some(header) = self.header().take() {
            self.file.write(0, &header)?;
        }
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset > 0 {
            return self.file.write(offset, data);
        }
        // It is the header, all of it, each time.
        *self.header() = Some(data.to_vec());
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        // A header that still waits is of a write that failed.
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_in_the_file_when_what_is_behind_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let backend = HeaderLast::open(&path).unwrap();
        backend.set_len(16).unwrap();
        backend.write(0, b"head").unwrap();
        backend.write(4, b"page").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"\0\0\0\0page\0\0\0\0\0\0\0\0");
        let read = |offset, size| {
            let mut out = vec![0; size];
            backend.read(offset, &mut out).unwrap();
            out
        };
        // Whoever reads it finds it as if it were there.
        assert_eq!(
            [read(0, 4), read(0, 8), read(2, 4), read(1, 2), read(4, 4)],
            [&b"head"[..], b"headpage", b"adpa", b"ea", b"page"]
        );
        backend.sync_data().unwrap();
        assert_eq!(&std::fs::read(&path).unwrap()[..8], b"headpage");
        // One that nobody waited for on the disk is not of a write that was done.
        backend.write(0, b"next").unwrap();
        backend.close().unwrap();
        assert_eq!(&std::fs::read(&path).unwrap()[..8], b"headpage");
    }
}
