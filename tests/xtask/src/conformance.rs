//! The conformance kit of the wire (`tests/conformance`): against itself, with mistakes planted on
//! the other side, and against both daemons.

use std::process::Command;

use anyhow::{Result, bail};

use crate::report::Done;
use crate::tools::{build_programs, output, root, target_dir};

/// Builds the daemons and runs the kit.
pub(crate) fn run() -> Result<Done> {
    let recent = "import sys; sys.exit(sys.version_info < (3, 11))";
    if let Err(reason) = output(Command::new("python3").args(["-c", recent])) {
        return Ok(Done::skipped(format!(
            "the kit needs Python 3.11 ({reason}): install the package python3"
        )));
    }
    build_programs(&["host-proxy", "box-proxy"])?;
    let mut command = Command::new("python3");
    command.arg(root().join("tests/conformance/run.py"));
    command.arg(target_dir().join("debug")).arg(target_dir().join("conformance"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let (tests, succeeded) = crate::tests_run::read(&command)?;
    if !succeeded && tests.failed == 0 {
        bail!("the conformance kit could not be run; see above");
    }
    Ok(Done {
        detail: format!("{} passed, {} failed", tests.passed, tests.failed),
        tests,
        skipped: None,
    })
}
