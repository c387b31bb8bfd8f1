//! Logs, through `tracing`, to standard error.

mod lines;

use lines::Lines;
use proxy_core::control::LogLevel;
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// How long the end of the program waits for a reader of its last lines.
const FLUSH: Duration = Duration::from_secs(1);

/// How logs look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Starts logging. `filter` is tracing's: a level, or `target=level` pairs with commas.
///
/// # Errors
///
/// When the filter is not understood; the text names what is wrong with it.
pub fn start(filter: &str, format: LogFormat) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|e| format!("log filter {filter:?}: {e}; use a level such as info or debug"))?;
    let lines = Lines::start(std::io::stderr(), |lost| {
        tracing::warn!(lost, "lines of the log were lost: standard error was not read");
    });
    let lines = lines.map_err(|e| format!("thread for the log: {e}"))?;
    let lines = LINES.get_or_init(|| lines);
    flush_at_panics();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(lines.clone())
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => {
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            let _ = SET.set(Box::new(move |filter| {
                let _ = handle.reload(filter);
            }));
            builder.init();
        }
        LogFormat::Json => {
            let builder = builder.json().with_filter_reloading();
            let handle = builder.reload_handle();
            let _ = SET.set(Box::new(move |filter| {
                let _ = handle.reload(filter);
            }));
            builder.init();
        }
    }
    Ok(())
}

/// What is to be written, once the log was started.
static LINES: OnceLock<Lines> = OnceLock::new();

/// Says a line on standard error, behind what was logged.
pub fn say(line: &str) {
    let line = format!("{line}\n").into_bytes();
    match LINES.get() {
        Some(lines) => lines.put(line),
        None => drop(std::io::stderr().write_all(&line)),
    }
}

/// Has what was logged written before the program ends, unless nobody reads it. Whether it is.
pub fn flush() -> bool {
    LINES.get().is_none_or(|lines| lines.flush(FLUSH))
}

/// What was logged before a panic tells how it came. Of a standard error that nobody reads the panic's own
/// message would wait for ever, and with it the end of the program.
fn flush_at_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if flush() {
            tell(panic);
        }
    }));
}

/// Replaces the filter of the log that was started.
static SET: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// Logs from this level on, everywhere in this program.
pub fn set_level(level: LogLevel) {
    if let Some(set) = SET.get() {
        tracing::info!("logging from {level} on, as the manager says");
        set(EnvFilter::new(level.name()));
    }
}
