//! A trace, played again with what a fabric adds.
//!
//! CPU threads make their calls with the trace's own gaps between them; what they ask for goes
//! through streams, which are queues; each operation takes what it took, and what the fabric adds
//! to it ([`perf_core::Settings::extra`]). What was hidden behind a busy GPU or a slow CPU stays
//! hidden: each thing begins when the last of what it waits for is there.
//!
//! [`Graph`] holds, for each point in time of the trace, what it waited for and how long after that
//! it came; `docs/predict.md` says how that is told from a trace. Played without anything added,
//! each point comes when it came.

mod build;
mod graph;
mod handover;
mod lost;
mod play;
mod queue;
mod typical;
mod untraced;

#[cfg(test)]
mod unit_tests;

pub use graph::Graph;
pub use lost::{Cause, Lost, LostBy};
pub use perf_core::Proxies;
pub use play::{Played, Scenario};
pub use untraced::Untraced;
