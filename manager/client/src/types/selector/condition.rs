//! One condition of a selector, and whether a device meets it.

use super::attribute::{ValueKind, is_name, kind_of};
use super::{Amount, AttributeValue, MAX_VALUE, MAX_VALUES, parse_serial};
use serde::de;
use serde::{Deserialize, Deserializer, Serialize};
use std::cmp::Ordering;
use utoipa::ToSchema;

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
    pub(super) const fn sign(self) -> &'static str {
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

    pub(super) const fn is_range(self) -> bool {
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
    pub(super) fn fault(&self) -> Option<String> {
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
        // Also what is stored is read by this: characters that earlier versions let in are refused
        // where a request comes in (`Wishes::check`).
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
        Held::Extra(AttributeValue::Flag(flag)) => {
            value.eq_ignore_ascii_case(if *flag { "true" } else { "false" })
        }
        Held::Extra(AttributeValue::Text(text)) => {
            text.eq_ignore_ascii_case(value)
                || number(kind, text).is_some_and(|own| number(kind, value) == Some(own))
        }
    }
}
