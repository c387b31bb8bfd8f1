//! Of `serve` and of what looks after its store.

use crate::cli::output::Form;
use crate::config::{LogFormat, Said};
use clap::{Args as ClapArgs, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Of `serve`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Flags go before environment, environment before the file. The file is TOML \
with the keys listen, control, store, ready_file, host_grace_s, connections, log, log_format and tables [health], [spares], [keep] (docs/operations.md) and [timing] \
(milliseconds): http_ms, hello_ms, request_ms, unbind_ms, ping_ms, silence_ms, doubt_ms, reconcile_ms, \
operation_ms, enumeration_ms, orderly_ms, lease_warning_ms, lease_grace_ms. Tables [[erase]] say how \
released devices are erased."
)]
pub struct Serve {
    /// Configuration file (TOML)
    #[arg(long, env = "DXPU_MANAGER_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the REST API listens; port 0 takes a free one. It asks nobody who they are: keep it
    /// on this machine or a management network [default: 127.0.0.1:7780]
    #[arg(long, env = "DXPU_MANAGER_LISTEN", value_name = "IP:PORT")]
    pub listen: Option<SocketAddr>,
    /// Where proxies dial in [default: 0.0.0.0:7781]
    #[arg(long, env = "DXPU_MANAGER_CONTROL", value_name = "IP:PORT")]
    pub control: Option<SocketAddr>,
    /// The store's file; made if it is not there [default: dxpu-manager.redb]
    #[arg(long, env = "DXPU_MANAGER_STORE", value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Write {"pid", "listen", "control", "term"} to this file when everything listens
    #[arg(long, env = "DXPU_MANAGER_READY_FILE", value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// Take devices back from a host that has had no root complex for so long: it was switched off,
    /// killed or not started. Its proxy is there and says so. 0: never [default: 60]
    #[arg(long, env = "DXPU_MANAGER_HOST_GRACE_S", value_name = "SECONDS")]
    pub host_grace_s: Option<u32>,
    /// Which log lines go to stderr: error, warn, info, debug, trace, or per module
    /// [default: info]
    #[arg(long, env = "DXPU_MANAGER_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// How log lines look [default: text]
    #[arg(long, env = "DXPU_MANAGER_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    #[command(flatten)]
    unused: Unused,
}

/// What every command takes and the server has no use for: taken, and not shown.
#[derive(Debug, ClapArgs)]
struct Unused {
    #[arg(long, hide = true, default_value = "")]
    server: String,
    #[arg(long, hide = true)]
    json: bool,
    #[arg(long, short, hide = true, value_enum)]
    output: Option<Form>,
}

impl From<Serve> for Said {
    fn from(args: Serve) -> Said {
        Said {
            config: args.config,
            listen: args.listen,
            control: args.control,
            store: args.store,
            ready_file: args.ready_file,
            host_grace_s: args.host_grace_s,
            log: args.log,
            log_format: args.log_format,
        }
    }
}

/// Of `store`.
#[derive(Debug, Subcommand)]
pub enum StoreFile {
    /// Read every record of every table and name each that does not read: table, key, reason. Exit
    /// code 0: all read, or none is left that does not; 8: some do not, or the store cannot be used
    Check {
        /// Take out what does not read. It is written to a JSON file beside the store, and the
        /// store is kept as it was. Counters are never taken out. If pages are damaged, a new store
        /// is made of what reads
        #[arg(long)]
        repair: bool,
        /// The store
        #[arg(long, env = "DXPU_MANAGER_STORE", default_value = crate::config::DEFAULT_STORE,
              value_name = "FILE")]
        store: PathBuf,
    },
}
