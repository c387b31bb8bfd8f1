//! What NVIDIA's `cuda.h`, `cudaTypedefs.h` and `cudaProfilerTypedefs.h` say of the driver's functions.
//!
//! `cudaTypedefs.h` has a type `PFN_<name>_v<version>` for each form that a function ever had, with
//! `_ptsz` or `_ptds` behind it for those with the per-thread default stream. It does not say which
//! symbol of the driver has that form; the rule is in [`symbols`], and `cuda.h` is the witness.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// A form of a function, as `cuGetProcAddress` tells forms apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    /// The name without suffixes.
    pub(super) name: String,
    /// The CUDA version that brought it, times 1000, and its minor version times 10.
    pub(super) since: u32,
    /// `_ptsz` or `_ptds`: stream 0 is the calling thread's own. Empty: it is the legacy one.
    pub(super) per_thread: String,
}

/// A parameter of a function: its type without `const` and blanks, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) kind: String,
    pub(super) name: String,
}

/// Every form of every function, with its parameters.
pub(super) type Forms = BTreeMap<Form, Vec<Parameter>>;

/// The headers in one folder.
pub(super) struct Headers {
    pub(super) forms: Forms,
    /// The symbols that `cuda.h` declares.
    pub(super) declared: BTreeSet<String>,
}

impl Headers {
    /// Reads the headers of `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path)
                .with_context(|| format!("{} cannot be read", path.display()))
                .map(|bytes| without_comments(&String::from_utf8_lossy(&bytes)))
        };
        let mut forms = forms(&read("cudaTypedefs.h")?)?;
        let mut declared = declared(&read("cuda.h")?);
        if forms.len() < 500 || declared.len() < 400 {
            bail!(
                "{} has {} forms and {} declarations: it is not laid out as this program reads it",
                folder.display(),
                forms.len(),
                declared.len()
            );
        }
        // What the packages have of `cudaProfiler.h`: each function has one form, its own name.
        let of_profilers = self::forms(&read("cudaProfilerTypedefs.h")?)?;
        declared.extend(of_profilers.keys().map(|form| form.name.clone()));
        forms.extend(of_profilers);
        Ok(Self { forms, declared })
    }
}

