//! The documentation page.

use std::fmt::Write;

use super::model::{Content, Enum, Item, Map, Model, Register, Type};
use super::text::MADE;

/// The page's text.
pub(super) fn page(model: &Model) -> String {
    let mut out = format!(
        "<!-- {MADE} -->

# The card's registers

{}

Every register has 32 bits and is accessed as a whole, at an address that is a multiple of 4.
Reserved bits read as 0 and are written as 0. In the columns *Access*, r is for reading and w for
writing by firmware. *Of the board* is what is not the same on every card after a reset.
",
        model.card().description
    );
    for map in &model.maps {
        out.push_str(&blocks(model, map));
    }
    for kind in &model.types {
        out.push_str(&block(kind));
    }
    out.push_str("\n## Values\n");
    for encoding in &model.enums {
        out.push_str(&values(model, encoding));
    }
    out
}

/// A heading, then lines of a table.
fn table(out: &mut String, columns: &[&str]) {
    let line: String = columns.iter().map(|_| "---|").collect();
    write!(out, "\n| {} |\n|{line}\n", columns.join(" | ")).expect("a string takes all");
}

fn row(out: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    writeln!(out, "| {} |", cells.join(" | ")).expect("a string takes all");
}

fn link(to: &str) -> String {
    // As web pages name the heading.
    format!("[{to}](#{})", to.replace('.', ""))
}

fn blocks(model: &Model, map: &Map) -> String {
    let at_addresses = map.name == model.card().name;
    let mut out = format!(
        "\n## {}\n\n{}\n",
        if at_addresses { "Blocks" } else { "In memory" },
        map.description
    );
    if at_addresses {
        table(&mut out, &["Offset", "Block", "Registers", "What"]);
    } else {
        table(&mut out, &["Record", "Bytes", "What"]);
    }
    for item in &map.items {
        let Content::Block { kind } = &item.content else { continue };
        let linked = link(kind);
        if at_addresses {
            row(&mut out, &[&offset(item, 4), &item.name, &linked, &item.description]);
        } else {
            let size = model.kind(kind).size.to_string();
            row(&mut out, &[&linked, &size, &item.description]);
        }
    }
    out
}

fn offset(item: &Item, digits: usize) -> String {
    let at = format!("0x{:0digits$x}", item.offset);
    match &item.array {
        None => at,
        Some(array) => format!("{at} + n · 0x{:x}, n < {}", array.stride, array.count),
    }
}

fn block(kind: &Type) -> String {
    let mut out = format!("\n## {}\n\n{}\n", kind.name, kind.description);
    table(&mut out, &["Offset", "Name", "Access", "After a reset"]);
    for item in &kind.items {
        let at = offset(item, 2);
        match &item.content {
            Content::Block { kind } => {
                row(&mut out, &[&at, &format!("{}: {}", item.name, link(kind)), "", ""]);
            }
            Content::Register(register) => {
                let name = link(&format!("{}.{}", kind.name, item.name));
                row(&mut out, &[&at, &name, register.access().words(), &register.reset_words()]);
            }
        }
    }
    for item in &kind.items {
        match &item.content {
            Content::Register(register) => {
                out.push_str(&fields(&format!("{}.{}", kind.name, item.name), item, register));
            }
            Content::Block { .. } => {
                write!(out, "\n**{}**: {}\n", item.name, item.description)
                    .expect("a string takes all");
            }
        }
    }
    out
}

fn fields(path: &str, item: &Item, register: &Register) -> String {
    let mut out = format!("\n### {path}\n\n{}\n", item.description);
    table(&mut out, &["Bits", "Field", "Access", "After a reset", "What"]);
    for field in &register.fields {
        let reset = match field.reset {
            None => "of the board".to_owned(),
            Some(reset @ 0..=9) => reset.to_string(),
            Some(reset) => format!("0x{reset:x}"),
        };
        let mut what = field.description.clone();
        if let Some(encoding) = &field.encoding {
            what = format!("{what} See {}.", link(encoding));
        }
        row(&mut out, &[&field.bits(), &field.name, &field.access_words(), &reset, &what]);
    }
    out
}

fn values(model: &Model, encoding: &Enum) -> String {
    let users: Vec<String> = model.users(encoding).map(|(path, _)| path).collect();
    let mut out = format!("\n### {}\n\nOf {}.\n", encoding.name, users.join(", "));
    table(&mut out, &["Value", "Name", "What"]);
    for member in &encoding.members {
        row(&mut out, &[&member.value.to_string(), &member.name, &member.description]);
    }
    out
}
