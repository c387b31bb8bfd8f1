//! `tlp`: transaction layer packets as text and JSON, and back. `tlp --help` says how.

use clap::Parser;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use tlp_cli::{Args, Outcome};

fn main() -> ExitCode {
    let args = Args::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    let result = tlp_cli::run(&args, &mut out, &mut io::stderr());
    match result.and_then(|outcome| out.flush().map(|()| outcome).map_err(Into::into)) {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::SomeBroken) => ExitCode::from(1),
        Ok(Outcome::WrongArgument) => ExitCode::from(2),
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
