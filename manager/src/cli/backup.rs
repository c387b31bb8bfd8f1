//! `backup` and `restore`: the store's file, out and in.

use super::store::LAST_WRITE_IS_MISSING;
use super::{Failure, Output};
use crate::store::{self, Restored, StoreError};
use manager_client::Client;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Fetches a backup, checks it and puts it in its place in one move, on the disk.
pub(super) fn backup(client: &Client, out: &Output, to: &Path) -> Result<(), Failure> {
    // A backup takes the place of a backup, not of a device or a folder.
    if fs::metadata(to).is_ok_and(|there| !there.is_file()) {
        let why = format!("{} is there and is no regular file; name another one", to.display());
        return Err(Failure::Argument(why));
    }
    let bytes = client.bytes("/v1/backup")?;
    let place = store::leads_to(to).map_err(|error| not_written(to, &error))?;
    put(&store::beside(&place, ".new"), &place, &bytes)?;
    let size = bytes.len();
    out.print(&serde_json::json!({ "backup": to, "bytes": size }), |_| {
        format!("{} has {size} bytes and reads well", to.display())
    })
}

fn not_written(to: &Path, error: &std::io::Error) -> Failure {
    Failure::Argument(format!("{} cannot be written: {error}", to.display()))
}

fn put(new: &Path, to: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let result = write(new, to, bytes);
    if result.is_err() {
        // What is half written or damaged is of no use to anybody.
        let _ = fs::remove_file(new);
    }
    result
}

fn write(new: &Path, to: &Path, bytes: &[u8]) -> Result<(), Failure> {
    // The file is the one that was named; the other one is gone when this is read.
    let failed = |error| not_written(to, &error);
    let mut file = File::create(new).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    drop(file);
    crate::records::check(new).map_err(|error| match error.of_backup(to) {
        StoreError::Backup { reason, .. } => Failure::Damaged(format!(
            "what the manager sent as a backup does not read ({reason}) and is not kept, {} is as it \
             was; try again, and if it stays so look at the manager's store: stop it, and run \
             `dxpu-manager store check`",
            to.display()
        )),
        StoreError::Io { source, .. } => failed(source),
        other => other.into(),
    })?;
    File::open(new).and_then(|file| file.sync_all()).map_err(failed)?;
    store::rename(new, to).map_err(|error| match error {
        StoreError::Io { source, .. } => failed(source),
        other => other.into(),
    })
}

/// Puts a backup in the place of a store, and says where that is now, and whether the backup's last
/// write is missing.
pub(super) fn restore(out: &Output, from: &Path, to: &Path) -> Result<(), Failure> {
    let Restored { went_back, kept } = store::restore(from, to)?;
    let said = serde_json::json!({
        "restored": to, "from": from, "kept": kept, "goes_back": went_back,
    });
    out.print(&said, |_| {
        let mut text = format!("{} is restored from {}", to.display(), from.display());
        if let Some(kept) = &kept {
            text += &format!("; what was there before is {}", kept.display());
        }
        if went_back {
            text += &format!("\nthe backup's {LAST_WRITE_IS_MISSING}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Records;
    use crate::store::{EmbeddedStore, Store};
    use std::io::Read;
    use std::sync::Arc;

    #[test]
    fn a_backup_of_an_earlier_manager_stays_as_it_made_it() {
        let mut bytes = Vec::new();
        let stored = include_bytes!("../../tests/stores/schema-1.redb.gz");
        flate2::read::GzDecoder::new(&stored[..]).read_to_end(&mut bytes).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (to, new) = (folder.path().join("backup.redb"), folder.path().join("backup.redb.new"));
        put(&new, &to, &bytes).unwrap();
        assert!(fs::read(&to).unwrap() == bytes);
        let left = fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["backup.redb"]);
    }

    #[test]
    fn a_backup_that_does_not_read_is_told_by_its_name_and_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copied) = (folder.path().join("store.redb"), folder.path().join("copy.redb"));
        let store = Arc::new(EmbeddedStore::open(&path).unwrap());
        Records::open(store.clone(), &path).unwrap();
        store.copy(&copied).unwrap();
        let good = fs::read(&copied).unwrap();
        let (to, new) = (folder.path().join("backup.redb"), folder.path().join("backup.redb.new"));
        put(&new, &to, &good).unwrap();
        let kept = fs::read(&to).unwrap();
        let mut killed = good.clone();
        killed[9] = killed[9] & !4 | 2; // redb's marks of a writer that has not closed it.
        let last = if killed[9] & 1 == 0 { 64 } else { 192 };
        killed[last + 8] ^= 1;
        for bytes in [&good[..good.len() / 3], &[], &killed] {
            let error = put(&new, &to, bytes).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.exit_code(), 8, "{text}");
            assert!(text.contains("backup.redb is as it was") && !text.contains(".new"), "{text}");
            assert!(fs::read(&to).unwrap() == kept);
            let mut left: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
            left.sort();
            assert_eq!(left, ["backup.redb", "copy.redb", "store.redb"]);
        }
    }
}
