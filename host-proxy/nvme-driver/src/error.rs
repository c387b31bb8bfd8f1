//! What can go wrong with a drive.

use crate::command::Opcode;
use crate::function::FunctionError;
use crate::status::Status;
use std::time::Duration;

/// Why an operation on a drive failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine or the link below the driver.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The controller ended a command with an error.
    #[error("{opcode} failed: {status}")]
    Command {
        /// The command.
        opcode: Opcode,
        /// Its status.
        status: Status,
    },
    /// A command did not complete. Its memory stays the device's until the controller is reset.
    #[error("{opcode} did not complete within {waited:?}; reset the controller to recover")]
    Timeout {
        /// The command.
        opcode: Opcode,
        /// How long the driver waited.
        waited: Duration,
    },
    /// The controller did not become ready, not ready, or shut down in time.
    #[error("the controller did not {what} within {waited:?} (CSTS is {csts:#010x})")]
    NotReady {
        /// `become ready`, `become idle` or `shut down`.
        what: &'static str,
        /// How long the driver waited.
        waited: Duration,
        /// Controller Status as last read.
        csts: u32,
    },
    /// CSTS.CFS is set.
    #[error("the controller reports a fatal error (CSTS is {csts:#010x}); reset it")]
    Fatal {
        /// Controller Status.
        csts: u32,
    },
    /// The controller does not follow the specification, or lacks what the driver needs.
    #[error("the controller cannot be used: {0}")]
    Unusable(String),
    /// Every entry of the queue is in use.
    #[error("queue {0} is full; wait for a completion first")]
    QueueFull(u16),
    /// The caller asked for something that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// The controller has no further queue.
    #[error("the controller has {0} I/O queues and all are in use; delete one first")]
    NoQueues(u16),
    /// The stream that data came from or went to.
    #[error("the stream failed: {0}")]
    Stream(#[from] std::io::Error),
}

impl Error {
    /// Whether the device is gone, so that nothing but forgetting it helps.
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::Function(FunctionError::Gone))
    }
}
