//! The flash algorithms that board files have in them: built from `proxy-fw/flash/algorithm`.
//!
//! They are in the tree, so that a program that flashes cards can be built without a compiler for
//! cards. A line of the file says which sources and which compiler it was made with: other
//! compilers make other code of the same sources, so only the sources are compared with any.

use std::path::Path;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use object::{Object, ObjectSymbol};
use sha2::{Digest, Sha256};

use crate::bare_metal;
use crate::report::Done;
use crate::tools::root;

const BOARDS: [&str; 2] = ["qemu-virt", "litex"];

/// What the algorithms are made of.
const SOURCES: [&str; 3] =
    ["proxy-fw/flash/algorithm", "hw/regs/rust/src", "hw/regs/rust/Cargo.toml"];

/// A function, and the key of a board file that says where it is in the code.
const FUNCTIONS: [(&str, &str); 5] = [
    ("Init", "pc_init"),
    ("UnInit", "pc_uninit"),
    ("ProgramPage", "pc_program_page"),
    ("EraseSector", "pc_erase_sector"),
    ("BlankCheck", "pc_blank_check"),
];

/// Builds the algorithms into the board files.
pub(crate) fn make() -> Result<Done> {
    let (Some(built), Some(compiler)) = (bare_metal::flash_algorithms()?, compiler()?) else {
        return Ok(bare_metal::no_toolchain());
    };
    let sources = sources_digest()?;
    for board in BOARDS {
        let path = board_file(board);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let elf = std::fs::read(built.join(format!("flash-{board}")))?;
        let text = replaced(&text, &values(&elf, &sources, &compiler)?)
            .with_context(|| path.display().to_string())?;
        std::fs::write(&path, text)?;
    }
    Ok(Done::with(format!("{} board files, {compiler}", BOARDS.len())))
}

/// Whether the board files have the algorithms of these sources.
pub(crate) fn check() -> Result<Done> {
    let (sources, compiler) = (sources_digest()?, compiler()?);
    let mut same_compiler = true;
    for board in BOARDS {
        let path = board_file(board);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let made = value(&text, "# sources").context("the line `# sources:` is missing")?;
        if made != sources {
            bail!(
                "{} has the algorithm of other sources: run `cargo xtask flash-algorithm`",
                path.display()
            );
        }
        same_compiler &= value(&text, "# compiler") == compiler.as_deref();
    }
    let Some(compiler) = compiler else { return Ok(bare_metal::no_toolchain()) };
    if !same_compiler {
        return Ok(Done::with("of these sources, by another compiler".to_owned()));
    }
    let Some(built) = bare_metal::flash_algorithms()? else {
        return Ok(bare_metal::no_toolchain());
    };
    for board in BOARDS {
        let text = std::fs::read_to_string(board_file(board))?;
        let elf = std::fs::read(built.join(format!("flash-{board}")))?;
        for (key, wanted) in values(&elf, &sources, &compiler)? {
            if value(&text, &key) != Some(&wanted) {
                bail!(
                    "{board}: `{key}` is not what the sources make: run `cargo xtask flash-algorithm`"
                );
            }
        }
    }
    Ok(Done::with(format!("{} board files, byte for byte", BOARDS.len())))
}

fn board_file(board: &str) -> std::path::PathBuf {
    root().join(format!("proxy-fw/flash/boards/{board}.yaml"))
}

/// The compiler that builds the algorithms, if there is one.
fn compiler() -> Result<Option<String>> {
    bare_metal::Toolchain::find()?.map(|toolchain| toolchain.compiler()).transpose()
}

/// The digest of everything that the algorithms are made of.
fn sources_digest() -> Result<String> {
    let mut digest = Sha256::new();
    for source in SOURCES {
        add(&mut digest, &root().join(source)).with_context(|| source.to_owned())?;
    }
    let bytes: [u8; 32] = digest.finalize().into();
    Ok(bytes[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

fn add(digest: &mut Sha256, path: &Path) -> Result<()> {
    if path.is_dir() {
        let mut inside: Vec<_> =
            std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        inside.sort();
        return inside.iter().try_for_each(|path| add(digest, path));
    }
    let name = path.strip_prefix(root()).unwrap_or(path).display().to_string();
    let bytes = std::fs::read(path)?;
    digest.update((name.len() as u64).to_le_bytes());
    digest.update(name);
    digest.update((bytes.len() as u64).to_le_bytes());
    digest.update(bytes);
    Ok(())
}

/// Keys of a board file, and what they are for this algorithm.
fn values(elf: &[u8], sources: &str, compiler: &str) -> Result<Vec<(String, String)>> {
    let program = dxpu_flash::image::from_elf(elf)?;
    let file = object::File::parse(elf)?;
    let mut values = vec![
        ("# sources".to_owned(), sources.to_owned()),
        ("# compiler".to_owned(), compiler.to_owned()),
        ("load_address".to_owned(), format!("{:#x}", program.load)),
        ("instructions".to_owned(), STANDARD.encode(&program.payload)),
    ];
    for (function, key) in FUNCTIONS {
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(function));
        let symbol = symbol.with_context(|| format!("the algorithm has no function {function}"))?;
        let at = symbol.address() - u64::from(program.load);
        values.push((key.to_owned(), format!("{at:#x}")));
    }
    Ok(values)
}

/// The value in the first line `key: value`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| value_in(line, key))
}

fn value_in<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.trim_start().strip_prefix(key)?.strip_prefix(':').map(str::trim)
}

/// The text with other values; each key must be there.
fn replaced(text: &str, values: &[(String, String)]) -> Result<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (key, value) in values {
        let line = lines.iter_mut().find(|line| value_in(line, key).is_some());
        let line = line.with_context(|| format!("the line `{key}:` is missing"))?;
        let indent = line.len() - line.trim_start().len();
        *line = format!("{}{key}: {value}", " ".repeat(indent));
    }
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn lines_are_replaced_and_nothing_else() {
        let text = "# sources: old\na:\n  pc_init: 0x0\n  pc_init_not: 1\n";
        let values = [("# sources".to_owned(), "new".to_owned()), ("pc_init".into(), "0x4".into())];
        let text = replaced(text, &values).unwrap();
        assert_eq!(text, "# sources: new\na:\n  pc_init: 0x4\n  pc_init_not: 1\n");
        assert_eq!(value(&text, "pc_init"), Some("0x4"));
        assert!(replaced(&text, &[("pc_erase".into(), "0".into())]).is_err());
    }
}
