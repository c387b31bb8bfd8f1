//! Traces of GPU programs: what the GPUs did, and which call of which CPU thread asked for it.
//!
//! Three kinds of file are read ([`Format`]): Chrome JSON of PyTorch's profiler (Kineto), SQLite
//! exports of Nsight Systems, and plain CSV (docs/predict.md). All become one [`Trace`].

mod builder;
mod call;
mod csv;
mod error;
mod json;
mod kineto;
mod model;
mod names;
mod nsys;
mod select;
mod source;
mod streams;
#[cfg(test)]
mod unit_tests;

pub use call::{CallKind, Scope};
pub use error::{Place, ReadError};
pub use model::{
    Call, CallId, Device, DeviceId, Direction, Event, Memory, NameId, Notes, Operation,
    OperationKind, ProcessId, Step, Stream, StreamId, Target, Thread, ThreadId, Trace, Wait,
};
pub use names::Names;
pub use source::{Format, Options, read_file, read_text};
