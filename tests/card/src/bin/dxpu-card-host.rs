//! `dxpu-card-host`: what is at the PCIe side of an emulated host card: the model host, with
//! `dxpu-host` as its shell, or a virtual machine's adapter.

use anyhow::{Context, Result};
use card::below::CardBelow;
use card::root::CardPort;
use card::stream;
use clap::Parser;
use host_model::PortError;
use host_proxy::config::Model;
use host_proxy::front::model::ModelFront;
use host_proxy::front::vm::VmFront;
use proxy_daemon::stop::Stop;
use std::path::PathBuf;
use std::time::Duration;
use vmd_adapter::VmdConfig;

/// The model host, or a virtual machine's adapter, at the PCIe side of an emulated host card, which
/// dials in.
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
    #[command(flatten)]
    front: Front,
    /// Memory of the model host in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    model_memory_mib: u64,
    /// How long the model host waits after the attention button, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    model_button_ms: u64,
}

/// Who the host is.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Front {
    /// Be the model host; `dxpu-host` gives commands here
    #[arg(long, value_name = "SOCKET")]
    model_host: Option<PathBuf>,
    /// Be a virtual machine's adapter, at this vfio-user socket
    #[arg(long, value_name = "SOCKET")]
    vm: Option<PathBuf>,
}

/// A host that is ready to run.
enum Opened {
    Model(Box<ModelFront>),
    Vm(Box<VmFront>),
}

impl Cli {
    fn open(&self) -> Result<Opened, String> {
        if let Some(socket) = &self.front.vm {
            return VmFront::open(socket, &VmdConfig::default()).map(Box::new).map(Opened::Vm);
        }
        let socket = self.front.model_host.as_ref().expect("one of the two is required");
        let model = Model {
            memory: self.model_memory_mib.saturating_mul(1 << 20),
            button_delay: Duration::from_millis(self.model_button_ms),
            ..Model::default()
        };
        ModelFront::open(socket, &model).map(Box::new).map(Opened::Model)
    }
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let stop = Stop::on_signals().context("signals")?;
    let front = cli.open().map_err(anyhow::Error::msg)?;
    let at = || cli.card.display().to_string();
    let Some(mac) = stream::accept(&cli.card, &stop).with_context(at)? else { return Ok(()) };
    let ended = match front {
        Opened::Model(front) => match CardPort::meet(mac, stop.clone()) {
            Err(PortError::Closed) => return Ok(()),
            port => front.serve(port?, &stop),
        },
        Opened::Vm(front) => front.run(CardBelow::new(mac, stop.clone()), &stop),
    };
    ended.map_err(anyhow::Error::msg)
}
