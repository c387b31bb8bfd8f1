//! The whole program, run as its users run it, against proxies that pretend ([`common::fake`]).

#![allow(unreachable_pub, reason = "modules of one test binary")]

mod api;
mod audit;
mod cli;
mod common;
mod conventions;
mod exits;
mod fields;
mod firmware;
mod going_back;
mod handshake;
mod lending;
mod lies;
mod placement;
mod recorder;
mod slow;
mod store;
mod store_faults;
mod store_mended;
mod waiting;
