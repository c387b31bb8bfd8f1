//! `dxpu-card-devices`: models of devices at the PCIe side of an emulated box card.

use anyhow::{Context, Result};
use box_proxy::config::NumberedSlot;
use card::devices::Devices;
use card::stream;
use clap::Parser;
use proxy_daemon::stop::Stop;
use std::path::PathBuf;

/// Models of devices at the PCIe side of an emulated box card, which dials in.
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
    /// The box's name, of which the devices' serial numbers are made
    #[arg(long, default_value = "card")]
    name: String,
    /// What is in a slot, as box-proxy has it; repeat for each slot
    #[arg(long = "slot", value_name = "SPEC")]
    slots: Vec<NumberedSlot>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let stop = Stop::on_signals().context("signals")?;
    let slots = cli.slots.into_iter().map(|NumberedSlot(number, spec)| (number, spec)).collect();
    let seats = box_proxy::daemon::open_all(&cli.name, &slots).map_err(anyhow::Error::msg)?;
    let at = || cli.card.display().to_string();
    let Some(mac) = stream::accept(&cli.card, &stop).with_context(at)? else { return Ok(()) };
    Devices::new(mac, seats).run(&stop);
    Ok(())
}
