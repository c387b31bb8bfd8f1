//! What the fuzzer runs: for each target a function of any bytes that must not panic.
//!
//! `libfuzzer/` has a program for each (cargo-fuzz, nightly Rust); `corpus/` what it found worth
//! keeping, which `tests/corpus.rs` replays with any Rust. `cargo xtask fuzz` runs them.

#![forbid(unsafe_code)]

mod emit;
mod input;
mod pair;
mod pool;

pub mod api;
pub mod boot;
pub mod cli;
pub mod control;
pub mod frame;
pub mod image;
pub mod link;
pub mod link_bytes;
pub mod manager_control;
pub mod nvme;
pub mod records;
pub mod slot;
pub mod socket;
pub mod switch;
pub mod tlp;
pub mod trace;
pub mod vfio_user;

/// A function that takes any bytes and panics where a promise is broken.
pub type Target = fn(&[u8]);

/// Every target with its name, which its program and its corpus have, too.
pub const TARGETS: &[(&str, Target)] = &[
    ("api", api::run),
    ("boot", boot::run),
    ("cli", cli::run),
    ("control", control::run),
    ("frame", frame::run),
    ("image", image::run),
    ("link", link::run),
    ("link_bytes", link_bytes::run),
    ("manager_control", manager_control::run),
    ("nvme", nvme::run),
    ("records", records::run),
    ("slot", slot::run),
    ("socket", socket::run),
    ("switch", switch::run),
    ("tlp", tlp::run),
    ("trace", trace::run),
    ("vfio_user", vfio_user::run),
];
