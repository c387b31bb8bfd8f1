//! The fuzzer (cargo-fuzz, nightly Rust) over the targets of `tests/fuzz`. Without it their corpora
//! still run as tests.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::report::Done;
use crate::tools::{output, root, run as run_command, target_dir};

/// How long each target runs in a smoke run, in seconds.
const SMOKE_SECONDS: u64 = 5;

/// Longest input that is tried: more than any TLP or frame, and hundreds of steps.
const MAX_LEN: &str = "-max_len=9216";

/// What a person asks for.
pub(crate) struct Wanted<'a> {
    /// Targets; all of them when it is empty.
    pub(crate) targets: &'a [String],
    /// How long each of them runs.
    pub(crate) minutes: u64,
    /// Whether what it found is added to the corpora in the tree.
    pub(crate) keep: bool,
}

/// A few seconds of each target, where the fuzzer is there.
pub(crate) fn smoke() -> Result<Done> {
    if let Err(reason) = available() {
        return Ok(Done::skipped(reason));
    }
    let targets = targets()?;
    fuzz(&targets, SMOKE_SECONDS, false)?;
    Ok(Done::with(format!("{} targets, {SMOKE_SECONDS} s each", targets.len())))
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
fn with_settings(verb: &str, target: Option<&str>, seconds: u64) -> Command {
    let mut command = cargo_fuzz();
    command.arg(verb).arg("--fuzz-dir").arg(folder()).args(["--sanitizer", "none"]);
    if seconds <= SMOKE_SECONDS {
        // Optimising takes longer than all of them run then.
        command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        command.env("CARGO_PROFILE_RELEASE_DEBUG", "none").args(["--codegen-units", "16"]);
    }
    command.arg("--target-dir").arg(target_dir().join("fuzz")).args(target);
    command
}

fn fuzz(targets: &[String], seconds: u64, keep: bool) -> Result<()> {
    run_command(&mut with_settings("build", None, seconds))
        .context("the fuzzer's programs do not build")?;
    // Short runs side by side; of a long one a person sees a target after the other.
    let lanes = match seconds <= SMOKE_SECONDS {
        true => std::thread::available_parallelism()?.get(),
        false => 1,
    };
    let lane = |first: usize| {
        targets.iter().skip(first).step_by(lanes).try_for_each(|name| one(name, seconds, keep))
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|first| scope.spawn(move || lane(first))).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().expect("running a target does not panic"))
    })
}

/// One target, which is built.
fn one(target: &str, seconds: u64, keep: bool) -> Result<()> {
    println!("-- {target}: {seconds} s");
    let found = target_dir().join("fuzz/found").join(target);
    std::fs::create_dir_all(&found).with_context(|| found.display().to_string())?;
    let corpus = root().join("tests/fuzz/corpus").join(target);
    let mut command = with_settings("run", Some(target), seconds);
    command.arg(&found).arg(&corpus).arg("--");
    command.args([MAX_LEN, "-timeout=20", "-print_final_stats=1", "-verbosity=0"]);
    command.arg(format!("-max_total_time={seconds}"));
    run_command(&mut command).with_context(|| {
        format!(
            "{target}: the input that it stopped at is in {}; once mended, add it to {}",
            folder().join("artifacts").join(target).display(),
            corpus.display(),
        )
    })?;
    if keep {
        // What brings something new, and no more of it.
        let mut merge = with_settings("run", Some(target), seconds);
        merge.arg(&corpus).arg(&found).args(["--", "-merge=1", MAX_LEN]);
        run_command(&mut merge).with_context(|| format!("{target}: merging what was found"))?;
    }
    Ok(())
}
