//! A model of a host that acts as an operating system would, using only TLPs.
//!
//! Below it is one seam, [`TlpPort`]; above it [`ModelHost`]: root complex and host memory
//! ([`root`], [`memory`], [`interrupts`]), enumeration with room for hot-plug ([`topology`]),
//! hot-plug service after Linux's pciehp, drivers for NVMe drives and the measuring
//! [`accelerator`], and [`operations`] for people.
//!
//! Nothing here has a thread or sleeps: every wait turns [`TlpPort::recv`], so that devices' DMA
//! is served meanwhile.

pub mod accelerator;
mod config;
mod counters;
mod drivers;
mod enumerate;
mod error;
mod host;
mod hotplug;
pub mod interrupts;
mod latency;
pub mod memory;
pub mod operations;
mod port;
pub mod regs;
mod report;
pub mod root;
pub mod topology;

pub use config::{ConfigError, HostConfig, HotPlugConfig};
pub use counters::Counters;
pub use enumerate::Problem;
pub use error::{Access, AccessError};
pub use host::{EVENTS, HostEvent, HostFunction, ModelHost};
pub use hotplug::SlotState;
pub use latency::LatencyReport;
pub use operations::{MAX_OUTSTANDING, NvmeReport, OperationError, StreamOptions, StreamReport};
pub use port::{PortError, TlpPort};
pub use report::{Tree, TreeBar, TreeBridge, TreeNode};
