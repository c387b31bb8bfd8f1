//! `libdxpu_perf.so`: makes a CUDA program's GPU as far away as a disaggregated one.
//!
//! It is loaded before a program (`LD_PRELOAD`), stands before the functions of the driver that
//! move data, start work or wait for it, and adds to each the time that [`perf_core::Settings`]
//! says. A program reaches the driver in four ways: linked to it, by `dlsym`, by
//! `cuGetProcAddress`, and by the runtime's `cudaGetDriverEntryPoint`, which is the third. Each is
//! caught once. Programs that use no CUDA are left as they are.
//!
//! `perf-model/docs/shim.md` says what is hooked, what it costs and what it does not see.

mod arch;
mod call;
mod captures;
mod copies;
mod delay;
mod devices;
mod driver;
mod graphs;
mod injection;
mod kernels;
mod ledger;
mod mapped;
mod prefetch;
mod push;
mod real;
mod resolve;
mod session;
mod table;
mod waits;
mod work;
