//! The Rust accessors: a module for each type of block, one of the enumerations, and a table of
//! all registers; and lists of all accessors and fields for the tests.

mod tests;

use std::fmt::Write;

use super::model::{Access, Content, Enum, Field, Item, Map, Model, Register, Type};
use super::text::{MADE, pascal, upper, wrapped};

/// Letters in a line of documentation.
const DOC_WIDTH: usize = 96;

/// Every source file with its text, before rustfmt.
pub(super) fn sources(model: &Model) -> Vec<(String, String)> {
    let mut sources: Vec<(String, String)> =
        model.types.iter().map(|kind| (module_path(&kind.name), block(kind))).collect();
    sources.push((module_path(&model.card().name), card(model.card())));
    sources.push((module_path("values"), values(model)));
    sources.push((module_path("registers"), registers(model)));
    sources.push((module_path("mod"), modules(model)));
    sources.push(("rust/tests/map/accessors.rs".to_owned(), tests::accessors(model)));
    sources.push(("rust/tests/map/fields.rs".to_owned(), tests::fields(model)));
    sources
}

fn module_path(name: &str) -> String {
    format!("rust/src/map/{name}.rs")
}

/// A source file's beginning.
fn file(description: &str) -> String {
    format!("{}\n// {MADE}\n\n", wrapped(description, "//!", DOC_WIDTH))
}

fn doc(text: &str) -> String {
    wrapped(text, "///", DOC_WIDTH)
}

fn modules(model: &Model) -> String {
    let mut out = file("The map: a module for each type of block.");
    let mut names: Vec<&str> = model.types.iter().map(|kind| &*kind.name).collect();
    names.extend([&*model.card().name, "values"]);
    names.sort_unstable();
    for name in names {
        writeln!(out, "pub mod {name};").expect("a string takes all");
    }
    out + "mod registers;\n\npub use card::Card;\npub use registers::REGISTERS;\n"
}

fn card(map: &Map) -> String {
    let mut out = file(&map.description);
    out.push_str(&uses(&map.items));
    out.push_str(&block_struct(&map.name, &map.description, map.size, &map.items));
    out
}

fn block(kind: &Type) -> String {
    let mut out = file(&kind.description);
    out.push_str(&uses(&kind.items));
    out.push_str(&block_struct(&kind.name, &kind.description, kind.size, &kind.items));
    for item in &kind.items {
        if let Content::Register(register) = &item.content {
            out.push_str(&value(item, register));
        }
    }
    out
}

