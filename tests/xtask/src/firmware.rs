//! Cards' programs, as a flash has them: the emulated card's boot loader, and firmware of each board.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use card_image::{BoardName, KeyId, Role, SecurityVersion, public_key};
use dxpu_flash::image::keys::{read_public, read_secret};
use dxpu_flash::image::{Label, Program, Signer, from_elf, parse_version};

use crate::bare_metal::{TARGET, Toolchain, bare_target_dir, no_toolchain};
use crate::report::Done;
use crate::sections::Sizes;
use crate::tools::{root, run};

/// Code and constants that a card has room for, in bytes: of a firmware, and of the boot loader.
const FIRMWARE_BUDGET: u64 = 256 * 1024;
const BOOT_BUDGET: u64 = 64 * 1024;

/// Firmware, by the name of its program, and the board that it is for.
const FIRMWARE: [(&str, &str, Role); 4] = [
    ("fw-box", "qemu-virt", Role::Box),
    ("fw-host", "qemu-virt", Role::Host),
    ("litex-box", "litex", Role::Box),
    ("litex-host", "litex", Role::Host),
];

/// Builds boot loader and firmware, makes `boot.bin` and the images of them beside the programs,
/// and prints their sizes beside what a card has room for.
pub(crate) fn build() -> Result<Done> {
    let Some(toolchain) = Toolchain::find()? else { return Ok(no_toolchain()) };
    let key = SigningKey::find()?;
    let mut command = toolchain.build(&bare_target_dir());
    command.args(["--profile", "card", "-p", "board-qemu-virt", "-p", "board-litex"]);
    command.arg("--bins").arg("--config").arg(without_home(&cargo_home()?));
    // What is compiled in; the card's settings and the manager say what of it is logged.
    command.env("DEFMT_LOG", "debug");
    run(&mut command).context("the firmware does not build")?;
    let folder = folder();
    let mut details = Vec::new();
    let boot = program(&folder, "boot", BOOT_BUDGET, &mut details)?;
    write(&folder.join("boot.bin"), &boot.payload)?;
    for (name, board, role) in FIRMWARE {
        let program = self::program(&folder, name, FIRMWARE_BUDGET, &mut details)?;
        let signer = Signer { number: key.number, secret: &key.secret };
        let image = program.image(&label(board, role)?, Some(&signer))?;
        write(&folder.join(format!("{name}.img")), &image)?;
    }
    Ok(Done::with(details.join(", ")))
}

/// The setting by which places in the sources of libraries, of which panics tell, are told without
/// the folder that this computer has them in: shorter, and the same on every computer.
fn without_home(home: &Path) -> String {
    // A folder of each registry; where libraries are elsewhere, places are told as they are.
    let folders = std::fs::read_dir(home.join("registry").join("src"));
    let folders = folders.into_iter().flatten().flatten().map(|folder| folder.path());
    let flags = folders.map(|folder| format!("--remap-path-prefix={}/=", folder.display()));
    format!("target.{TARGET}.rustflags={:?}", flags.collect::<Vec<_>>())
}

/// Where cargo keeps the sources of libraries (The Cargo Book, "Cargo Home").
fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = std::env::home_dir().context("there is no home folder, nor CARGO_HOME")?;
    Ok(home.join(".cargo"))
}

/// Where they are.
pub(crate) fn folder() -> PathBuf {
    bare_target_dir().join(TARGET).join("card")
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// Reads a program that was built, and prints its size, which the budget bounds.
fn program(folder: &Path, name: &str, budget: u64, details: &mut Vec<String>) -> Result<Program> {
    let path = folder.join(name);
    let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
    let Sizes { text, rodata, data } = Sizes::of_program(&bytes)?;
    eprintln!("{name:12} {text:7} B code, {rodata:7} B constants, {data:7} B variables");
    let length = text + rodata;
    ensure!(
        length <= budget,
        "{name} has {length} B of code and constants: the budget is {budget}"
    );
    details.push(format!("{name} {length} of {budget} B"));
    from_elf(&bytes).with_context(|| path.display().to_string())
}

/// What images of this version of the project say.
fn label(board: &str, role: Role) -> Result<Label> {
    let board = BoardName::new(board).context("the board's name")?;
    let version = parse_version(env!("CARGO_PKG_VERSION"))?;
    Ok(Label { board, role, version, security: SecurityVersion(0) })
}

/// What images are signed with.
struct SigningKey {
    number: KeyId,
    secret: [u8; 32],
}

impl SigningKey {
    /// The key that the environment names, else the development key, as the boot loader's build
    /// does with the keys that it trusts (`proxy-fw/soc/docs/boot.md`). It has to trust this one.
    fn find() -> Result<Self> {
        let keys = root().join("proxy-fw/flash/keys");
        let said = std::env::var("DXPU_SIGNING_KEY");
        let (number, path) = match &said {
            Ok(said) => numbered(said).context("DXPU_SIGNING_KEY is NUMBER:FILE")?,
            Err(_) => (1, keys.join("development.pem")),
        };
        let secret = read_secret(&path)?;
        let public = public_key(&secret);
        let trusted = match std::env::var("DXPU_TRUSTED_KEYS") {
            Ok(list) => list.split(',').any(|said| {
                numbered(said).is_some_and(|(of, file)| {
                    of == number && read_public(&file).is_ok_and(|key| key == public)
                })
            }),
            Err(_) => number == 1 && read_public(&keys.join("development.pub"))? == public,
        };
        let path = path.display();
        ensure!(
            trusted,
            "no trusted key {number} belongs to {path}: what is built would not boot; \
             DXPU_TRUSTED_KEYS and DXPU_SIGNING_KEY go together"
        );
        Ok(Self { number: KeyId(number), secret })
    }
}

/// A key's number and file, from `NUMBER:FILE`.
fn numbered(said: &str) -> Option<(u32, PathBuf)> {
    let (number, path) = said.split_once(':')?;
    Some((number.parse().ok()?, path.into()))
}
