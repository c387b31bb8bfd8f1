//! The register map as the compiler understood it, and the rules that it keeps besides the
//! language's.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// All of it.
#[derive(Deserialize)]
pub(super) struct Model {
    pub(super) maps: Vec<Map>,
    pub(super) types: Vec<Type>,
    pub(super) enums: Vec<Enum>,
    /// Every register of every map, with the compiler's address for it.
    pub(super) registers: Vec<Located>,
}

/// What is at addresses, or lies in memory.
#[derive(Deserialize)]
pub(super) struct Map {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) size: u32,
    pub(super) items: Vec<Item>,
}

/// Blocks that are alike.
#[derive(Deserialize)]
pub(super) struct Type {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) size: u32,
    pub(super) items: Vec<Item>,
}

/// A register or a block, or an array of them.
#[derive(Deserialize)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) offset: u32,
    pub(super) array: Option<Array>,
    #[serde(flatten)]
    pub(super) content: Content,
}

#[derive(Deserialize)]
pub(super) struct Array {
    pub(super) count: u32,
    pub(super) stride: u32,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Register(Register),
    Block {
        #[serde(rename = "type")]
        kind: String,
    },
}

#[derive(Deserialize)]
pub(super) struct Register {
    width: u32,
    pub(super) fields: Vec<Field>,
}

#[derive(Deserialize)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) low: u32,
    pub(super) high: u32,
    /// SystemRDL's `sw`: r, w or rw.
    pub(super) software: String,
    /// SystemRDL's `onread`: what reading does besides.
    onread: Option<String>,
    /// SystemRDL's `onwrite`: what writing does instead.
    onwrite: Option<String>,
    /// Each write does something of its own.
    #[serde(default)]
    swmod: bool,
    /// The board gives the value that it has after a reset.
    #[serde(default)]
    pub(super) from_board: bool,
    pub(super) reset: Option<u32>,
    #[serde(rename = "enum")]
    pub(super) encoding: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Enum {
    pub(super) name: String,
    pub(super) members: Vec<Member>,
}

#[derive(Deserialize)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) value: u32,
    pub(super) description: String,
}

#[derive(Deserialize)]
pub(super) struct Located {
    pub(super) map: String,
    pub(super) path: String,
    pub(super) address: u32,
}

/// What firmware may do with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    ReadOnly,
    WriteOnly,
    ReadWrite,
    /// Reads and writes, but writing what was read is no good.
    ReadWriteEffect,
}

impl Access {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WriteOnly => "write-only",
            Self::ReadWrite => "read and write",
            Self::ReadWriteEffect => "read and write, each write with an effect",
        }
    }
}

impl Model {
    /// From the JSON text.
    ///
    /// # Errors
    ///
    /// With everything that breaks a rule.
    pub(super) fn read(json: &str) -> Result<Self> {
        let model: Self = serde_json::from_str(json).context("the register map's JSON")?;
        let mut wrong = Vec::new();
        for map in &model.maps {
            model.check_items(&map.name, &map.description, &map.items, &mut wrong);
        }
        for kind in &model.types {
            model.check_items(&kind.name, &kind.description, &kind.items, &mut wrong);
        }
        for encoding in &model.enums {
            for member in &encoding.members {
                described(
                    &format!("{}.{}", encoding.name, member.name),
                    &member.description,
                    &mut wrong,
                );
            }
            if let Err(error) = model.width_of(encoding) {
                wrong.push(error.to_string());
            }
        }
        if wrong.is_empty() {
            model.check_addresses(&mut wrong);
        }
        if !wrong.is_empty() {
            bail!("the register map breaks its rules:\n{}", wrong.join("\n"));
        }
        Ok(model)
    }

    fn check_items(&self, name: &str, description: &str, items: &[Item], wrong: &mut Vec<String>) {
        described(name, description, wrong);
        for item in items {
            let path = format!("{name}.{}", item.name);
            described(&path, &item.description, wrong);
            match &item.content {
                Content::Register(register) => {
                    register.check(&path, wrong);
                    if !item.offset.is_multiple_of(4) {
                        wrong.push(format!("{path} does not lie at a multiple of 4"));
                    }
                }
                Content::Block { kind } => {
                    if !self.types.iter().any(|known| known.name == *kind) {
                        wrong.push(format!("{path} is of a type {kind} that is not there"));
                    }
                }
            }
        }
    }

