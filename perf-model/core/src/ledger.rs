//! What the shim counts in one process, in a file that it maps.
//!
//! The file is a run of 64-bit words in the machine's byte order: a magic number, a version, facts,
//! a row for each kind, the histogram of kernel durations, and texts. A word is only ever added to
//! or overwritten as a whole, so that a reader at any time, also after the process was killed, sees
//! words that were true.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{Bin, Histogram, Kind, SHORT};

const MAGIC: u64 = u64::from_le_bytes(*b"dxpuperf");
const VERSION: u64 = 3;

const FACTS_AT: usize = 2;
const ROWS_AT: usize = FACTS_AT + Fact::ALL.len();
const ROW_WORDS: usize = 5;
const COUNTS_AT: usize = ROWS_AT + Kind::ALL.len() * ROW_WORDS;
const NANOS_AT: usize = COUNTS_AT + Bin::COUNT;
const TEXTS_AT: usize = NANOS_AT + Bin::COUNT;
const TEXT_WORDS: usize = 32;

/// How many words a ledger has.
pub const WORDS: usize = TEXTS_AT + Text::ALL.len() * TEXT_WORDS;

/// A number about the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fact {
    /// Its process ID.
    Pid,
    /// When it first called the driver: ns since 1970.
    FirstCall,
    /// When it last called the driver, of the calls at which the clock was looked at: ns since
    /// 1970.
    LastCall,
    /// Delays that were put on the GPU's timeline.
    GpuDelays,
    /// Delays that the CPU spent.
    CpuDelays,
    /// Delays that could not be put where they belong, and were left out.
    LostDelays,
    /// Kernels whose duration was measured.
    KernelsMeasured,
    /// Bytes that were copied to a GPU as writes of the CPU (push copies).
    PushedBytes,
    /// Bytes of copies that held up the program's call because their host memory is not pinned.
    PageableBytes,
    /// Kernels of those measured that are shorter than [`crate::SHORT`].
    ShortKernels,
    /// How long those are together, ns.
    ShortNanos,
    /// Driver calls that went through the shim, of any kind.
    Calls,
    /// What the CPU spent on putting delays into streams, ns. A fabric takes none of it.
    PuttingNanos,
    /// Kernels that were to be measured and were not: they are short, and the GPU had nothing else
    /// to do when they came, so that most of what was measured would be the CPU's time.
    KernelsUnmeasured,
    /// How long the ranges together were that were counted, and have ended, ns
    /// ([`crate::Range::Profiler`]).
    RangeNanos,
    /// When the range began that has not ended: ns since 1970, or 0.
    RangeBegun,
    /// Ranges that were begun.
    Ranges,
    /// Delays that the CPU put into streams. Those of a graph's nodes are in the graph, which is
    /// launched with all of them.
    PutDelays,
    /// Copies that were pushed.
    PushedCopies,
    /// The time that was added to those, ns.
    PushedNanos,
}

impl Fact {
    /// Every fact, in the order of the words.
    pub const ALL: [Self; 20] = [
        Self::Pid,
        Self::FirstCall,
        Self::LastCall,
        Self::GpuDelays,
        Self::CpuDelays,
        Self::LostDelays,
        Self::KernelsMeasured,
        Self::PushedBytes,
        Self::PageableBytes,
        Self::ShortKernels,
        Self::ShortNanos,
        Self::Calls,
        Self::PuttingNanos,
        Self::KernelsUnmeasured,
        Self::RangeNanos,
        Self::RangeBegun,
        Self::Ranges,
        Self::PutDelays,
        Self::PushedCopies,
        Self::PushedNanos,
    ];
}

/// A text of at most 255 bytes about the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Text {
    /// The program's name.
    Program,
    /// The first GPU's name.
    Device,
    /// Why delays are not on the GPU's timeline, where they should be.
    NoGpuDelays,
    /// Why copies are not pushed, where they should be.
    NoPush,
    /// Anything else that a person should know.
    Note,
}

impl Text {
    /// Every text, in the order of the words.
    pub const ALL: [Self; 5] =
        [Self::Program, Self::Device, Self::NoGpuDelays, Self::NoPush, Self::Note];
}

/// What was counted for one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Calls of the program. A batch of copies is one call.
    pub calls: u64,
    /// Operations in them: a batch's copies, a graph's nodes where they are known.
    pub operations: u64,
    /// Bytes that they moved or set.
    pub bytes: u64,
    /// Delays injected for them.
    pub delays: u64,
    /// The time of those delays, ns.
    pub added: u64,
}

/// What is wrong with the bytes of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerError {
    /// So many bytes instead of [`WORDS`] × 8.
    Length(usize),
    /// It does not begin with the magic number: it is something else, or was never begun.
    Magic,
    /// Another version of the shim wrote it.
    Version(u64),
}

impl fmt::Display for LedgerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => {
                write!(out, "it has {bytes} bytes; a ledger has {}", WORDS * 8)
            }
            Self::Magic => write!(out, "it is no ledger of libdxpu_perf.so"),
            Self::Version(version) => write!(
                out,
                "a libdxpu_perf.so with ledgers of version {version} wrote it; \
                 this program reads version {VERSION}"
            ),
        }
    }
}

