//! The `dxpu-manager` program. Everything is in the library; here errors become exit codes.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = manager::erasure::guard(std::env::args_os()) {
        return ExitCode::from(code);
    }
    let args = manager::cli::args::Args::parse();
    let json = args.form() == manager::cli::Form::Json;
    match manager::cli::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print(json);
            ExitCode::from(failure.exit_code())
        }
    }
}
