//! What `cargo test` prints, read line by line while it runs.
//!
//! Cargo's lines ("Running …") and the test programs' lines come in one stream. A test that cannot
//! run here prints `SKIPPED: reason` and returns; it counts as skipped, not as passed. What a test
//! measures and people should see prints as `FIGURE: what`.

use crate::report::Tally;
use std::collections::BTreeSet;

/// What a test prints when it cannot run here, before the reason.
pub(crate) const SKIP_MARK: &str = "SKIPPED: ";

/// What a test prints before something that it measured, and holds to a budget.
const FIGURE_MARK: &str = "FIGURE: ";

/// One test program, from its "Running" line on.
#[derive(Debug, Default)]
struct Program {
    /// As cargo calls it: `src/lib.rs` and the crate, or the test's path.
    name: String,
    /// Everything it printed.
    lines: Vec<String>,
    /// The test whose captured output is being shown.
    section: Option<String>,
    skipped: Vec<String>,
    /// The tests that skipped themselves, or parts of themselves.
    skipping: BTreeSet<String>,
    /// How often that was said where nobody knows by which test: each time by another one.
    skipping_unnamed: usize,
    ignored: Vec<String>,
    figures: Vec<String>,
    /// It said how many tests it would run.
    has_harness: bool,
    /// (passed, failed), once it said so.
    result: Option<(usize, usize)>,
    /// How long it took, by its own word, in seconds; empty: it does not say.
    seconds: String,
    /// Cargo says that it did not end well.
    broke: bool,
}

/// Reads the lines; says what to show.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    tally: Tally,
    program: Option<Program>,
}

impl Reader {
    /// Takes one line and gives what a person should see now, if anything.
    pub(crate) fn line(&mut self, line: &str) -> Option<String> {
        if let Some(name) = program_name(line) {
            let shown = self.end_program();
            self.program = Some(Program { name, ..Program::default() });
            return shown;
        }
        match &mut self.program {
            Some(program) => {
                program.line(line);
                None
            }
            None => Some(line.to_owned()),
        }
    }

    /// The last program has ended, and so has cargo.
    pub(crate) fn end(mut self) -> (Tally, Option<String>) {
        let shown = self.end_program();
        (self.tally, shown)
    }

    fn end_program(&mut self) -> Option<String> {
        let program = self.program.take()?;
        let (mut passed, mut failed) = program.result.unwrap_or((0, 0));
        match program.result {
            // It died before it could say anything, or ended well in the middle of its tests.
            None if program.broke || program.has_harness => failed = 1,
            // A program without the standard harness is one test.
            None => passed = 1,
            Some(_) => {}
        }
        // To the harness, a test that skipped itself passed.
        let skipped_itself = (program.skipping.len() + program.skipping_unnamed).min(passed);
        passed -= skipped_itself;
        self.tally.passed += passed;
        self.tally.failed += failed;
        let name = &program.name;
        let reasons = program.skipped.iter().chain(&program.ignored);
        self.tally.skipped.extend(reasons.map(|reason| format!("{name}: {reason}")));
        if failed > 0 {
            return Some(format!("{name}\n{}\n", program.failures().join("\n")));
        }
        let skipped = skipped_itself + program.ignored.len();
        let figures = program.figures.iter().map(|figure| format!("\n    {figure}"));
        let seconds = &program.seconds;
        let shown = format!("{name:50} {passed:4} passed, {skipped} skipped {seconds:>8}");
        let shown = shown.trim_end().to_owned();
        (passed + skipped > 0).then(|| figures.fold(shown, |shown, figure| shown + &figure))
    }
}

impl Program {
    /// What it printed about its failures, or everything when it did not get as far.
    fn failures(&self) -> &[String] {
        let start = self.lines.iter().position(|line| line == "failures:");
        &self.lines[start.unwrap_or(0)..]
    }

    fn line(&mut self, line: &str) {
        if let Some(section) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.section = Some(section.to_owned());
        } else if let Some((_, reason)) = line.split_once(SKIP_MARK) {
            match &self.section {
                Some(test) => {
                    self.skipped.push(format!("{test}: {reason}"));
                    self.skipping.insert(test.clone());
                }
                None => {
                    self.skipped.push(reason.to_owned());
                    self.skipping_unnamed += 1;
                }
            }
        } else if let Some((_, figure)) = line.split_once(FIGURE_MARK) {
            self.figures.push(figure.to_owned());
        } else if let Some(test) = line.strip_prefix("test ").filter(|_| self.section.is_none()) {
            if let Some((test, reason)) = test.split_once(" ... ignored") {
                let reason = reason.trim_start_matches(", ");
                self.ignored
                    .push(format!("{test}: {}", if reason.is_empty() { "long" } else { reason }));
            }
            self.result = result(line).or(self.result);
        } else if line.trim_start().starts_with("process didn't exit successfully") {
            self.broke = true;
        }
        self.has_harness |= is_beginning(line);
        if line.starts_with("test result: ") {
            self.result = result(line);
            let seconds = line.rsplit_once("; finished in ").map_or("", |(_, seconds)| seconds);
            self.seconds = seconds.to_owned();
        }
        self.lines.push(line.to_owned());
    }
}

