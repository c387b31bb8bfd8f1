//! For the tests of the accessors: lists of all of them.

use std::fmt::Write;

use super::{field_type, file, pascal};
use crate::regs::model::{Content, Field, Model};

/// Every register's accessor, with the path that it belongs to.
pub(super) fn accessors(model: &Model) -> String {
    let mut out = file("The address that each accessor comes to, by its path.");
    let mut lines = String::new();
    model.each_register(model.card(), &mut |path, _, _| {
        let calls: Vec<String> = path
            .split('.')
            .map(|part| match part.split_once('[') {
                None => format!("{part}()"),
                Some((name, index)) => {
                    format!("{name}({}).unwrap()", index.trim_end_matches(']'))
                }
            })
            .collect();
        writeln!(lines, "({path:?}, card.{}.address()),", calls.join("."))
            .expect("a string takes all");
    });
    write!(
        out,
        "use card_regs::{{Bus, Card}};

        /// Paths and addresses.
        pub(crate) fn addresses<B: Bus + Copy>(card: Card<B>) -> Vec<(&'static str, u32)> {{
            vec![
            {lines}]
        }}
        "
    )
    .expect("a string takes all");
    out
}

/// Every field, with what sets it to zeros and to ones.
pub(super) fn fields(model: &Model) -> String {
    let mut out = file("Every field, by its path, and the bits that it has.");
    let mut lines = String::new();
    for kind in &model.types {
        for item in &kind.items {
            let Content::Register(register) = &item.content else { continue };
            let holds = format!("{}::{}", kind.name, pascal(&item.name));
            for field in &register.fields {
                let name = &field.name;
                let path = format!("{}.{}.{name}", kind.name, item.name);
                let (zeros, ones) = extremes(field);
                writeln!(
                    lines,
                    "bits_of!({path:?}, {holds}, {name}, with_{name}, {zeros}, {ones}),"
                )
                .expect("a string takes all");
            }
        }
    }
    write!(
        out,
        "use card_regs::*;

        /// Paths and bits.
        pub(crate) fn fields() -> Vec<(&'static str, u32)> {{
            vec![
            {lines}]
        }}
        "
    )
    .expect("a string takes all");
    out
}

/// A field's value with all bits clear, and with all set.
fn extremes(field: &Field) -> (String, String) {
    let kind = field_type(field);
    match (&field.encoding, field.width()) {
        (Some(_), _) => (format!("{kind}::from_bits(0)"), format!("{kind}::from_bits(u32::MAX)")),
        (None, 1) => ("false".to_owned(), "true".to_owned()),
        (None, 8 | 16 | 32) => ("0".to_owned(), format!("{kind}::MAX")),
        (None, _) => ("Bits::low_of(0)".to_owned(), "Bits::MAX".to_owned()),
    }
}
