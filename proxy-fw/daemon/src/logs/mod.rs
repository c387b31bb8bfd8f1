//! Logs, through `tracing`, to standard error.

mod json;
mod lines;

use lines::Lines;
use proxy_core::control::LogLevel;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal, Write};
use std::panic::PanicHookInfo;
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
    let (lines, _) = LOG.get_or_init(|| (lines, format));
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

/// What is to be written, and how, once the log was started.
static LOG: OnceLock<(Lines, LogFormat)> = OnceLock::new();

/// Says on standard error what went wrong: behind what was logged, as that looks, and whatever the
/// filter lets through.
pub fn say(line: &str) {
    match LOG.get() {
        Some((lines, LogFormat::Json)) => lines.put(format!("{}\n", json::error(line)).into()),
        Some((lines, LogFormat::Text)) => lines.put(format!("{line}\n").into()),
        None => drop(writeln!(std::io::stderr(), "{line}")),
    }
}

/// Has what was logged written before the program ends, unless nobody reads it. Whether it is.
pub fn flush() -> bool {
    LOG.get().is_none_or(|(lines, _)| lines.flush(FLUSH))
}

/// What was logged before a panic tells how it came. Of a standard error that nobody reads the panic's own
/// message would wait for ever, and with it the end of the program.
fn flush_at_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !flush() {
            return;
        }
        match LOG.get() {
            Some((_, LogFormat::Json)) => {
                drop(writeln!(std::io::stderr(), "{}", json::error(&told(panic))));
            }
            _ => tell(panic),
        }
    }));
}

/// A panic's own message, and the way to it if that is wanted, as a text.
fn told(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let text = format!("thread '{}' {panic}", thread.name().unwrap_or("<unnamed>"));
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => format!("{text}\n{backtrace}"),
        _ => text,
    }
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
