//! The host proxy judged by a root complex that is not ours: cocotbext-pcie's, in a simulator that
//! simulates nothing else. `tests/judges/` has the tests; this sets up what they need.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::report::Done;
use crate::tools::{cargo, output, root, run as run_command, target_dir};

/// How long the package index may take, in seconds.
const INSTALL_BOUND: &str = "300";

/// Builds the daemons, installs the root complex and has it run its tests.
pub(crate) fn run() -> Result<Done> {
    if let Err(reason) = output(Command::new("iverilog").arg("-V")) {
        return Ok(Done::skipped(format!(
            "the simulator Icarus Verilog does not run ({reason}): install the package iverilog"
        )));
    }
    let python = match environment() {
        Ok(python) => python,
        Err(error) => {
            return Ok(Done::skipped(format!(
                "the independent root complex could not be installed: {error:#}"
            )));
        }
    };
    run_command(&mut cargo(&["build", "--workspace", "--bins"]))?;
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

/// The Python interpreter of an environment that has what `requirements.txt` names. It is made
/// once, and again when that file has changed.
fn environment() -> Result<PathBuf> {
    let requirements = root().join("tests/judges/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements)
        .with_context(|| format!("{} cannot be read", requirements.display()))?;
    let folder = target_dir().join("judges/python");
    let (python, stamp) = (folder.join("bin/python"), folder.join("installed.txt"));
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    install(&folder, &python, &requirements)?;
    std::fs::write(&stamp, wanted)
        .with_context(|| format!("{} cannot be written", stamp.display()))?;
    Ok(python)
}

fn install(folder: &Path, python: &Path, requirements: &Path) -> Result<()> {
    println!("installing cocotb and cocotbext-pcie in {}", folder.display());
    output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))
        .context("install the package python3-venv")?;
    let mut pip = Command::new("timeout");
    pip.arg(INSTALL_BOUND).arg(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    output(pip.arg(requirements)).context("pip needs the Python package index")?;
    Ok(())
}
