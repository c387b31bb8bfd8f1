//! The card's register map: `hw/regs/card.rdl`, and what is made from it.
//!
//! The reference compiler reads the map, and `hw/regs/export.py` writes what it understood to
//! `hw/regs/card.json`. From that file come the Rust accessors, the C header and the documentation
//! page, so all of them are checked also where there is no Python.

mod c;
mod judge;
mod markdown;
mod model;
mod rust;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::report::Done;
use crate::tools::{output, read, root, rustfmt, target_dir};
use model::Model;

/// The folder of the map, and in it what the compiler understood of it.
const FOLDER: &str = "hw/regs";
const UNDERSTOOD: &str = "card.json";

/// Folders in which every file is made here, below [`FOLDER`].
const OURS: &str = "rust/src/map";

/// Files by their paths below [`FOLDER`].
type Files = BTreeMap<String, String>;

/// Makes everything anew.
pub(crate) fn make() -> Result<Done> {
    let work = work_folder()?;
    let python = python()?;
    let understood = compile(&python, &work)?;
    let model = Model::read(&understood)?;
    let mut files = made_of(&model)?;
    files.insert(UNDERSTOOD.to_owned(), understood);
    let mut changed = 0;
    for path in stale(&files)? {
        changed += 1;
        let file = root().join(FOLDER).join(&path);
        println!("{}", file.display());
        match files.get(&path) {
            Some(text) => write(&file, text)?,
            None => std::fs::remove_file(&file)
                .with_context(|| format!("{} cannot be removed", file.display()))?,
        }
    }
    let judged = judge::headers(&model, &work)?;
    Ok(Done::with(format!("{}, {changed} files changed, {judged}", model.counts())))
}

/// Whether everything is as [`make`] would make it, and as PeakRDL understands the map.
pub(crate) fn check() -> Result<Done> {
    let work = work_folder()?;
    let kept = read(&root().join(FOLDER).join(UNDERSTOOD))?;
    let model = Model::read(&kept)?;
    let files = made_of(&model)?;
    let stale: Vec<_> = stale(&files)?;
    if !stale.is_empty() {
        bail!("not as {UNDERSTOOD} has it: {}: run `cargo xtask regs`", stale.join(", "));
    }
    judge::compiles(&root().join(FOLDER).join("card.h"))?;
    let python = match python() {
        Ok(python) => python,
        Err(error) => {
            return Ok(Done::skipped(format!(
                "the compiler of the register map could not be installed, so {UNDERSTOOD} was not \
                 compared with it: {error:#}"
            )));
        }
    };
    if compile(&python, &work)? != kept {
        bail!("{UNDERSTOOD} is not what card.rdl says: run `cargo xtask regs`");
    }
    let judged = judge::headers(&model, &work)?;
    Ok(Done::with(format!("{}, {judged}", model.counts())))
}

/// All files but the JSON.
fn made_of(model: &Model) -> Result<Files> {
    let mut files = Files::new();
    for (name, text) in rust::sources(model) {
        let text = rustfmt(&text).with_context(|| format!("{name} is no Rust"))?;
        files.insert(name, text);
    }
    files.insert("card.h".to_owned(), c::header(model)?);
    files.insert("card.md".to_owned(), markdown::page(model));
    Ok(files)
}

/// Files that are there and not as wanted, that are wanted and not there, or the reverse.
fn stale(wanted: &Files) -> Result<Vec<String>> {
    let folder = root().join(FOLDER);
    let mut stale: Vec<String> = wanted
        .iter()
        .filter(|(path, text)| {
            std::fs::read_to_string(folder.join(path)).ok().as_ref() != Some(*text)
        })
        .map(|(path, _)| path.clone())
        .collect();
    let Ok(there) = std::fs::read_dir(folder.join(OURS)) else { return Ok(stale) };
    for entry in there {
        let path = format!("{OURS}/{}", entry?.file_name().to_string_lossy());
        if !wanted.contains_key(&path) {
            stale.push(path);
        }
    }
    Ok(stale)
}

/// Where the compiler writes.
fn work_folder() -> Result<PathBuf> {
    let work = target_dir().join("regs/work");
    std::fs::create_dir_all(&work).with_context(|| format!("{} cannot be made", work.display()))?;
    Ok(work)
}

fn python() -> Result<PathBuf> {
    crate::python::environment("regs", &root().join(FOLDER).join("requirements.txt"))
}

/// What the reference compiler understands of the map, as JSON. It also writes PeakRDL's headers
/// to `work`.
fn compile(python: &Path, work: &Path) -> Result<String> {
    let folder = root().join(FOLDER);
    let json = work.join(UNDERSTOOD);
    let mut command = Command::new(python);
    command.current_dir(&folder).env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg("export.py").arg("card.rdl").arg(&json).arg(work);
    output(&mut command)?;
    read(&json)
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("{} cannot be made", folder.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}
