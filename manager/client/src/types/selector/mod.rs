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
use std::fmt;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

mod attribute;
mod condition;
mod text;

pub use attribute::{BUILT_IN, ValueKind, is_built_in, is_name, kind_of};
pub use condition::{Comparison, Condition, Held};

/// Longest selector, bytes of text.
pub const MAX_SELECTOR: usize = 1024;

/// Most conditions of a selector.
pub const MAX_CONDITIONS: usize = 32;

/// Most values of one condition.
pub const MAX_VALUES: usize = 32;

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
