//! A guest's console on this terminal.

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{IsTerminal, Read, Write, stdin, stdout};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Ctrl-A, after which the next key is for us.
const ESCAPE: u8 = 1;

/// How often it is looked for signals and news.
const LOOK: Duration = Duration::from_millis(200);

/// Why a console was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Ctrl-A X was pressed, or this program is to end.
    Asked,
    /// The guest has ended.
    Ended,
}

/// The terminal's settings, as they were before.
struct Raw(Termios);

impl Raw {
    /// Gives keys as they are pressed, if standard input is a terminal.
    fn set() -> Result<Option<Self>> {
        if !stdin().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Flush, &raw)?;
        Ok(Some(Self(before)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Rows and columns of this terminal.
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdout()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

/// Connects this terminal with a guest's console until one of them ends it. What `news` gives is
/// shown between the guest's lines; it is asked again and again.
///
/// # Errors
///
/// When nobody listens at the socket, or the terminal cannot be used.
pub fn attach(socket: &Path, news: &mut dyn FnMut() -> Vec<String>) -> Result<Left> {
    let mut guest = UnixStream::connect(socket)
        .with_context(|| format!("no guest has its console at {}", socket.display()))?;
    let _raw = Raw::set()?;
    // The prompt was written before anybody looked.
    guest.write_all(b"\r")?;
    let mut keys = Keys::default();
    let mut typed = true;
    let mut asked = Instant::now();
    loop {
        if processes::interrupted() {
            return Ok(Left::Asked);
        }
        if asked.elapsed() >= LOOK {
            asked = Instant::now();
            let news = news();
            // What ends this program may have ended others, which is no news.
            if !processes::interrupted() {
                show(&news);
            }
        }
        let (input, output) = (stdin(), stdout());
        let bound = Timespec::try_from(LOOK)?;
        let mut waits = vec![PollFd::new(&guest, PollFlags::IN)];
        if typed {
            waits.push(PollFd::new(&input, PollFlags::IN));
        }
        match poll(&mut waits, Some(&bound)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
        drop(waits);
        let mut buffer = [0; 4096];
        if ready[0] {
            let taken = guest.read(&mut buffer).unwrap_or(0);
            if taken == 0 {
                return Ok(Left::Ended);
            }
            let mut output = output.lock();
            output.write_all(&buffer[..taken])?;
            output.flush()?;
        }
        if ready.get(1) == Some(&true) {
            let taken = rustix::io::read(&input, &mut buffer)?;
            // A file or a pipe that is at its end; the guest goes on.
            typed = taken > 0;
            match keys.take(&buffer[..taken]) {
                Some(bytes) => guest.write_all(&bytes)?,
                None => return Ok(Left::Asked),
            }
        }
    }
}

/// Shows lines of ours while the terminal is the guest's, which gives each line's beginning itself.
fn show(news: &[String]) {
    for text in news {
        eprint!("\r\ndxpu-vm: {}\r\n", text.replace('\n', "\r\n"));
    }
}

/// Finds what is for us among what is typed.
#[derive(Default)]
struct Keys {
    escaped: bool,
}

impl Keys {
    /// What the guest gets; nothing when it is to be left. Ctrl-A twice gives it one.
    fn take(&mut self, typed: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(typed.len());
        for &byte in typed {
            match (std::mem::take(&mut self.escaped), byte) {
                (true, b'x' | b'X' | 0x18) => return None,
                (false, ESCAPE) => self.escaped = true,
                _ => bytes.push(byte),
            }
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_a_x_leaves_and_everything_else_is_the_guests() {
        let mut keys = Keys::default();
        assert_eq!(keys.take(b"lspci\rx").unwrap(), b"lspci\rx");
        assert_eq!(keys.take(&[ESCAPE, ESCAPE, b'b']).unwrap(), [ESCAPE, b'b']);
        assert_eq!(keys.take(&[ESCAPE]).unwrap(), b"");
        assert_eq!(keys.take(b"cx").unwrap(), b"cx", "an unknown one is the guest's");
        assert_eq!(keys.take(&[ESCAPE]).unwrap(), b"");
        assert_eq!(keys.take(b"x"), None);
    }
}
