//! `tlp`: transaction layer packets as text and JSON, and back. `tlp --help` says how.

mod args;
mod builder;
mod capture;
mod decode;
mod encode;
mod fields;
mod input;
mod joiner;
mod notes;
mod taker;
mod text;

use args::{Args, Command};
use clap::Parser;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// How a run that was not stopped by an error ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Everything went through.
    Clean,
    /// Something did not, and was reported.
    SomeBroken,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    let result = match args.command {
        Command::Decode(decode) => decode::run(&decode, &mut out),
        Command::Encode(encode) => encode::run(&encode, &mut out),
    };
    match result.and_then(|outcome| out.flush().map(|()| outcome).map_err(Into::into)) {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::SomeBroken) => ExitCode::from(1),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tlp: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whoever reads our output has seen enough: no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
