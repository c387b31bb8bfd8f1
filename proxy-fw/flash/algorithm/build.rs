//! Tells the linker where the programs lie.

use std::path::PathBuf;

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
}
