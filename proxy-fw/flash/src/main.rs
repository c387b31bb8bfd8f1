//! `dxpu-flash`: puts firmware on a card through a debug probe.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::panic;
use std::process::ExitCode;

use clap::Parser;
use dxpu_flash::card::{GOES_ON, or_left_halted};
use dxpu_flash::cli::{self, args::Args, usage};
use dxpu_flash::failure::{Failure, Kind};

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return unusable(&error),
    };
    let json = args.json;
    tell_noise(json);
    match cli::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}", failure.text(json));
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

/// The command line makes no sense, or asks for help.
fn unusable(error: &clap::Error) -> ExitCode {
    let json = usage::wants_json(std::env::args_os().skip(1));
    let failure = match (error.use_stderr(), json) {
        (true, true) => usage::failure(error),
        (true, false) => error.exit(),
        // Help, which may find no room, as results may.
        (false, _) => match error.print().and_then(|()| io::stdout().flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let what = format!("standard output cannot be written: {error}");
                Failure::new(Kind::Other, what)
            }
            _ => return ExitCode::SUCCESS,
        },
    };
    eprintln!("{}", failure.text(json));
    ExitCode::from(failure.kind.exit_code())
}

/// probe-rs panics where a debug module answers what no debug module may, and once more when it then
/// lets go of it, which would end this program without a word. It means noise on the cable, so that
/// is said, and the program ends there.
fn tell_noise(json: bool) {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map_or("", panic::Location::file);
        if !place.contains("probe-rs-") {
            return usual(panic);
        }
        let failure = Failure::new(Kind::Lost, "the card answers what makes no sense")
            .check(
                "noise on the JTAG cable: use a shorter one, and try a slower clock: --clock 1000",
            )
            .check("do the card and the probe share a ground?")
            .check(format!("give the same command again: {GOES_ON}"));
        let failure = or_left_halted(failure);
        eprintln!("{}", failure.text(json));
        std::process::exit(failure.kind.exit_code().into());
    }));
}
