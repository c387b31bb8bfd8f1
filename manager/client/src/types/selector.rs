//! Selectors: which devices will do, by their attributes.
//!
//! As text, conditions with commas between them, all of which must hold:
//!
//! ```text
//! model=h200|h100,memory>=80G,rack!=r3,arch,!faulty
//! ```
//!
//! As a structure, a list of [`Condition`]s. [`Selector`] is checked when it is made.

use super::amount::Amount;
use super::topology::{AttributeValue, MAX_VALUE, parse_serial};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// Longest selector, bytes of text.
pub const MAX_SELECTOR: usize = 1024;

/// Most conditions of a selector.
pub const MAX_CONDITIONS: usize = 32;

/// Most values of one condition.
pub const MAX_VALUES: usize = 32;

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

/// How a device's attribute is compared.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum Comparison {
    /// It is one of the values.
    #[serde(rename = "=")]
    Is,
    /// It is none of the values, or the device has no such attribute.
    #[serde(rename = "!=")]
    IsNot,
    /// It is the value or above.
    #[serde(rename = ">=")]
    AtLeast,
    /// It is above the value.
    #[serde(rename = ">")]
    Above,
    /// It is the value or below.
    #[serde(rename = "<=")]
    AtMost,
    /// It is below the value.
    #[serde(rename = "<")]
    Below,
    /// The device has it, whatever it is.
    #[serde(rename = "has")]
    Has,
    /// The device does not have it.
    #[serde(rename = "lacks")]
    Lacks,
}

impl Comparison {
    /// Between the attribute and its values; nothing of those that have none.
    const fn sign(self) -> &'static str {
        match self {
            Self::Is => "=",
            Self::IsNot => "!=",
            Self::AtLeast => ">=",
            Self::Above => ">",
            Self::AtMost => "<=",
            Self::Below => "<",
            Self::Has | Self::Lacks => "",
        }
    }

    const fn is_range(self) -> bool {
        matches!(self, Self::AtLeast | Self::Above | Self::AtMost | Self::Below)
    }

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::AtLeast => ordering.is_ge(),
            Self::Above => ordering.is_gt(),
            Self::AtMost => ordering.is_le(),
            Self::Below => ordering.is_lt(),
            Self::Is | Self::IsNot | Self::Has | Self::Lacks => false,
        }
    }
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// The attribute: one that every device has, or an extra one of the inventory.
    #[serde(deserialize_with = "attribute_name")]
    #[schema(pattern = "^[a-z][a-z0-9_-]{0,63}$", example = "memory")]
    pub attribute: String,
    /// How it is compared.
    pub is: Comparison,
    /// With what: for `=` and `!=` one or more, for ranges one, else none.
    #[serde(default, deserialize_with = "attribute_values", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub values: Vec<String>,
}

/// Reads [`Condition::attribute`], so that an error names that field.
fn attribute_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if !is_name(&name) {
        return Err(de::Error::custom(no_name(&name)));
    }
    Ok(name)
}

/// Reads [`Condition::values`], so that an error names that field.
fn attribute_values<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let values = Vec::deserialize(deserializer)?;
    if values.len() > MAX_VALUES {
        return Err(de::Error::custom(format!(
            "at most {MAX_VALUES} values, not {}",
            values.len()
        )));
    }
    Ok(values)
}

fn no_name(name: &str) -> String {
    format!("{name:?} is no attribute: small letters, digits, _ and -, a letter first")
}

