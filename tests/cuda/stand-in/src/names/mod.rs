//! All functions of the driver: what its resolver knows by name and version.
//!
//! Those that the stand-in does not have answer `CUDA_ERROR_NOT_SUPPORTED`, each at an address of
//! its own, as different functions have.

mod generated;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::exported;
use crate::settings::settings;
use crate::status::Status;

/// A form of a function.
struct Form {
    name: &'static str,
    /// The CUDA version that brought it, times 1000, and its minor version times 10.
    since: u32,
    per_thread: bool,
    symbol: &'static str,
    /// What answers where the stand-in does not have it.
    missing: extern "C" fn() -> i32,
}

/// What the resolver says of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The address of the function.
    Function(*const ()),
    /// There is no such name.
    Unknown,
    /// There is one, and no form of it is that old.
    TooOld,
}

/// The newest form of a function that is no newer than a CUDA version, and no newer than the
/// driver. Debian's driver 535 answers the same.
pub(crate) fn resolve(name: &str, version: u32, per_thread: bool) -> Found {
    let newest = settings().version as u32;
    let forms = || generated::FORMS.iter().filter(|form| form.name == name && form.since <= newest);
    if forms().next().is_none() {
        return Found::Unknown;
    }
    let per_thread = per_thread && forms().any(|form| form.per_thread);
    let wanted = forms().filter(|form| form.per_thread == per_thread && form.since <= version);
    match wanted.max_by_key(|form| form.since) {
        Some(form) => Found::Function(exported(form.symbol).unwrap_or(form.missing as *const ())),
        None => Found::TooOld,
    }
}

/// How often each missing function was called. They would else be one and the same function to a
/// compiler.
static CALLS: [AtomicU64; generated::FORMS.len()] =
    [const { AtomicU64::new(0) }; generated::FORMS.len()];

extern "C" fn missing<const INDEX: usize>() -> i32 {
    CALLS[INDEX].fetch_add(1, Ordering::Relaxed);
    Status::NOT_SUPPORTED.0
}

/// The missing functions that were called.
pub(crate) fn missed() -> impl Iterator<Item = &'static str> {
    let called = CALLS.iter().map(|calls| calls.load(Ordering::Relaxed) > 0);
    generated::FORMS.iter().zip(called).filter(|(_, called)| *called).map(|(form, _)| form.symbol)
}

const fn form(
    name: &'static str,
    since: u32,
    per_thread: bool,
    symbol: &'static str,
    missing: extern "C" fn() -> i32,
) -> Form {
    Form { name, since, per_thread, symbol, missing }
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use crate::api::all_exported;

    #[test]
    fn what_is_exported_is_the_drivers() {
        let mut seen = std::collections::BTreeSet::new();
        for symbol in all_exported() {
            let known = generated::FORMS.iter().any(|form| form.symbol == symbol);
            assert!(known, "{symbol}");
            assert!(seen.insert(symbol), "{symbol} twice");
        }
    }

    #[test]
    fn versions_and_streams_choose_forms() {
        let symbol = |name, version, per_thread| match resolve(name, version, per_thread) {
            Found::Function(found) => all_exported().find(|s| exported(s) == Some(found)),
            _ => None,
        };
        assert_eq!(symbol("cuMemcpyHtoD", 12000, false), Some("cuMemcpyHtoD_v2"));
        assert_eq!(symbol("cuMemcpyHtoD", 12000, true), Some("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(symbol("cuMemAlloc", 12000, true), Some("cuMemAlloc_v2"));
        assert_eq!(symbol("cuGetProcAddress", 11030, false), Some("cuGetProcAddress"));
        assert_eq!(resolve("cuMemcpyHtoD", 3020, true), Found::TooOld);
        assert_eq!(resolve("cuMemcpyHtoD_v2", 12000, false), Found::Unknown);
    }

    #[test]
    fn missing_functions_have_addresses_of_their_own() {
        let addresses: std::collections::BTreeSet<usize> =
            generated::FORMS.iter().map(|form| form.missing as *const () as usize).collect();
        assert_eq!(addresses.len(), generated::FORMS.len());
    }
}
