//! Steps that are one cargo command.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::report::Done;
use crate::tools::{cargo, run, status};

/// The source is laid out as rustfmt.toml says.
pub(crate) fn fmt() -> Result<Done> {
    run(&mut cargo(&["fmt", "--all", "--check"])).context("run `cargo fmt --all`")?;
    Ok(Done::default())
}

/// Clippy has nothing to say about any target.
pub(crate) fn clippy() -> Result<Done> {
    run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    Ok(Done::default())
}

/// The documentation builds, without a warning. That public items have some is the lint
/// `missing_docs`, which the workspace denies.
pub(crate) fn docs() -> Result<Done> {
    run(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Done::default())
}

/// The benchmarks: the whole path's, the manager's with thousands of proxies, or those that cargo
/// finds.
pub(crate) fn bench(arguments: &[String]) -> Result<ExitCode> {
    if let Some(("pool", rest)) = arguments.split_first().map(|(first, rest)| (&**first, rest)) {
        let build = ["build", "--quiet", "--release", "--bins"];
        run(&mut cargo(&[&build[..], &["--package=manager", "--package=pool-scale"]].concat()))?;
        let bench = crate::tools::target_dir().join("release").join("dxpu-pool-scale");
        return ends_as(std::process::Command::new(bench).args(rest));
    }
    if let Some(("fabric", rest)) = arguments.split_first().map(|(first, rest)| (&**first, rest)) {
        let packages = ["--package=manager", "--package=host-proxy", "--package=box-proxy"];
        let build = ["build", "--quiet", "--release", "--bins", "--package=bench"];
        run(&mut cargo(&[&build[..], &packages[..]].concat()))?;
        let bench = crate::tools::target_dir().join("release").join("dxpu-bench");
        let status = status(std::process::Command::new(bench).args(rest))?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let mut command = cargo(&["bench"]);
    if arguments.is_empty() {
        command.arg("--workspace")
    } else {
        command.args(arguments)
    };
    let status = status(&mut command)?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The simulator, optimised, and what it is given.
pub(crate) fn sim(arguments: &[String]) -> Result<ExitCode> {
    run(&mut cargo(&["build", "--quiet", "--release", "--package", "sim"]))?;
    let sim = crate::tools::target_dir().join("release").join("dxpu-sim");
    let door = std::env::var("DXPU_DX").unwrap_or_else(|_| "cargo xtask".to_owned());
    let mut command = std::process::Command::new(sim);
    ends_as(command.env("DXPU_SIM_COMMAND", format!("{door} sim")).args(arguments))
}

/// The daemons, optimised, and then the demo that starts them.
pub(crate) fn demo(arguments: &[String]) -> Result<ExitCode> {
    let mut command = after_daemons("demo", "dxpu-demo", arguments)?;
    with_cards(&mut command, arguments)?;
    command.arg("--repository").arg(crate::tools::root()).args(arguments);
    ends_as(&mut command)
}

/// Builds the cards' firmware for a program that is to run with cards, and tells it where it is.
fn with_cards(command: &mut std::process::Command, arguments: &[String]) -> Result<()> {
    if has(arguments, &["--card"]) && !asks_for_help(arguments) {
        if let Some(reason) = crate::firmware::build()?.skipped {
            bail!("{reason}");
        }
        command.env("DXPU_FIRMWARE", crate::firmware::folder());
    }
    Ok(())
}

fn has(arguments: &[String], wanted: &[&str]) -> bool {
    arguments.iter().any(|argument| wanted.contains(&&**argument))
}

fn asks_for_help(arguments: &[String]) -> bool {
    has(arguments, &["--help", "-h"])
}

/// The daemons, optimised, and then guests on a fabric of them.
pub(crate) fn vm(arguments: &[String]) -> Result<ExitCode> {
    let mut command = after_daemons("vm", "dxpu-vm", arguments)?;
    with_cards(&mut command, arguments)?;
    command.arg("run").args(arguments);
    ends_as(&mut command)
}

/// One of the programs, once all are built. It alone, not optimised, where it is only to say what it
/// takes: most of what it is made of is there then, since this program has it, too.
fn after_daemons(
    package: &str,
    program: &str,
    arguments: &[String],
) -> Result<std::process::Command> {
    let folder = if asks_for_help(arguments) {
        run(&mut cargo(&["build", "--quiet", "--package", package, "--bin", program]))?;
        "debug"
    } else {
        // Programs for a bench take long to compile, and nothing here needs them.
        let build = ["build", "--release", "--workspace", "--bins"];
        let but = ["--exclude", "xtask", "--exclude", "dxpu-flash"];
        run(&mut cargo(&[build, but].concat()))?;
        "release"
    };
    Ok(std::process::Command::new(crate::tools::target_dir().join(folder).join(program)))
}

/// What a program says, with a status above 255 or a signal as a plain failure.
fn ends_as(command: &mut std::process::Command) -> Result<ExitCode> {
    let code = status(command)?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
