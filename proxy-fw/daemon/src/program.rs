//! What a daemon's `main` does.

use crate::config::Common;
use crate::logs;
use crate::stop::Stop;
use std::process::ExitCode;

/// Exit status for wrong settings; 1 is for everything else that fails.
const USAGE: u8 = 2;

/// Runs a daemon: `check` reads its settings, `common` finds what all daemons have in them, `run`
/// serves until told to stop. What goes wrong is said on standard error with the program's name in
/// front.
pub fn run<C>(
    name: &str,
    check: impl FnOnce() -> Result<C, String>,
    common: impl FnOnce(&C) -> &Common,
    run: impl FnOnce(&C, &Stop) -> Result<(), String>,
) -> ExitCode {
    let result = (|| {
        // First of all: a signal that comes while things start is a clean stop, too.
        let stop = Stop::on_signals().map_err(|e| (1, format!("signal handlers: {e}")))?;
        let config = check().map_err(|error| (USAGE, error))?;
        let Common { log, log_format, .. } = common(&config);
        logs::start(log, *log_format).map_err(|error| (USAGE, error))?;
        run(&config, &stop).map_err(|error| (1, error))
    })();
    let status = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, error)) => {
            // Room for it, if somebody reads.
            logs::flush();
            logs::say(&format!("{name}: {error}"));
            ExitCode::from(status)
        }
    };
    logs::flush();
    status
}
