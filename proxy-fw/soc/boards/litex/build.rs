//! Tells the linker where the SoC's memory is.

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=memory.x");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    // A folder of this build's own: a target folder may outlive the sources' place.
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says it"));
    std::fs::copy("memory.x", folder.join("memory.x")).expect("it is in the package");
    println!("cargo:rustc-link-search={}", folder.display());
    for script in ["memory.x", "link.x", "defmt.x"] {
        println!("cargo:rustc-link-arg-bins=-T{script}");
    }
}
