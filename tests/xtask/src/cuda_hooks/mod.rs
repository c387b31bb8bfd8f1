//! The functions of the CUDA driver that `perf-shim` hooks: its table is made of NVIDIA's headers,
//! which the Python package index has.
//!
//! Only facts come from them: names, versions, and what kinds of parameters there are.

mod families;
mod headers;
mod roles;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::report::Done;
use crate::tools::{read, root, rustfmt};
use families::{FAMILIES, LEFT, WATCHED};
use headers::{Form, Forms, Headers};

/// What is made: the shim's table, and the names that the stand-in driver of tests knows.
const TABLE: &str = "perf-model/hooks/src/generated.rs";
const NAMES: &str = "tests/cuda/stand-in/src/names/generated.rs";

/// Where the packages of the headers are named: those of the table, and the newest.
const PINNED: &str = "tests/cuda/requirements/headers.txt";
const NEWEST: &str = "tests/cuda/requirements/headers-newest.txt";

/// A hooked form.
struct Hook {
    form: Form,
    symbol: String,
    class: &'static str,
    /// The role and the width of each parameter.
    parameters: Vec<(&'static str, u8)>,
}

/// Makes the table anew.
pub(crate) fn make() -> Result<Done> {
    let all = pinned()?;
    let (hooks, texts) = sources(&all)?;
    for (path, text) in texts {
        let path = root().join(path);
        std::fs::write(&path, text)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(Done::with(format!("{hooks} of {} forms hooked", all.forms.len())))
}

/// Whether the table is what [`make`] would make, and has all that is to be hooked.
pub(crate) fn check() -> Result<Done> {
    let all = match pinned() {
        Ok(all) => all,
        Err(error) => {
            return Ok(Done::skipped(format!(
                "NVIDIA's headers could not be installed: {error:#}"
            )));
        }
    };
    let (hooks, texts) = sources(&all)?;
    for (path, text) in texts {
        if read(&root().join(path))? != text {
            bail!("{path} is not what the headers say: run `cargo xtask cuda-hooks`");
        }
    }
    Ok(Done::with(format!("{hooks} of {} forms hooked", all.forms.len())))
}

/// What the newest CUDA has that the headers of the table have not.
pub(crate) fn newest() -> Result<Done> {
    let python = environment("cuda-headers-newest", NEWEST, true)?;
    let newest = installed(&python)?;
    let known = pinned()?;
    let names: BTreeSet<&str> = known.forms.keys().map(|form| form.name.as_str()).collect();
    let new: Vec<&Form> =
        newest.forms.keys().filter(|form| !known.forms.contains_key(*form)).collect();
    for form in &new {
        let what = if names.contains(form.name.as_str()) { "form" } else { "function" };
        println!("new {what}: {} {}{}", form.name, form.since, form.per_thread);
    }
    let hooked = |form: &&&Form| watched(&form.name) || class_of(&form.name).is_some();
    let missed = new.iter().filter(hooked).count();
    if missed > 0 {
        bail!(
            "{missed} of them belong to what is hooked: enter functions in \
             tests/xtask/src/cuda_hooks/families.rs and the versions in {PINNED}, then run \
             `cargo xtask cuda-hooks`"
        );
    }
    Ok(Done::with(format!("{} new forms, none to be hooked", new.len())))
}

/// The headers that the table is made of.
fn pinned() -> Result<Headers> {
    installed(&environment("cuda-headers", PINNED, false)?)
}

fn environment(name: &str, requirements: &str, anew: bool) -> Result<PathBuf> {
    if anew {
        crate::python::forget(name)?;
    }
    crate::python::environment(name, &root().join(requirements))
}

/// The union of all headers that the environment of this Python has.
fn installed(python: &Path) -> Result<Headers> {
    let lib = python.ancestors().nth(2).expect("it is in a folder bin").join("lib");
    let mut all = Headers { forms: Forms::new(), declared: BTreeSet::new() };
    let mut folders = Vec::new();
    folders_with(&lib, "cudaTypedefs.h", &mut folders)?;
    if folders.is_empty() {
        bail!("{} has no cudaTypedefs.h", lib.display());
    }
    for folder in folders {
        let headers = Headers::read(&folder)?;
        all.declared.extend(headers.declared);
        for (form, parameters) in headers.forms {
            let before = all.forms.insert(form.clone(), parameters);
            if before.is_some_and(|before| shape(&before) != shape(&all.forms[&form])) {
                bail!("two CUDA versions have different parameters for {form:?}");
            }
        }
    }
    Ok(all)
}

/// The types without the names of parameters, and without the first version that some have.
fn shape(parameters: &[headers::Parameter]) -> Vec<String> {
    parameters.iter().map(|parameter| parameter.kind.replace("_v1", "")).collect()
}

fn folders_with(folder: &Path, name: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("{} is not there", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == name {
            found.push(folder.to_owned());
        } else if entry.file_type()?.is_dir() {
            folders_with(&entry.path(), name, found)?;
        }
    }
    found.sort();
    Ok(())
}

/// The number of hooked forms, and the sources that are made, by their paths.
fn sources(all: &Headers) -> Result<(usize, [(&'static str, String); 2])> {
    let unknown = unknown(&all.forms);
    if !unknown.is_empty() {
        bail!(
            "named like what is hooked, and in neither list of \
             tests/xtask/src/cuda_hooks/families.rs: {}",
            unknown.join(", ")
        );
    }
    let hooks = hooks(all)?;
    let table = rustfmt(&write::table(&hooks)).context("the table is no Rust")?;
    let names = rustfmt(&write::names(&headers::symbols(&all.forms)));
    let names = names.context("the list of names is no Rust")?;
    Ok((hooks.len(), [(TABLE, table), (NAMES, names)]))
}

/// Functions that are watched and in neither list.
fn unknown(forms: &Forms) -> Vec<&str> {
    let names: BTreeSet<&str> = forms.keys().map(|form| form.name.as_str()).collect();
    let listed = |name: &str| class_of(name).is_some() || LEFT.iter().any(|left| left.0 == name);
    names.into_iter().filter(|name| watched(name) && !listed(name)).collect()
}

fn watched(name: &str) -> bool {
    WATCHED.iter().any(|beginning| name.starts_with(beginning))
}

fn class_of(name: &str) -> Option<&'static str> {
    FAMILIES.iter().find(|family| family.names.contains(&name)).map(|family| family.class)
}

fn hooks(all: &Headers) -> Result<Vec<Hook>> {
    for name in FAMILIES.iter().flat_map(|family| family.names) {
        if !all.forms.keys().any(|form| form.name == *name) {
            bail!("{name} is to be hooked, and no header has it");
        }
    }
    let mut hooks = BTreeMap::new();
    for (form, symbol) in headers::symbols(&all.forms) {
        let Some(class) = class_of(&form.name) else { continue };
        if !all.declared.contains(&symbol) {
            bail!("cuda.h has no {symbol}, which {form:?} should be");
        }
        let parameters = all.forms[&form]
            .iter()
            .map(|parameter| Ok((roles::role(class, parameter), roles::width(parameter)?)))
            .collect::<Result<_>>()
            .with_context(|| symbol.clone())?;
        let hook = Hook { form, symbol: symbol.clone(), class, parameters };
        if let Some(other) = hooks.insert(symbol, hook) {
            bail!("{} would be the symbol of two forms", other.symbol);
        }
    }
    Ok(hooks.into_values().collect())
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn no_function_is_in_two_lists() {
        let hooked = FAMILIES.iter().flat_map(|family| family.names.iter().copied());
        let mut all: Vec<&str> = hooked.chain(LEFT.iter().map(|left| left.0)).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        for (name, _) in LEFT {
            assert!(watched(name), "{name} is not watched, so it need not be left");
        }
    }

    #[test]
    fn a_new_function_of_a_family_is_found() {
        let form = |name: &str| Form { name: name.into(), since: 14000, per_thread: "".into() };
        let forms: Forms = ["cuMemcpyNewAsync", "cuMemcpyHtoD", "cuTexNew", "cuMemHostGetFlags"]
            .map(|name| (form(name), Vec::new()))
            .into();
        assert_eq!(unknown(&forms), ["cuMemcpyNewAsync"]);
    }
}