    /// Whether offsets and strides come to the addresses that the compiler gives.
    fn check_addresses(&self, wrong: &mut Vec<String>) {
        for map in &self.maps {
            let located = self.registers.iter().filter(|register| register.map == map.name);
            let mut compiled: HashMap<&str, u32> =
                located.map(|register| (&*register.path, register.address)).collect();
            self.each_register(map, &mut |path, address, _| match compiled.remove(path) {
                Some(known) if known == address => {}
                known => wrong.push(format!(
                    "{}.{path} comes to 0x{address:x}; the compiler has it at {known:x?}",
                    map.name
                )),
            });
            wrong.extend(compiled.keys().map(|path| format!("{}.{path} is in no block", map.name)));
        }
    }

    /// Every register of a map, each of an array's, with its path and its address.
    pub(super) fn each_register<'a>(
        &'a self,
        map: &'a Map,
        see: &mut dyn FnMut(&str, u32, &'a Register),
    ) {
        self.walk(&map.items, "", 0, see);
    }

    fn walk<'a>(
        &'a self,
        items: &'a [Item],
        above: &str,
        base: u32,
        see: &mut dyn FnMut(&str, u32, &'a Register),
    ) {
        for item in items {
            for index in 0..item.array.as_ref().map_or(1, |array| array.count) {
                let (step, name) = match &item.array {
                    None => (0, item.name.clone()),
                    Some(array) => (array.stride * index, format!("{}[{index}]", item.name)),
                };
                let path = if above.is_empty() { name } else { format!("{above}.{name}") };
                let address = base + item.offset + step;
                match &item.content {
                    Content::Register(register) => see(&path, address, register),
                    Content::Block { kind } => {
                        self.walk(&self.kind(kind).items, &path, address, see);
                    }
                }
            }
        }
    }

    /// The type of this name.
    ///
    /// # Panics
    ///
    /// If there is none: [`Model::read`] has seen to that.
    pub(super) fn kind(&self, name: &str) -> &Type {
        self.types.iter().find(|kind| kind.name == name).expect("every type is there")
    }

    /// The map that is at addresses.
    pub(super) fn card(&self) -> &Map {
        self.maps.iter().find(|map| map.name == "card").expect("the map is called card")
    }

    /// Where registers lie in blocks: of the maps' and the types' items.
    fn all_items(&self) -> impl Iterator<Item = (&str, &Item)> {
        let maps = self.maps.iter().map(|map| (&*map.name, &map.items));
        let types = self.types.iter().map(|kind| (&*kind.name, &kind.items));
        maps.chain(types).flat_map(|(name, items)| items.iter().map(move |item| (name, item)))
    }

    /// Paths of the fields with this encoding, such as `slot.status.link`.
    pub(super) fn users<'a>(
        &'a self,
        encoding: &'a Enum,
    ) -> impl Iterator<Item = (String, &'a Field)> {
        self.all_items().flat_map(move |(block, item)| {
            let fields = match &item.content {
                Content::Register(register) => &register.fields[..],
                Content::Block { .. } => &[],
            };
            fields
                .iter()
                .filter(|field| field.encoding.as_deref() == Some(&encoding.name))
                .map(move |field| (format!("{block}.{}.{}", item.name, field.name), field))
        })
    }

    /// Bits of the fields with this encoding.
    ///
    /// # Errors
    ///
    /// If they differ, or a value does not fit.
    pub(super) fn width_of(&self, encoding: &Enum) -> Result<u32> {
        let mut widths: Vec<u32> = self.users(encoding).map(|(_, field)| field.width()).collect();
        widths.dedup();
        let [width] = widths[..] else {
            bail!("{} is in fields of {widths:?} bits: one width it must be", encoding.name);
        };
        if let Some(member) = encoding.members.iter().find(|member| member.value >> width != 0) {
            bail!("{}.{} does not fit into {width} bits", encoding.name, member.name);
        }
        Ok(width)
    }

    /// A few words for the summary.
    pub(super) fn counts(&self) -> String {
        let fields: usize = self
            .all_items()
            .map(|(_, item)| match &item.content {
                Content::Register(register) => register.fields.len(),
                Content::Block { .. } => 0,
            })
            .sum();
        format!("{} registers, {fields} fields", self.registers.len())
    }
}

