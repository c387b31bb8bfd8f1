//! The attributes that devices have, and of what kind their values are.

/// Longest name of an attribute, bytes.
const MAX_NAME: usize = 64;

/// What an attribute's values are, which says how they are read and whether they have an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A text without an order; upper and lower case are alike.
    Text,
    /// A number in hexadecimal digits.
    Hex,
    /// A number of bytes.
    Amount,
    /// A whole number.
    Number,
    /// What an extra attribute has: a text, a number, yes or no.
    Extra,
}

/// The attributes that every device has, or may have.
pub const BUILT_IN: &[(&str, ValueKind)] = &[
    ("box", ValueKind::Text),
    ("class", ValueKind::Hex),
    ("device", ValueKind::Hex),
    ("firmware", ValueKind::Text),
    ("functions", ValueKind::Number),
    ("kind", ValueKind::Text),
    ("memory", ValueKind::Amount),
    ("model", ValueKind::Text),
    ("rack", ValueKind::Text),
    ("serial", ValueKind::Hex),
    ("site", ValueKind::Text),
    ("slot", ValueKind::Number),
    ("vendor", ValueKind::Hex),
    // Names of what CEL expressions see, and of what may be asked for later.
    ("attributes", ValueKind::Extra),
    ("health", ValueKind::Text),
];

/// Whether an attribute has a meaning of its own.
pub fn is_built_in(name: &str) -> bool {
    BUILT_IN.iter().any(|(built_in, _)| *built_in == name)
}

/// Whether an attribute can be called so.
pub fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'))
}

/// Of what kind an attribute's values are.
pub fn kind_of(name: &str) -> ValueKind {
    let known = BUILT_IN.iter().find(|(built_in, _)| *built_in == name);
    known.map_or(ValueKind::Extra, |(_, kind)| *kind)
}
