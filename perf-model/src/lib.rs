//! What disaggregation would cost a CUDA workload.
//!
//! `dxpu-perf` is the command; `docs/` beside this crate says how the model works
//! (`model.md`) and how well it does (`paper.md`).

pub mod calibrate;
pub mod commands;
pub mod launch;
pub mod paper;
pub mod predict;
pub mod profile;
pub mod quantity;
pub mod replay;
pub mod report;
mod signals;
pub mod sweep;
pub mod table;
pub mod trace;

pub use commands::{Args, run};
