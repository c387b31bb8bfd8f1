//! The C header.

use std::collections::HashSet;
use std::fmt::Write;

use anyhow::{Result, bail};

use super::model::{Content, Field, Item, Model, Register};
use super::text::{MADE, upper};

/// The header's text.
///
/// # Errors
///
/// If two names come out the same.
pub(super) fn header(model: &Model) -> Result<String> {
    let mut macros = Macros::default();
    let card = model.card();
    macros.section(&card.description);
    macros.define("CARD_SIZE", &format!("0x{:x}u", card.size), "");
    addresses(model, &mut macros, &card.items, "CARD", &Place::default());
    for kind in &model.types {
        macros.section(&format!("{}: {}", kind.name, kind.description));
        let in_memory = !reached(model, &card.items, &kind.name);
        for item in &kind.items {
            let name = format!("CARD_{}_{}", upper(&kind.name), upper(&item.name));
            let Content::Register(register) = &item.content else { continue };
            if in_memory {
                macros.define(&format!("{name}_OFFSET"), &format!("0x{:x}u", item.offset), "");
            }
            fields(&mut macros, &name, register);
        }
    }
    for encoding in &model.enums {
        let users: Vec<String> = model.users(encoding).map(|(path, _)| path).collect();
        macros.section(&format!("What {} says.", users.join(" or ")));
        for member in &encoding.members {
            let name = format!("CARD_{}_{}", upper(&encoding.name), upper(&member.name));
            macros.define(&name, &format!("{}u", member.value), &member.description);
        }
    }
    let Macros { text, twice, .. } = macros;
    if !twice.is_empty() {
        bail!("names in the C header that are there twice: {}", twice.join(", "));
    }
    Ok(format!(
        "/*
 * {MADE}
 *
 * Addresses are in bytes from the map's beginning. Fields are named by the type of block, since
 * they are the same in all blocks of it. Registers are read and written as a whole, through a
 * pointer to volatile uint32_t.
 */
#ifndef DXPU_CARD_H
#define DXPU_CARD_H
{text}
#endif
"
    ))
}

/// Where a block is: a number, and for arrays on the way their index times their stride.
#[derive(Clone, Default)]
struct Place {
    base: u32,
    /// Names of the macro's parameters, with their strides.
    steps: Vec<(String, u32)>,
}

impl Place {
    fn parameters(&self) -> String {
        if self.steps.is_empty() {
            return String::new();
        }
        let names: Vec<&str> = self.steps.iter().map(|(name, _)| &**name).collect();
        format!("({})", names.join(", "))
    }

    fn value(&self) -> String {
        if self.steps.is_empty() {
            return format!("0x{:04x}u", self.base);
        }
        let steps: String = self
            .steps
            .iter()
            .map(|(name, stride)| format!(" + 0x{stride:x}u * ({name})"))
            .collect();
        format!("(0x{:04x}u{steps})", self.base)
    }
}

fn addresses(model: &Model, macros: &mut Macros, items: &[Item], path: &str, place: &Place) {
    for item in items {
        let name = format!("{path}_{}", upper(&item.name));
        let mut place = place.clone();
        place.base += item.offset;
        if let Some(array) = &item.array {
            macros.define(&format!("{name}_COUNT"), &format!("{}u", array.count), "");
            place.steps.push((item.name.clone(), array.stride));
        }
        match &item.content {
            Content::Register(_) => {
                macros.define(&format!("{name}{}", place.parameters()), &place.value(), "");
            }
            Content::Block { kind } => {
                addresses(model, macros, &model.kind(kind).items, &name, &place);
            }
        }
    }
}

/// Whether a block of this type is somewhere below.
fn reached(model: &Model, items: &[Item], wanted: &str) -> bool {
    items.iter().any(|item| match &item.content {
        Content::Register(_) => false,
        Content::Block { kind } => {
            kind == wanted || reached(model, &model.kind(kind).items, wanted)
        }
    })
}

fn fields(macros: &mut Macros, name: &str, register: &Register) {
    macros.define(&format!("{name}_RESET"), &format!("0x{:08x}u", register.reset()), "");
    for field in &register.fields {
        let name = format!("{name}_{}", upper(&field.name));
        let Field { low, .. } = field;
        macros.define(&format!("{name}_SHIFT"), &format!("{low}u"), "");
        macros.define(&format!("{name}_MASK"), &format!("0x{:08x}u", field.mask()), "");
    }
}

/// Definitions, each name once.
#[derive(Default)]
struct Macros {
    text: String,
    names: HashSet<String>,
    twice: Vec<String>,
}

impl Macros {
    fn section(&mut self, about: &str) {
        let about = super::text::wrapped(about, " *", 98);
        write!(self.text, "\n/*\n{about} */\n").expect("a string takes all");
    }

    fn define(&mut self, name: &str, value: &str, about: &str) {
        let about = if about.is_empty() { String::new() } else { format!(" /* {about} */") };
        writeln!(self.text, "#define {name} {value}{about}").expect("a string takes all");
        let bare = name.split('(').next().unwrap_or(name).to_owned();
        if !self.names.insert(bare.clone()) {
            self.twice.push(bare);
        }
    }
}
