//! Logs, through `tracing`, to standard error.

use proxy_core::control::LogLevel;
use std::io::IsTerminal;
use std::sync::OnceLock;
use tracing_subscriber::EnvFilter;

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
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A standard error that cannot be written (full disk, reader gone) is no reason to end.
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

/// Replaces the filter of the log that was started.
static SET: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// Logs from this level on, everywhere in this program.
pub fn set_level(level: LogLevel) {
    if let Some(set) = SET.get() {
        tracing::info!("logging from {level} on, as the manager says");
        set(EnvFilter::new(level.name()));
    }
}
