//! Links the shim so that its own functions are its own to it: another library that wraps the driver
//! may come before it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
