//! The time of day.

use crate::types::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What tells the time of day.
#[derive(Clone, Debug, Default)]
pub enum WallClock {
    /// The computer's clock.
    #[default]
    Computer,
    /// Whoever sets it, in milliseconds of Unix time: a simulation, whose time is its own and whose
    /// clocks jump when it wants.
    Told(Arc<AtomicU64>),
}

impl WallClock {
    /// What it is now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::Computer => Timestamp::now(),
            Self::Told(millis) => Timestamp::from_millis(millis.load(Relaxed)),
        }
    }
}
