//! Cards' programs, as a flash has them: boot loader and firmware of each board.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use card_image::{BoardName, KeyId, Role, SecurityVersion, public_key};
use dxpu_flash::image::keys::{digits, read_public, read_secret};
use dxpu_flash::image::{
    BootLoader, Label, Program, Purpose, Signer, from_elf, parse_version, purpose,
};

use crate::bare_metal::{TARGET, Toolchain, bare_target_dir, no_toolchain};
use crate::report::Done;
use crate::sections::Sizes;
use crate::tools::{root, run};

/// Code and constants that a card has room for, in bytes: of a firmware, and of the boot loader.
const FIRMWARE_BUDGET: u64 = 256 * 1024;
const BOOT_BUDGET: u64 = 64 * 1024;

/// Whether a program has the flight recorder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recorder {
    With,
    Without,
}

/// A firmware: the name of its program, and what it is for.
struct Firmware {
    name: &'static str,
    board: &'static str,
    role: Role,
    recorder: Recorder,
}

const FIRMWARE: [Firmware; 4] = [
    firmware("fw-box", "qemu-virt", Role::Box, Recorder::With),
    firmware("fw-host", "qemu-virt", Role::Host, Recorder::With),
    firmware("litex-box", "litex", Role::Box, Recorder::With),
    // Its program has no room for one.
    firmware("litex-host", "litex", Role::Host, Recorder::Without),
];

const fn firmware(
    name: &'static str,
    board: &'static str,
    role: Role,
    recorder: Recorder,
) -> Firmware {
    Firmware { name, board, role, recorder }
}

/// Boot loaders, by the name of their programs, and how their boards' flash has them.
pub(crate) const BOOT_LOADERS: [(&str, BootLoader); 2] =
    [("boot", BootLoader::Plain), ("litex-boot", BootLoader::LitexBios)];

/// Builds boot loaders and firmware, makes `NAME.bin` and the images of them beside the programs,
/// and prints their sizes beside what a card has room for.
pub(crate) fn build() -> Result<Done> {
    let Some(toolchain) = Toolchain::find()? else { return Ok(no_toolchain()) };
    let key = OwnKeys::find()?;
    let security = security_version(
        std::env::var_os(SECURITY).map(|said| said.to_string_lossy().into_owned()),
    )?;
    let boot_loaders = BOOT_LOADERS.map(|(name, _)| (name, Recorder::Without));
    let firmware = FIRMWARE.map(|Firmware { name, recorder, .. }| (name, recorder));
    let programs: Vec<_> = boot_loaders.into_iter().chain(firmware).collect();
    for recorder in [Recorder::Without, Recorder::With] {
        let of_it = programs.iter().filter(|(_, has)| *has == recorder).map(|(name, _)| *name);
        compile(&toolchain, &key, of_it, recorder)?;
    }
    let folder = folder();
    let mut details = Vec::new();
    for (name, kind) in BOOT_LOADERS {
        let program = program(&folder, name, BOOT_BUDGET, &mut details)?;
        write(&folder.join(format!("{name}.bin")), &kind.in_flash(&program.payload))?;
    }
    for Firmware { name, board, role, .. } in FIRMWARE {
        let program = self::program(&folder, name, FIRMWARE_BUDGET, &mut details)?;
        check_purpose(&folder.join(name), board, role)?;
        let signer = Signer { number: key.number, secret: &key.secret };
        let image = program.image(&label(board, role, security)?, Some(&signer))?;
        write(&folder.join(format!("{name}.img")), &image)?;
    }
    Ok(Done::with(details.join(", ")))
}

/// Compiles these programs, which all have the flight recorder or have it not.
fn compile<'a>(
    toolchain: &Toolchain,
    key: &OwnKeys,
    names: impl Iterator<Item = &'a str>,
    recorder: Recorder,
) -> Result<()> {
    let mut command = toolchain.build(&bare_target_dir());
    command.args(["--profile", "card", "-p", "board-qemu-virt", "-p", "board-litex"]);
    for name in names {
        command.args(["--bin", name]);
    }
    if recorder == Recorder::With {
        command.args(["--features", "board-qemu-virt/recorder,board-litex/recorder"]);
    }
    command.arg("--config").arg(own_flags(&cargo_home()?));
    // What is compiled in; the card's settings and the manager say what of it is logged.
    command.env("DEFMT_LOG", "debug");
    if let Some(trusted) = &key.trusted {
        command.env(TRUSTED, trusted);
    }
    run(&mut command).context("the firmware does not build")
}

