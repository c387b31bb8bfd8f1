//! `dxpu-sim-card`: a card in software that a probe reaches over TCP.

#![forbid(unsafe_code)]

mod console;
mod flash_file;
mod program;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match program::run(&program::Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("dxpu-sim-card: {error:#}");
            ExitCode::FAILURE
        }
    }
}
