//! The command socket: connections on threads of their own, commands one after the other on the
//! data plane's thread.

use super::protocol::{Command, Line};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use tracing::debug;

/// Commands that wait for their turn; a further one waits in its connection.
const WAITING: usize = 8;

/// Longest command in bytes; a longer one is refused.
const MAX_COMMAND: u64 = 64 * 1024;

/// A command and where its lines go. A client that went away does not stop its command.
pub struct Job {
    /// What to do.
    pub command: Command,
    /// Where to say what comes of it.
    pub reply: Sender<Line>,
}

/// The listening end.
pub struct Server {
    path: PathBuf,
    jobs: Receiver<Job>,
}

impl Server {
    /// Listens at `path`, for the user that runs the daemon alone.
    ///
    /// # Errors
    ///
    /// A text that names the path and says what to do.
    pub fn open(path: &Path) -> Result<Self, String> {
        let text = |e: std::io::Error| format!("command socket {}: {e}", path.display());
        if path.exists() {
            let name = path.display();
            if !crate::front::is_socket(path) {
                return Err(format!("command socket {name}: not a socket; choose another path"));
            }
            if UnixStream::connect(path).is_ok() {
                return Err(format!("command socket {name}: in use; choose another path"));
            }
            std::fs::remove_file(path).map_err(text)?;
        }
        let listener = UnixListener::bind(path).map_err(text)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(text)?;
        let (sender, jobs) = sync_channel(WAITING);
        std::thread::Builder::new()
            .name("commands".into())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    let sender = sender.clone();
                    std::thread::spawn(move || {
                        if let Err(error) = serve(&stream, &sender) {
                            debug!("a command connection ended: {error}");
                        }
                    });
                }
            })
            .map_err(text)?;
        Ok(Self { path: path.to_path_buf(), jobs })
    }

    /// The next command, if there is one.
    pub fn try_next(&self) -> Option<Job> {
        self.jobs.try_recv().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(stream: &UnixStream, jobs: &SyncSender<Job>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut text = String::new();
        if reader.by_ref().take(MAX_COMMAND).read_line(&mut text)? == 0 {
            return Ok(());
        }
        let mut say = |line: &Line| -> std::io::Result<()> {
            let mut text = serde_json::to_string(line)?;
            text.push('\n');
            writer.write_all(text.as_bytes())
        };
        let command = match serde_json::from_str(&text) {
            Ok(command) => command,
            Err(error) => {
                say(&Line::Error(format!("not a command: {error}")))?;
                continue;
            }
        };
        let (reply, lines) = channel();
        if jobs.send(Job { command, reply }).is_err() {
            return Ok(());
        }
        for line in lines {
            say(&line)?;
        }
    }
}
