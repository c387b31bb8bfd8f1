//! The simulator as a check: seeds that every change runs, some that nobody ran before, and the
//! planted mistakes.

use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::report::Done;
use crate::tools::{build_programs, cargo, compiler_with, output, run, target_dir};

/// Seeds of each profile that every change runs.
const FIXED: u64 = 30;
/// Seeds of each profile that nobody ran before.
const NEW: u64 = 15;

/// A fabric that is larger than the profiles' own: the profile, its nodes and how many seeds.
const LARGE: (&str, &str, u64) = ("storm", "24", 4);

/// What plays a seed as it is played here, for whoever reads the output elsewhere.
const AGAIN: &str = "cargo run --quiet --package sim --bin dxpu-sim --";

/// Profiles that are left out, and why: all but these are what the program calls every profile.
const LEFT_OUT: &[(&str, &str)] = &[("day", "it takes long"), ("bench", "nothing happens in it")];

/// A fixed set of seeds, and some new ones: their numbers are in the output of what fails. The
/// program is the one that the tests have, which checks more of itself: to make a fast one takes
/// longer than it saves here.
pub(crate) fn seeds() -> Result<Done> {
    build_programs(&["dxpu-sim"])?;
    play(&[], "all", 0, FIXED)?;
    play(&["--nodes", LARGE.1], LARGE.0, 0, LARGE.2)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let profiles = output(Command::new(program()).arg("profiles"))?;
    let names = profiles.lines().filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| LEFT_OUT.iter().all(|(only, _)| only != name)) {
        play(&[], name, now * 1000, NEW)?;
    }
    let left_out = LEFT_OUT.iter().map(|(name, why)| format!("{name} ({why})"));
    Ok(Done::with(format!("without {}", left_out.collect::<Vec<_>>().join(", "))))
}

/// A day, of which a seed takes minutes in the tests' program: one for each processor.
pub(crate) fn day() -> Result<Done> {
    build_programs(&["dxpu-sim"])?;
    play(&[], "day", 0, std::thread::available_parallelism()?.get() as u64)?;
    Ok(Done::default())
}

/// The program that the tests have.
fn program() -> PathBuf {
    target_dir().join("debug").join("dxpu-sim")
}

/// Plays so many seeds of a profile with it.
fn play(more: &[&str], profile: &str, from: u64, count: u64) -> Result<()> {
    let jobs = std::thread::available_parallelism()?.to_string();
    let mut command = Command::new(program());
    command.env("DXPU_SIM_COMMAND", AGAIN);
    command.args(["--profile", profile, "--jobs", &jobs]).args(more);
    command.args(["--seeds", &format!("{from}..{}", from + count)]);
    run(&mut command).context("the output names the seed and how to play it again")
}

/// Seeds of each profile that are run with the limits of a card when there is time.
const CARD: u64 = 1000;

/// The core with the limits of a card: its tests and the simulator's; when there is time, more
/// seeds of each profile, and one of a whole day.
pub(crate) fn card_limits(long: bool) -> Result<Done> {
    let compiler = compiler_with("card-limits", &["--cfg", r#"dxpu_limits="card""#])?;
    let with_limits = |arguments: &[&str]| {
        let mut command = cargo(arguments);
        command.env("RUSTC_WORKSPACE_WRAPPER", &compiler).args(["--package", "sim"]);
        command
    };
    let mut tests = with_limits(&["test", "--quiet", "--features", "proxy-core/card-recorder"]);
    run(tests.args(["--package", "proxy-core"]))?;
    // With the codec as a card has it, without std: among other packages' tests it is built with it.
    run(cargo(&["test", "--quiet", "--package", "soc"]).args(["--test", "crc_engine"]))?;
    if long {
        // In a folder of its own: programs lie under the same name whatever their limits.
        let folder = target_dir().join("card-limits");
        run(with_limits(&["build", "--quiet", "--release"]).arg("--target-dir").arg(&folder))?;
        let seeds = format!("0..{CARD}");
        for what in [&["--seeds", &seeds][..], &["--seeds", "0", "--profile", "day"][..]] {
            run(Command::new(folder.join("release").join("dxpu-sim")).args(what))
                .context("the output names the seed and how to play it again")?;
        }
    }
    Ok(Done::default())
}

/// Each mistake that can be planted in the proxies is found.
pub(crate) fn canaries() -> Result<Done> {
    let mut command = cargo(&["test", "--quiet", "--workspace"]);
    command.args(["--features", "sim/canaries", "--test", "canaries"]);
    run(&mut command)?;
    Ok(Done::default())
}