impl Register {
    fn check(&self, path: &str, wrong: &mut Vec<String>) {
        if self.width != 32 {
            wrong.push(format!("{path} has {} bits and not 32", self.width));
        }
        for field in &self.fields {
            let path = format!("{path}.{}", field.name);
            described(&path, &field.description, wrong);
            if field.reset.is_some() == field.from_board {
                wrong.push(format!("{path} needs a reset value or from_board, and not both"));
            }
            if field.reset.is_some_and(|reset| field.width() < 32 && reset >> field.width() != 0) {
                wrong.push(format!("the reset value of {path} does not fit into it"));
            }
        }
        let ones = self.fields.iter().any(|field| field.onwrite.is_some());
        let plain = self.fields.iter().any(|f| f.software == "rw" && f.onwrite.is_none());
        if ones && plain {
            wrong.push(format!("{path} mixes bits that 1 is written to with settings"));
        }
        let write_only = self.fields.iter().any(|field| field.software == "w");
        let readable = self.fields.iter().any(|field| field.software != "w");
        if write_only && readable {
            wrong.push(format!("{path} mixes write-only fields with others"));
        }
    }

    pub(super) fn access(&self) -> Access {
        let any = |is: fn(&Field) -> bool| self.fields.iter().any(is);
        match (any(|f| f.software.contains('r')), any(|f| f.software.contains('w'))) {
            (false, _) => Access::WriteOnly,
            (true, false) => Access::ReadOnly,
            (true, true) if any(|f| f.onwrite.is_some() || f.swmod) => Access::ReadWriteEffect,
            (true, true) => Access::ReadWrite,
        }
    }

    /// What it holds after a reset, bits of the board's left 0.
    pub(super) fn reset(&self) -> u32 {
        self.fields.iter().map(|field| field.reset.unwrap_or(0) << field.low).sum()
    }

    /// Bits that the board gives.
    pub(super) fn board_bits(&self) -> u32 {
        self.fields.iter().filter(|field| field.from_board).map(Field::mask).sum()
    }

    /// The reset value in words.
    pub(super) fn reset_words(&self) -> String {
        match (self.board_bits(), self.reset()) {
            (0, reset) => format!("0x{reset:08x}"),
            (_, 0) => "of the board".to_owned(),
            (_, reset) => format!("0x{reset:08x} and of the board"),
        }
    }
}

impl Field {
    pub(super) fn width(&self) -> u32 {
        self.high - self.low + 1
    }

    /// Its bits in the register.
    pub(super) fn mask(&self) -> u32 {
        (u32::MAX >> (32 - self.width())) << self.low
    }

    /// Its bits as people write them.
    pub(super) fn bits(&self) -> String {
        if self.width() == 1 { self.low.to_string() } else { format!("{}:{}", self.high, self.low) }
    }

    /// What firmware may do with it, and what that does besides.
    pub(super) fn access_words(&self) -> String {
        let mut words = self.software.clone();
        words.push_str(match self.onread.as_deref() {
            None => "",
            Some("rclr") => ", cleared by reading",
            Some(_) => ", reading has an effect",
        });
        words.push_str(match (self.onwrite.as_deref(), self.swmod) {
            (Some("woclr"), _) => ", 1 clears",
            (Some("woset"), _) => ", 1 sets",
            (Some(_), _) | (None, true) => ", writing has an effect",
            (None, false) => "",
        });
        words
    }
}

fn described(path: &str, description: &str, wrong: &mut Vec<String>) {
    if !description.ends_with('.') {
        wrong.push(format!("{path} needs a description, in whole sentences"));
    }
}

#[cfg(test)]
mod tests;
