//! The simulator as a check: seeds that every change runs, some that nobody ran before, and the
//! planted mistakes.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::report::Done;
use crate::tools::{cargo, run, target_dir};

/// Seeds of each profile that every change runs.
const FIXED: u64 = 400;
/// Seeds of each profile that nobody ran before.
const NEW: u64 = 100;

/// A fixed set of seeds, and some new ones: their numbers are in the output of what fails.
pub(crate) fn seeds() -> Result<Done> {
    run(&mut cargo(&["build", "--quiet", "--release", "--package", "sim"]))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for from in [0, now * 1000] {
        let count = if from == 0 { FIXED } else { NEW };
        let mut command = Command::new(target_dir().join("release").join("dxpu-sim"));
        command.args(["--seeds", &format!("{from}..{}", from + count)]);
        run(&mut command).context("the output names the seed and how to play it again")?;
    }
    Ok(Done::default())
}

/// Each mistake that can be planted in the proxies is found.
pub(crate) fn canaries() -> Result<Done> {
    let arguments = ["test", "--quiet", "--release", "--package", "sim"];
    let mut command = cargo(&arguments);
    command.args(["--features", "canaries", "--test", "canaries"]);
    run(&mut command)?;
    Ok(Done::default())
}
