//! What becomes of signals that reach `dxpu-perf` while a program runs under it.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use cuda_tests::{Binding, StandIn, compile, dxpu_perf, shim};

/// Signals as a shell begins with, whatever these tests were started from.
const DEFAULT: &str = "--default-signal=INT,QUIT,TERM,HUP";

/// Runs `dxpu-perf` with a shell's script as its program: what it ends with, of a signal as shells have
/// it, and what it says.
fn run(
    stand_in: &StandIn,
    own: &[&str],
    arguments: &[&str],
    script: &str,
) -> (Option<i32>, String, String) {
    let mut command = stand_in.command("env");
    command.arg(DEFAULT).args(own).arg(dxpu_perf().unwrap()).args(arguments);
    command.args(["--", "sh", "-c", script]).env("DXPU_PERF_SHIM", shim().unwrap());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let signal = status.signal().map(|signal| 128 + signal);
    (status.code().or(signal), text(stdout), text(stderr))
}

/// Long enough for a signal to come.
const A_WHILE: &str = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done";

#[test]
fn signals_of_other_processes_are_passed_on() {
    let stand_in = StandIn::new().unwrap();
    for signal in ["INT", "QUIT", "TERM"] {
        let script =
            format!("trap 'exit 6' {signal}; sleep 0.2; kill -{signal} $PPID; {A_WHILE}; exit 7");
        let (code, _, error) = run(&stand_in, &[], &["run", "-q"], &script);
        assert_eq!(code, Some(6), "{signal}: {error}");
    }
}

#[test]
fn a_hangup_that_is_ignored_ends_nothing() {
    let stand_in = StandIn::new().unwrap();
    // As `nohup` starts it.
    let own = ["env", "--ignore-signal=HUP"];
    let script = format!("sleep 0.2; kill -HUP $PPID; {A_WHILE}; exit 5");
    let (code, _, error) = run(&stand_in, &own, &["run", "-q"], &script);
    assert_eq!(code, Some(5), "{error}");
    // And one that is not ends the program, too.
    let (code, _, error) = run(&stand_in, &[], &["run", "-q"], &script);
    assert_eq!(code, Some(143), "{error}");
}

#[test]
fn a_sweep_that_is_stopped_says_what_it_has() {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "scripted", Binding::Dlsym).unwrap();
    let runs = stand_in.folder().join("runs");
    let page = stand_in.folder().join("sweep.html");
    let sweep =
        ["sweep", "--rtt", "2us..4us", "--steps", "2", "--repeat", "2", "--metric", "speed (.*)"];
    let sweep = [&sweep[..], &["--html", page.to_str().unwrap()]].concat();
    // The third run is stopped, takes that well and says a metric that is half of the others'.
    let script = format!(
        "{program} 5 k5us@1 > {runs}.out; echo run >> {runs}
         if [ $(wc -l < {runs}) = 3 ]; then
           trap 'echo speed 2; exit 0' TERM; sleep 0.2; kill -TERM $PPID; {A_WHILE}
         fi; echo speed 4",
        program = program.display(),
        runs = runs.display(),
    );
    let (code, out, error) = run(&stand_in, &[], &sweep, &script);
    assert_eq!(code, Some(128 + 15), "{error}");
    assert!(error.contains("run 1 at a round trip of 4.00 us: stopped by signal 15"), "{error}");
    assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 3);
    assert!(out.contains("2.00 us") && !out.contains("4.00 us"), "{out}");
    assert!(!out.contains("50.0"), "{out}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("Not all of it was measured"));
}

#[test]
fn a_sweep_is_stopped_between_two_runs_as_well() {
    let stand_in = StandIn::new().unwrap();
    let program = compile(&stand_in, "scripted", Binding::Dlsym).unwrap();
    let runs = stand_in.folder().join("runs");
    let sweep =
        ["sweep", "--rtt", "2us..4us", "--steps", "4", "--repeat", "4", "--metric", "speed (.*)"];
    let sweep = [&sweep[..], &["--level", "99.5"]].concat();
    // The second run leaves somebody behind who stops the sweep while it reads what the run said.
    let script = format!(
        "{program} 5 k5us@1 > {runs}.out; echo run >> {runs}; yes speed 4 | head -n 300000
         if [ $(wc -l < {runs}) = 2 ]; then (while kill -0 $$; do :; done 2> {runs}.err > {runs}.out
           sleep 0.02; kill -TERM $PPID) & fi",
        program = program.display(),
        runs = runs.display(),
    );
    let (code, out, error) = run(&stand_in, &[], &sweep, &script);
    assert_eq!(code, Some(128 + 15), "{error}");
    assert!(error.contains("stopped by signal 15"), "{error}");
    assert!(std::fs::read_to_string(&runs).unwrap().lines().count() <= 3);
    assert!(out.contains("4.0000") && out.contains("99.5 % of native performance"), "{out}");
}

/// Ends `dxpu-perf` once the script, which is its program, has ended.
const END: &str = "(while kill -TERM $PPID; do sleep 0.2; done 2> /dev/null) & exit 0";

/// In case nothing does.
const BOUND: [&str; 3] = ["timeout", "--kill-after=1", "20"];

#[test]
fn a_report_that_nobody_reads_holds_up_no_end() {
    let stand_in = StandIn::new().unwrap();
    let report = stand_in.folder().join("report");
    std::process::Command::new("mkfifo").arg(&report).status().unwrap();
    // One who reads it while it is probed, and nobody later.
    let reader = std::process::Command::new("sh")
        .args(["-c", "head -c 1 \"$0\"; : > \"$0.probed\"", report.to_str().unwrap()])
        .spawn();
    let script = format!("while ! [ -e {}.probed ]; do sleep 0.01; done; {END}", report.display());
    let arguments = ["run", "-q", "--json", report.to_str().unwrap()];
    let (code, _, error) = run(&stand_in, &BOUND, &arguments, &script);
    reader.unwrap().wait().unwrap();
    assert_eq!(code, Some(128 + 15), "{error}");
}

#[test]
fn counts_that_cannot_be_read_hold_up_no_end() {
    let stand_in = StandIn::new().unwrap();
    let script = format!("mkfifo $DXPU_PERF_LEDGERS/1.ledger; {END}");
    let (code, _, error) = run(&stand_in, &BOUND, &["run", "-q"], &script);
    assert_eq!(code, Some(128 + 15), "{error}");
}
