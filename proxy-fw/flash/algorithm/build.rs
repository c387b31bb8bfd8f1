//! Tells the linker where the programs lie.

use std::path::PathBuf;

/// Programs, and where board files load them: above the beginning of a memory that works as soon as the
/// board is reset, since probe-rs puts two breakpoints before them and reads the word before those.
const PROGRAMS: [(&str, u32); 2] = [("flash-qemu-virt", 0x8000_0100), ("flash-litex", 0x9000_0100)];

fn main() {
    println!("cargo:rerun-if-changed=algorithm.x");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says it"));
    std::fs::write(folder.join("algorithm.x"), include_bytes!("algorithm.x"))
        .expect("it is cargo's");
    println!("cargo:rustc-link-search={}", folder.display());
    println!("cargo:rustc-link-arg-bins=-Talgorithm.x");
    for (program, start) in PROGRAMS {
        println!("cargo:rustc-link-arg-bin={program}=--defsym=algorithm_start={start:#x}");
    }
}
