//! The host proxy judged by a root complex that is not ours: cocotbext-pcie's, in a simulator that
//! simulates nothing else. `tests/judges/` has the tests; this sets up what they need.

use std::process::Command;

use anyhow::{Result, bail};

use crate::report::Done;
use crate::tools::{AS_FOR_TESTS, cargo, output, root, run as run_command, target_dir};

/// Builds the daemons, installs the root complex and has it run its tests.
pub(crate) fn run() -> Result<Done> {
    if let Err(reason) = output(Command::new("iverilog").arg("-V")) {
        return Ok(Done::skipped(format!(
            "the simulator Icarus Verilog does not run ({reason}): install the package iverilog"
        )));
    }
    let requirements = root().join("tests/judges/requirements.txt");
    let python = match crate::python::environment("judges", &requirements) {
        Ok(python) => python,
        Err(error) => {
            return Ok(Done::skipped(format!(
                "the independent root complex could not be installed: {error:#}"
            )));
        }
    };
    run_command(cargo(&["build", "--bins"]).args(AS_FOR_TESTS))?;
    let mut command = Command::new(python);
    command.arg(root().join("tests/judges/run.py"));
    command.arg(target_dir().join("debug")).arg(target_dir().join("judges/work"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let (tests, succeeded) = crate::tests_run::read(&command)?;
    if !succeeded && tests.failed == 0 {
        bail!("the independent root complex could not judge; see above");
    }
    Ok(Done {
        detail: format!("{} passed, {} failed", tests.passed, tests.failed),
        tests,
        skipped: None,
    })
}
