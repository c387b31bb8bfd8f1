//! What a run cost, by kind, and what would make it cost less.

mod advice;
mod html;
mod json;
mod plot;
mod text;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use perf_core::{Fact, Histogram, Kind, Ledger, Nanos, Proxies, Range, Row, SHORT, Settings, Text};

use crate::quantity::show_bytes;

pub use advice::{Advice, advise};
pub use html::Page;
pub(crate) use json::histogram;
pub use plot::{Bars, Curve, Point};

/// The share of the run, in percent, from which on what the CPU spends on delays is worth a line.
const PUTTING_SEEN: f64 = 0.5;

/// What a program's processes did under the shim.
#[derive(Clone, Debug)]
pub struct Report {
    /// The command.
    pub command: Vec<String>,
    /// What was asked for.
    pub settings: Settings,
    /// The profile's name.
    pub profile: String,
    /// How long the program ran, from its start to its end.
    pub wall: Nanos,
    /// How it ended, in words; none if it ended well.
    pub ended: Option<String>,
    /// Its processes that called CUDA's driver.
    pub processes: Vec<Process>,
    /// Counts that are lost, and why.
    pub lost: Vec<String>,
}

/// One process that called CUDA's driver.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its process ID.
    pub pid: u64,
    /// The program's name.
    pub program: String,
    /// The first GPU's name.
    pub device: String,
    /// From its first call of the driver to the last one whose time is known.
    pub active: Nanos,
    /// What was counted, in the order of [`Kind::ALL`].
    pub rows: [Row; Kind::ALL.len()],
    /// Kernel durations, of those that were measured.
    pub kernels: Histogram,
    /// Kernels that were to be measured and were too short for it.
    pub unmeasured: u64,
    /// How long the ranges were that were delayed and counted, where only ranges are.
    pub ranges: Nanos,
    /// How many of them were begun.
    pub ranges_begun: u64,
    /// All calls of the driver.
    pub calls: u64,
    /// Delays on the GPU's timeline, spent by the CPU, and left out.
    pub delays: Delays,
    /// What was pushed of the copies to the GPU.
    pub pushed: Row,
    /// Bytes of copies that held up a call because their host memory is not pinned.
    pub pageable: u64,
    /// What a person should know of it.
    pub notes: Vec<String>,
}

/// Where delays went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// On the GPU's timeline.
    pub gpu: u64,
    /// Spent by the CPU.
    pub cpu: u64,
    /// Left out: there was no place for them.
    pub lost: u64,
    /// Of those of the GPU, how many the CPU put into streams: graphs have the others in them.
    pub put: u64,
    /// What the CPU spent on that.
    pub putting: Nanos,
}

impl Report {
    /// How long of the run was delayed and counted: all of it, or the ranges of the process that had
    /// most.
    pub fn counted(&self) -> Nanos {
        match self.settings.range {
            Range::All => self.wall,
            Range::Profiler => ranges(&self.processes),
        }
    }

    /// How long it ran, in words.
    fn ran(&self) -> String {
        let begun: u64 = self.processes.iter().map(|process| process.ranges_begun).sum();
        match (self.settings.range, begun) {
            (Range::All, _) => format!("ran {}", self.wall),
            (Range::Profiler, 0) => format!(
                "ran {}, and nothing of it was delayed or counted: no process called \
                 cuProfilerStart (torch.cuda.profiler.start()), as --range profiler wants",
                self.wall
            ),
            (Range::Profiler, _) => format!(
                "ran {}, and {} of that between cuProfilerStart and cuProfilerStop, which is what \
                 was delayed and counted, and what the parts below are of",
                self.wall,
                self.counted()
            ),
        }
    }

    /// What was counted for `kind`, of all processes.
    pub fn row(&self, kind: Kind) -> Row {
        let rows = self.processes.iter().map(|process| process.rows[kind.number()]);
        rows.fold(Row::default(), |sum, row| Row {
            calls: sum.calls.saturating_add(row.calls),
            operations: sum.operations.saturating_add(row.operations),
            bytes: sum.bytes.saturating_add(row.bytes),
            delays: sum.delays.saturating_add(row.delays),
            added: sum.added.saturating_add(row.added),
        })
    }

    /// The time that was added, of all kinds and processes. On several streams or GPUs it may have
    /// passed at the same time.
    pub fn added(&self) -> Nanos {
        let added = Kind::ALL.into_iter().map(|kind| Nanos(self.row(kind).added));
        added.fold(Nanos::ZERO, Nanos::saturating_add)
    }

    /// What the CPU spent on putting delays into streams, of all processes.
    pub fn putting(&self) -> Nanos {
        let putting = self.processes.iter().map(|process| process.delays.putting);
        putting.fold(Nanos::ZERO, Nanos::saturating_add)
    }

    /// What the CPU of the process that spent most on it spent, and what that means, where it is
    /// enough to be seen.
    fn putting_says(&self) -> Option<String> {
        let delays = self.processes.iter().map(|process| process.delays);
        let most = delays.max_by_key(|delays| delays.putting)?;
        let share = percent(most.putting, self.counted());
        let each = most.putting.0.checked_div(most.put)?;
        (share >= PUTTING_SEEN).then(|| {
            format!(
                "{} of a CPU ({share:.1} %) went into putting delays into streams, {} each, which a \
                 fabric would not take: while the GPU waits for the CPU, the program is slower here \
                 than there by up to as much. `dxpu-perf predict` on a trace says what a fabric \
                 costs, and with --putting {}ns what is seen here",
                most.putting,
                Nanos(each),
                each
            )
        })
    }

