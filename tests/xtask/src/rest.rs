//! The manager's REST API against requests that schemathesis makes up from its description.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::report::Done;
use crate::tools::{cargo, root, run as run_command, target_dir};

/// What is not asked for: streams have no end.
const ENDLESS: &str = "/v1/events/stream";

/// What is not judged: whether what the description allows is taken. Names and numbers have forms
/// that it does not say, and of a pool without proxies most are not there.
const NOT_JUDGED: &str = "positive_data_acceptance";

/// How many requests are made up for each address.
const EXAMPLES: &str = "10";

/// A manager that ends with this.
struct Manager(Child);

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Installs schemathesis and has it judge a manager.
pub(crate) fn run() -> Result<Done> {
    let requirements = root().join("tests/rest/requirements.txt");
    let python = match crate::python::environment("rest", &requirements) {
        Ok(python) => python,
        Err(error) => {
            return Ok(Done::skipped(format!("schemathesis could not be installed: {error:#}")));
        }
    };
    run_command(&mut cargo(&["build", "--package=manager", "--bins"]))?;
    let work = target_dir().join("rest/work");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    let mut command = Command::new(target_dir().join("debug/dxpu-manager"));
    command.args(["serve", "--store", "store.redb", "--ready-file", "ready.json"]);
    command.args(["--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--log", "warn"]);
    let log = fs::File::create(work.join("log"))?;
    command.current_dir(&work).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut manager = Manager(command.spawn().context("the manager does not start")?);
    let ready = work.join("ready.json");
    while !ready.exists() {
        if let Some(status) = manager.0.try_wait()? {
            bail!("the manager ended with {status}: see {}", work.join("log").display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let ready: serde_json::Value = serde_json::from_str(&fs::read_to_string(ready)?)?;
    let server = format!("http://{}", ready["listen"].as_str().context("an address")?);
    let mut judge = Command::new("timeout");
    judge.arg("300").arg(python).args(["-m", "schemathesis.cli", "run"]);
    judge.arg(format!("{server}/v1/openapi.json")).args(["--url", &server]);
    judge.args(["--exclude-path", ENDLESS, "--exclude-checks", NOT_JUDGED]);
    judge.args(["--max-examples", EXAMPLES, "--phases", "examples,coverage,fuzzing"]);
    judge.args(["--request-timeout", "90", "--seed", "1", "--no-color", "--warnings", "off"]);
    run_command(judge.current_dir(&work)).context("schemathesis found something; see above")?;
    if let Some(status) = manager.0.try_wait()? {
        bail!("the manager ended with {status}: see {}", work.join("log").display());
    }
    Ok(Done::with(format!("schemathesis, {EXAMPLES} requests or more for each address")))
}
