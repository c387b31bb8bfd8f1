//! The card's log: defmt's, with a level that can be changed while it runs.
//!
//! What is below the level costs a comparison. Where there is no card there is no log: tests look
//! at what is done.

use core::sync::atomic::{AtomicU8, Ordering};
use proxy_core::control::LogLevel;

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

/// The lowest level that a firmware was compiled with: lines below it are not there.
pub const COMPILED: LogLevel =
    if cfg!(target_os = "none") { compiled(option_env!("DEFMT_LOG")) } else { LogLevel::Trace };

/// What defmt's macros leave, by what they are told when a firmware is built (defmt book,
/// "Filtering"): errors when nothing is said.
const fn compiled(said: Option<&str>) -> LogLevel {
    let Some(said) = said else { return LogLevel::Error };
    match said.as_bytes() {
        b"trace" => LogLevel::Trace,
        b"debug" => LogLevel::Debug,
        b"info" => LogLevel::Info,
        b"warn" => LogLevel::Warn,
        b"error" => LogLevel::Error,
        _ => panic!("DEFMT_LOG is one level for all of a firmware"),
    }
}

/// Logs from this level on, or from [`COMPILED`] where that is higher: the level that it is.
pub fn set_level(level: LogLevel) -> LogLevel {
    let level = level.max(COMPILED);
    LEVEL.store(level as u8, Ordering::Relaxed);
    level
}

/// Whether something of this level is logged.
pub fn is_logged(level: LogLevel) -> bool {
    level as u8 >= LEVEL.load(Ordering::Relaxed)
}

/// Logs at a level of `trace`, `debug`, `info`, `warn` and `error`, as defmt's macros of that name
/// do, if that is logged now. A line's place is that of its `log!`.
#[cfg(target_os = "none")]
#[macro_export]
#[collapse_debuginfo(yes)] // rustc leaves it out where the macro is the own crate's
macro_rules! log {
    ($level:ident, $text:literal $(, $what:expr)* $(,)?) => {
        if $crate::log::is_logged($crate::log_level!($level)) {
            ::defmt::$level!($text $(, $what)*)
        }
    };
}

/// Logs nothing, but looks at what would be logged.
#[cfg(not(target_os = "none"))]
#[macro_export]
macro_rules! log {
    ($level:ident, $text:literal $(, $what:expr)* $(,)?) => {
        if $crate::log::is_logged($crate::log_level!($level)) {
            $(let _ = &$what;)*
        }
    };
}

/// A level by its name.
#[doc(hidden)]
#[macro_export]
macro_rules! log_level {
    (trace) => {
        ::proxy_core::control::LogLevel::Trace
    };
    (debug) => {
        ::proxy_core::control::LogLevel::Debug
    };
    (info) => {
        ::proxy_core::control::LogLevel::Info
    };
    (warn) => {
        ::proxy_core::control::LogLevel::Warn
    };
    (error) => {
        ::proxy_core::control::LogLevel::Error
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_the_level_is_not_logged() {
        // The level is one for the whole program; no other test changes it.
        assert!(is_logged(LogLevel::Info) && !is_logged(LogLevel::Debug));
        for level in LogLevel::ALL {
            assert_eq!(set_level(level), level);
            for other in LogLevel::ALL {
                assert_eq!(is_logged(other), other >= level, "{other} from {level} on");
            }
        }
        set_level(LogLevel::Info);
    }

    #[test]
    fn what_is_compiled_in_is_what_the_build_was_told() {
        for level in LogLevel::ALL {
            assert_eq!(compiled(Some(level.name())), level);
        }
        assert_eq!(compiled(None), LogLevel::Error);
    }

    #[test]
    #[should_panic(expected = "one level for all")]
    fn what_nobody_can_offer_as_a_level_is_refused() {
        compiled(Some("info,soc=trace"));
    }
}