/// What a device has under the name of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held<'a> {
    /// A text.
    Text(&'a str),
    /// A number.
    Number(i128),
    /// An extra attribute.
    Extra(&'a AttributeValue),
}

impl Condition {
    /// What is wrong with it.
    fn fault(&self) -> Option<String> {
        let name = &self.attribute;
        if !is_name(name) {
            return Some(no_name(name));
        }
        if name == "attributes" || name == "health" {
            return Some(format!("{name} is nothing that a selector can ask for"));
        }
        let count = self.values.len();
        let right = match self.is {
            Comparison::Is | Comparison::IsNot => (1..=MAX_VALUES).contains(&count),
            Comparison::Has | Comparison::Lacks => count == 0,
            _ => count == 1,
        };
        if !right {
            return Some(match self.is {
                Comparison::Is | Comparison::IsNot => {
                    format!("{name}: 1 to {MAX_VALUES} values, not {count}")
                }
                Comparison::Has | Comparison::Lacks => format!("{name}: no value, not {count}"),
                _ => format!("{name}: one value, not {count}"),
            });
        }
        let kind = kind_of(name);
        if self.is.is_range() && kind == ValueKind::Text {
            return Some(format!("{name} has no order; use = or !="));
        }
        self.values.iter().find_map(|value| self.value_fault(kind, value))
    }

    fn value_fault(&self, kind: ValueKind, value: &str) -> Option<String> {
        let name = &self.attribute;
        if value.is_empty() || value.len() > MAX_VALUE || value.chars().any(char::is_control) {
            return Some(format!("{name}: a value has 1 to {MAX_VALUE} bytes in one line"));
        }
        if number(kind, value).is_some() {
            return None;
        }
        match kind {
            ValueKind::Text => None,
            ValueKind::Hex => Some(format!("{name}: {value:?} is no hexadecimal number")),
            ValueKind::Amount => {
                Some(format!("{name}: {value:?} is no number of bytes, such as 80G"))
            }
            ValueKind::Number => Some(format!("{name}: {value:?} is no whole number")),
            ValueKind::Extra if self.is.is_range() => {
                Some(format!("{name}: {value:?} is no number, and only numbers have an order"))
            }
            ValueKind::Extra => None,
        }
    }

    /// Whether a device meets it that has `held` under the attribute's name.
    pub fn holds(&self, held: Option<Held<'_>>) -> bool {
        let Some(held) = held else {
            return matches!(self.is, Comparison::IsNot | Comparison::Lacks);
        };
        let kind = kind_of(&self.attribute);
        let mut values = self.values.iter();
        match self.is {
            Comparison::Has => true,
            Comparison::Lacks => false,
            Comparison::Is => values.any(|value| equal(kind, held, value)),
            Comparison::IsNot => !values.any(|value| equal(kind, held, value)),
            range => {
                let own = match held {
                    Held::Number(number) => Some(number),
                    Held::Extra(AttributeValue::Number(number)) => Some((*number).into()),
                    Held::Extra(AttributeValue::Text(text)) => number(ValueKind::Extra, text),
                    Held::Extra(AttributeValue::Flag(_)) | Held::Text(_) => None,
                };
                let wanted = values.next().and_then(|value| number(kind, value));
                own.zip(wanted).is_some_and(|(own, wanted)| range.holds(own.cmp(&wanted)))
            }
        }
    }
}

/// The number that a value of this kind is, if it is one.
fn number(kind: ValueKind, text: &str) -> Option<i128> {
    match kind {
        ValueKind::Text => None,
        ValueKind::Hex => parse_serial(text).map(Into::into),
        ValueKind::Amount => text.parse::<Amount>().ok().map(|amount| amount.0.into()),
        ValueKind::Number => text.parse::<u32>().ok().map(Into::into),
        ValueKind::Extra => {
            let plain = text.parse::<i64>().ok().map(Into::into);
            plain.or_else(|| text.parse::<Amount>().ok().map(|amount| amount.0.into()))
        }
    }
}

fn equal(kind: ValueKind, held: Held<'_>, value: &str) -> bool {
    match held {
        Held::Text(text) => text.eq_ignore_ascii_case(value),
        Held::Number(own) => number(kind, value) == Some(own),
        Held::Extra(AttributeValue::Number(own)) => number(kind, value) == Some((*own).into()),
        Held::Extra(AttributeValue::Flag(flag)) => value == if *flag { "true" } else { "false" },
        Held::Extra(AttributeValue::Text(text)) => {
            text.eq_ignore_ascii_case(value)
                || number(kind, text).is_some_and(|own| number(kind, value) == Some(own))
        }
    }
}

/// Why a text is no selector, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}, at character {at}")]
pub struct InvalidSelector {
    /// What is wrong.
    pub why: String,
    /// Which character, counted from 1; of a structure, which condition.
    pub at: usize,
}

/// Conditions, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Selector(Vec<Condition>);

/// Reads the two forms in which a selector comes. Not an untagged enum of serde's, whose errors
/// would not say where in the list something is wrong.
struct Written;

impl<'de> Visitor<'de> for Written {
    type Value = Selector;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a selector as a text, or a list of conditions")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Selector, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Selector, A::Error> {
        let mut conditions = Vec::new();
        while let Some(condition) = list.next_element()? {
            conditions.push(condition);
            if conditions.len() > MAX_CONDITIONS {
                return Err(de::Error::custom(format!("at most {MAX_CONDITIONS} conditions")));
            }
        }
        Selector::new(conditions).map_err(|InvalidSelector { why, at }| {
            de::Error::custom(format!("condition {at} of the list: {why}"))
        })
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> String {
        selector.to_string()
    }
}

impl Selector {
    /// Checks conditions.
    ///
    /// # Errors
    ///
    /// What is wrong with the first that cannot be, and which it is.
    pub fn new(conditions: Vec<Condition>) -> Result<Self, InvalidSelector> {
        if conditions.len() > MAX_CONDITIONS {
            let why = format!("at most {MAX_CONDITIONS} conditions");
            return Err(InvalidSelector { why, at: MAX_CONDITIONS + 1 });
        }
        for (index, condition) in conditions.iter().enumerate() {
            if let Some(why) = condition.fault() {
                return Err(InvalidSelector { why, at: index + 1 });
            }
        }
        Ok(Self(conditions))
    }

    /// The conditions.
    pub fn conditions(&self) -> &[Condition] {
        &self.0
    }

    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is == Comparison::Lacks {
            f.write_str("!")?;
        }
        write!(f, "{}{}", self.attribute, self.is.sign())?;
        for (index, value) in self.values.iter().enumerate() {
            f.write_str(if index > 0 { "|" } else { "" })?;
            if value.chars().all(is_plain) && !value.is_empty() {
                f.write_str(value)?;
            } else {
                write!(f, "\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, condition) in self.0.iter().enumerate() {
            write!(f, "{}{condition}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// Whether a character stands in a value without quotes.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/' | '+')
}

impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        if text.len() > MAX_SELECTOR {
            let why = format!("a selector has at most {MAX_SELECTOR} bytes");
            return Err(InvalidSelector { why, at: MAX_SELECTOR });
        }
        let mut reader = Reader { rest: text, at: 1 };
        let mut conditions = Vec::new();
        reader.space();
        if reader.rest.is_empty() {
            return Ok(Self::default());
        }
        loop {
            let at = reader.at;
            let condition = reader.condition()?;
            if let Some(why) = condition.fault() {
                return Err(InvalidSelector { why, at });
            }
            conditions.push(condition);
            if conditions.len() > MAX_CONDITIONS {
                return Err(InvalidSelector {
                    why: format!("at most {MAX_CONDITIONS} conditions"),
                    at,
                });
            }
            if reader.rest.is_empty() {
                return Ok(Self(conditions));
            }
            if !reader.take(",") {
                return Err(reader.wrong("a comma or the end should be here"));
            }
        }
    }
}

/// What is left of a selector's text.
struct Reader<'a> {
    rest: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn wrong(&self, why: &str) -> InvalidSelector {
        let why = match self.rest.chars().next() {
            Some(found) => format!("{why}, not {found:?}"),
            None => format!("{why}, not the end"),
        };
        InvalidSelector { why, at: self.at }
    }

    fn skip(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.at += taken.chars().count();
        self.rest = rest;
        taken
    }

    fn space(&mut self) {
        let length = self.rest.len() - self.rest.trim_start_matches(' ').len();
        self.skip(length);
    }

    /// Takes a sign and the space around it, if it is here.
    fn take(&mut self, sign: &str) -> bool {
        self.space();
        let here = self.rest.starts_with(sign);
        if here {
            self.skip(sign.len());
            self.space();
        }
        here
    }

    fn while_true(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let length = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        self.skip(length)
    }

    fn condition(&mut self) -> Result<Condition, InvalidSelector> {
        let lacks = self.take("!");
        let attribute = self
            .while_true(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
            .to_ascii_lowercase();
        if attribute.is_empty() {
            return Err(self.wrong("the name of an attribute should be here"));
        }
        self.space();
        // Those that begin like another one first.
        let signs = [
            ("!=", Comparison::IsNot),
            (">=", Comparison::AtLeast),
            ("<=", Comparison::AtMost),
            ("==", Comparison::Is),
            ("=", Comparison::Is),
            (">", Comparison::Above),
            ("<", Comparison::Below),
        ];
        let found = signs.into_iter().find(|(sign, _)| self.rest.starts_with(sign));
        let Some((sign, is)) = found else {
            let is = if lacks { Comparison::Lacks } else { Comparison::Has };
            return Ok(Condition { attribute, is, values: Vec::new() });
        };
        if lacks {
            return Err(self.wrong("a condition with ! in front has no value"));
        }
        self.take(sign);
        let mut values = vec![self.value()?];
        while self.take("|") {
            values.push(self.value()?);
        }
        Ok(Condition { attribute, is, values })
    }

    fn value(&mut self) -> Result<String, InvalidSelector> {
        if !self.rest.starts_with('"') {
            let value = self.while_true(is_plain);
            if value.is_empty() {
                return Err(self.wrong(
                    "a value should be here (with other characters than letters, \
                                       digits and . _ - : / + in \"quotes\")",
                ));
            }
            self.space();
            return Ok(value.to_owned());
        }
        let begin = self.at;
        self.skip(1);
        let mut value = String::new();
        let mut escaped = false;
        for (index, c) in self.rest.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => {
                    escaped = true;
                    continue;
                }
                '"' => {
                    self.skip(index + 1);
                    self.space();
                    return Ok(value);
                }
                _ => {}
            }
            value.push(c);
        }
        Err(InvalidSelector { why: "the quote is not closed".into(), at: begin })
    }
}

impl PartialSchema for Selector {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String).max_length(Some(MAX_SELECTOR));
        let list = ArrayBuilder::new()
            .items(utoipa::openapi::Ref::from_schema_name("Condition"))
            .max_items(Some(MAX_CONDITIONS));
        AnyOfBuilder::new()
            .item(text)
            .item(list)
            .description(Some("Conditions that must all hold: a text, or a list."))
            .examples(["model=h200|h100,memory>=80G,rack!=r3"])
            .into()
    }
}

impl ToSchema for Selector {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push(("Condition".into(), Condition::schema()));
        schemas.push(("Comparison".into(), Comparison::schema()));
    }
}

#[cfg(test)]
mod tests;