/// What a module needs from others.
fn uses(items: &[Item]) -> String {
    let mut names = vec!["Bus"];
    let mut out = String::new();
    let mut enums = false;
    for item in items {
        match &item.content {
            Content::Block { kind } => {
                let line = format!("use super::{kind}::{};\n", pascal(kind));
                if !out.contains(&line) {
                    out.push_str(&line);
                }
            }
            Content::Register(register) => {
                names.extend(["Register", "Value", marker(register.access())]);
                for field in &register.fields {
                    enums |= field.encoding.is_some();
                    if field.encoding.is_none() && !matches!(field.width(), 1 | 8 | 16 | 32) {
                        names.push("Bits");
                    }
                }
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    if enums {
        out.push_str("use super::values;\n");
    }
    format!("{out}use crate::{{{}}};\n\n", names.join(", "))
}

fn marker(access: Access) -> &'static str {
    match access {
        Access::ReadOnly => "ReadOnly",
        Access::WriteOnly => "WriteOnly",
        Access::ReadWrite => "ReadWrite",
        Access::ReadWriteEffect => "ReadWriteEffect",
    }
}

/// A block: a bus and an offset, and from there to its registers and blocks.
fn block_struct(name: &str, description: &str, size: u32, items: &[Item]) -> String {
    let ident = pascal(name);
    let description = doc(description);
    let accessors: String = items.iter().map(accessor).collect();
    let counts: String = items.iter().filter_map(count).collect();
    format!(
        "/// Bytes from the block's beginning to behind its last register.
         pub const SIZE: u32 = 0x{size:x};
         {counts}
         {description}#[derive(Clone, Copy, Debug)]
         pub struct {ident}<B> {{
             bus: B,
             base: u32,
         }}

         impl<B: Bus + Copy> {ident}<B> {{
             /// The block that begins `base` bytes from the bus's origin.
             #[inline(always)]
             pub const fn at(bus: B, base: u32) -> Self {{
                 Self {{ bus, base }}
             }}
             {accessors}
         }}
         "
    )
}

/// How many there are of an array.
fn count(item: &Item) -> Option<String> {
    let count = item.array.as_ref()?.count;
    let name = &item.name;
    let constant = count_name(name);
    Some(format!("/// How many `{name}` there are.\npub const {constant}: usize = {count};\n"))
}

fn count_name(name: &str) -> String {
    format!("{}_COUNT", upper(name))
}

fn accessor(item: &Item) -> String {
    let (name, offset) = (&item.name, item.offset);
    let mut at =
        if offset == 0 { "self.base".to_owned() } else { format!("self.base + 0x{offset:x}") };
    if let Some(array) = &item.array {
        at.push_str(&format!(" + index as u32 * 0x{:x}", array.stride));
    }
    let mut description = doc(&item.description);
    let (result, make) = match &item.content {
        Content::Block { kind } => {
            let kind = pascal(kind);
            (format!("{kind}<B>"), format!("{kind}::at(self.bus, {at})"))
        }
        Content::Register(register) => {
            let access = register.access();
            let about = format!(
                "Offset 0x{offset:02x}, {}; after a reset {}.",
                access.words(),
                register.reset_words()
            );
            description.push_str(&format!("///\n{}", doc(&about)));
            let result = format!("Register<B, {}, {}>", pascal(name), marker(access));
            (result, format!("Register::at(self.bus, {at})"))
        }
    };
    if item.array.is_none() {
        return format!(
            "
            {description}#[inline(always)]
            pub const fn {name}(self) -> {result} {{
                {make}
            }}
            "
        );
    }
    let count = count_name(name);
    format!(
        "
        {description}///
        /// None if `index` is not below [`{count}`].
        #[inline(always)]
        pub const fn {name}(self, index: usize) -> Option<{result}> {{
            if index < {count} {{ Some({make}) }} else {{ None }}
        }}
        "
    )
}

/// What a register holds.
fn value(item: &Item, register: &Register) -> String {
    let ident = pascal(&item.name);
    let description = doc(&item.description);
    let reset = register.reset();
    let mut reset_doc = "What it holds after a reset.".to_owned();
    if register.board_bits() != 0 {
        reset_doc.push_str(" Bits of the board's are 0 here.");
    }
    let reset_doc = doc(&reset_doc);
    let fields: String = register.fields.iter().map(field_methods).collect();
    format!(
        "
        {description}#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct {ident}(u32);

        impl {ident} {{
            {reset_doc}pub const RESET: Self = Self(0x{reset:08x});

            /// From all bits of the register.
            #[inline(always)]
            pub const fn from_bits(bits: u32) -> Self {{
                Self(bits)
            }}

            /// All bits of the register.
            #[inline(always)]
            pub const fn bits(self) -> u32 {{
                self.0
            }}
            {fields}
        }}

        impl Value for {ident} {{
            #[inline(always)]
            fn from_bits(bits: u32) -> Self {{
                Self(bits)
            }}

            #[inline(always)]
            fn bits(self) -> u32 {{
                self.0
            }}
        }}
        "
    )
}

/// What a field is in Rust.
fn field_type(field: &Field) -> String {
    match (&field.encoding, field.width()) {
        (Some(encoding), _) => format!("values::{}", pascal(encoding)),
        (None, 1) => "bool".to_owned(),
        (None, width @ (8 | 16 | 32)) => format!("u{width}"),
        (None, width) => format!("Bits<{width}>"),
    }
}

/// A field's getter and setter.
fn field_methods(field: &Field) -> String {
    let (name, low, mask) = (&field.name, field.low, field.mask());
    let shifted = if low == 0 { "self.0".to_owned() } else { format!("self.0 >> {low}") };
    let kind = field_type(field);
    let get = match (&field.encoding, field.width()) {
        (Some(_), _) => format!("{kind}::from_bits({shifted})"),
        (None, 1) => format!("self.0 & 0x{mask:x} != 0"),
        (None, 32) => shifted,
        (None, 8 | 16) if low == 0 => format!("{shifted} as {kind}"),
        (None, 8 | 16) => format!("({shifted}) as {kind}"),
        (None, _) => format!("Bits::low_of({shifted})"),
    };
    let bits = match (&field.encoding, field.width()) {
        (Some(_), _) => format!("{name}.bits()"),
        (None, 32) => name.clone(),
        (None, 1 | 8 | 16) => format!("({name} as u32)"),
        (None, _) => format!("{name}.get()"),
    };
    let bits = if low == 0 { bits } else { format!("({bits} << {low})") };
    let set = if mask == u32::MAX { bits } else { format!("(self.0 & !0x{mask:x}) | {bits}") };
    let which = if field.width() == 1 { "Bit" } else { "Bits" };
    let about = doc(&format!("{which} {}, {}.", field.bits(), field.access_words()));
    let description = doc(&field.description);
    let setter_doc = doc(&match field.software.as_str() {
        "r" => format!("With another [`{name}`](Self::{name}), as the hardware does it."),
        _ => format!("With another [`{name}`](Self::{name})."),
    });
    format!(
        "
        {description}///
        {about}#[inline(always)]
        pub const fn {name}(self) -> {kind} {{
            {get}
        }}

        {setter_doc}#[inline(always)]
        #[must_use]
        pub const fn with_{name}(self, {name}: {kind}) -> Self {{
            Self({set})
        }}
        "
    )
}

fn values(model: &Model) -> String {
    let mut out = file("What fields of a few bits say.");
    let body: String = model.enums.iter().map(|encoding| value_enum(model, encoding)).collect();
    if body.contains("Bits<") {
        out.push_str("use crate::Bits;\n\n");
    }
    out + &body
}

fn value_enum(model: &Model, encoding: &Enum) -> String {
    let width = model.width_of(encoding).expect("the model was checked");
    let users: Vec<String> = model.users(encoding).map(|(path, _)| format!("`{path}`")).collect();
    let description = doc(&format!("What {} says.", users.join(" or ")));
    let ident = pascal(&encoding.name);
    let complete = encoding.members.len() == 1 << width;
    let (mut variants, mut from, mut to) = (String::new(), String::new(), String::new());
    for (index, member) in encoding.members.iter().enumerate() {
        let (name, number) = (pascal(&member.name), member.value);
        writeln!(variants, "{}{name},", doc(&member.description)).expect("a string takes all");
        let last = complete && index + 1 == encoding.members.len();
        let pattern = if last { "_".to_owned() } else { number.to_string() };
        writeln!(from, "{pattern} => Self::{name},").expect("a string takes all");
        writeln!(to, "Self::{name} => {number},").expect("a string takes all");
    }
    if !complete {
        write!(variants, "/// No meaning is known.\nUnknown(Bits<{width}>),\n")
            .expect("a string takes all");
        from.push_str("other => Self::Unknown(Bits::low_of(other)),\n");
        to.push_str("Self::Unknown(bits) => bits.get(),\n");
    }
    let mask = u32::MAX >> (32 - width);
    format!(
        "
        {description}#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum {ident} {{
            {variants}
        }}

        impl {ident} {{
            /// From a field's bits; higher ones are ignored.
            #[inline(always)]
            pub const fn from_bits(bits: u32) -> Self {{
                match bits & 0x{mask:x} {{
                    {from}
                }}
            }}

            /// As a field holds it.
            #[inline(always)]
            pub const fn bits(self) -> u32 {{
                match self {{
                    {to}
                }}
            }}
        }}
        "
    )
}

/// A table of all registers, in the order of their addresses.
fn registers(model: &Model) -> String {
    let mut out = file("All registers in one table, for models of the hardware.");
    let mut lines = Vec::new();
    model.each_register(model.card(), &mut |path, address, register| {
        lines.push((
            address,
            format!(
                "entry({path:?}, 0x{address:04x}, Access::{}, 0x{:x}, 0x{:x}),\n",
                marker(register.access()),
                register.reset(),
                register.board_bits()
            ),
        ));
    });
    lines.sort_unstable();
    let count = lines.len();
    let lines: String = lines.into_iter().map(|(_, line)| line).collect();
    write!(
        out,
        "use crate::{{Access, RegisterInfo}};

        const fn entry(
            path: &'static str,
            address: u32,
            access: Access,
            reset: u32,
            from_board: u32,
        ) -> RegisterInfo {{
            RegisterInfo {{ path, address, access, reset, from_board }}
        }}

        /// Every register of the map, in the order of their addresses.
        pub const REGISTERS: [RegisterInfo; {count}] = [
        {lines}];
        "
    )
    .expect("a string takes all");
    out
}
