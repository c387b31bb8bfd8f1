//! The command socket: connections on threads of their own, commands one after the other on the
//! data plane's thread.

use super::protocol::{Command, Line};
use crate::front::stale::{OwnFile, remove_stale};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Type;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tracing::{debug, warn};
use vfio_user_server::limits::ACCEPT_PAUSE;

/// Connections at one time, each with a thread of its own; a further one is told and closed.
pub const MAX_CONNECTIONS: usize = 32;

/// Commands that wait for their turn; a further one waits in its connection.
const WAITING: usize = 8;

/// Lines of a command's progress that wait for their client; a further one is left out.
const PROGRESS: usize = 16;

/// Longest command in bytes; a longer one is refused.
const MAX_COMMAND: u64 = 64 * 1024;

/// How often it is looked whether a client that waits for its command is still there.
const LOOK: Duration = Duration::from_millis(200);

/// A command and where its lines go. A client that went away does not stop a command that changes
/// something; one that only waits or measures ends when [`Reply::is_heard`] says so.
pub struct Job {
    /// What to do.
    pub command: Command,
    /// Where to say what comes of it.
    pub reply: Reply,
}

/// Where a command's lines go. Nothing here waits for a client, which may have stopped reading.
pub struct Reply {
    progress: SyncSender<Line>,
    last: SyncSender<Line>,
    heard: Weak<()>,
}

/// The other end of a [`Reply`], as long as somebody listens.
struct Lines {
    progress: Receiver<Line>,
    last: Receiver<Line>,
    _listens: Arc<()>,
}

impl Lines {
    /// Hands all lines to `say`, until it fails or `has_left`, which is asked now and then, says
    /// that they are for nobody.
    fn hand(
        self,
        mut say: impl FnMut(&Line) -> std::io::Result<()>,
        has_left: impl Fn() -> bool,
    ) -> std::io::Result<()> {
        loop {
            match self.progress.recv_timeout(LOOK) {
                Ok(line) => say(&line)?,
                Err(RecvTimeoutError::Timeout) if has_left() => {
                    return Err(ErrorKind::BrokenPipe.into());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.last.recv().map_or(Ok(()), |line| say(&line))
    }
}

impl Reply {
    /// A reply, and the lines that come of it, the last one at the end.
    fn new() -> (Self, Lines) {
        let (progress, said) = sync_channel(PROGRESS);
        let (last, end) = sync_channel(1);
        let listens = Arc::new(());
        let reply = Self { progress, last, heard: Arc::downgrade(&listens) };
        (reply, Lines { progress: said, last: end, _listens: listens })
    }

    /// Whether somebody still listens, as far as is known: for what only waits or measures.
    ///
    /// # Errors
    ///
    /// That nobody does.
    pub fn is_heard(&self) -> Result<(), String> {
        match self.heard.strong_count() {
            0 => Err("nobody waits any more".to_owned()),
            _ => Ok(()),
        }
    }

    /// Says how far the command has got. A client that is behind by `PROGRESS` of these
    /// misses this one: a later one tells more.
    pub fn progress(&self, done: u64, total: u64) {
        let _ = self.progress.try_send(Line::Progress { done, total });
    }

    /// Says the last line, for which there is room. Nobody may be waiting for it any more.
    pub fn end(self, line: Line) {
        let _ = self.last.try_send(line);
    }
}

/// The listening end.
pub struct Server {
    file: OwnFile,
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
        remove_stale("command socket", path, Type::STREAM)?;
        let listener = UnixListener::bind(path).map_err(text)?;
        let file = OwnFile::new(path).map_err(text)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(text)?;
        let (sender, jobs) = sync_channel(WAITING);
        std::thread::Builder::new()
            .name("commands".into())
            .spawn(move || accept(&listener, &sender))
            .map_err(text)?;
        Ok(Self { file, jobs })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The next command, if there is one.
    pub fn try_next(&self) -> Option<Job> {
        self.jobs.try_recv().ok()
    }
}

/// Takes connections, each on a thread of its own, as long as the daemon runs.
fn accept(listener: &UnixListener, jobs: &SyncSender<Job>) {
    // Each connection holds a copy of this.
    let seat = Arc::new(());
    let mut failing = false;
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                // As long as there is no descriptor left, there is none at once again.
                if !std::mem::replace(&mut failing, true) {
                    warn!("command connections cannot be taken: {error}");
                }
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        failing = false;
        if Arc::strong_count(&seat) > MAX_CONNECTIONS {
            warn!("a command connection was refused: {MAX_CONNECTIONS} are open");
            let full =
                format!("{MAX_CONNECTIONS} connections are open, which is the limit; try again");
            let _ = say(&stream, &Line::Error(full));
            continue;
        }
        let (own, jobs) = (Arc::clone(&seat), jobs.clone());
        let spawned = std::thread::Builder::new().name("command".into()).spawn(move || {
            if let Err(error) = serve(&stream, &jobs) {
                debug!("a command connection ended: {error}");
            }
            drop(own);
        });
        if let Err(error) = spawned {
            warn!("a command connection was dropped, no thread for it: {error}");
        }
    }
}

fn say(mut stream: &UnixStream, line: &Line) -> std::io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    stream.write_all(text.as_bytes())
}

fn serve(stream: &UnixStream, jobs: &SyncSender<Job>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut text = String::new();
        if reader.by_ref().take(MAX_COMMAND).read_line(&mut text)? == 0 {
            return Ok(());
        }
        if text.len() as u64 == MAX_COMMAND && !text.ends_with('\n') {
            // What follows would be taken for commands.
            let long = format!("a command has {MAX_COMMAND} bytes at most");
            return say(stream, &Line::Error(long));
        }
        let command = match serde_json::from_str(&text) {
            Ok(command) => command,
            Err(error) => {
                say(stream, &Line::Error(format!("not a command: {error}")))?;
                continue;
            }
        };
        let (reply, lines) = Reply::new();
        if jobs.send(Job { command, reply }).is_err() {
            return Ok(());
        }
        lines.hand(|line| say(stream, line), || has_left(stream))?;
    }
}

