//! `box-proxy`: lends the PCIe devices in this box to hosts across Ethernet.

use box_proxy::{config::Cli, daemon};
use clap::Parser;
use proxy_daemon::{logs, stop::Stop};
use std::process::ExitCode;

/// Wrong settings.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // First of all: a signal that comes while things start is a clean stop, too.
    let stop = match Stop::on_signals() {
        Ok(stop) => stop,
        Err(error) => return fail(1, &format!("signal handlers: {error}")),
    };
    let config = match Cli::parse().check() {
        Ok(config) => config,
        Err(error) => return fail(USAGE, &error),
    };
    if let Err(error) = logs::start(&config.common.log, config.common.log_format) {
        return fail(USAGE, &error);
    }
    match daemon::run(&config, &stop) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, &error),
    }
}

fn fail(status: u8, error: &str) -> ExitCode {
    eprintln!("box-proxy: {error}");
    ExitCode::from(status)
}
