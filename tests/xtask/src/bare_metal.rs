//! The crates that a card's programs are made of, built for a soft core without an operating
//! system, and how large their code is there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::report::Done;
use crate::sections::Sizes;
use crate::tools::{cargo, output, run, target_dir};

/// 32-bit RISC-V with multiplication, atomics and compressed instructions.
pub(crate) const TARGET: &str = "riscv32imac-unknown-none-elf";

const PACKAGES: [&str; 3] = ["tlp-codec", "proxy-core", "card-image"];

/// Where Debian's `cargo-web` and `rustc-web` live, and the source of the standard library that
/// `rust-web-src` adds.
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// Says why nothing can be built.
pub(crate) fn no_toolchain() -> Done {
    Done::skipped(format!(
        "this Rust cannot build for {TARGET}: run `rustup target add {TARGET}`, or on a Debian whose \
         Rust is {} or later `apt-get install cargo-web rustc-web rust-web-src`",
        env!("CARGO_PKG_RUST_VERSION")
    ))
}

/// Where everything for the target goes.
pub(crate) fn bare_target_dir() -> PathBuf {
    target_dir().join("bare-metal")
}

/// Builds the flash algorithms; the folder that they are in.
pub(crate) fn flash_algorithms() -> Result<Option<PathBuf>> {
    let Some(toolchain) = Toolchain::find()? else { return Ok(None) };
    let target_dir = bare_target_dir();
    let mut command = toolchain.build(&target_dir);
    command.args(["--profile", "card", "-p", "flash-algorithm", "--bins"]);
    run(&mut command).context("the flash algorithms do not build")?;
    Ok(Some(target_dir.join(TARGET).join("card")))
}

/// Builds the crates and prints their sizes.
pub(crate) fn build() -> Result<Done> {
    let Some(toolchain) = Toolchain::find()? else { return Ok(no_toolchain()) };
    let target_dir = bare_target_dir();
    for package in PACKAGES {
        run(&mut toolchain.build_library(package, &target_dir))
            .with_context(|| format!("{package} does not build for {TARGET}"))?;
    }
    println!("code of each crate before linking, generic code that nothing here uses left out:");
    let mut total = Sizes::default();
    for package in PACKAGES {
        let sizes = archive_sizes(&target_dir, package)?;
        let Sizes { text, rodata, data } = sizes;
        println!("{package:12} {text:7} B code, {rodata:7} B constants, {data:3} B variables");
        total.text += text;
        total.rodata += rodata;
        if data > variables(package) {
            bail!("{package} has {data} B of variables: all state belongs in the caller's objects");
        }
    }
    let Sizes { text, rodata, .. } = total;
    Ok(Done::with(format!("{text} B code, {rodata} B constants, by {}", toolchain.name())))
}

/// Bytes of variables that a library may have. Those of the codec are its CRCs' tables, which follow
/// from constants and are no state: memory has more room for them than flash.
fn variables(package: &str) -> u64 {
    if package == "tlp-codec" { 2 * 4 * 1024 } else { 0 }
}

/// A compiler for the target.
pub(crate) enum Toolchain {
    /// The one that runs this; it has the target's library.
    Installed,
    /// Debian's packages, which build the target's library from source.
    Debian,
}

/// Names the linker for the target to cargo.
const LINKER: &str = "CARGO_TARGET_RISCV32IMAC_UNKNOWN_NONE_ELF_LINKER";

