//! What to change, with the numbers behind it.

use perf_core::{Fabric, Kind, Nanos, Row, SHORT, Settings};

use super::{Report, percent};
use crate::quantity::show_bytes;

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What it would save, at most.
    pub saves: Nanos,
    /// What to do.
    pub what: String,
    /// The numbers behind it.
    pub because: String,
}

/// Less than this share of the program's time is not worth a word.
const WORTH: f64 = 0.5;

/// The advice for a run, the most worthwhile first.
pub fn advise(report: &Report) -> Vec<Advice> {
    let mut advice: Vec<Advice> = [
        kernels,
        copies_small,
        copies_large,
        pageable,
        memsets,
        synchronisation,
        callbacks,
        managed,
    ]
    .into_iter()
    .filter_map(|rule| rule(report))
    .filter(|advice| percent(advice.saves, report.counted()) >= WORTH)
    .collect();
    advice.sort_by_key(|advice| std::cmp::Reverse(advice.saves));
    advice
}

fn kernels(report: &Report) -> Option<Advice> {
    let row = report.row(Kind::Kernel);
    let kernels = report.kernels();
    let (short, _) = kernels.short();
    let mean = Nanos(kernels.mean()? as u64);
    // A kernel of ten times the added time loses a tenth, which fusing hardly mends.
    if mean > Nanos(report.settings.fabric.kernel_extra().0.saturating_mul(10)) && short < 0.3 {
        return None;
    }
    Some(Advice {
        saves: Nanos(row.added),
        what: "Launch fewer and longer kernels: fuse them (torch.compile, XLA), put the step into \
               a CUDA graph, take a larger batch."
            .to_owned(),
        because: format!(
            "{} kernels of {mean} on average, {:.0} % of them shorter than {SHORT}; the end of \
             each costs {}",
            row.operations,
            100.0 * short,
            report.settings.fabric.kernel_extra(),
        ),
    })
}

/// What of the copies to the GPU are its reads: the CPU pushed the others, which wait for no round trip.
fn reads(report: &Report) -> Row {
    let all = report.row(Kind::HostToDevice);
    report.processes.iter().map(|process| process.pushed).fold(all, |left, pushed| Row {
        calls: left.calls.saturating_sub(pushed.calls),
        operations: left.operations.saturating_sub(pushed.operations),
        bytes: left.bytes.saturating_sub(pushed.bytes),
        delays: left.delays.saturating_sub(pushed.delays),
        added: left.added.saturating_sub(pushed.added),
    })
}

/// What reads' round trips cost, and what their bytes cost beyond them.
fn split(report: &Report, reads: &Row) -> (Nanos, Nanos) {
    let latency = report.settings.extra(Kind::HostToDevice, 1).0.saturating_mul(reads.delays);
    let latency = Nanos(latency.min(reads.added));
    (latency, Nanos(reads.added).saturating_sub(latency))
}

fn copies_small(report: &Report) -> Option<Advice> {
    let reads = reads(report);
    let (latency, _) = split(report, &reads);
    let mean = reads.bytes.checked_div(reads.operations)?;
    (latency.0 > 0).then(|| Advice {
        saves: latency,
        what: "Copy to the GPU less often: keep parameters and constants there, gather small \
               inputs into one copy."
            .to_owned(),
        because: format!(
            "{} copies to the GPU of {} on average; each waits for a round trip, {}",
            reads.operations,
            show_bytes(mean),
            report.settings.extra(Kind::HostToDevice, 1),
        ),
    })
}

fn copies_large(report: &Report) -> Option<Advice> {
    let fabric = report.settings.fabric;
    let reads = reads(report);
    let bytes = reads.bytes;
    let (_, slower) = split(report, &reads);
    if slower.0 == 0 || bytes == 0 || fabric.push.is_some() {
        return None;
    }
    let push = Fabric { push: Some(Fabric::DXPU_PUSH), ..fabric };
    let pushed = Settings { fabric: push, ..report.settings };
    let now = fabric.htod_rate().time(bytes);
    let then = pushed.fabric.htod_rate().time(bytes);
    Some(Advice {
        saves: now.saturating_sub(then).min(slower),
        what: "Have the CPU write instead of the GPU read: `--push-copies`, or let the proxy read \
               ahead; send less (smaller types, decode on the GPU)."
            .to_owned(),
        because: format!(
            "{} go to the GPU as its reads, at {:.2} GB/s instead of {:.1}; writes of the CPU have \
             {:.2}",
            show_bytes(bytes),
            fabric.htod_rate().giga(),
            fabric.native_htod.giga(),
            push.htod_rate().giga(),
        ),
    })
}

fn pageable(report: &Report) -> Option<Advice> {
    let bytes: u64 = report.processes.iter().map(|process| process.pageable).sum();
    let copies = [Kind::HostToDevice, Kind::DeviceToHost].map(|kind| report.row(kind));
    // Those that are off are not among the bytes either.
    let (all, added) = copies
        .iter()
        .filter(|row| row.added > 0)
        .fold((0, 0), |sum, row| (sum.0 + u128::from(row.bytes), sum.1 + u128::from(row.added)));
    // Their part of the copies' time, by bytes.
    let saves = (added * u128::from(bytes)).checked_div(all)?;
    (bytes > 0).then(|| Advice {
        saves: Nanos(u64::try_from(saves).unwrap_or(u64::MAX)),
        what: "Pin the host memory of copies (`pin_memory=True`, `non_blocking=True`, \
               cudaHostRegister), so that the CPU goes on while they run."
            .to_owned(),
        because: format!(
            "{} were copied from or to memory that is not pinned, and held up the call",
            show_bytes(bytes)
        ),
    })
}

fn memsets(report: &Report) -> Option<Advice> {
    let row = report.row(Kind::Memset);
    (row.added > 0).then(|| Advice {
        saves: Nanos(row.added),
        what: "Clear less: `zero_grad(set_to_none=True)`, one buffer for all gradients, kernels \
               that overwrite instead of add."
            .to_owned(),
        because: format!(
            "{} memsets; the end of each costs {}",
            row.operations,
            report.settings.extra(Kind::Memset, 0)
        ),
    })
}

fn synchronisation(report: &Report) -> Option<Advice> {
    let row = report.row(Kind::Synchronise);
    (row.added > 0).then(|| Advice {
        saves: Nanos(row.added),
        what: "Wait less often: no `.item()`, `.cpu()` or print of a tensor in the step; read the \
               loss every so many steps; do not poll events."
            .to_owned(),
        because: format!(
            "{} times the CPU waited for something of the GPU; it sees the end {} later each time",
            row.delays,
            report.settings.extra(Kind::Synchronise, 0)
        ),
    })
}

fn callbacks(report: &Report) -> Option<Advice> {
    let row = report.row(Kind::HostCallback);
    (row.added > 0).then(|| Advice {
        saves: Nanos(row.added),
        what: "Take host callbacks out of streams: let a thread wait for an event instead."
            .to_owned(),
        because: format!(
            "{} host callbacks; the stream stands still {} longer for each",
            row.calls,
            report.settings.extra(Kind::HostCallback, 0)
        ),
    })
}

fn managed(report: &Report) -> Option<Advice> {
    let row = report.row(Kind::Managed);
    (row.added > 0).then(|| Advice {
        saves: Nanos(row.added),
        what: "Give managed memory up for memory of the GPU and explicit copies.".to_owned(),
        because: format!(
            "{} of managed memory moved to the GPU as its reads",
            show_bytes(row.bytes)
        ),
    })
}
