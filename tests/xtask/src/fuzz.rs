//! The fuzzer over the targets of `tests/fuzz`: for long by cargo-fuzz and nightly Rust, for some
//! seconds by one program with any Rust. Without either their corpora still run as tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::report::Done;
use crate::tools::{cargo, compiler_with, output, root, run as run_command, target_dir};

/// How long each target runs in a smoke run, in seconds.
const SMOKE_SECONDS: u64 = 4;

/// Longest input that is tried: more than any TLP or frame, and hundreds of steps.
const MAX_LEN: &str = "-max_len=9216";

/// How libFuzzer runs a target.
const HOW: [&str; 4] = [MAX_LEN, "-timeout=20", "-print_final_stats=1", "-verbosity=0"];

/// What a person asks for.
pub(crate) struct Wanted<'a> {
    /// Targets; all of them when it is empty.
    pub(crate) targets: &'a [String],
    /// How long each of them runs.
    pub(crate) minutes: u64,
    /// Whether what it found is added to the corpora in the tree.
    pub(crate) keep: bool,
}

/// What has code count which ways it went, and tell what it compared with what: what cargo-fuzz gives
/// the compiler.
const COUNTING: [&str; 8] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Ccodegen-units=16",
];

/// A few seconds of each target, where the fuzzer compiles.
pub(crate) fn smoke() -> Result<Done> {
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    if output(compiler.arg("--version")).is_err() {
        return Ok(Done::skipped(
            "the fuzzer needs a C++ compiler: install g++ (their corpora have run as tests)",
        ));
    }
    let targets = targets()?;
    // With the features that tests have, so that what those are made of is not compiled again.
    let mut build = cargo(&["build", "--workspace", "--example", "fuzzer"]);
    build.args(["--features", "fuzz-targets/fuzzer"]);
    build.env("RUSTC_WORKSPACE_WRAPPER", compiler_with("fuzz", &COUNTING)?);
    // A folder of its own would have it compile all that is not of this workspace, too.
    run_command(&mut build).context("the fuzzer does not build")?;
    // A copy: the next build for something else leaves another program there, or none.
    let built = target_dir().join("debug/examples/fuzzer");
    let program = target_dir().join("fuzz/fuzzer");
    std::fs::copy(&built, &program).with_context(|| built.display().to_string())?;
    let lanes = std::thread::available_parallelism()?.get();
    let lane = |first: usize| {
        targets.iter().skip(first).step_by(lanes).try_for_each(|name| shortly(&program, name))
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|first| scope.spawn(move || lane(first))).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().expect("running a target does not panic"))
    })?;
    Ok(Done::with(format!("{} targets, {SMOKE_SECONDS} s each", targets.len())))
}

/// One target by the program that has all of them.
fn shortly(program: &Path, target: &str) -> Result<()> {
    println!("-- {target}: {SMOKE_SECONDS} s");
    let Folders { found, corpus, artifacts } = Folders::of(target)?;
    // What runs beside it and waits for its moments comes first.
    let mut command = Command::new("nice");
    command.args(["-n", "10"]).arg(program);
    command.env("FUZZ_TARGET", target).arg(&found).arg(&corpus).args(HOW);
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.arg(format!("-max_total_time={SMOKE_SECONDS}"));
    run_command(&mut command).with_context(|| stopped(target))
}

/// As long as is wanted.
pub(crate) fn run(wanted: &Wanted<'_>) -> Result<Done> {
    if let Err(reason) = available() {
        bail!("{reason}");
    }
    let known = targets()?;
    if let Some(unknown) = wanted.targets.iter().find(|name| !known.contains(name)) {
        bail!("there is no target `{unknown}`; there are: {}", known.join(", "));
    }
    let chosen = if wanted.targets.is_empty() { &known[..] } else { wanted.targets };
    fuzz(chosen, wanted.minutes * 60, wanted.keep)?;
    Ok(Done::with(format!("{}: {} min each", chosen.join(", "), wanted.minutes)))
}

/// Whether cargo-fuzz runs with a nightly compiler; the error says what is missing.
fn available() -> Result<(), String> {
    output(cargo_fuzz().arg("--version")).map(drop).map_err(|_| {
        "the fuzzer needs nightly Rust and cargo-fuzz: run `rustup toolchain install nightly` and \
         `cargo install cargo-fuzz` (their corpora have run as tests)"
            .to_owned()
    })
}

/// `cargo fuzz` of the nightly toolchain, whichever one runs this.
fn cargo_fuzz() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz"]).current_dir(root());
    for variable in ["CARGO", "RUSTC", "RUSTFLAGS", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR"] {
        command.env_remove(variable);
    }
    command
}

fn folder() -> PathBuf {
    root().join("tests/fuzz/libfuzzer")
}

/// The targets' names: those of the programs.
fn targets() -> Result<Vec<String>> {
    let folder = folder().join("fuzz_targets");
    let files = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut names = Vec::new();
    for file in files {
        let path = file?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// `cargo fuzz VERB`, building into a folder of its own: its flags are not those of other builds.
/// Nearly everything under test is safe Rust, so that an address sanitizer would only cost speed.
fn with_settings(verb: &str, target: Option<&str>) -> Command {
    let mut command = cargo_fuzz();
    command.arg(verb).arg("--fuzz-dir").arg(folder()).args(["--sanitizer", "none"]);
    command.arg("--target-dir").arg(target_dir().join("fuzz")).args(target);
    command
}

fn fuzz(targets: &[String], seconds: u64, keep: bool) -> Result<()> {
    run_command(&mut with_settings("build", None)).context("the fuzzer's programs do not build")?;
    targets.iter().try_for_each(|name| one(name, seconds, keep))
}

/// Where a target's inputs are.
struct Folders {
    /// What was found that brings something new.
    found: PathBuf,
    /// What is kept in the tree.
    corpus: PathBuf,
    /// What it stopped at.
    artifacts: PathBuf,
}

impl Folders {
    fn of(target: &str) -> Result<Self> {
        let folders = Self {
            found: target_dir().join("fuzz/found").join(target),
            corpus: root().join("tests/fuzz/corpus").join(target),
            artifacts: folder().join("artifacts").join(target),
        };
        for folder in [&folders.found, &folders.artifacts] {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        Ok(folders)
    }
}

/// Where the input is that a target stopped at, and what to do with it.
fn stopped(target: &str) -> String {
    format!(
        "{target}: the input that it stopped at is in tests/fuzz/libfuzzer/artifacts/{target}; \
         once mended, add it to tests/fuzz/corpus/{target}"
    )
}

/// One target, which is built.
fn one(target: &str, seconds: u64, keep: bool) -> Result<()> {
    println!("-- {target}: {seconds} s");
    let Folders { found, corpus, .. } = Folders::of(target)?;
    let mut command = with_settings("run", Some(target));
    command.arg(&found).arg(&corpus).arg("--").args(HOW);
    command.arg(format!("-max_total_time={seconds}"));
    run_command(&mut command).with_context(|| stopped(target))?;
    if keep {
        // What brings something new, and no more of it.
        let mut merge = with_settings("run", Some(target));
        merge.arg(&corpus).arg(&found).args(["--", "-merge=1", MAX_LEN]);
        run_command(&mut merge).with_context(|| format!("{target}: merging what was found"))?;
    }
    Ok(())
}
