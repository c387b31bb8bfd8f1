//! `dxpu-sim`: see the library of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    sim::cli::main()
}
