//! `dxpu-perf`: what disaggregation would cost a CUDA workload. `dxpu-perf --help` says how.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = perf_model::Args::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    let result = perf_model::run(args, &mut out);
    match result.and_then(|code| out.flush().map(|()| code).map_err(Into::into)) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be there to read it.
            let _ = writeln!(io::stderr(), "dxpu-perf: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whoever reads our output has seen enough: no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let of_json = error.downcast_ref::<serde_json::Error>().and_then(|it| it.io_error_kind());
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind).or(of_json);
    kind == Some(io::ErrorKind::BrokenPipe)
}
