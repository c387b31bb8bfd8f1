//! The second serial line: commands to the guest, and what became of them.

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Before each answer. Kernel and firmware do not write on this line; a guest that is reset in the
/// middle of an answer leaves it unfinished, and then the next boot's first one ends it.
const MAGIC: &[u8] = b"\x01\x02dxpu ";

/// Longest command. A terminal in the guest holds 64 KiB that nobody has read yet, and this is
/// a third longer on the line.
const LONGEST_COMMAND: usize = 16 << 10;

/// Longest answer that is taken.
const LONGEST_ANSWER: usize = 256 << 20;

/// How long the guest may leave a command unread.
const WRITE_BOUND: Duration = Duration::from_secs(60);

/// How a command in a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its exit status; above 128 it was ended by a signal, as a shell has it.
    pub status: i32,
    /// What it wrote on standard output and standard error, in the order of writing. What is not
    /// UTF-8 is replaced: [`Guest::get`](crate::Guest::get) brings bytes as they are.
    pub text: String,
}

/// One answer as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: i32,
    pub(crate) data: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Frame {
    /// The guest has booted and takes commands.
    Ready,
    Answer(u64, Answer),
}

#[derive(Default)]
struct State {
    boots: u64,
    /// What was asked in which boot, and the answer.
    asked: BTreeMap<u64, (u64, Option<Answer>)>,
    closed: Option<String>,
}

/// The line.
pub(crate) struct Channel {
    state: Mutex<State>,
    changed: Condvar,
    /// With the next command's number.
    writing: Mutex<(UnixStream, u64)>,
}