/// The name in cargo's line before a program's output.
fn program_name(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(krate) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{krate} (examples in documentation)"));
    }
    let (source, program) = line.strip_prefix("Running ")?.strip_suffix(')')?.split_once(" (")?;
    // …/deps/proxy_net-4126dccd22396da2: the crate without the hash.
    let file = program.rsplit('/').next()?;
    let krate = file.rsplit_once('-').map_or(file, |(krate, _)| krate);
    let source = source.strip_prefix("unittests ").unwrap_or(source);
    Some(format!("{krate} ({source})"))
}

/// Whether it is "running 17 tests", with which the standard harness begins.
fn is_beginning(line: &str) -> bool {
    let count = line.strip_prefix("running ").and_then(|rest| rest.split_once(" test"));
    count.is_some_and(|(count, rest)| count.parse::<usize>().is_ok() && matches!(rest, "" | "s"))
}

/// The counts in "test result: ok. 17 passed; 0 failed; 2 ignored; …".
fn result(line: &str) -> Option<(usize, usize)> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let count = |what: &str| -> Option<usize> {
        counts.split("; ").find_map(|part| part.strip_suffix(what))?.trim().parse().ok()
    };
    Some((count(" passed")?, count(" failed")?))
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn read(text: &str) -> (Tally, String) {
        let mut reader = Reader::default();
        let mut shown: Vec<String> = text.lines().filter_map(|line| reader.line(line)).collect();
        let (tally, last) = reader.end();
        shown.extend(last);
        (tally, shown.join("\n"))
    }

    #[test]
    fn counts_are_added_over_programs_and_skips_are_no_passes() {
        let (tally, shown) = read(
            "\
   Compiling proxy-net v0.1.0
     Running unittests src/lib.rs (target/debug/deps/proxy_net-4126dccd22396da2)

running 3 tests
test a ... ok
test b ... ok
test c ... ignored, takes an hour

successes:

---- a stdout ----
FIGURE: 7 of 8 B
a line that nobody need see

---- b stdout ----
SKIPPED: no IPv6 here
test result: a line that a test printed

successes:
    a
    b

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/raw.rs (target/debug/deps/raw-f96a8a731e63a4a1)
SKIPPED: a network namespace needs root
test x ... ok
SKIPPED: a network namespace needs root
test y ... ok
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests proxy_net
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
",
        );
        assert_eq!((tally.passed, tally.failed), (5, 0));
        assert_eq!(
            tally.skipped,
            [
                "proxy_net (src/lib.rs): b: no IPv6 here",
                "proxy_net (src/lib.rs): c: takes an hour",
                "raw (tests/raw.rs): a network namespace needs root",
                "raw (tests/raw.rs): a network namespace needs root",
            ]
        );
        assert!(shown.starts_with("Compiling proxy-net"), "{shown}");
        assert!(!shown.contains("running 3 tests"), "{shown}");
        assert!(shown.contains("1 passed, 2 skipped    0.00s\n    7 of 8 B\n"), "{shown}");
        assert!(!shown.contains("a line that nobody need see"), "{shown}");
    }

    #[test]
    fn a_failure_is_shown_and_what_succeeded_is_not() {
        let (tally, shown) = read(
            "\
     Running unittests src/lib.rs (target/debug/deps/x-0)
running 2 tests
test good ... ok
test bad ... FAILED

failures:

---- bad stdout ----
assertion failed: left is 1

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `-p x --lib`
     Running tests/y.rs (target/debug/deps/y-0)
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
",
        );
        assert_eq!((tally.passed, tally.failed), (2, 1));
        assert!(shown.contains("assertion failed: left is 1"), "{shown}");
        assert!(!shown.contains("test good"), "{shown}");
    }

    #[test]
    fn a_program_that_dies_is_a_failure_and_one_without_a_harness_a_test() {
        let (tally, _) = read("\
     Running tests/y.rs (target/debug/deps/y-0)
running 2 tests
error: test failed, to rerun pass `-p y --test y`

Caused by:
  process didn't exit successfully: `target/debug/deps/y-0` (signal: 6, SIGABRT: process abort signal)
     Running tests/z.rs (target/debug/deps/z-0)
all well
");
        assert_eq!((tally.passed, tally.failed), (1, 1));
    }

    #[test]
    fn a_program_that_ends_well_in_the_middle_of_its_tests_is_a_failure() {
        let (tally, shown) = read(
            "\
     Running tests/y.rs (target/debug/deps/y-0)

running 2 tests
test a ... ok
     Running tests/z.rs (target/debug/deps/z-0)
running 40 circles around it
",
        );
        assert_eq!((tally.passed, tally.failed), (1, 1));
        assert!(shown.contains("test a ... ok"), "{shown}");
    }
}
