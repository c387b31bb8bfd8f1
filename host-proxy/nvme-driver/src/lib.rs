//! A small NVMe driver library over an abstract PCIe function.
//!
//! It follows NVM Express Base Specification, revision 1.4. Nothing here owns the function that it
//! drives: every call takes a [`PciFunction`], so that a [`QueuePair`] can be used through another
//! function object than the [`Controller`] that created it (a drive whose queues are shared
//! between hosts: the lender runs the admin queue, each borrower its own queue pair).
//!
//! - [`function`]: what the driver needs from the machine: registers, DMA memory, interrupts, time;
//! - [`controller`]: bring-up, reset, shutdown; [`admin`]: the admin commands;
//! - [`queue`]: queue pairs; [`nvm`]: reads, writes and the other commands of the NVM set;
//! - [`stream`]: a stream of bytes to or from a namespace at a queue depth;
//! - [`identify`], [`log_page`], [`status`], [`command`], [`regs`]: data structures.
//!
//! The driver never sleeps and has no thread: it waits in [`PciFunction::wait`], and every wait
//! has a deadline.

pub mod admin;
pub mod command;
pub mod controller;
pub mod error;
pub mod function;
pub mod identify;
pub mod log_page;
pub mod nvm;
pub mod queue;
pub mod regs;
pub mod status;
pub mod stream;

pub use command::{Command, Opcode};
pub use controller::{Controller, ControllerConfig};
pub use error::Error;
pub use function::{DmaBuffer, FunctionError, PciFunction};
pub use identify::{IdentifyController, IdentifyNamespace};
pub use nvm::Namespace;
pub use queue::{CommandId, Completion, QueuePair};
pub use status::Status;
pub use stream::{BlockStream, Progress};
