//! Logs, through `tracing`, to standard error.

use std::io::IsTerminal;
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
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}