/// Registers are saved and given back by routines that functions call: a fiftieth less of code. Who
/// links them is a firmware (`board-common` has them), so this stands with no other program's flags.
const SAVED: &str = "-Ctarget-feature=+save-restore";

/// The setting of what firmware is compiled with besides what `.cargo/config.toml` says: places in the
/// sources of libraries, of which panics tell, are told without the folder that this computer has
/// them in: shorter, and the same on every computer.
fn own_flags(home: &Path) -> String {
    // A folder of each registry; where libraries are elsewhere, places are told as they are.
    let folders = std::fs::read_dir(home.join("registry").join("src"));
    let folders = folders.into_iter().flatten().flatten().map(|folder| folder.path());
    let flags = folders.map(|folder| format!("--remap-path-prefix={}/=", folder.display()));
    let flags: Vec<_> = flags.chain([SAVED.to_owned()]).collect();
    format!("target.{TARGET}.rustflags={flags:?}")
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

/// What a firmware says in its ELF file of its role and board is what its image says.
fn check_purpose(path: &Path, board: &str, role: Role) -> Result<()> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let right = Purpose { role: role.to_string(), board: board.to_owned() };
    let said = purpose(&bytes);
    ensure!(said.as_ref() == Some(&right), "{} says of itself {said:?}", path.display());
    Ok(())
}

/// What images of this version of the project say.
fn label(board: &str, role: Role, security: SecurityVersion) -> Result<Label> {
    let board = BoardName::new(board).context("the board's name")?;
    let version = parse_version(env!("CARGO_PKG_VERSION"))?;
    Ok(Label { board, role, version, security })
}

/// Names the security version of the images.
const SECURITY: &str = "DXPU_SECURITY_VERSION";

/// The security version that the environment names, else 0.
fn security_version(said: Option<String>) -> Result<SecurityVersion> {
    let Some(said) = said.filter(|said| !said.is_empty()) else { return Ok(SecurityVersion(0)) };
    let number = said.parse();
    let number = number.with_context(|| format!("{SECURITY} has `{said}`: say a whole number"))?;
    Ok(SecurityVersion(number))
}

/// Names the keys that a boot loader trusts, to this and to the board's build.
const TRUSTED: &str = "DXPU_TRUSTED_KEYS";

/// What images are signed with, and who has to trust that.
struct OwnKeys {
    number: KeyId,
    secret: [u8; 32],
    /// As the board's build takes them: `NUMBER:DIGITS`, one after the other with commas. None where
    /// nobody names any.
    trusted: Option<String>,
}

