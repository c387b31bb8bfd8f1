//! Steps, each timed, and the summary at the end.

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What a step that was not an error came to.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// A few words for the summary.
    pub(crate) detail: String,
    /// Tests, where the step ran tests.
    pub(crate) tests: Tally,
    /// Why the step, or a part of it, could not be done here, and what to do about it.
    pub(crate) skipped: Option<String>,
}

impl Done {
    /// Done, with a few words for the summary.
    pub(crate) fn with(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..Self::default() }
    }

    /// Not possible here.
    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self { skipped: Some(reason.into()), ..Self::default() }
    }
}

/// Tests that ran, or did not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Which were skipped, and why.
    pub(crate) skipped: Vec<String>,
}

enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

struct Step {
    name: &'static str,
    outcome: Outcome,
    detail: String,
    took: Duration,
    /// Its failed tests, which count each.
    failed_tests: usize,
}

/// What came of a step.
pub(crate) struct Ended {
    name: &'static str,
    result: anyhow::Result<Done>,
    took: Duration,
}

impl Ended {
    /// Runs a step, and says at once if it failed or could not be done.
    pub(crate) fn of(name: &'static str, run: impl FnOnce() -> anyhow::Result<Done>) -> Self {
        let start = Instant::now();
        let result = run();
        match &result {
            Err(error) => println!("error: {name}: {error:#}"),
            Ok(Done { skipped: Some(reason), .. }) => println!("SKIPPED: {name}: {reason}"),
            Ok(_) => {}
        }
        Self { name, result, took: start.elapsed() }
    }
}

/// The steps so far.
pub(crate) struct Report {
    steps: Vec<Step>,
    tests: Tally,
    start: Instant,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self { steps: Vec::new(), tests: Tally::default(), start: Instant::now() }
    }

    /// Runs a step and says whether it did not fail. A failure keeps only those steps from running
    /// that need this one.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        run: impl FnOnce() -> anyhow::Result<Done>,
    ) -> bool {
        println!("\n== {name}");
        self.add(Ended::of(name, run))
    }

    /// Takes down what came of a step, and says whether it did not fail.
    pub(crate) fn add(&mut self, Ended { name, result, took }: Ended) -> bool {
        let (outcome, detail, failed_tests) = match result {
            Err(error) => (Outcome::Failed(format!("{error:#}")), String::new(), 0),
            Ok(Done { detail, tests, skipped }) => {
                let failed = tests.failed;
                self.tests.passed += tests.passed;
                self.tests.failed += failed;
                self.tests.skipped.extend(tests.skipped);
                let outcome = match skipped {
                    _ if failed > 0 => Outcome::Failed(format!("{failed} failed")),
                    Some(reason) => Outcome::Skipped(reason),
                    None => Outcome::Passed,
                };
                (outcome, detail, failed)
            }
        };
        let went_on = !matches!(outcome, Outcome::Failed(_));
        self.steps.push(Step { name, outcome, detail, took, failed_tests });
        went_on
    }

    /// Prints what was skipped, a line for each step, and the closing line with the counts: tests,
    /// and each step that failed or was skipped without tests of its own.
    pub(crate) fn finish(self) -> ExitCode {
        println!("\n== summary");
        for skipped in &self.tests.skipped {
            println!("skipped: {skipped}");
        }
        let mut totals = self.tests.clone();
        for Step { name, outcome, detail, took, failed_tests } in &self.steps {
            let (mark, text) = match outcome {
                Outcome::Passed => ("passed", detail.as_str()),
                Outcome::Skipped(reason) => ("skipped", reason.as_str()),
                Outcome::Failed(reason) => ("FAILED", reason.lines().next().unwrap_or_default()),
            };
            println!("{mark:8} {name:26} {:>7.1} s  {text}", took.as_secs_f64());
            match outcome {
                Outcome::Failed(_) if *failed_tests == 0 => totals.failed += 1,
                Outcome::Skipped(reason) => totals.skipped.push(reason.clone()),
                _ => {}
            }
        }
        println!("{:8} {:26} {:>7.1} s", "", "all of it", self.start.elapsed().as_secs_f64());
        println!();
        let skipped = totals.skipped.len();
        println!("{} passed, {} failed, {skipped} skipped", totals.passed, totals.failed);
        if totals.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
