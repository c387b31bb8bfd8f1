//! `host-proxy`: makes PCIe devices in boxes elsewhere appear behind a switch of this host.

use host_proxy::{config::Cli, daemon};
use proxy_daemon::program;
use std::process::ExitCode;

fn main() -> ExitCode {
    program::run("host-proxy", || Cli::from_args().check(), |config| &config.common, daemon::run)
}
