//! Tells the linker where the machine's memory is, and the boot loader which keys it trusts.

use std::path::{Path, PathBuf};

/// The trusted keys, when `DXPU_TRUSTED_KEYS` names no others.
const DEVELOPMENT: &str = "1:../../../flash/keys/development.pub";

fn main() {
    // A folder of this build's own: a target folder may outlive the sources' place.
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says it"));
    println!("cargo:rerun-if-env-changed=DXPU_TRUSTED_KEYS");
    let said = std::env::var("DXPU_TRUSTED_KEYS");
    write(&folder, "keys.rs", &trusted_keys(said.as_deref().unwrap_or(DEVELOPMENT)));
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

/// Keys as Rust's source, from `NUMBER:FILE`, one after the other with commas.
fn trusted_keys(said: &str) -> String {
    let keys: String = said
        .split(',')
        .map(|said| match trusted_key(said) {
            Ok((number, key)) => {
                format!("    TrustedKey {{ id: KeyId({number}), key: {key:?} }},\n")
            }
            Err(why) => panic!("the trusted key `{said}`: {why}"),
        })
        .collect();
    format!("&[\n{keys}]\n")
}

fn trusted_key(said: &str) -> Result<(u32, [u8; 32]), String> {
    let (number, path) = said.split_once(':').ok_or("say NUMBER:FILE")?;
    let number: u32 = number.parse().map_err(|_| "its number is none")?;
    if number == 0 {
        return Err("0 is the number of no key".into());
    }
    println!("cargo:rerun-if-changed={path}");
    let digits = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let digits: Option<Vec<u32>> = digits.trim().chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.ok_or("the file has other things than hexadecimal digits")?;
    let (pairs, []) = digits.as_chunks::<2>() else { return Err("an odd number of digits".into()) };
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect();
    Ok((number, bytes.try_into().map_err(|_| "a public key has 64 digits")?))
}
