//! The C header under a C compiler, and beside the one that PeakRDL makes of the same map: whoever
//! of both is wrong, they do not agree.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::model::{Content, Item, Model};
use super::text::upper;
use crate::tools::{output, root};

/// Whether a C compiler has nothing to say of a source file.
pub(super) fn compiles(source: &Path) -> Result<()> {
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Werror", "-std=c11", "-fsyntax-only", "-x", "c"]).arg(source);
    output(&mut cc).map(drop)
}

/// Compares every address, field and reset value with PeakRDL's, whose headers lie in `work`.
pub(super) fn headers(model: &Model, work: &Path) -> Result<String> {
    let mut compared = 0;
    for map in &model.maps {
        let claims = claims(model, &map.name, &map.items);
        compared += claims.len();
        let source = work.join(format!("{}-judge.c", map.name));
        let mut text = "#include <stddef.h>\n".to_owned();
        for header in [root().join("hw/regs/card.h"), work.join(format!("{}.h", map.name))] {
            writeln!(text, "#include \"{}\"", header.display())?;
        }
        for claim in claims {
            writeln!(text, "static_assert({claim}, \"{claim}\");")?;
        }
        std::fs::write(&source, text)?;
        compiles(&source).context("our C header and PeakRDL's do not agree")?;
    }
    Ok(format!("{compared} values as PeakRDL has them"))
}

/// What must hold between both headers.
fn claims(model: &Model, map: &str, items: &[Item]) -> Vec<String> {
    let mut claims = Vec::new();
    for register in model.registers.iter().filter(|register| register.map == map) {
        let path = &register.path;
        claims.push(match path.split_once('.') {
            // In memory it counts where the word lies in its record.
            Some((record, _)) if map != model.card().name => format!(
                "offsetof({map}_t, {path}) - offsetof({map}_t, {record}) == CARD_{}_OFFSET",
                our_address(path)
            ),
            _ => format!("offsetof({map}_t, {path}) == CARD_{}", our_address(path)),
        });
    }
    fields(model, upper(map), None, items, &mut claims);
    claims
}

/// `mac[1].receive_other.tail` as a use of our macro: `MAC_RECEIVE_OTHER_TAIL(1)`.
fn our_address(path: &str) -> String {
    let (mut names, mut indices) = (Vec::new(), Vec::new());
    for part in path.split('.') {
        let (name, index) = part.split_once('[').unwrap_or((part, ""));
        names.push(upper(name));
        if !index.is_empty() {
            indices.push(index.trim_end_matches(']'));
        }
    }
    let arguments =
        if indices.is_empty() { String::new() } else { format!("({})", indices.join(", ")) };
    names.join("_") + &arguments
}

/// Claims about the fields of all registers below, arrays once. `theirs` is PeakRDL's name of
/// where they are, `kind` the type of block that they are in.
fn fields(
    model: &Model,
    theirs: String,
    kind: Option<&str>,
    items: &[Item],
    claims: &mut Vec<String>,
) {
    for item in items {
        let array = if item.array.is_some() { "X" } else { "" };
        let theirs = format!("{theirs}__{}{array}", upper(&item.name));
        match &item.content {
            Content::Block { kind } => {
                fields(model, theirs, Some(kind), &model.kind(kind).items, claims);
            }
            Content::Register(register) => {
                let kind = upper(kind.unwrap_or_default());
                let ours = format!("CARD_{kind}_{}", upper(&item.name));
                for field in &register.fields {
                    let name = upper(&field.name);
                    let (theirs, ours) = (format!("{theirs}__{name}"), format!("{ours}_{name}"));
                    claims.push(format!("{theirs}_bm == {ours}_MASK"));
                    claims.push(format!("{theirs}_bp == {ours}_SHIFT"));
                }
                let resets: Vec<String> = register
                    .fields
                    .iter()
                    .filter(|field| field.reset.is_some())
                    .map(|field| {
                        format!(
                            "((uint32_t){theirs}__{0}_reset << {theirs}__{0}_bp)",
                            upper(&field.name)
                        )
                    })
                    .collect();
                if !resets.is_empty() {
                    claims.push(format!("({}) == {ours}_RESET", resets.join(" | ")));
                }
            }
        }
    }
}
