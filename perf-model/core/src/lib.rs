//! What a fabric between host and GPU costs a CUDA program.
//!
//! One definition for the shim that injects the cost into a running program and for the predictor
//! that adds it to a trace: [`Fabric`] says what each kind of operation takes longer, [`Settings`]
//! is what `dxpu-perf run` tells the shim in an environment variable, and [`Ledger`] is what the
//! shim counts in a file that is mapped, so that a program that is killed still leaves its counts.
//!
//! Sources: DxPU (He et al., *DxPU: Large Scale Disaggregated GPU Pools in the Datacenter*, 2023),
//! sections 3.4 and 5.1; `perf-model/docs/model.md` says where this goes past it.

#![forbid(unsafe_code)]

#[cfg(test)]
mod delay_tests;
mod fabric;
mod histogram;
mod kind;
mod ledger;
pub mod ptx;
mod settings;
#[cfg(test)]
mod tests;

pub use fabric::{BytesPerSecond, Fabric, FabricError, Nanos, ReadSize, Tags, Thousandths};
pub use histogram::{Bin, Histogram, SHORT};
pub use kind::{Kind, KindSet, STAGED_AT_ONCE};
pub use ledger::{Fact, Ledger, LedgerError, Row, Text, WORDS};
pub use settings::{
    BYPASS_VARIABLE, Graphs, LEDGER_VARIABLE, Place, Proxies, PushCopies, Range, Settings,
    SettingsError, VARIABLE,
};
