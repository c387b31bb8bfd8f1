//! Where a log's bytes come from.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use object::{Object, ObjectSymbol};
use probe_rs::rtt::{self, Rtt, ScanRegion};

use crate::card::{Card, lost};
use crate::failure::{Failure, Kind, Outcome};

/// How often is looked for more.
const PAUSE: Duration = Duration::from_millis(20);

/// How long firmware may take to have its log ready.
const RTT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a TCP server may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a log.
pub trait Source {
    /// The next bytes, which are waited for; none at the end.
    ///
    /// # Errors
    ///
    /// When no more can come.
    fn next(&mut self, into: &mut [u8]) -> Outcome<usize>;
}

/// A file, a device or a pipe.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    path: PathBuf,
    follow: bool,
    /// Whether it is a console, whose end means that it is gone.
    is_device: bool,
}

impl FileSource {
    /// Opens it. With `follow` more is waited for at its end.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn open(path: &Path, follow: bool) -> Outcome<Self> {
        let file = File::open(path).map_err(|error| {
            let what = format!("cannot read the console at {}: {error}", path.display());
            let failure = Failure::new(Kind::Input, what);
            match error.kind() {
                ErrorKind::PermissionDenied => failure.check(
                    "serial devices belong to a group (often `dialout`): add this user to it and log in again",
                ),
                ErrorKind::NotFound => failure.check("is the console's cable plugged in? `ls /dev/ttyUSB*` shows them"),
                _ => failure,
            }
        })?;
        let is_device = file.metadata().is_ok_and(|there| there.file_type().is_char_device());
        Ok(Self { file, path: path.to_owned(), follow, is_device })
    }

    /// Who rotates a log may empty the file and write on: what comes next is at its beginning. What
    /// has no length, such as a pipe, has no place either.
    fn begin_again_if_cut(&mut self) {
        let is_cut = match (self.file.metadata(), self.file.stream_position()) {
            (Ok(file), Ok(place)) => file.is_file() && file.len() < place,
            _ => false,
        };
        if is_cut {
            let _ = self.file.rewind();
        }
    }

    fn lost(&self, why: &str) -> Failure {
        let what = format!("the console at {} is gone: {why}", self.path.display());
        Failure::new(Kind::Lost, what).check("is its cable plugged in?")
    }
}

impl Source for FileSource {
    fn next(&mut self, into: &mut [u8]) -> Outcome<usize> {
        loop {
            match self.file.read(into) {
                // A terminal that was hung up reads so for ever; any other waits (VMIN is 1).
                Ok(0) if self.follow && self.is_device => return Err(self.lost("it was hung up")),
                Ok(0) if self.follow => {
                    self.begin_again_if_cut();
                    std::thread::sleep(PAUSE);
                }
                Ok(some) => return Ok(some),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error.to_string())),
            }
        }
    }
}

/// A TCP server that gives a console's bytes.
#[derive(Debug)]
pub struct TcpSource(TcpStream);

impl TcpSource {
    /// Connects.
    ///
    /// # Errors
    ///
    /// When nobody is there.
    pub fn connect(address: SocketAddr) -> Outcome<Self> {
        TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map(Self).map_err(|error| {
            Failure::new(Kind::Input, format!("nobody answers at {address}: {error}"))
                .check("is the console's server running, and is this its port?")
        })
    }
}

impl Source for TcpSource {
    fn next(&mut self, into: &mut [u8]) -> Outcome<usize> {
        loop {
            match self.0.read(into) {
                Ok(some) => return Ok(some),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Failure::new(Kind::Lost, format!("the console is gone: {error}")));
                }
            }
        }
    }
}

/// The log in the card's memory, through the probe: SEGGER's RTT, up channel 0.
#[derive(Debug)]
pub struct RttSource {
    card: Card,
    block: u64,
    rtt: Rtt,
}

impl RttSource {
    /// Attaches to the log of the firmware with this ELF file.
    ///
    /// # Errors
    ///
    /// When the firmware has no such log, or does not set it up.
    pub fn attach(mut card: Card, elf: &[u8]) -> Outcome<Self> {
        let block = control_block(elf).ok_or_else(|| {
            Failure::new(Kind::Input, "the firmware has no log for a probe (no symbol _SEGGER_RTT)")
                .check("read its console instead: --uart DEVICE")
        })?;
        let rtt = attach(&mut card, block)?;
        Ok(Self { card, block, rtt })
    }
}

fn control_block(elf: &[u8]) -> Option<u64> {
    let file = object::File::parse(elf).ok()?;
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok("_SEGGER_RTT"));
    symbol.map(|symbol| symbol.address())
}

fn attach(card: &mut Card, block: u64) -> Outcome<Rtt> {
    let probe = card.probe.clone();
    let began = Instant::now();
    loop {
        let attached = Rtt::attach_region(&mut card.core()?, &ScanRegion::Exact(block));
        match attached {
            Ok(rtt) => return Ok(rtt),
            Err(rtt::Error::Probe(error)) => {
                return Err(lost(&probe, "the card does not answer any more", &error));
            }
            Err(_) if began.elapsed() < RTT_TIMEOUT => std::thread::sleep(PAUSE),
            Err(error) => {
                let what = format!("the firmware's log is not there: {error}");
                return Err(Failure::new(Kind::Card, what).checks(&[
                    "is it the ELF file of the firmware that runs? `dxpu-flash info` shows what is there",
                    "does the card run, or is it halted? `dxpu-flash reset` starts it",
                    "does its boot loader find an image to start? Its console says so (--uart)",
                ]));
            }
        }
    }
}

impl Source for RttSource {
    fn next(&mut self, into: &mut [u8]) -> Outcome<usize> {
        loop {
            let probe = self.card.probe.clone();
            let mut core = self.card.core()?;
            let channel = self.rtt.up_channel(0);
            let read = channel.map_or(Ok(0), |channel| channel.read(&mut core, into));
            drop(core);
            match read {
                Ok(0) => std::thread::sleep(PAUSE),
                Ok(some) => return Ok(some),
                Err(rtt::Error::Probe(error)) => {
                    return Err(lost(&probe, "the card does not answer any more", &error));
                }
                // The firmware started anew.
                Err(_) => self.rtt = attach(&mut self.card, self.block)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_emptied_is_read_from_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console");
        std::fs::write(&path, b"a long first line").unwrap();
        let mut source = FileSource::open(&path, true).unwrap();
        let mut next = || {
            let mut bytes = [0; 64];
            let len = source.next(&mut bytes).unwrap();
            bytes[..len].to_vec()
        };
        assert_eq!(next(), b"a long first line");
        std::fs::write(&path, b"second").unwrap();
        assert_eq!(next(), b"second");
    }
}
