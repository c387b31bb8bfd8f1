//! A person's (or a script's) hand on the model host: commands over a Unix socket, which
//! `dxpu-host` sends. One JSON object a line each way.

mod bandwidth;
pub mod exec;
pub mod protocol;
pub mod server;

use host_model::{AccessError, ModelHost};
use std::time::Instant;
use tracing::info;

/// A root port that counts what passes.
pub trait CountingPort: host_model::TlpPort {
    /// What it counted, by name.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// Whether what is below has begun anew since this was asked last, as after a hot reset: it knows nothing
    /// of what was enumerated.
    fn began_anew(&mut self) -> bool {
        false
    }
}

/// Enumerates, again where what is below begins anew meanwhile.
///
/// # Errors
///
/// As [`ModelHost::enumerate`].
pub(crate) fn enumerate(host: &mut ModelHost<impl CountingPort>) -> Result<(), AccessError> {
    loop {
        let enumerated = host.enumerate();
        if !host.root_mut().port_mut().began_anew() {
            return enumerated;
        }
    }
}

/// Serves until `deadline`, or until there is an event to poll. Where what is below the root port has begun
/// anew, the functions of before are gone, and it is enumerated first.
///
/// # Errors
///
/// As [`ModelHost::enumerate`], or the port's.
pub(crate) fn serve(
    host: &mut ModelHost<impl CountingPort>,
    deadline: Instant,
) -> Result<(), AccessError> {
    if host.root_mut().port_mut().began_anew() {
        info!("what is below the root port has begun anew");
        enumerate(host)?;
    }
    Ok(host.service(deadline)?)
}
