//! `dxpu-card-host`: the model host at the PCIe side of an emulated host card. `dxpu-host` is its
//! shell.

use anyhow::{Context, Result};
use card::root::CardPort;
use card::stream::StreamMac;
use clap::Parser;
use host_model::{HostConfig, ModelHost, PortError};
use host_proxy::shell::exec;
use host_proxy::shell::server::{Job, Server};
use proxy_daemon::stop::Stop;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tracing::info;

/// How often the loop looks for commands and for the end.
const LOOK: Duration = Duration::from_millis(1);

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
    socket: PathBuf,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let stop = Stop::on_signals().context("signals")?;
    let server = Server::open(&cli.socket).map_err(anyhow::Error::msg)?;
    let listener = UnixListener::bind(&cli.card).with_context(|| cli.card.display().to_string())?;
    let (socket, _) = listener.accept()?;
    match serve(StreamMac::new(socket)?, &server, &stop) {
        Err(PortError::Closed) => Ok(()),
        other => Ok(other?),
    }
}

fn serve(mac: StreamMac, server: &Server, stop: &Stop) -> Result<(), PortError> {
    let port = CardPort::meet(mac, stop.clone())?;
    let mut config = HostConfig::default();
    config.hot_plug.button_delay = Duration::from_millis(100);
    let mut host = ModelHost::new(port, config).expect("the default is possible");
    host.enumerate().map_err(|error| PortError::Io(std::io::Error::other(error)))?;
    info!("the model host is up:\n{}", host.tree());
    while !stop.requested() {
        if let Some(Job { command, reply }) = server.try_next() {
            let line = exec::run(&mut host, &command, &reply);
            // Nobody may be waiting any more.
            let _ = reply.send(line);
        }
        host.service(Instant::now() + LOOK)?;
        while host.poll_event().is_some() {}
    }
    Ok(())
}
