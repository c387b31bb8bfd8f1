//! `dxpu-direct`: the adapter of a virtual machine with models of devices right behind its switch,
//! in one process and without a fabric. The same front-end and the same models as in the proxies:
//! what is missing is what the fabric costs.

mod devices;

use clap::Parser;
use devices::Devices;
use host_proxy::front::vm::VmFront;
use proxy_daemon::Spin;
use proxy_daemon::stop::Stop;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use vmd_adapter::VmdConfig;

/// Models of devices behind a virtual machine's adapter, without a fabric.
#[derive(Debug, Parser)]
#[command(version, after_help = "Exit status: 0 stopped by a signal, 1 failed, 2 wrong arguments.")]
struct Cli {
    /// The vfio-user socket
    #[arg(long, value_name = "SOCKET")]
    vm: PathBuf,
    /// The image of the drive at the first port; made if it is not there
    #[arg(long, value_name = "FILE")]
    nvme: PathBuf,
    /// How large the image is made, MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65536))]
    mib: u64,
    /// How long to spin before sleeping, microseconds
    #[arg(long, value_name = "US", default_value_t = 50)]
    spin_us: u64,
    /// The same after a read of a register, if longer, microseconds
    #[arg(long, value_name = "US", default_value_t = 200)]
    spin_after_read_us: u64,
}

fn run(cli: &Cli) -> Result<(), String> {
    let stop = Stop::on_signals().map_err(|e| format!("signals: {e}"))?;
    let us = Duration::from_micros;
    let spin = Spin { usual: us(cli.spin_us), after_read: us(cli.spin_after_read_us) };
    let devices = Devices::open(&cli.nvme, cli.mib << 20, spin)?;
    let front = VmFront::open(&cli.vm, &VmdConfig::default())?;
    front.run(devices, &stop)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dxpu-direct: {error}");
            ExitCode::FAILURE
        }
    }
}
