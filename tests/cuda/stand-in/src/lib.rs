//! A stand-in for NVIDIA's CUDA driver, `libcuda.so.1`, for tests.
//!
//! It has contexts, modules, streams, events, memory, copies, memsets, graphs, host callbacks and
//! the driver's resolver. Device memory is memory of the host, and copies copy it; kernels are
//! names that last for a time, and compute nothing.
//!
//! **Time is virtual.** Nothing depends on a real clock: each thread has a clock of its own that
//! only its calls move on, and each stream knows when its work ends (`schedule`). What a program
//! does therefore takes the same time on every machine, to the nanosecond.
//!
//! **Work is done when it is asked for**: bytes are copied and callbacks called before the call
//! returns, though the timeline says that they were later. Every order that a program can rely on
//! is kept so, since an event is recorded before a stream can wait for it.
//!
//! Environment: `STAND_IN` has settings (`settings`), `STAND_IN_LOG` names a file for a line for
//! each call, `STAND_IN_TIMELINE` one for the timeline as CSV (`record`). Functions for tests are
//! exported with names that begin with `standIn` (`api::control`).

mod api;
mod call;
mod copy;
mod driver;
mod ffi;
mod graph;
mod memory;
mod names;
mod record;
mod schedule;
mod settings;
mod status;
