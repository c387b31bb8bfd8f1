//! The ledger: a file that is mapped, so that the counts stay when the process is killed.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use perf_core::{Fact, Kind, Ledger, Nanos, Range, Row, Text, WORDS};

use crate::session::warn;

/// Programs that one process becomes with `exec` and that get a ledger each. Those beyond get none.
const PROGRAMS: u32 = 100;

/// Whether it was said that there is no ledger. The children of a process need not say it again.
static SAID: AtomicBool = AtomicBool::new(false);

/// What the shim counts, if it is to.
#[derive(Debug)]
pub(crate) struct Counts {
    ledger: Option<Ledger<'static>>,
    /// Whether what is done now is delayed and counted.
    in_range: AtomicBool,
    /// Held by who begins or ends a range.
    ranges: Mutex<()>,
    /// Held by who writes a text.
    texts: Mutex<()>,
}

impl Counts {
    /// A new ledger in `folder`. Without one nothing is counted; a folder that cannot be written
    /// is said on standard error, once in a process and those that it forks.
    pub(crate) fn begin(folder: Option<&OsStr>, range: Range) -> Self {
        let of = |ledger| Self {
            ledger,
            in_range: AtomicBool::new(range == Range::All),
            ranges: Mutex::new(()),
            texts: Mutex::new(()),
        };
        let folder = folder.filter(|folder| !folder.is_empty());
        of(folder.and_then(Self::open))
    }

    fn open(folder: &OsStr) -> Option<Ledger<'static>> {
        match map(Path::new(folder)) {
            Ok(words) => {
                let ledger = Ledger::begin(words);
                ledger.set_fact(Fact::Pid, u64::from(std::process::id()));
                ledger.set_fact(Fact::FirstCall, now());
                ledger.set_fact(Fact::LastCall, now());
                ledger.set_text(Text::Program, &command_line());
                Some(ledger)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
            Err(_) if SAID.swap(true, Ordering::Relaxed) => None,
            Err(error) => {
                let folder = folder.display();
                warn(&format!(
                    "no ledger in {folder}: {error}; nothing is counted. Give a folder that this \
                     program can write to and that has room"
                ));
                None
            }
        }
    }

    /// Whether what is done now is delayed and counted.
    #[inline]
    pub(crate) fn in_range(&self) -> bool {
        self.in_range.load(Ordering::Relaxed)
    }

    /// Begins a range, or ends one.
    pub(crate) fn set_range(&self, in_range: bool) {
        // One thread at a time: else one would end what another has begun only half. A thread that
        // panicked here has left true numbers.
        let _guard = self.ranges.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.in_range.swap(in_range, Ordering::Relaxed) == in_range {
            return;
        }
        let Some(ledger) = &self.ledger else { return };
        let now = now();
        let begun = ledger.fact(Fact::RangeBegun);
        ledger.set_fact(Fact::LastCall, now);
        ledger.set_fact(Fact::RangeBegun, if in_range { now } else { 0 });
        if in_range {
            ledger.add_fact(Fact::Ranges, 1);
        } else {
            ledger.add_fact(Fact::RangeNanos, now.saturating_sub(begun));
        }
    }

