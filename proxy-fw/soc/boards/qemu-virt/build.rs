//! Tells the linker where the machine's memory is, and the boot loader which keys it trusts.

mod trusted_keys;

use std::path::{Path, PathBuf};

/// The trusted keys, when `DXPU_TRUSTED_KEYS` names no others.
const DEVELOPMENT: &str = "1:../../../flash/keys/development.pub";

fn main() {
    // A folder of this build's own: a target folder may outlive the sources' place.
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says it"));
    println!("cargo:rerun-if-changed=trusted_keys.rs");
    println!("cargo:rerun-if-env-changed=DXPU_TRUSTED_KEYS");
    let said = std::env::var("DXPU_TRUSTED_KEYS");
    write(&folder, "keys.rs", &trusted_keys::source(said.as_deref().unwrap_or(DEVELOPMENT)));
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    println!("cargo:rustc-link-search={}", folder.display());
    for script in ["memory.x", "boot.x"] {
        println!("cargo:rerun-if-changed={script}");
        write(&folder, script, &std::fs::read_to_string(script).expect("it is in the package"));
    }
    for firmware in ["fw-box", "fw-host"] {
        for script in ["memory.x", "link.x", "defmt.x"] {
            println!("cargo:rustc-link-arg-bin={firmware}=-T{script}");
        }
    }
    println!("cargo:rustc-link-arg-bin=boot=-Tboot.x");
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("it is cargo's own folder");
}