/// Whether a client has closed its end altogether. One that only says no more still reads.
fn has_left(stream: &UnixStream) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut ends = [PollFd::new(stream, PollFlags::empty())];
    poll(&mut ends, Some(&now)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::stale::tests::{crowd, refusal};
    use std::time::Instant;

    struct Client {
        writer: UnixStream,
        reader: BufReader<UnixStream>,
    }

    impl Client {
        fn new(path: &Path) -> Self {
            let writer = UnixStream::connect(path).unwrap();
            writer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            Self { reader: BufReader::new(writer.try_clone().unwrap()), writer }
        }

        /// What is answered to these bytes; nothing when the connection is closed.
        fn ask(&mut self, bytes: &[u8]) -> Option<Line> {
            // A server that refused does not read.
            let _ = self.writer.write_all(bytes);
            self.answer()
        }

        fn answer(&mut self) -> Option<Line> {
            let mut text = String::new();
            match self.reader.read_line(&mut text) {
                Ok(0) => None,
                Ok(_) => Some(serde_json::from_str(&text).unwrap()),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn reason(line: Option<Line>) -> String {
        match line {
            Some(Line::Error(reason)) => reason,
            other => panic!("{other:?} is no refusal"),
        }
    }

    fn server() -> (tempfile::TempDir, Server) {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::open(&folder.path().join("s")).unwrap();
        (folder, server)
    }

    #[test]
    fn a_connection_above_the_limit_is_told_and_one_that_ends_makes_room() {
        let (_folder, server) = server();
        let mut clients: Vec<Client> =
            (0..MAX_CONNECTIONS).map(|_| Client::new(server.path())).collect();
        for client in &mut clients {
            assert!(reason(client.ask(b"x\n")).contains("not a command"));
        }
        let mut further = Client::new(server.path());
        assert!(reason(further.answer()).contains("32 connections"));
        assert!(further.answer().is_none());
        clients.pop();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !reason(Client::new(server.path()).ask(b"x\n")).contains("not a command") {
            assert!(Instant::now() < deadline, "no room came");
        }
        assert!(reason(clients[0].ask(b"x\n")).contains("not a command"));
    }

    #[test]
    fn an_endless_command_is_refused_and_nothing_of_it_is_carried_out() {
        let (_folder, server) = server();
        let mut client = Client::new(server.path());
        let mut text = vec![b' '; MAX_COMMAND as usize];
        text.extend_from_slice(b"{\"command\":\"lspci\"}\n");
        assert!(reason(client.ask(&text)).contains("65536 bytes"));
        assert!(client.answer().is_none());
        assert!(server.try_next().is_none());
    }

    #[test]
    fn a_command_gets_its_lines() {
        let (_folder, server) = server();
        let mut client = Client::new(server.path());
        client.writer.write_all(b"{\"command\":\"lspci\"}\n").unwrap();
        let job = server.jobs.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(job.command, Command::Lspci);
        job.reply.progress(1, 2);
        job.reply.end(Line::Error("no".into()));
        assert!(matches!(client.answer(), Some(Line::Progress { done: 1, total: 2 })));
        assert_eq!(reason(client.answer()), "no");
    }

    #[test]
    fn a_client_that_is_behind_misses_progress_and_not_the_last_line() {
        let (reply, lines) = Reply::new();
        (0..1000).for_each(|done| reply.progress(done, 1000));
        reply.end(Line::Error("no".into()));
        let mut said = Vec::new();
        let hand = |line: &Line| {
            said.push(line.clone());
            Ok(())
        };
        lines.hand(hand, || false).unwrap();
        let lines = said;
        assert_eq!(lines.len(), PROGRESS + 1);
        assert!(matches!(lines[0], Line::Progress { done: 0, .. }));
        assert!(matches!(&lines[PROGRESS], Line::Error(reason) if reason == "no"));
    }

    #[test]
    fn a_client_that_went_away_does_not_stop_its_command() {
        let (reply, lines) = Reply::new();
        assert!(reply.is_heard().is_ok());
        drop(lines);
        assert!(reply.is_heard().is_err());
        reply.progress(1, 2);
        reply.end(Line::Error("no".into()));
    }

    #[test]
    fn it_is_noticed_that_a_client_went_away_and_not_that_it_asks_no_more() {
        let (_folder, server) = server();
        let mut client = Client::new(server.path());
        client.writer.write_all(b"{\"command\":\"lspci\"}\n").unwrap();
        client.writer.shutdown(std::net::Shutdown::Write).unwrap();
        let job = server.jobs.recv_timeout(Duration::from_secs(60)).unwrap();
        std::thread::sleep(LOOK * 3);
        assert!(job.reply.is_heard().is_ok());
        job.reply.progress(1, 2);
        assert!(matches!(client.answer(), Some(Line::Progress { done: 1, total: 2 })));
        drop(client);
        let deadline = Instant::now() + Duration::from_secs(60);
        while job.reply.is_heard().is_ok() {
            assert!(Instant::now() < deadline, "nobody noticed");
            std::thread::sleep(LOOK);
        }
    }

    #[test]
    fn a_socket_whose_listener_accepts_nobody_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full");
        let _crowd = crowd(&path, Type::STREAM);
        let at = path.clone();
        assert!(refusal(move || Server::open(&at)).contains("in use"));
        assert!(path.exists());
    }
}
