//! The folder of a socket, looked at before the socket is made: the operating system's own words for
//! what is wrong with it do not name it.

use rustix::fs::{Access, access};
use std::io::ErrorKind;
use std::path::Path;

/// Checks that a socket can be made at `path` as far as its folder goes.
///
/// # Errors
///
/// A text that names both and says what to do.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let (socket, named) = (path.display(), folder.display());
    let wrong = |why: String| Err(format!("socket {socket}: {why}"));
    match std::fs::metadata(folder) {
        Ok(data) if !data.is_dir() => {
            return wrong(format!("{named} is no folder; choose another path"));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return wrong(format!(
                "its folder {named} is not there; make it (`mkdir -p {named}`; what is in /run goes \
                 with each restart of the machine) or choose another path"
            ));
        }
        // Whatever else is wrong shows below, or when the socket is made.
        _ => {}
    }
    match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Ok(()),
        Err(error) => wrong(format!(
            "no socket can be made in its folder {named}: {error}; give the folder to the user that \
             runs host-proxy (`chown`) or choose another path"
        )),
    }
}
