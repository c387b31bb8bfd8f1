//! One seed from begin to end.

use crate::oracle::Violation;
use crate::pcap::Capture;
use crate::profile::Profile;
use crate::schedule::{self, Entry};
pub use crate::trace::Recording;
use crate::world::World;
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

/// Lines of a story.
const STORY: usize = 40;

/// What came of one run.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Hash over every event: equal for equal runs.
    pub hash: u64,
    /// What was broken, if anything.
    pub violation: Option<Violation>,
    /// The last events before it.
    pub story: Vec<String>,
    /// TLPs that crossed the fabric.
    pub tlps: u64,
    /// Operations of drivers that ended well.
    pub operations: u64,
    /// What became of the frames.
    pub frames: Frames,
    /// How often what a profile may be for happened, by its name.
    pub happened: BTreeMap<&'static str, u64>,
    /// Bindings that there were.
    pub bindings: usize,
    /// Events of the simulation.
    pub events: u64,
    /// Virtual time, milliseconds.
    pub virtual_ms: u64,
    /// What it was to be recorded in and could not, and why. That ends no run.
    #[serde(skip)]
    pub unwritten: Option<(Recording, String)>,
}

/// What became of the frames of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Frames {
    /// That were sent.
    pub sent: u64,
    /// That were lost.
    pub lost: u64,
    /// That met a long queue and were marked so.
    pub marked: u64,
}

thread_local! {
    /// What the last panic of this thread said.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes panics of the code under test quiet: they are part of an outcome.
pub fn keep_panics() {
    panic::set_hook(Box::new(|info| {
        PANIC.with(|said| *said.borrow_mut() = Some(info.to_string()));
    }));
}

/// A run that is about to be.
pub struct Run {
    world: World,
}

impl Run {
    /// Of a seed.
    pub fn new(seed: u64, profile: &Profile) -> Self {
        Self::of(seed, profile, schedule::make(seed, profile))
    }

    pub(crate) fn of(seed: u64, profile: &Profile, schedule: Vec<Entry>) -> Self {
        Self { world: World::new(seed, profile, schedule) }
    }

    /// Writes every event to a file as it happens.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn trace_to(&mut self, path: &Path) -> io::Result<()> {
        self.world.trace.write_text(Box::new(BufWriter::new(File::create(path)?)));
        Ok(())
    }

    /// Writes every frame that is sent to a capture.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn capture_to(&mut self, path: &Path) -> io::Result<()> {
        let file = BufWriter::new(File::create(path)?);
        self.world.trace.write_capture(Capture::new(Box::new(file))?);
        Ok(())
    }

    /// Runs it.
    pub fn go(mut self) -> Outcome {
        let result = panic::catch_unwind(AssertUnwindSafe(|| self.world.run()));
        let violation = match result {
            Ok(verdict) => verdict.err(),
            Err(payload) => Some(Violation::new(6, panicked(payload.as_ref()))),
        };
        let world = &mut self.world;
        let unwritten = world.trace.finish().map(|(record, error)| (record, error.to_string()));
        let story = if violation.is_some() { world.trace.story(STORY) } else { Vec::new() };
        Outcome {
            seed: world.seed,
            hash: world.trace.hash(),
            violation,
            story,
            tlps: world.delivered(),
            operations: world.done(),
            frames: world.frames(),
            happened: world.what_happened(),
            bindings: world.binding_count(),
            events: world.steps + world.trace.events(),
            virtual_ms: world.now().as_nanos() / 1_000_000,
            unwritten,
        }
    }
}

fn panicked(payload: &(dyn Any + Send)) -> String {
    let said = PANIC.with(|said| said.borrow_mut().take());
    let text = payload.downcast_ref::<String>().cloned();
    let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let what = said.or(text).unwrap_or_else(|| "without a word".into());
    format!("the code under test panicked: {what}")
}

#[cfg(test)]
mod shares;
#[cfg(test)]
mod standstills;
#[cfg(test)]
mod tests;
