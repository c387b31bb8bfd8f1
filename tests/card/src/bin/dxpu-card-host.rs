//! `dxpu-card-host`: the model host at the PCIe side of an emulated host card. `dxpu-host` is its
//! shell.

use anyhow::{Context, Result};
use card::root::CardPort;
use card::stream;
use clap::Parser;
use host_model::PortError;
use host_proxy::front::model::ModelFront;
use proxy_daemon::stop::Stop;
use std::path::PathBuf;
use std::time::Duration;

/// The model host at the PCIe side of an emulated host card, which dials in.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit status: 0 stopped by a signal or left by the card, \
                                 1 failed, 2 wrong arguments."
)]
struct Cli {
    /// The socket of the card's second network interface (QEMU: -netdev stream)
    #[arg(long, value_name = "SOCKET")]
    card: PathBuf,
    /// Where `dxpu-host` gives commands
    #[arg(long, value_name = "SOCKET")]
    model_host: PathBuf,
    /// Memory of the host in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    model_memory_mib: u64,
    /// How long the host waits after the attention button, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    model_button_ms: u64,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let stop = Stop::on_signals().context("signals")?;
    let memory = cli.model_memory_mib.saturating_mul(1 << 20);
    let delay = Duration::from_millis(cli.model_button_ms);
    let front = ModelFront::open(&cli.model_host, memory, delay).map_err(anyhow::Error::msg)?;
    let at = || cli.card.display().to_string();
    let Some(mac) = stream::accept(&cli.card, &stop).with_context(at)? else { return Ok(()) };
    let port = match CardPort::meet(mac, stop.clone()) {
        Err(PortError::Closed) => return Ok(()),
        port => port?,
    };
    front.serve(port, &stop).map_err(anyhow::Error::msg)
}
