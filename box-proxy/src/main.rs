//! `box-proxy`: lends the PCIe devices in this box to hosts across Ethernet.

use box_proxy::{config::Cli, daemon};
use clap::Parser;
use proxy_daemon::program;
use std::process::ExitCode;

fn main() -> ExitCode {
    program::run("box-proxy", || Cli::parse().check(), |config| &config.common, daemon::run)
}