impl Channel {
    /// Connects to a line, and reads it from now on.
    ///
    /// # Errors
    ///
    /// When nobody listens there.
    pub(crate) fn connect(path: &Path) -> std::io::Result<Arc<Self>> {
        let stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(WRITE_BOUND))?;
        let reading = stream.try_clone()?;
        let channel = Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            writing: Mutex::new((stream, 1)),
        });
        let own = Arc::clone(&channel);
        std::thread::Builder::new()
            .name("guest's answers".to_owned())
            .spawn(move || own.read(reading))?;
        Ok(channel)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("whoever held it did not panic")
    }

    fn read(&self, mut stream: UnixStream) {
        let mut parser = Parser::default();
        let mut buffer = vec![0; 64 << 10];
        let reason = loop {
            let taken = match stream.read(&mut buffer) {
                Ok(0) => break "QEMU has closed the line".to_owned(),
                Ok(taken) => taken,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => break error.to_string(),
            };
            parser.data.extend_from_slice(&buffer[..taken]);
            loop {
                match parser.next() {
                    Ok(Some(frame)) => self.take(frame),
                    Ok(None) => break,
                    Err(error) => return self.close(error.to_string()),
                }
            }
        };
        self.close(reason);
    }

    fn close(&self, reason: String) {
        self.state().closed = Some(reason);
        self.changed.notify_all();
    }

    fn take(&self, frame: Frame) {
        let mut state = self.state();
        match frame {
            Frame::Ready => state.boots += 1,
            Frame::Answer(number, answer) => {
                // Nobody waits for one that was given up.
                if let Some((_, place)) = state.asked.get_mut(&number) {
                    *place = Some(answer);
                }
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// How often the guest has been ready.
    pub(crate) fn boots(&self) -> u64 {
        self.state().boots
    }

    /// Why there is no line any more.
    pub(crate) fn closed(&self) -> Option<String> {
        self.state().closed.clone()
    }

    /// Waits until something has changed, or a time is over.
    pub(crate) fn wait(&self, bound: Duration) {
        let state = self.state();
        drop(self.changed.wait_timeout(state, bound));
    }

    /// Sends a command; its number.
    ///
    /// # Errors
    ///
    /// When it is too long, or the guest takes none.
    pub(crate) fn send(&self, command: &str) -> Result<u64> {
        ensure!(
            command.len() <= LONGEST_COMMAND,
            "a command of {} bytes is longer than {LONGEST_COMMAND}: put it into a file",
            command.len()
        );
        let mut writing = self.writing.lock().expect("whoever held it did not panic");
        let number = writing.1;
        writing.1 += 1;
        let mut state = self.state();
        ensure!(state.boots > 0, "the guest takes no commands before it has booted");
        let boot = state.boots;
        state.asked.insert(number, (boot, None));
        drop(state);
        let line = format!("{number} {}\n", STANDARD.encode(command));
        writing
            .0
            .write_all(line.as_bytes())
            .context("the guest does not take commands any more")?;
        Ok(number)
    }

    /// The answer to a command, if there is one; it is given once.
    ///
    /// # Errors
    ///
    /// When there will be none, because the guest has begun anew or is gone.
    pub(crate) fn answer(&self, number: u64) -> Result<Option<Answer>> {
        let mut state = self.state();
        let (boot, answer) = state.asked.get_mut(&number).context("this answer was taken")?;
        let (boot, answer) = (*boot, answer.take());
        if answer.is_some() || boot != state.boots {
            state.asked.remove(&number);
        }
        if answer.is_none() && boot != state.boots {
            bail!("the guest has begun anew while the command ran");
        }
        match (&answer, &state.closed) {
            (None, Some(reason)) => Err(anyhow!("the guest is gone: {reason}")),
            _ => Ok(answer),
        }
    }

    /// Gives a command up: its answer is dropped when it comes.
    pub(crate) fn forget(&self, number: u64) {
        self.state().asked.remove(&number);
    }
}

/// Finds answers in what comes down the line.
#[derive(Default)]
struct Parser {
    data: Vec<u8>,
}

impl Parser {
    fn next(&mut self) -> Result<Option<Frame>> {
        let Some(start) = find(&self.data, MAGIC) else {
            // What is before a beginning that may still come is noise.
            let keep = self.data.len().min(MAGIC.len() - 1);
            self.data.drain(..self.data.len() - keep);
            return Ok(None);
        };
        self.data.drain(..start);
        let Some(end) = self.data.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let header = String::from_utf8_lossy(&self.data[MAGIC.len()..end]).into_owned();
        let words: Vec<&str> = header.split(' ').collect();
        let [number, status, size] = words[..] else { bail!("an answer begins `{header}`") };
        if number == "ready" {
            self.data.drain(..=end);
            return Ok(Some(Frame::Ready));
        }
        let wrong = || format!("an answer begins `{header}`");
        let number = number.parse().with_context(wrong)?;
        let status = status.parse().with_context(wrong)?;
        let size: usize = size.parse().with_context(wrong)?;
        ensure!(size <= LONGEST_ANSWER, "a command in the guest wrote {size} bytes");
        let body = &self.data[end + 1..];
        let present = &body[..size.min(body.len())];
        let again = [MAGIC, b"ready "].concat();
        if let Some(reset) = find(present, &again) {
            self.data.drain(..end + 1 + reset);
            return self.next();
        }
        if body.len() < size {
            return Ok(None);
        }
        let data = present.to_vec();
        self.data.drain(..end + 1 + size);
        Ok(Some(Frame::Answer(number, Answer { status, data })))
    }
}

fn find(data: &[u8], what: &[u8]) -> Option<usize> {
    data.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    fn frames(parts: &[&[u8]]) -> Vec<Frame> {
        let mut parser = Parser::default();
        let mut frames = Vec::new();
        for part in parts {
            parser.data.extend_from_slice(part);
            while let Some(frame) = parser.next().unwrap() {
                frames.push(frame);
            }
        }
        frames
    }

    fn answer(number: u64, status: i32, data: &[u8]) -> Frame {
        Frame::Answer(number, Answer { status, data: data.to_vec() })
    }

    const STREAM: &[u8] =
        b"noise\x01\x02dx\x01\x02dxpu ready 0 0\n\x01\x02dxpu 1 0 6\n\x01\x02dxpu\
        \x01\x02dxpu 2 137 0\n\x01\x02dxpu 10 1 3\n\n\n\n";

    #[test]
    fn answers_are_found_however_they_are_cut() {
        let expected = [
            Frame::Ready,
            answer(1, 0, b"\x01\x02dxpu"),
            answer(2, 137, b""),
            answer(10, 1, b"\n\n\n"),
        ];
        assert_eq!(frames(&[STREAM]), expected);
        let bytes: Vec<&[u8]> = STREAM.chunks(1).collect();
        assert_eq!(frames(&bytes), expected);
        for cut in 0..STREAM.len() {
            assert_eq!(frames(&[&STREAM[..cut], &STREAM[cut..]]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_guest_that_is_reset_within_an_answer_begins_anew() {
        let stream =
            b"\x01\x02dxpu 1 0 1000\nhalf of it\x01\x02dxpu ready 0 0\n\x01\x02dxpu 2 0 1\nx";
        let expected = [Frame::Ready, answer(2, 0, b"x")];
        assert_eq!(frames(&[stream]), expected);
        assert_eq!(frames(&stream.chunks(1).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn nonsense_after_the_magic_is_an_error() {
        for text in
            ["\x01\x02dxpu 1 2\n", "\x01\x02dxpu x 0 0\n", "\x01\x02dxpu 1 0 999999999999\n"]
        {
            let mut parser = Parser { data: text.as_bytes().to_vec() };
            assert!(parser.next().is_err(), "{text:?}");
        }
    }

    /// A line whose far end is a shell of this machine, as the agent is in a guest.
    fn line() -> (tempfile::TempDir, Arc<Channel>, UnixStream) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("line");
        let listener = UnixListener::bind(&path).unwrap();
        let channel = Channel::connect(&path).unwrap();
        let (far, _) = listener.accept().unwrap();
        (folder, channel, far)
    }

    fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_command_gets_its_own_answer() {
        let (_folder, channel, mut far) = line();
        assert!(channel.send("too early").unwrap_err().to_string().contains("booted"));
        far.write_all(b"\x01\x02dxpu ready 0 0\n").unwrap();
        eventually(|| (channel.boots() == 1).then_some(()));
        let first = channel.send("echo 'a b'").unwrap();
        let second = channel.send("false").unwrap();
        let mut lines = BufReader::new(far.try_clone().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let (number, command) = line.split_once(' ').unwrap();
        assert_eq!(number, first.to_string());
        assert_eq!(STANDARD.decode(command).unwrap(), b"echo 'a b'");
        far.write_all(format!("\x01\x02dxpu {second} 1 0\n").as_bytes()).unwrap();
        let answer = eventually(|| channel.answer(second).unwrap());
        assert_eq!(answer, Answer { status: 1, data: Vec::new() });
        assert_eq!(channel.answer(first).unwrap(), None);
        assert!(channel.answer(second).is_err(), "it was taken");
        far.write_all(b"\x01\x02dxpu ready 0 0\n").unwrap();
        eventually(|| (channel.boots() == 2).then_some(()));
        assert!(channel.answer(first).unwrap_err().to_string().contains("begun anew"));
        let third = channel.send("true").unwrap();
        drop(lines);
        drop(far);
        eventually(|| channel.closed());
        assert!(channel.answer(third).unwrap_err().to_string().contains("gone"));
    }

    #[test]
    fn a_command_that_is_too_long_is_refused() {
        let (_folder, channel, _far) = line();
        let error = channel.send(&"x".repeat(LONGEST_COMMAND + 1)).unwrap_err();
        assert!(error.to_string().contains("put it into a file"), "{error}");
    }
}
