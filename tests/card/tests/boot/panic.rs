//! A panic of the firmware as it is built, which a debugger provokes: it spoils the last word that the
//! stack may have, and the firmware finds at its next turn that the stack had all of its budget.

use super::update::{Scene, program};
use super::{BOUND, Bench};
use anyhow::{Context, Result, ensure};
use emulated_card::debugger::Debugger;
use processes::wait_for;
use std::process::Command;

/// Bytes that the firmware's stack may have (`board_common::stack`).
const BUDGET: u32 = 128 << 10;

/// What the words of it have that were never used.
const PATTERN: u32 = 0x57ac_ca17;

/// What the firmware says when it finds that.
const WHY: &str = "the stack has its 131072 bytes";

/// Does that to the card.
fn spoil_the_stack(bench: &Bench) -> Result<()> {
    let last = bench.program()?.address("_stack_start")? - BUDGET;
    let mut debugger = Debugger::attach(&bench.path("card.gdb"))?;
    let there = debugger.word(last)?;
    ensure!(
        there == PATTERN,
        "{last:#010x} is not the last word of an unused stack: {there:#010x}"
    );
    debugger.set_word(last, 0)?;
    debugger.detach()
}

/// What `dxpu-flash` shows of the card's console, worse than what is only informative.
fn log(bench: &Bench, level: &str) -> Result<String> {
    let mut command = Command::new(program("dxpu-flash")?);
    command.arg("log").arg("--elf").arg(bench.firmware.join("fw-box"));
    command.arg("--uart").arg(bench.path("card.uart")).args(["--no-follow", "--level", level]);
    let output = command.output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{error}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_panic_is_kept_over_the_reset_and_told_to_everybody_who_asks() {
    let Some(scene) = Scene::new() else { return };
    let power = "card-1 was reset: power came on (start 1 since power came on)";
    let events = scene.until_told(&["events"], power).unwrap();
    assert!(!events.contains("panic"), "{events}");
    assert!(scene.manager(&["counters", "card-1"]).unwrap().contains("resets: panics"));

    for panics in 1..=2 {
        spoil_the_stack(&scene.bench).unwrap();
        // The manager knows of it, with its place, since the card has told it in its next life.
        let told = format!("(start {} since power came on)", panics + 1);
        let events = scene.until_told(&["events"], &told).unwrap();
        let line = events.lines().find(|line| line.contains(&told)).unwrap();
        assert!(line.contains("card-1 was reset: panic, ") && line.contains(WHY), "{line}");
        assert!(line.contains("boards/qemu-virt/src/machine.rs:"), "the place: {line}");
        assert!(line.contains(" after its start"), "{line}");
        scene.until_runs("0.1.0+0").unwrap();
        let counters = scene.manager(&["counters", "card-1"]).unwrap();
        let counted = counters.lines().find(|line| line.contains("resets: panics")).unwrap();
        assert_eq!(counted.split_whitespace().last(), Some(&*panics.to_string()), "{counters}");
    }

    // The log has the end of each life, and what the next one found.
    let errors = log(&scene.bench, "error").unwrap();
    let ends: Vec<_> = errors.lines().filter(|line| line.contains("panic at 0x0000")).collect();
    assert!(ends.len() == 2 && ends.iter().all(|line| line.contains(WHY)), "{errors}");
    let log = log(&scene.bench, "info").unwrap();
    for start in [2, 3] {
        let found = format!("start {start}: panic 0x00000000 ");
        let line = log.lines().find(|line| line.contains(&found));
        assert!(line.is_some_and(|line| line.contains(WHY)), "{log}");
    }
    // An image that was healthy stays the one that is started.
    let console = scene.bench.console();
    assert!(console.contains("start 3: panic"), "{console}");
    assert_eq!(scene.card().unwrap()["running"], "a");
}

impl Scene {
    /// What the manager says.
    fn manager(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program("dxpu-manager")?);
        let output = command.args(["--server", &self.address()]).args(arguments).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {error}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What it says when these words are in it.
    fn until_told(&self, arguments: &[&str], words: &str) -> Result<String> {
        let mut last = String::new();
        let told = wait_for(words, BOUND, || {
            last = self.manager(arguments).unwrap_or_else(|error| error.to_string());
            Ok(last.contains(words).then(|| last.clone()))
        });
        told.with_context(|| format!("{last}\n{}", self.bench.console()))
    }
}
