//! `backup` and `restore`: the store's file, out and in.

use super::{Failure, Output};
use crate::store::StoreError;
use manager_client::Client;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Fetches a backup, checks it and puts it in its place in one move, on the disk.
pub(super) fn backup(client: &Client, out: &Output, to: &Path) -> Result<(), Failure> {
    // A backup takes the place of a backup, not of a device or a folder.
    if fs::metadata(to).is_ok_and(|there| !there.is_file()) {
        let why = format!("{} is there and is no regular file; name another one", to.display());
        return Err(Failure::Argument(why));
    }
    let bytes = client.bytes("/v1/backup")?;
    let mut new = to.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let result = write(&new, to, &bytes);
    if result.is_err() {
        // What is half written or damaged is of no use to anybody.
        let _ = fs::remove_file(&new);
    }
    result?;
    let size = bytes.len();
    out.print(&serde_json::json!({ "backup": to, "bytes": size }), |_| {
        format!("{} has {size} bytes and reads well", to.display())
    })
}

fn write(new: &Path, to: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| StoreError::io(&path, "written", error)
    };
    let mut file = File::create(new).map_err(failed(new))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed(new))?;
    drop(file);
    crate::records::check(new)?;
    File::open(new).and_then(|file| file.sync_all()).map_err(failed(new))?;
    fs::rename(new, to).map_err(failed(to))?;
    let folder = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(to))
}