impl Toolchain {
    pub(crate) fn find() -> Result<Option<Self>> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let libraries =
            output(Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]))?;
        let has_core = std::fs::read_dir(libraries.trim()).is_ok_and(|mut files| {
            files.any(|file| {
                file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with("libcore-"))
            })
        });
        if has_core {
            return Ok(Some(Self::Installed));
        }
        let debian = Path::new(DEBIAN_CARGO).exists() && Path::new(DEBIAN_RUSTC).exists();
        if !debian {
            return Ok(None);
        }
        let root = output(Command::new(DEBIAN_RUSTC).args(["--print", "sysroot"]))?;
        let source = Path::new(root.trim()).join("lib/rustlib/src/rust/library/core");
        let version = output(Command::new(DEBIAN_RUSTC).arg("--version"))?;
        Ok((source.exists() && is_recent(&version)).then_some(Self::Debian))
    }

    /// What the compiler says that it is.
    pub(crate) fn compiler(&self) -> Result<String> {
        let rustc = match self {
            Self::Installed => std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()),
            Self::Debian => DEBIAN_RUSTC.into(),
        };
        Ok(output(Command::new(rustc).arg("--version"))?.trim().to_owned())
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Installed => "the installed toolchain",
            Self::Debian => "Debian's toolchain",
        }
    }

    /// The command that builds something for the target.
    pub(crate) fn build(&self, target_dir: &Path) -> Command {
        let mut command = match self {
            Self::Installed => cargo(&[]),
            Self::Debian => {
                let mut command = Command::new(DEBIAN_CARGO);
                command.current_dir(crate::tools::root());
                // The library is built from source, which a released compiler does only with this.
                command.env("RUSTC_BOOTSTRAP", "1").env("RUSTC", DEBIAN_RUSTC);
                command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
                if let Some(linker) = linker() {
                    command.env(LINKER, linker);
                }
                command
            }
        };
        command.args(["build", "--target", TARGET]).arg("--target-dir").arg(target_dir);
        if let Self::Debian = self {
            command.args(["-Zbuild-std=core,alloc", "-Zbuild-std-features=compiler-builtins-mem"]);
        }
        command
    }

    /// The command that builds a library, optimised for size as firmware is.
    fn build_library(&self, package: &str, target_dir: &Path) -> Command {
        let mut command = self.build(target_dir);
        command.args(["--release", "--lib", "--no-default-features", "-p", package]);
        // Link-time optimisation would leave no machine code in the archives to measure.
        for setting in
            ["opt-level='s'", "lto='off'", "codegen-units=1", "debug=false", "panic='abort'"]
        {
            command.args(["--config", &format!("profile.release.{setting}")]);
        }
        command
    }
}

/// Whether a compiler that says this of itself takes the workspace. Debian's may be years old.
fn is_recent(version: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        text.split(['.', '-']).map_while(|part| part.parse().ok()).collect()
    };
    let said = version.split_whitespace().nth(1).map(numbers);
    said.is_some_and(|said| said >= numbers(env!("CARGO_PKG_RUST_VERSION")))
}

/// The linker for the target where Debian's packages leave it out, as a link to what is not there:
/// that of the toolchain that runs this.
fn linker() -> Option<PathBuf> {
    const NAME: &str = "rust-lld";
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(NAME).exists()) {
        return None;
    }
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let folder = output(Command::new(rustc).args(["--print", "target-libdir"])).ok()?;
    let linker = Path::new(folder.trim()).parent()?.join("bin").join(NAME);
    linker.exists().then_some(linker)
}

fn archive_sizes(target_dir: &Path, package: &str) -> Result<Sizes> {
    let name = format!("lib{}.rlib", package.replace('-', "_"));
    let path: PathBuf = target_dir.join(TARGET).join("release").join(name);
    let bytes = std::fs::read(&path).with_context(|| format!("{} is missing", path.display()))?;
    Sizes::of_archive(&bytes).with_context(|| format!("{} cannot be read", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_compiler_is_not_taken() {
        let own = env!("CARGO_PKG_RUST_VERSION");
        assert!(is_recent(&format!(
            "rustc {own}.0 (abc 2025-01-01) (built from a source tarball)"
        )));
        assert!(is_recent("rustc 2.0.0"));
        for old in ["rustc 1.85.0 (4d91de4e4 2025-02-17)", "rustc 1.9.0", "rustc", ""] {
            assert!(!is_recent(old), "{old}");
        }
    }
}
