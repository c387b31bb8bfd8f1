//! The fuzzer's own loop over one target, by the name in `FUZZ_TARGET`: what `cargo xtask ci` runs
//! for some seconds each, since one program with any Rust compiles sooner than those of `libfuzzer/`.
//! It gets somewhere only where the code under it counts where it was, which xtask sees to.

#![no_main]

use fuzz_targets::{TARGETS, Target};
use std::sync::LazyLock;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    let Some((_, target)) = found else {
        let known: Vec<_> = TARGETS.iter().map(|(known, _)| *known).collect();
        panic!("FUZZ_TARGET is `{name}`, and not one of: {}", known.join(", "));
    };
    *target
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