    /// Which proxies the GPUs are taken to be behind, where the run has copies between them.
    fn proxies_say(&self) -> Option<&'static str> {
        (self.row(Kind::PeerToPeer).operations > 0).then_some(match self.settings.proxies {
            Proxies::One => {
                "all GPUs are taken to be behind one proxy, so that copies between them cost nothing \
                 more (--proxies)"
            }
            Proxies::Each => "each GPU is taken to be behind a proxy of its own (--proxies)",
        })
    }

    /// How long kernels are, in words; none where none was measured, or was to be.
    fn kernels_say(&self) -> Option<String> {
        let kernels = self.kernels();
        let (number, time) = kernels.short();
        let unmeasured: u64 = self.processes.iter().map(|process| process.unmeasured).sum();
        let left_out = match unmeasured {
            0 => String::new(),
            count => format!(
                "; {count} more were too short to be told from the time that the GPU waited for them"
            ),
        };
        let Some(mean) = kernels.mean() else {
            return (unmeasured > 0).then(|| format!("none measured{left_out}"));
        };
        Some(format!(
            "{} measured, {} on average; {:.0} % by number and {:.0} % by time are shorter than \
             {SHORT}{left_out}",
            kernels.count(),
            Nanos(mean as u64),
            100.0 * number,
            100.0 * time,
        ))
    }

    /// A row of text for each kind that was called: title, calls, operations, bytes, added time,
    /// its share of the run.
    fn kind_rows(&self) -> Vec<Vec<String>> {
        Kind::ALL
            .into_iter()
            .map(|kind| (kind, self.row(kind)))
            .filter(|(_, row)| row.calls > 0 || row.added > 0)
            .map(|(kind, row)| {
                vec![
                    kind.title().to_owned(),
                    row.calls.to_string(),
                    row.operations.to_string(),
                    if row.bytes == 0 { "-".to_owned() } else { show_bytes(row.bytes) },
                    Nanos(row.added).to_string(),
                    format!("{:.1} %", percent(Nanos(row.added), self.counted())),
                ]
            })
            .collect()
    }

    /// Kernel durations of all processes.
    pub fn kernels(&self) -> Histogram {
        let mut all = Histogram::default();
        for process in &self.processes {
            all.merge(&process.kernels);
        }
        all
    }

    /// Reads the processes' ledgers in `folder`, in the order of their process IDs, and says which
    /// cannot be read, and why: the program may have done what it liked to them.
    pub fn read_processes(folder: &Path) -> (Vec<Process>, Vec<String>) {
        let (mut processes, mut lost) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                lost.push(format!("the folder of ledgers {}: {error}", folder.display()));
                return (processes, lost);
            }
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "ledger") {
                match Process::read(&path) {
                    Ok(process) => processes.push(process),
                    Err(error) => lost.push(format!("{error:#}")),
                }
            }
        }
        processes.sort_by_key(|process| process.pid);
        lost.sort();
        (processes, lost)
    }
}

impl Process {
    fn read(path: &Path) -> Result<Self> {
        let name = || path.display().to_string();
        let bytes = fs::read(path).with_context(name)?;
        let words = Ledger::words(&bytes).with_context(name)?;
        Ok(Self::of(&Ledger::open(&words).with_context(name)?))
    }

    fn of(ledger: &Ledger<'_>) -> Self {
        let first = ledger.fact(Fact::FirstCall);
        let last = ledger.fact(Fact::LastCall);
        // A range that the process ended in.
        let open = match ledger.fact(Fact::RangeBegun) {
            0 => 0,
            begun => last.saturating_sub(begun),
        };
        let notes = [
            ("delays are not on the GPU's timeline", Text::NoGpuDelays),
            ("push copies are not available here", Text::NoPush),
            ("note", Text::Note),
        ]
        .into_iter()
        .map(|(what, text)| (what, ledger.text(text)))
        .filter(|(_, text)| !text.is_empty())
        .map(|(what, text)| format!("{what}: {text}"))
        .collect();
        Self {
            pid: ledger.fact(Fact::Pid),
            program: ledger.text(Text::Program),
            device: ledger.text(Text::Device),
            active: Nanos(last.saturating_sub(first)),
            rows: Kind::ALL.map(|kind| ledger.row(kind)),
            kernels: ledger.kernels(),
            ranges: Nanos(ledger.fact(Fact::RangeNanos).saturating_add(open)),
            ranges_begun: ledger.fact(Fact::Ranges),
            unmeasured: ledger.fact(Fact::KernelsUnmeasured),
            calls: ledger.fact(Fact::Calls),
            delays: Delays {
                gpu: ledger.fact(Fact::GpuDelays),
                cpu: ledger.fact(Fact::CpuDelays),
                lost: ledger.fact(Fact::LostDelays),
                put: ledger.fact(Fact::PutDelays),
                putting: Nanos(ledger.fact(Fact::PuttingNanos)),
            },
            pushed: Row {
                calls: ledger.fact(Fact::PushedCopies),
                operations: ledger.fact(Fact::PushedCopies),
                bytes: ledger.fact(Fact::PushedBytes),
                delays: ledger.fact(Fact::PushedCopies),
                added: ledger.fact(Fact::PushedNanos),
            },
            pageable: ledger.fact(Fact::PageableBytes),
            notes,
        }
    }
}

/// How long the ranges of the process were that had most.
pub(crate) fn ranges(processes: &[Process]) -> Nanos {
    processes.iter().map(|process| process.ranges).max().unwrap_or(Nanos::ZERO)
}

/// A time as part of another one, in percent; 0 of nothing.
pub(crate) fn percent(part: Nanos, whole: Nanos) -> f64 {
    if whole.0 == 0 { 0.0 } else { 100.0 * part.0 as f64 / whole.0 as f64 }
}

#[cfg(test)]
pub(crate) mod tests;
