//! Programs that use CUDA.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{StandIn, profile_folder};

/// How a C program gets to the driver's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// It is linked with the driver.
    Elf,
    /// `dlsym`, of a driver that is loaded locally.
    Dlsym,
    /// `cuGetProcAddress`, with the legacy default stream.
    Resolver,
    /// `cuGetProcAddress`, with each thread's own default stream.
    Own,
}

impl Binding {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Elf, Self::Dlsym, Self::Resolver, Self::Own];

    fn name(self) -> &'static str {
        match self {
            Self::Elf => "ELF",
            Self::Dlsym => "DLSYM",
            Self::Resolver => "RESOLVER",
            Self::Own => "OWN",
        }
    }
}

/// Compiles a program of `tests/cuda/clients`, named without `.c`, to the stand-in's folder.
///
/// # Errors
///
/// When `cc` does not run or refuses it: with what it says.
pub fn compile(stand_in: &StandIn, name: &str, binding: Binding) -> Result<PathBuf> {
    build(stand_in, name, binding, &[])
}

/// Compiles a program as a library that is linked with the driver, for the program `plugin` to load.
///
/// # Errors
///
/// As [`compile`].
pub fn compile_plugin(stand_in: &StandIn, name: &str) -> Result<PathBuf> {
    build(stand_in, name, Binding::Elf, &["-shared", "-fPIC"])
}

/// The path of a file in `tests/cuda/clients`.
pub fn client(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(file)
}

fn build(stand_in: &StandIn, name: &str, binding: Binding, more: &[&str]) -> Result<PathBuf> {
    let source = client(&format!("{name}.c"));
    let program = stand_in.folder().join(format!("{name}-{}{}", binding.name(), more.concat()));
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(more);
    command.arg(format!("-DBINDING={}", binding.name()));
    command.arg(source).arg("-o").arg(&program);
    if binding == Binding::Elf {
        command.arg("-L").arg(stand_in.folder()).arg("-lcuda");
    }
    command.arg("-ldl");
    let output = command.output().context("the C compiler `cc` does not start")?;
    if !output.status.success() {
        bail!("{name}.c: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(program)
}

/// The Python of an installed set of packages: a file in `tests/cuda/requirements`, without `.txt`.
///
/// # Errors
///
/// Where it is not installed: with what to do, for a test to say why it is skipped.
pub fn python(name: &str) -> Result<PathBuf, String> {
    let python = installed()?.join(name).join("python");
    if !python.join("installed.txt").exists() {
        return Err(format!("{name} is not installed: cargo xtask cuda-clients"));
    }
    Ok(python.join("bin/python"))
}

/// NVIDIA's own driver, as Debian has it, to compare resolvers with. There is no GPU for it.
///
/// # Errors
///
/// Where it is not there: with what to do, for a test to say why it is skipped.
pub fn oracle() -> Result<PathBuf, String> {
    let library = installed()?.join("oracle/libcuda.so.1");
    if !library.exists() {
        return Err("Debian's libcuda1 is not there: cargo xtask cuda-clients".to_owned());
    }
    Ok(library)
}

/// NVIDIA's runtimes, of the packages that the hook table's headers are in.
///
/// # Errors
///
/// Where they are not there: with what to do, for a test to say why it is skipped.
pub fn runtimes() -> Result<Vec<PathBuf>, String> {
    let packages = target()?.join("cuda-headers/python/lib");
    let mut found = Vec::new();
    let mut folders = vec![packages];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("libcudart.so.") {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    found.sort();
    if found.is_empty() {
        return Err("NVIDIA's runtime is not there: cargo xtask cuda-hooks --check".to_owned());
    }
    Ok(found)
}

fn installed() -> Result<PathBuf, String> {
    Ok(target()?.join("cuda-clients"))
}

/// The target folder.
fn target() -> Result<PathBuf, String> {
    let folder = profile_folder().map_err(|error| error.to_string())?;
    let target = folder.parent().ok_or("the profile's folder is below the target folder")?;
    Ok(target.to_owned())
}
