//! `dxpu-vm`: virtual machines as hosts. `./dx vm` builds everything and runs it.

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use vm::session::{self, Session};
use vm::{Cache, Kernel, terminal};

/// Virtual machines with a distribution's own Linux.
#[derive(Debug, Parser)]
#[command(name = "dxpu-vm", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Boots an unmodified Linux as a host (or two) on a fabric with two boxes, and gives you its
    /// shell; dxpu-manager in another terminal plugs devices in and pulls them out
    #[command(override_usage = "./dx vm [OPTIONS]")]
    Run(Session),
    /// Bring QEMU, kernels and the guests' tools from Debian into a private folder
    Fetch {
        /// Which kernels; all of them when none is named
        #[arg(long = "kernel", value_enum)]
        kernels: Vec<Kernel>,
        /// Folder [default: `vm` in cargo's target folder]
        #[arg(long, env = "DXPU_VM_CACHE")]
        cache: Option<PathBuf>,
    },
    /// A guest's console on this terminal; Ctrl-A X leaves it
    Console {
        /// Its socket, as `run` prints it
        socket: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("dxpu-vm: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<u8> {
    processes::catch_signals()?;
    match &cli.command {
        Command::Run(session) => session::run(session),
        Command::Fetch { kernels, cache } => {
            let folder = cache.clone().map_or_else(Cache::default_folder, Ok)?;
            let kernels = if kernels.is_empty() { &Kernel::ALL[..] } else { kernels };
            let cache = Cache::make(&folder, kernels, &mut session::show)?;
            println!("{}", folder.display());
            for (package, version) in cache.versions()? {
                println!("  {package} {version}");
            }
            Ok(0)
        }
        Command::Console { socket } => terminal::attach(socket, &mut Vec::new).map(|_| 0),
    }
}