/// The symbol of each form: the name with `_v2`, `_v3` … for the second, third … form in the order
/// of versions; one with the per-thread default stream takes that of the newest that is no newer
/// than itself, and its suffix. Debian's driver 535 agrees in all of its 548 forms.
pub(super) fn symbols(forms: &Forms) -> BTreeMap<Form, String> {
    let mut versions: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for form in forms.keys().filter(|form| form.per_thread.is_empty()) {
        versions.entry(&form.name).or_default().push(form.since);
    }
    let symbol = |form: &Form| {
        let nothing = Vec::new();
        let versions = versions.get(form.name.as_str()).unwrap_or(&nothing);
        let number = versions.iter().filter(|version| **version <= form.since).count();
        let suffix = if number > 1 { format!("_v{number}") } else { String::new() };
        format!("{}{suffix}{}", form.name, form.per_thread)
    };
    forms.keys().map(|form| (form.clone(), symbol(form))).collect()
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("/*") {
        out.push_str(&rest[..start]);
        out.push(' ');
        let end = rest[start..].find("*/").map_or(rest.len(), |end| start + end + 2);
        rest = &rest[end..];
    }
    out.push_str(rest);
    out.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

fn forms(text: &str) -> Result<Forms> {
    let mut forms = Forms::new();
    for statement in text.split("typedef CUresult (CUDAAPI *PFN_").skip(1) {
        let statement = statement.split(';').next().unwrap_or("");
        let (name, parameters) =
            statement.split_once(")(").with_context(|| format!("no parameters: {statement}"))?;
        let parameters = parameters.trim().strip_suffix(')').unwrap_or(parameters);
        // Four types of CUDA 12 get their version from a macro; CUDA 13 writes it out.
        let Some(form) = form(name) else { continue };
        forms.insert(form, parameters_of(parameters)?);
    }
    Ok(forms)
}

/// The form that a type's name stands for: `cuMemcpyHtoD_v7000_ptds`. None without a version.
fn form(name: &str) -> Option<Form> {
    let (rest, per_thread) = match name.rsplit_once('_') {
        Some((rest, suffix @ ("ptsz" | "ptds"))) => (rest, format!("_{suffix}")),
        _ => (name, String::new()),
    };
    let (base, version) = rest.rsplit_once("_v")?;
    Some(Form { name: base.to_owned(), since: version.parse().ok()?, per_thread })
}

fn parameters_of(list: &str) -> Result<Vec<Parameter>> {
    let words = list.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() || words == "void" {
        return Ok(Vec::new());
    }
    words.split(',').map(parameter).collect()
}

fn parameter(text: &str) -> Result<Parameter> {
    let text = text.trim();
    let start = text
        .rfind(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .with_context(|| format!("a parameter without a name: {text}"))?
        + 1;
    let (kind, name) = text.split_at(start);
    let kind: Vec<&str> = kind.split_whitespace().filter(|word| *word != "const").collect();
    // `T * *` and `T **` are the same.
    let kind = kind.join(" ").replace(" *", "*").replace("* ", "*");
    Ok(Parameter { kind, name: name.to_owned() })
}

/// Functions that are declared, those that a macro gives another symbol, and their forms with the
/// per-thread default stream.
fn declared(text: &str) -> BTreeSet<String> {
    let mut declared = BTreeSet::new();
    for statement in text.split("CUresult CUDAAPI ").skip(1) {
        declared.extend(statement.split('(').next().map(|name| name.trim().to_owned()));
    }
    for line in text.lines().filter_map(|line| line.trim().strip_prefix("#define cu")) {
        let Some(target) = line.split_whitespace().nth(1) else { continue };
        for (macro_name, suffix) in [("__CUDA_API_PTDS(", "_ptds"), ("__CUDA_API_PTSZ(", "_ptsz")] {
            let Some(symbol) = target.strip_prefix(macro_name) else { continue };
            let symbol = symbol.trim_end_matches(')');
            declared.extend([symbol.to_owned(), format!("{symbol}{suffix}")]);
        }
        if !target.contains('(') {
            declared.insert(target.to_owned());
        }
    }
    declared
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn of(name: &str) -> Form {
        form(name).unwrap()
    }

    #[test]
    fn types_are_read() {
        let text = "/* a\n b */ typedef CUresult (CUDAAPI *PFN_cuCopy_v2000)(T_v1 to, unsigned int n); // x
            typedef CUresult (CUDAAPI *PFN_cuCopy_v3020)(T_v2 to, const void *from,\n size_t n);
            typedef CUresult (CUDAAPI *PFN_cuCopy_v7000_ptds)(T_v2 to, void * *pfn);
            typedef CUresult (CUDAAPI *PFN_cuSync_v2000)(void);";
        let forms = forms(&without_comments(text)).unwrap();
        let parameter = |kind: &str, name: &str| Parameter { kind: kind.into(), name: name.into() };
        assert_eq!(
            forms[&of("cuCopy_v3020")],
            [parameter("T_v2", "to"), parameter("void*", "from"), parameter("size_t", "n")]
        );
        assert_eq!(forms[&of("cuCopy_v7000_ptds")][1], parameter("void**", "pfn"));
        assert_eq!(forms[&of("cuSync_v2000")], []);
        let symbols = symbols(&forms);
        assert_eq!(symbols[&of("cuCopy_v2000")], "cuCopy");
        assert_eq!(symbols[&of("cuCopy_v3020")], "cuCopy_v2");
        assert_eq!(symbols[&of("cuCopy_v7000_ptds")], "cuCopy_v2_ptds");
    }

    #[test]
    fn what_is_no_form_is_refused() {
        for name in ["cuCopy", "cuCopy_vx", "cuCopy_ptsz"] {
            assert!(form(name).is_none(), "{name}");
        }
        assert!(parameter("nameless").is_err());
    }

    #[test]
    fn declarations_are_read() {
        let text = "#define cuCopy __CUDA_API_PTDS(cuCopy_v2)\n#define cuFree cuFree_v2\n
            CUresult CUDAAPI cuSync(void);";
        let declared = declared(text);
        for symbol in ["cuCopy_v2", "cuCopy_v2_ptds", "cuFree_v2", "cuSync"] {
            assert!(declared.contains(symbol), "{symbol}");
        }
        assert_eq!(declared.len(), 4);
    }
}
