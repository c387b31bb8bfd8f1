//! The functions of the driver, as C calls them.

mod context;
pub(crate) mod control;
mod copy;
mod device;
mod event;
mod graph;
mod graph_nodes;
mod launch;
mod memory;
mod module;
mod occupancy;
mod pool;
mod resolve;
mod set;
mod stream;

/// A symbol of the driver and its function.
pub(crate) struct Export {
    symbol: &'static str,
    function: *const (),
}

// SAFETY: an address of code, which nothing changes.
unsafe impl Sync for Export {}

/// The function that the stand-in has for a symbol.
pub(crate) fn exported(symbol: &str) -> Option<*const ()> {
    exports().find(|export| export.symbol == symbol).map(|export| export.function)
}

/// Every symbol that the stand-in has.
#[cfg(test)]
pub(crate) fn all_exported() -> impl Iterator<Item = &'static str> {
    exports().map(|export| export.symbol)
}

fn exports() -> impl Iterator<Item = &'static Export> {
    [
        context::EXPORTS,
        copy::EXPORTS,
        device::EXPORTS,
        event::EXPORTS,
        graph::EXPORTS,
        graph_nodes::EXPORTS,
        launch::EXPORTS,
        memory::EXPORTS,
        module::EXPORTS,
        occupancy::EXPORTS,
        pool::EXPORTS,
        resolve::EXPORTS,
        set::EXPORTS,
        stream::EXPORTS,
    ]
    .into_iter()
    .flatten()
}

/// Functions of the driver: the sort of call, other forms with the same parameters, the symbol, the
/// parameters behind the call, and the body, which answers.
macro_rules! driver_functions {
    ($($(#[$doc:meta])* $sort:ident $([$($other:ident)*])? fn $symbol:ident $parameters:tt $body:block)*) => {
        mod bodies {
            use super::*;
            $(crate::api::body!($(#[$doc])* $symbol $parameters $body);)*
        }
        $(
            crate::api::function!($sort $symbol $symbol $parameters);
            $($(crate::api::function!($sort $other $symbol $parameters);)*)?
        )*
        /// The functions of this file.
        pub(super) const EXPORTS: &[crate::api::Export] = &[$(
            crate::api::Export { symbol: stringify!($symbol), function: $symbol as *const () },
            $($(crate::api::Export { symbol: stringify!($other), function: $other as *const () },)*)?
        )*];
    };
}

macro_rules! body {
    ($(#[$doc:meta])* $symbol:ident ($call:ident $(, $name:ident: $type:ty)* $(,)?) $body:block) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "named as the driver's function")]
        #[allow(clippy::too_many_arguments, reason = "those of the driver's function")]
        pub(super) fn $symbol($call: &mut crate::call::Call $(, $name: $type)*) -> Answer $body
    };
}

macro_rules! function {
    ($sort:ident $symbol:ident $body:ident ($call:ident $(, $name:ident: $type:ty)* $(,)?)) => {
        // SAFETY: the name is the driver's, which this library stands in for.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "named as the driver's function")]
        #[allow(clippy::too_many_arguments, reason = "those of the driver's function")]
        extern "C" fn $symbol($($name: $type),*) -> i32 {
            let sort = crate::call::Sort::$sort;
            crate::call::enter(stringify!($symbol), sort, |call| bodies::$body(call $(, $name)*))
        }
    };
}

pub(crate) use {body, driver_functions, function};
