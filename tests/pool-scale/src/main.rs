//! `dxpu-pool-scale`: one manager, thousands of simulated proxies that speak the real control
//! protocol over real connections, and clients of its REST API. What the manager needs and how
//! fast it is stands beside what its store alone does in the same run.
//!
//! Exit codes: 0 all is measured (targets may be missed unless `--judge` is given), 1 it could not
//! be measured, or what has to hold does not, 3 a target was missed under `--judge`.
//!
//! With `--join` it measures nothing: its proxies belong to a manager that runs already, for others
//! to look at, until standard input ends.

mod client;
mod floor;
mod joined;
mod measures;
mod pool;
mod proxy;
mod report;
mod server;

use clap::Parser;
use std::net::SocketAddr;
use std::process::ExitCode;

/// Size of the pool and of the load.
#[derive(Clone, Debug, Parser)]
#[command(name = "dxpu-pool-scale", version)]
struct Options {
    /// Boxes.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=4000))]
    boxes: u16,
    /// Slots of each box.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=32))]
    slots: u8,
    /// Hosts. Each has as many ports as all slots together need.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u16).range(1..=4000))]
    hosts: u16,
    /// Clients at once: no more than hosts, nor than devices that can be lent.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// Cycles of allocate and release, all clients together.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    cycles: u32,
    /// Events whose way to a watcher is measured.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..))]
    events: u32,
    /// Where the store is; a folder on the disk that is to be measured. Otherwise the system's
    /// folder for temporary files.
    #[arg(long)]
    folder: Option<std::path::PathBuf>,
    /// The manager's log level.
    #[arg(long, default_value = "warn")]
    log: String,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Ends with 3 when a target is missed.
    #[arg(long)]
    judge: bool,
    /// Measures nothing: the proxies dial in at this manager's control address. Writes a line when all
    /// are read and devices are lent, and ends when standard input does.
    #[arg(long, value_name = "IP:PORT", requires = "api")]
    join: Option<SocketAddr>,
    /// The REST API of that manager.
    #[arg(long, value_name = "IP:PORT", requires = "join")]
    api: Option<SocketAddr>,
    /// With --join: keeps so many devices lent, to one host after the other, whoever releases them.
    #[arg(long, default_value_t = 0, value_name = "N", requires = "join")]
    lent: u32,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let (Some(control), Some(api)) = (options.join, options.api) {
        return match joined::keep(&options, control, api) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    match measures::all(&options) {
        Ok(report) => {
            match options.json {
                true => println!("{}", report.json()),
                false => print!("{report}"),
            }
            match options.judge && !report.all_met() {
                true => ExitCode::from(3),
                false => ExitCode::SUCCESS,
            }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