    /// The ledger, if what is done now is counted.
    fn counting(&self) -> Option<&Ledger<'static>> {
        self.ledger.as_ref().filter(|_| self.in_range())
    }

    /// Whether anything is counted.
    pub(crate) fn is_on(&self) -> bool {
        self.ledger.is_some()
    }

    /// A call of the driver, of any kind.
    #[inline]
    pub(crate) fn called(&self) {
        if let Some(ledger) = self.counting() {
            ledger.add_fact(Fact::Calls, 1);
            tick_in_range(ledger);
        }
    }

    /// One call that did `operations` of a kind.
    #[inline]
    pub(crate) fn did(&self, kind: Kind, operations: u64, bytes: u64) {
        if let Some(ledger) = self.counting() {
            ledger.add(kind, Row { calls: 1, operations, bytes, ..Row::default() });
            tick_in_range(ledger);
        }
    }

    /// A delay for a kind.
    pub(crate) fn delayed(&self, kind: Kind, place: Fact, time: Nanos) {
        self.delays(kind, place, 1, time);
    }

    /// So many delays for a kind, which take `nanos` together.
    pub(crate) fn delays(&self, kind: Kind, place: Fact, delays: u64, nanos: Nanos) {
        if let Some(ledger) = self.counting() {
            ledger.add(kind, Row { delays, added: nanos.0, ..Row::default() });
            ledger.add_fact(place, delays);
            tick_in_range(ledger);
        }
    }

    /// Adds to a number.
    pub(crate) fn add(&self, fact: Fact, more: u64) {
        if let Some(ledger) = self.counting() {
            ledger.add_fact(fact, more);
        }
    }

    /// A kernel's duration, ns; none of one that could not be measured. It was launched in a range,
    /// which may be over.
    pub(crate) fn kernel(&self, nanos: Option<u64>) {
        match (&self.ledger, nanos) {
            (Some(ledger), Some(nanos)) => ledger.add_kernel(nanos),
            (Some(ledger), None) => ledger.add_fact(Fact::KernelsUnmeasured, 1),
            (None, _) => {}
        }
    }

    /// Notes the time.
    pub(crate) fn tick(&self) {
        if let Some(ledger) = &self.ledger {
            ledger.set_fact(Fact::LastCall, now());
        }
    }

    /// Says something once: a text that is there stays.
    pub(crate) fn say(&self, text: Text, what: &str) {
        let Some(ledger) = &self.ledger else { return };
        // A writer that panicked has left a text or none, as good as any.
        let _guard = self.texts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if ledger.text(text).is_empty() {
            ledger.set_text(text, what);
        }
    }
}

/// Notes the time in a range: a process that ends in one has it counted until its last call, whether
/// or not anything is delayed.
#[inline]
fn tick_in_range(ledger: &Ledger<'_>) {
    if ledger.fact(Fact::RangeBegun) != 0 {
        ledger.set_fact(Fact::LastCall, now());
    }
}

/// Maps a new file of the folder.
fn map(folder: &Path) -> std::io::Result<&'static [AtomicU64; WORDS]> {
    let (file, path) = create(folder)?;
    let mapped = map_whole(&file);
    if mapped.is_err() {
        // An empty one would be taken for one that was lost. Where it cannot go it stays.
        let _ = std::fs::remove_file(path);
    }
    mapped
}

/// Gives a new file its length and maps it.
fn map_whole(file: &File) -> std::io::Result<&'static [AtomicU64; WORDS]> {
    let bytes = WORDS * 8;
    let length = libc::off_t::try_from(bytes).map_err(|_| ErrorKind::FileTooLarge)?;
    // With its blocks: a store into a mapped hole for which the disk has no room kills the program.
    // SAFETY: the file is open for writing.
    let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) };
    if error != 0 {
        return Err(std::io::Error::from_raw_os_error(error));
    }
    // SAFETY: a new mapping of a file that is open and this long; nothing lies there before.
    let at = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the mapping is so long, aligned to a page, all zero bytes, and never unmapped. Others
    // who map the file read it; a word is only used as an atomic.
    Ok(unsafe { &*at.cast::<[AtomicU64; WORDS]>() })
}

/// A file that was not there: the process may have become another program, or its number may have
/// been another process's.
fn create(folder: &Path) -> std::io::Result<(File, PathBuf)> {
    let pid = std::process::id();
    let mut result = Err(ErrorKind::AlreadyExists.into());
    for program in 0..PROGRAMS {
        let name = match program {
            0 => format!("{pid}.ledger"),
            program => format!("{pid}-{program}.ledger"),
        };
        let path = folder.join(name);
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        result = opened.map(|file| (file, path));
        match &result {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            _ => break,
        }
    }
    result
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// What the process was started as.
fn command_line() -> String {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words: Vec<_> = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn threads_that_begin_and_end_ranges_leave_true_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        let counts = Counts::begin(Some(folder.path().as_os_str()), Range::Profiler);
        let begun = now();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let counts = &counts;
                scope.spawn(move || {
                    (0..2_000).for_each(|at| counts.set_range((at + thread) % 2 == 0))
                });
            }
        });
        counts.set_range(false);
        let ledger = counts.ledger.expect("the folder can be written");
        assert_eq!(ledger.fact(Fact::RangeBegun), 0);
        assert!(ledger.fact(Fact::Ranges) > 0);
        assert!(ledger.fact(Fact::RangeNanos) <= now() - begun);
    }
}
