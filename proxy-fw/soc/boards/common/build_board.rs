//! What boards' builds have in common: the keys that a boot loader is given, and the linker's scripts.

use std::path::PathBuf;

/// The trusted keys, when `DXPU_TRUSTED_KEYS` names no others.
const DEVELOPMENT: &str = "1:../../../flash/keys/development.pub";

/// Writes the trusted keys for the boot loader's source (`keys.rs`), and tells the linker where the
/// board's memory is: for these programs of firmware, and for the boot loader.
///
/// # Panics
///
/// When something is not there: so a build fails.
pub(crate) fn build(firmware: &[&str], boot_loader: &str) {
    // A folder of this build's own: a target folder may outlive the sources' place.
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says it"));
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("it is cargo's own folder");
    };
    println!("cargo:rerun-if-env-changed=DXPU_TRUSTED_KEYS");
    let said = std::env::var("DXPU_TRUSTED_KEYS");
    write("keys.rs", &source(said.as_deref().unwrap_or(DEVELOPMENT)));
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    println!("cargo:rustc-link-search={}", folder.display());
    let own = ["memory.x", "boot-memory.x"].map(|name| (name, name.to_owned()));
    let common = [("boot.x", "../common/boot.x".to_owned())];
    for (name, path) in own.into_iter().chain(common) {
        println!("cargo:rerun-if-changed={path}");
        write(name, &std::fs::read_to_string(path).expect("it is in the package"));
    }
    let link = |program: &str, scripts: &[&str]| {
        for script in scripts {
            println!("cargo:rustc-link-arg-bin={program}=-T{script}");
        }
    };
    for program in firmware {
        link(program, &["memory.x", "link.x", "defmt.x"]);
    }
    link(boot_loader, &["boot-memory.x", "boot.x"]);
}

/// Keys as Rust's source, from `NUMBER:KEY`, one after the other with commas. A key is its 64
/// hexadecimal digits, or a file that has them.
///
/// # Panics
///
/// When one is something else: so a build fails.
pub(crate) fn source(said: &str) -> String {
    let keys: String = said
        .split(',')
        .map(|said| match trusted_key(said) {
            Ok((number, key)) => {
                format!("    TrustedKey {{ id: KeyId({number}), key: {key:?} }},\n")
            }
            Err(why) => panic!("DXPU_TRUSTED_KEYS has `{said}`: {why}"),
        })
        .collect();
    format!("&[\n{keys}]\n")
}

fn trusted_key(said: &str) -> Result<(u32, [u8; 32]), String> {
    let (number, key) = said.split_once(':').ok_or("say NUMBER:KEY")?;
    let number: u32 = number.parse().map_err(|_| "its number is none")?;
    if number == 0 {
        return Err("0 is the number of no key".into());
    }
    if let Some(key) = digits(key) {
        return Ok((number, key));
    }
    println!("cargo:rerun-if-changed={key}");
    let text = std::fs::read_to_string(key).map_err(|error| {
        let folder = std::env::current_dir().unwrap_or_default();
        format!(
            "{key} cannot be read from {}: {error}; give the 64 digits of the key or the file's whole \
             name, or build with `cargo xtask firmware`",
            folder.display()
        )
    })?;
    let key = digits(text.trim()).ok_or(
        "the file has not the 64 hexadecimal digits of a public key, as `dxpu-flash image keygen` writes \
         them; of other files `cargo xtask firmware` takes the digits",
    )?;
    Ok((number, key))
}

fn digits(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect();
    bytes.try_into().ok()
}
