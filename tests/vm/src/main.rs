//! `dxpu-vm`: virtual machines by hand.

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use vm::{Cache, Kernel, News};

/// Virtual machines with a distribution's own Linux.
#[derive(Debug, Parser)]
#[command(name = "dxpu-vm", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring QEMU, kernels and the guests' tools from Debian into a private folder
    Fetch {
        /// Which kernels; all of them when none is named
        #[arg(long = "kernel", value_enum)]
        kernels: Vec<Kernel>,
        /// Folder [default: `vm` in cargo's target folder]
        #[arg(long, env = "DXPU_VM_CACHE")]
        cache: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dxpu-vm: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    processes::catch_signals()?;
    match &cli.command {
        Command::Fetch { kernels, cache } => {
            let folder = cache.clone().map_or_else(Cache::default_folder, Ok)?;
            let kernels = if kernels.is_empty() { &Kernel::ALL[..] } else { kernels };
            let cache = Cache::make(&folder, kernels, &mut show)?;
            println!("{}", folder.display());
            for (package, version) in cache.versions()? {
                println!("  {package} {version}");
            }
            Ok(())
        }
    }
}

/// Shows what is told, on standard error; progress only to a person.
fn show(news: News<'_>) {
    let mut out = std::io::stderr();
    let _ = match news {
        News::Step(text) if out.is_terminal() => writeln!(out, "\r\x1b[K{text}"),
        News::Step(text) => writeln!(out, "{text}"),
        News::Progress(text) if out.is_terminal() => write!(out, "\r\x1b[K  {text}"),
        News::Progress(_) => Ok(()),
    };
    let _ = out.flush();
}