impl core::error::Error for LedgerError {}

/// One process's counts, over words that may be shared with the file and with other threads.
#[derive(Clone, Copy, Debug)]
pub struct Ledger<'a>(&'a [AtomicU64; WORDS]);

impl<'a> Ledger<'a> {
    /// Begins a ledger in words that are 0.
    pub fn begin(words: &'a [AtomicU64; WORDS]) -> Self {
        words[1].store(VERSION, Ordering::Relaxed);
        words[0].store(MAGIC, Ordering::Release);
        Self(words)
    }

    /// The words of a ledger that was read from its file.
    ///
    /// # Errors
    /// [`LedgerError::Length`].
    pub fn words(bytes: &[u8]) -> Result<Box<[AtomicU64; WORDS]>, LedgerError> {
        let words: Vec<AtomicU64> = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| AtomicU64::new(u64::from_ne_bytes(*word)))
            .collect();
        let wrong = LedgerError::Length(bytes.len());
        if !bytes.len().is_multiple_of(8) {
            return Err(wrong);
        }
        words.into_boxed_slice().try_into().map_err(|_| wrong)
    }

    /// A ledger that was begun.
    ///
    /// # Errors
    /// [`LedgerError::Magic`] and [`LedgerError::Version`].
    pub fn open(words: &'a [AtomicU64; WORDS]) -> Result<Self, LedgerError> {
        if words[0].load(Ordering::Acquire) != MAGIC {
            return Err(LedgerError::Magic);
        }
        match words[1].load(Ordering::Relaxed) {
            VERSION => Ok(Self(words)),
            version => Err(LedgerError::Version(version)),
        }
    }

    /// One of its numbers.
    pub fn fact(&self, fact: Fact) -> u64 {
        self.0[FACTS_AT + fact as usize].load(Ordering::Relaxed)
    }

    /// Overwrites one of its numbers.
    pub fn set_fact(&self, fact: Fact, value: u64) {
        self.0[FACTS_AT + fact as usize].store(value, Ordering::Relaxed);
    }

    /// Adds to one of its numbers.
    pub fn add_fact(&self, fact: Fact, more: u64) {
        self.0[FACTS_AT + fact as usize].fetch_add(more, Ordering::Relaxed);
    }

    /// What was counted for `kind`.
    pub fn row(&self, kind: Kind) -> Row {
        let at = ROWS_AT + kind.number() * ROW_WORDS;
        let word = |word: usize| self.0[at + word].load(Ordering::Relaxed);
        Row { calls: word(0), operations: word(1), bytes: word(2), delays: word(3), added: word(4) }
    }

    /// Adds to what was counted for `kind`.
    pub fn add(&self, kind: Kind, more: Row) {
        let at = ROWS_AT + kind.number() * ROW_WORDS;
        let more = [more.calls, more.operations, more.bytes, more.delays, more.added];
        for (word, more) in self.0[at..at + ROW_WORDS].iter().zip(more) {
            if more != 0 {
                word.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// Adds a measured kernel duration.
    pub fn add_kernel(&self, nanos: u64) {
        let bin = Bin::of(nanos).number();
        self.0[COUNTS_AT + bin].fetch_add(1, Ordering::Relaxed);
        self.0[NANOS_AT + bin].fetch_add(nanos, Ordering::Relaxed);
        self.add_fact(Fact::KernelsMeasured, 1);
        if nanos < SHORT.0 {
            self.add_fact(Fact::ShortKernels, 1);
            self.add_fact(Fact::ShortNanos, nanos);
        }
    }

    /// The measured kernel durations.
    pub fn kernels(&self) -> Histogram {
        let mut histogram = Histogram::default();
        for number in 0..Bin::COUNT {
            let count = self.0[COUNTS_AT + number].load(Ordering::Relaxed);
            let nanos = self.0[NANOS_AT + number].load(Ordering::Relaxed);
            if let (Some(bin), true) = (Bin::from_number(number), count != 0) {
                histogram.add_many(bin, count, nanos);
            }
        }
        histogram.add_short(self.fact(Fact::ShortKernels), self.fact(Fact::ShortNanos));
        histogram
    }

    /// One of its texts; empty if it was never set.
    pub fn text(&self, text: Text) -> String {
        let at = TEXTS_AT + text as usize * TEXT_WORDS;
        let bytes: Vec<u8> = self.0[at..at + TEXT_WORDS]
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Overwrites one of its texts; what is longer than 255 bytes is cut.
    pub fn set_text(&self, text: Text, value: &str) {
        let at = TEXTS_AT + text as usize * TEXT_WORDS;
        let mut bytes = [0_u8; TEXT_WORDS * 8];
        let mut length = value.len().min(bytes.len() - 1);
        while !value.is_char_boundary(length) {
            length -= 1;
        }
        bytes[..length].copy_from_slice(&value.as_bytes()[..length]);
        for (word, bytes) in self.0[at..at + TEXT_WORDS].iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }
}
