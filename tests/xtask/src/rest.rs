//! The manager's REST API against requests that schemathesis makes up from its description, with a
//! small pool of simulated proxies so that there is something to ask for.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::report::Done;
use crate::tools::{build_programs, output, root, run as run_command, target_dir};

/// What is not asked for: streams have no end.
const ENDLESS: &str = "/v1/events/stream";

/// What is not judged: whether what the description allows is taken. Names and numbers have forms
/// that it does not say, and most that are made up are not there.
const NOT_JUDGED: &str = "positive_data_acceptance";

/// How many requests are made up for each address.
const EXAMPLES: &str = "10";

/// The pool: boxes, their slots, hosts, and how many devices are lent.
const POOL: [&str; 8] = ["--boxes", "3", "--slots", "4", "--hosts", "3", "--lent", "6"];

/// Changes that are done, at least; else nothing of the pool was met.
const LEAST_CHANGES: usize = 40;

/// How long the manager may take to be ready.
const READY_BOUND: Duration = Duration::from_secs(60);

/// A program that ends with this.
struct Running(Child);

impl Drop for Running {
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
    build_programs(&["dxpu-manager", "dxpu-pool-scale"])?;
    let work = target_dir().join("rest/work");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    let mut command = Command::new(target_dir().join("debug/dxpu-manager"));
    command.args(["serve", "--store", "store.redb", "--ready-file", "ready.json"]);
    command.args(["--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--log", "warn"]);
    let log = fs::File::create(work.join("log"))?;
    command.current_dir(&work).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut manager = Running(command.spawn().context("the manager does not start")?);
    let ready = work.join("ready.json");
    let begun = Instant::now();
    while !ready.exists() {
        if begun.elapsed() > READY_BOUND {
            bail!("the manager is not ready: see {}", work.join("log").display());
        }
        if let Some(status) = manager.0.try_wait()? {
            bail!("the manager ended with {status}: see {}", work.join("log").display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let ready: serde_json::Value = serde_json::from_str(&fs::read_to_string(ready)?)?;
    let api = ready["listen"].as_str().context("an address")?;
    let _pool = join(api, ready["control"].as_str().context("an address")?)?;
    let server = format!("http://{api}");
    let mut judge = Command::new("timeout");
    judge.arg("300").arg(python).args(["-m", "schemathesis.cli", "run"]);
    judge.arg(format!("{server}/v1/openapi.json")).args(["--url", &server]);
    judge.args(["--exclude-path", ENDLESS, "--exclude-checks", NOT_JUDGED]);
    judge.args(["--max-examples", EXAMPLES, "--phases", "examples,coverage,fuzzing"]);
    judge.args(["--request-timeout", "90", "--seed", "1", "--no-color", "--warnings", "off"]);
    judge.env("DXPU_MANAGER", &server).env("SCHEMATHESIS_HOOKS", "walk");
    judge.env("PYTHONPATH", root().join("tests/rest")).env("PYTHONDONTWRITEBYTECODE", "1");
    run_command(judge.current_dir(&work)).context("schemathesis found something; see above")?;
    if let Some(status) = manager.0.try_wait()? {
        bail!("the manager ended with {status}: see {}", work.join("log").display());
    }
    let changes = changes(&server)?;
    if changes < LEAST_CHANGES {
        bail!("only {changes} requests changed something: what is there was not walked");
    }
    Ok(Done::with(format!(
        "schemathesis, {EXAMPLES} requests or more for each address, {changes} changes of the pool"
    )))
}

/// A pool of simulated proxies at a manager. It ends when this end of its standard input is dropped.
fn join(api: &str, control: &str) -> Result<Running> {
    let mut command = Command::new(target_dir().join("debug/dxpu-pool-scale"));
    command.args(["--join", control, "--api", api]).args(POOL);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut pool = Running(command.spawn().context("the pool does not start")?);
    let mut line = String::new();
    let out = pool.0.stdout.take().context("it was asked for")?;
    BufReader::new(out).read_line(&mut line)?;
    if line.is_empty() {
        bail!("the pool did not come to be: {}", pool.0.wait()?);
    }
    Ok(pool)
}

/// How many requests changed something of the pool that is there, by the manager's audit log. Images
/// of firmware need no pool.
fn changes(server: &str) -> Result<usize> {
    let mut command = Command::new(target_dir().join("debug/dxpu-manager"));
    command.args(["--server", server, "--json", "audit", "--limit", "10000"]);
    let log: serde_json::Value = serde_json::from_str(&output(&mut command)?)?;
    let entries = log["items"].as_array().context("the audit log is a list")?;
    let counts = |entry: &&serde_json::Value| {
        let path = entry["path"].as_str().unwrap_or_default();
        entry["problem"].is_null() && !path.contains("/firmware/")
    };
    Ok(entries.iter().filter(counts).count())
}
