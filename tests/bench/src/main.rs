//! What the whole path costs: manager, host proxy and box proxy as processes of their own, pinned,
//! in network namespaces with cables between them; beside it what bare Ethernet costs on the same
//! interfaces in the same run, by turns, so that what disturbs one disturbs the other.
//!
//! `./dx bench fabric [--quick] [--only NAME] [--json] [--report FILE]`, as root.

mod figures;
mod floor;
mod hanging_box;
mod loss;
mod measures;
mod network;
mod process;
mod report;
mod svg;
mod system;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use figures::Results;
use measures::{Bench, MEASURES};
use network::Network;
use processes::namespaces;
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What the whole path costs, beside what bare Ethernet costs on the same interfaces.
#[derive(Parser)]
#[command(name = "dxpu-bench")]
struct Cli {
    /// A short run, under a minute: shorter measurements, fewer repeats
    #[arg(long)]
    quick: bool,
    /// Only this measure; several with several options [default: all]
    #[arg(long, value_name = "NAME", value_parser = names())]
    only: Vec<String>,
    /// Turns of floor and measurement [default: 7, quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..1000))]
    repeats: Option<u16>,
    /// JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Write a page with the tables and plots
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Folder of the daemons' programs [default: this program's own]
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// A box proxy whose first device hangs after SIGUSR1, until the next one
    #[command(hide = true)]
    HangingBox(Box<hanging_box::Arguments>),
}

fn names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(MEASURES.iter().map(|measure| measure.name))
}

fn main() -> ExitCode {
    let mut cli = Cli::parse();
    let ended = match cli.command.take() {
        Some(Command::HangingBox(arguments)) => {
            hanging_box::run(*arguments).map(|()| ExitCode::SUCCESS)
        }
        None => run(&cli),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(cli: &Cli) -> Result<ExitCode> {
    processes::catch_signals()?;
    let mut page = cli.report.as_deref().map(Page::open).transpose()?;
    let mut all = Vec::new();
    if let Some(why) = namespaces::why_none() {
        let mut nothing = Results::new("all", "every measure");
        nothing.skipped.push(why);
        say(cli, &nothing);
        all.push(nothing);
    } else {
        let _ahead = process::Ahead::of_other_sessions();
        namespaces::remove_leftovers(network::PROGRAM, |what| eprintln!("{what}"));
        let beside = processes::own_folder()?;
        let bench = Bench {
            programs: cli.programs.clone().unwrap_or(beside),
            network: Network::make()?,
            quick: cli.quick,
            repeats: cli.repeats.map_or(if cli.quick { 3 } else { 7 }, usize::from),
        };
        let wanted = |name: &str| cli.only.is_empty() || cli.only.iter().any(|only| only == name);
        for measure in MEASURES.iter().filter(|measure| wanted(measure.name)) {
            let mut results = Results::new(measure.name, measure.about);
            let ran = (measure.run)(&bench, &mut results);
            // What a signal broke off says nothing.
            processes::not_interrupted()?;
            if let Err(error) = ran {
                results.failed = Some(format!("{error:#}"));
            }
            say(cli, &results);
            all.push(results);
        }
    }
    let machine = machine();
    if cli.json {
        let text = json!({ "machine": machine, "quick": cli.quick, "measures": all });
        println!("{text:#}");
    }
    if let Some(page) = &mut page {
        page.write(&report::page(&all, &machine))?;
    }
    let failed = all.iter().any(|results| results.failed.is_some());
    let missed = all.iter().flat_map(|results| &results.targets).filter(|t| !t.met).count();
    if missed > 0 {
        eprintln!("targets missed: {missed}");
    }
    Ok(if failed || missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The file of `--report`. Whether it can be written is known before anything is measured; what is
/// in it stays until there is something else.
struct Page<'a> {
    name: &'a Path,
    file: File,
}

impl<'a> Page<'a> {
    fn open(name: &'a Path) -> Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(name);
        let file = file.with_context(|| format!("the report {}", name.display()))?;
        Ok(Self { name, file })
    }

    fn write(&mut self, text: &str) -> Result<()> {
        if self.file.metadata().is_ok_and(|data| data.is_file()) {
            self.file.set_len(0)?;
        }
        let wrote = self.file.write_all(text.as_bytes());
        wrote.with_context(|| format!("the report {}", self.name.display()))
    }
}

/// Tables come as soon as they are there.
fn say(cli: &Cli, results: &Results) {
    if !cli.json {
        print!("{}", report::table(results));
    }
}

/// Processor and kernel, for the report.
fn machine() -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |rest| rest.trim_start_matches([' ', '\t', ':']));
    format!("{processors} × {model}, Linux {}", read("/proc/sys/kernel/osrelease").trim())
}
