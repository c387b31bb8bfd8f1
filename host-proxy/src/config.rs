//! What `host-proxy` is told.

use clap::Parser;
use proxy_core::limits::MAX_PORTS;
use proxy_daemon::config::{Common, Said, read_file};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// Makes PCIe devices in boxes elsewhere appear behind a switch of this host.
///
/// Settings come from the file named with --config (TOML), the environment, and flags; a flag
/// outweighs the environment, which outweighs the file.
#[derive(Debug, Parser)]
#[command(
    name = "host-proxy",
    version,
    after_help = "\
The host itself is one of:
  --model-host SOCKET  a model of a host in this process, which acts as an operating system would;
                       dxpu-host talks to it through SOCKET
  --tlp-socket SOCKET  any other root complex, which connects to SOCKET (docs/tlp-socket.md)

Example:
  host-proxy --name host-1 --model-host /run/dxpu/host-1.sock

Exit status: 0 stopped by a signal, 1 failed while running, 2 wrong settings."
)]
pub struct Cli {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "DXPU_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    common: Said,
    #[command(flatten)]
    host: SaidHost,
}

/// The host's part of the settings, as said.
#[derive(Debug, Default, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SaidHost {
    /// Downstream ports of the virtual switch, 1 to 32 [default: 8]
    #[arg(long, env = "DXPU_PORTS")]
    ports: Option<u8>,
    /// Run the model host, with its command socket at this path
    #[arg(long, value_name = "SOCKET", env = "DXPU_MODEL_HOST")]
    model_host: Option<PathBuf>,
    /// Memory of the model host in MiB [default: 64]
    #[arg(long, value_name = "MIB", env = "DXPU_MODEL_MEMORY_MIB")]
    model_memory_mib: Option<u64>,
    /// How long the model host waits after the attention button, milliseconds [default: 5000, as
    /// PCIe says]
    #[arg(long, value_name = "MS", env = "DXPU_MODEL_BUTTON_MS")]
    model_button_ms: Option<u64>,
    /// Take a root complex at this Unix socket
    #[arg(long, value_name = "SOCKET", env = "DXPU_TLP_SOCKET", conflicts_with = "model_host")]
    tlp_socket: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    proxy: Said,
    #[serde(default)]
    host: SaidHost,
}

/// Where the root complex is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Front {
    /// The model host.
    Model {
        /// Its command socket.
        socket: PathBuf,
        /// Its memory, in bytes.
        memory: u64,
        /// How long it waits after the attention button.
        button_delay: Duration,
    },
    /// A root complex that connects to this socket.
    Socket(PathBuf),
}

/// Everything checked.
#[derive(Debug)]
pub struct Config {
    /// What both daemons have.
    pub common: Common,
    /// Downstream ports.
    pub ports: u8,
    /// Where the root complex is.
    pub front: Front,
}

impl Cli {
    /// Reads the file and puts all together.
    ///
    /// # Errors
    ///
    /// A text that names the setting, what is wrong with it and what is allowed.
    pub fn check(self) -> Result<Config, String> {
        let file: File = read_file(self.config.as_deref())?;
        let ports = self.host.ports.or(file.host.ports).unwrap_or(8);
        if !(1..=MAX_PORTS).contains(&(ports as usize)) {
            return Err(format!("ports {ports}: 1 to {MAX_PORTS}"));
        }
        let mib = self.host.model_memory_mib.or(file.host.model_memory_mib).unwrap_or(64);
        if !(16..=65536).contains(&mib) {
            return Err(format!("model-memory-mib {mib}: 16 to 65536"));
        }
        let button = self.host.model_button_ms.or(file.host.model_button_ms).unwrap_or(5000);
        let button_delay = Duration::from_millis(button);
        let said_here = self.host.model_host.is_some() || self.host.tlp_socket.is_some();
        let said = if said_here { self.host } else { file.host };
        let front = match (said.model_host, said.tlp_socket) {
            (Some(socket), None) => Front::Model { socket, memory: mib << 20, button_delay },
            (None, Some(socket)) => Front::Socket(socket),
            (Some(_), Some(_)) => {
                return Err("model-host and tlp-socket: there can be one root complex".into());
            }
            (None, None) => {
                return Err(
                    "no root complex: give --model-host SOCKET or --tlp-socket SOCKET".into()
                );
            }
        };
        Ok(Config { common: self.common.or(file.proxy).check()?, ports, front })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Config, String> {
        Cli::try_parse_from([&["host-proxy"], args].concat()).map_err(|e| e.to_string())?.check()
    }

    #[test]
    fn one_front_end_is_needed() {
        assert!(parse(&[]).unwrap_err().contains("--model-host"));
        assert!(parse(&["--model-host", "a", "--tlp-socket", "b"]).is_err());
        let config = parse(&["--tlp-socket", "b", "--ports", "32"]).unwrap();
        assert_eq!((config.front, config.ports), (Front::Socket("b".into()), 32));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(parse(&["--model-host", "a", "--ports", "33"]).unwrap_err().contains("1 to 32"));
        assert!(parse(&["--model-host", "a", "--fabric", "x"]).unwrap_err().contains("udp:"));
        let error = parse(&["--model-host", "a", "--model-memory-mib", "1"]).unwrap_err();
        assert!(error.contains("16 to 65536"));
    }
}