impl OwnKeys {
    /// The keys that the environment names, else the development key, as the boot loader's build
    /// does with the keys that it trusts (`proxy-fw/soc/docs/boot.md`).
    fn find() -> Result<Self> {
        let said = |name| match std::env::var(name) {
            Ok(said) => Ok(Some(said)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(error) => Err(error).context(name),
        };
        Self::of(said(TRUSTED)?.as_deref(), said("DXPU_SIGNING_KEY")?.as_deref())
    }

    /// Files are named from the current folder on. What is signed has to be trusted.
    fn of(trusted: Option<&str>, signing: Option<&str>) -> Result<Self> {
        let keys = root().join("proxy-fw/flash/keys");
        let (number, path) = match signing {
            Some(said) => numbered("DXPU_SIGNING_KEY", said)?,
            None => (1, keys.join("development.pem")),
        };
        let secret = read_secret(&path)?;
        let known = match trusted {
            Some(list) => list.split(',').map(public).collect::<Result<_>>()?,
            None => vec![(1, read_public(&keys.join("development.pub"))?)],
        };
        ensure!(
            known.contains(&(number, public_key(&secret))),
            "no trusted key {number} belongs to {}: what is built would not boot; \
             {TRUSTED} and DXPU_SIGNING_KEY go together",
            path.display()
        );
        // Digits, so that the build, which runs in another folder, looks for no file.
        let said = known.iter().map(|(number, key)| format!("{number}:{}", digits(key)));
        let trusted = trusted.map(|_| said.collect::<Vec<_>>().join(","));
        Ok(Self { number: KeyId(number), secret, trusted })
    }
}

/// A trusted key's number and what it is.
fn public(said: &str) -> Result<(u32, [u8; 32])> {
    let (number, path) = numbered(TRUSTED, said)?;
    Ok((number, read_public(&path)?))
}

/// A key's number and file, from `NUMBER:FILE`.
fn numbered(variable: &str, said: &str) -> Result<(u32, PathBuf)> {
    let parts = said.split_once(':');
    let parts = parts.and_then(|(number, path)| Some((number.parse().ok()?, path.into())));
    let (number, path) =
        parts.with_context(|| format!("{variable} has `{said}`: say NUMBER:FILE"))?;
    ensure!(number != 0, "{variable} has `{said}`: 0 is the number of no key");
    Ok((number, path))
}

/// What takes the keys in the board's build.
#[cfg(test)]
#[path = "../../../proxy-fw/soc/boards/common/build_board.rs"]
#[allow(dead_code, reason = "there is no board's build here")]
mod board_build;

#[cfg(test)]
mod tests {
    use super::*;
    use dxpu_flash::image::keys::generate;

    #[test]
    fn own_keys_reach_the_boot_loaders_build() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let [our, next] =
            ["our.pem", "next.pem"].map(|name| generate(path(name).as_ref()).unwrap());
        // As the documentation has it; and a key in the other form.
        let trusted = format!("7:{},8:{}", path("our.pub"), path("next.pem"));
        let signing = format!("7:{}", path("our.pem"));
        let keys = OwnKeys::of(Some(&trusted), Some(&signing)).unwrap();
        assert_eq!((keys.number, public_key(&keys.secret)), (KeyId(7), our.public));
        let for_build = keys.trusted.unwrap();
        assert!(!for_build.contains(&path("")), "no file is looked for: {for_build}");
        let source = board_build::source(&for_build);
        for (number, key) in [(7, our.public), (8, next.public)] {
            assert!(source.contains(&format!("id: KeyId({number}), key: {key:?}")), "{source}");
        }
        assert_eq!(board_build::source(&trusted.replace("next.pem", "next.pub")), source);
    }

    #[test]
    fn a_release_can_bar_those_before() {
        let of = |said: &str| security_version(Some(said.to_owned()));
        assert_eq!(security_version(None).unwrap(), SecurityVersion(0));
        assert_eq!(of("").unwrap(), SecurityVersion(0));
        assert_eq!(of("3").unwrap(), SecurityVersion(3));
        for wrong in ["-1", "1.0", "4294967296"] {
            assert!(of(wrong).unwrap_err().to_string().contains(SECURITY), "{wrong}");
        }
        let image = label("qemu-virt", Role::Box, SecurityVersion(3)).unwrap();
        assert_eq!(image.security, SecurityVersion(3));
    }

    #[test]
    fn what_would_not_boot_is_not_built() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        generate(path("our.pem").as_ref()).unwrap();
        assert_eq!(OwnKeys::of(None, None).unwrap().trusted, None);
        let our = format!("7:{}", path("our.pem"));
        let other = our.replace("7:", "8:");
        for (trusted, signing, why) in [
            (Some(&*our), None, "no trusted key 1 belongs to"),
            (None, Some(&*our), "go together"),
            (Some(&*other), Some(&*our), "no trusted key 7"),
            (Some("our.pub"), Some(&*our), "DXPU_TRUSTED_KEYS has `our.pub`: say NUMBER:FILE"),
            (Some("0:a"), None, "0 is the number of no key"),
            (Some("7:nowhere.pub"), Some(&*our), "nowhere.pub"),
        ] {
            let Err(error) = OwnKeys::of(trusted, signing) else { panic!("{why}") };
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
