//! What a fabric would cost a program, by a trace of it.

mod html;
mod json;
mod text;
#[cfg(test)]
mod unit_tests;

use perf_core::{BytesPerSecond, Fabric, Histogram};

pub use html::Predicted;

use crate::replay::{Cause, Graph, Lost, Scenario};
use crate::trace::{Direction, Memory, OperationKind, Trace};

/// Copies from this size on say what rate the trace's machine has, in bytes.
const LARGE: u64 = 1 << 20;

/// Where the classes of kernels by duration begin, in nanoseconds.
pub const CLASSES: [u64; 8] = [0, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000];

/// What a trace says of its own machine and program.
#[derive(Clone, Debug)]
pub struct Native {
    /// How long the trace is, in nanoseconds.
    pub length_ns: u64,
    /// Steps that the program marked, and how long one takes on average ([`Trace::step_ns`]).
    pub steps: Option<(usize, f64)>,
    /// Calls, operations, devices.
    pub counts: [usize; 3],
    /// How long kernels are.
    pub kernels: Histogram,
    /// How many are of each of [`CLASSES`], and how long these take together, in nanoseconds.
    pub classes: [(u64, u64); CLASSES.len()],
    /// Rates of large copies, to the device and from it.
    pub rates: [Option<BytesPerSecond>; 2],
}

/// What one scenario would make of it.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// What was played.
    pub scenario: Scenario,
    /// How long the trace would be, in nanoseconds.
    pub length_ns: u64,
    /// How long a step would take on average, in nanoseconds.
    pub step_ns: Option<f64>,
    /// What was added and lost by cause: what loses most first.
    pub causes: Vec<(Cause, Lost)>,
    /// The same by name.
    pub names: Vec<(Cause, String, Lost)>,
}

impl Native {
    /// Looks at a trace.
    #[must_use]
    pub fn of(trace: &Trace) -> Native {
        let mut kernels = Histogram::default();
        let mut classes = [(0_u64, 0_u64); CLASSES.len()];
        let mut moved = [(0_u64, 0_u64); 2];
        for operation in &trace.operations {
            let way = match operation.kind {
                OperationKind::Kernel => {
                    kernels.add(operation.duration);
                    let class = CLASSES.partition_point(|from| *from <= operation.duration) - 1;
                    let (count, time) = &mut classes[class];
                    *count += 1;
                    *time = time.saturating_add(operation.duration);
                    continue;
                }
                // Pageable ones are staged: they are as fast as the CPU copies.
                OperationKind::Copy(Direction::HostToDevice, Memory::Pinned) => 0,
                OperationKind::Copy(Direction::DeviceToHost, Memory::Pinned) => 1,
                _ => continue,
            };
            if operation.bytes >= LARGE {
                let (bytes, time) = &mut moved[way];
                *bytes = bytes.saturating_add(operation.bytes);
                *time = time.saturating_add(operation.duration);
            }
        }
        let rate = |(bytes, time): (u64, u64)| {
            let rate = u128::from(bytes) * 1_000_000_000 / u128::from(time).max(1);
            let rate = u64::try_from(rate).ok().filter(|_| time > 0)?;
            BytesPerSecond::new(rate).ok()
        };
        Native {
            length_ns: trace.length_ns(),
            steps: trace.step_ns().map(|step| (trace.steps.len(), step)),
            counts: [trace.calls.len(), trace.operations.len(), trace.busy_devices()],
            kernels,
            classes,
            rates: moved.map(rate),
        }
    }

    /// The share of kernels that are shorter than the start of a class, by number and by time, each
    /// from 0 to 1.
    #[must_use]
    pub fn share_below(&self, class: usize) -> (f64, f64) {
        let sum = |classes: &[(u64, u64)]| {
            let sum = |(count, time), (more, longer): &(u64, u64)| {
                (count + *more as f64, time + *longer as f64)
            };
            classes.iter().fold((0.0, 0.0), sum)
        };
        let (part, whole) = (sum(&self.classes[..class]), sum(&self.classes));
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        (share(part.0, whole.0), share(part.1, whole.1))
    }

    /// A fabric with the rates that the trace's own machine has, where the trace shows them, and
    /// the tags that its copies to the device need.
    #[must_use]
    pub fn with_rates(&self, fabric: Fabric) -> Fabric {
        let [to, from] = self.rates;
        let rated = fabric.with_native_rates(
            to.unwrap_or(fabric.native_htod),
            from.unwrap_or(fabric.native_dtoh),
        );
        // What the trace does not show is the fabric's own, with its own tags.
        let tags = if to.is_some() { rated.tags } else { fabric.tags };
        Fabric { tags, ..rated }
    }

    /// What of its performance a prediction leaves the program, in percent: of steps where it
    /// marked them, else of the whole trace.
    #[must_use]
    pub fn performance(&self, prediction: &Prediction) -> f64 {
        let (native, predicted) = match (self.steps, prediction.step_ns) {
            (Some((_, native)), Some(predicted)) => (native, predicted),
            _ => (self.length_ns as f64, prediction.length_ns as f64),
        };
        if predicted > 0.0 { 100.0 * native / predicted } else { 100.0 }
    }
}

impl Prediction {
    /// Plays a scenario.
    #[must_use]
    pub fn of(graph: &Graph<'_>, scenario: Scenario) -> Prediction {
        let trace = graph.trace();
        let played = graph.play(&scenario);
        let lost = played.lost();
        let mut causes: Vec<_> = lost.causes.into_iter().collect();
        causes.sort_by_key(|(cause, lost)| (std::cmp::Reverse(lost.lost_ns), *cause));
        let mut names: Vec<_> = lost.names.into_iter().collect();
        names.sort_by_key(|((cause, name), lost)| {
            (std::cmp::Reverse((lost.lost_ns, lost.added_ns)), *cause, *name)
        });
        Prediction {
            scenario,
            length_ns: played.length_ns(),
            step_ns: played.step_ns(),
            causes,
            names: names
                .into_iter()
                .map(|((cause, name), lost)| (cause, trace.names.get(name).to_owned(), lost))
                .collect(),
        }
    }

    /// What the fabric added to all operations, in nanoseconds.
    #[must_use]
    pub fn added_ns(&self) -> u64 {
        self.causes.iter().fold(0, |sum, (_, lost)| sum.saturating_add(lost.added_ns))
    }

    /// What of that is lost: what the whole takes longer, in nanoseconds.
    #[must_use]
    pub fn lost_ns(&self) -> u64 {
        self.causes.iter().fold(0, |sum, (_, lost)| sum.saturating_add(lost.lost_ns))
    }

    /// What of what was added is hidden, in percent; none where nothing was added.
    #[must_use]
    pub fn hidden_percent(&self) -> Option<f64> {
        let added = self.added_ns();
        (added > 0).then(|| 100.0 * (1.0 - self.lost_ns() as f64 / added as f64))
    }
}
