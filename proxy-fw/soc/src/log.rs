//! The card's log: defmt's, with a level that can be changed while it runs.
//!
//! What is below the level costs a comparison. Where there is no card there is no log: tests look
//! at what is done.

use core::sync::atomic::{AtomicU8, Ordering};
use proxy_core::control::LogLevel;

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

/// Logs from this level on.
pub fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Whether something of this level is logged.
pub fn is_logged(level: LogLevel) -> bool {
    level as u8 >= LEVEL.load(Ordering::Relaxed)
}

/// Logs at a level of `trace`, `debug`, `info`, `warn` and `error`, as defmt's macros of that name
/// do, if that is logged now.
#[cfg(target_os = "none")]
#[macro_export]
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
            set_level(level);
            for other in LogLevel::ALL {
                assert_eq!(is_logged(other), other >= level, "{other} from {level} on");
            }
        }
        set_level(LogLevel::Info);
    }
}
