//! What a request wishes of the slots that it gets.

use super::names::{NodeName, SlotAddress};
use super::selector::Selector;
use super::text::is_formatting;
use super::topology::PlaceName;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// Longest CEL expression, bytes.
pub const MAX_EXPRESSION: usize = 512;

/// Most boxes, racks and slots, each, that a request can exclude.
pub const MAX_EXCLUDED: usize = 256;

/// Longest tenant, bytes.
pub const MAX_TENANT: usize = 64;

/// How the slots of one request lie to each other.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Together {
    /// In one box if one has enough, else in as few as can be.
    #[default]
    Any,
    /// In one box, which is one proxy, or not at all.
    Box,
    /// In one island of one box, whose devices reach each other directly, or not at all.
    Island,
    /// Each in another box, or not at all.
    Spread,
}

impl Together {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Any, Self::Box, Self::Island, Self::Spread];

    /// As requests and people write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Box => "box",
            Self::Island => "island",
            Self::Spread => "spread",
        }
    }
}

impl fmt::Display for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for Together {
    type Err = super::names::InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|together| together.as_str() == text);
        found.ok_or_else(|| {
            super::names::InvalidName(format!("{text:?} is not any, box, island or spread"))
        })
    }
}

/// What is not to be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Exclude {
    /// Nothing in these boxes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub boxes: Vec<NodeName>,
    /// Nothing in these racks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub racks: Vec<PlaceName>,
    /// Nothing in these slots.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub slots: Vec<SlotAddress>,
}

impl Exclude {
    /// Whether nothing is excluded.
    pub fn is_empty(&self) -> bool {
        self.boxes.is_empty() && self.racks.is_empty() && self.slots.is_empty()
    }
}

/// What a request wishes of the slots that it gets, besides how many. It is kept with the
/// allocation, so that another device in the place of a broken one is chosen by the same wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Wishes {
    /// Only this model, upper and lower case alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Only from this box.
    #[serde(rename = "box", skip_serializing_if = "Option::is_none")]
    pub box_name: Option<NodeName>,
    /// Only devices with these attributes.
    #[serde(skip_serializing_if = "Selector::is_empty")]
    pub selector: Selector,
    /// Only devices of which this CEL expression says true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<String>,
    /// How they lie to each other.
    pub together: Together,
    /// How fast one device has to reach another in their island, bytes a second; only with
    /// [`Together::Island`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub island_rate: Option<u64>,
    /// Whether what is in the host's rack comes first, then what is at its site.
    pub near: bool,
    /// What is not to be taken.
    #[serde(skip_serializing_if = "Exclude::is_empty")]
    pub exclude: Exclude,
}

impl Wishes {
    /// Whether nothing is wished.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with it: the field, and why.
    ///
    /// # Errors
    ///
    /// The name of the field, and a text for a person.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if let Some(cel) = &self.cel
            && (cel.trim().is_empty() || cel.len() > MAX_EXPRESSION)
        {
            return Err(("cel", format!("an expression of 1 to {MAX_EXPRESSION} bytes")));
        }
        if self.cel.as_ref().is_some_and(|cel| cel.contains(is_formatting)) {
            let why = "no control characters, such as ends of lines, and none that change the order of \
                       others";
            return Err(("cel", why.into()));
        }
        let mut conditions = self.selector.conditions().iter();
        if let Some(condition) =
            conditions.find(|c| c.values.iter().any(|v| v.contains(is_formatting)))
        {
            let name = &condition.attribute;
            let why = format!(
                "{name}: a value has no control characters, and none that change the order of others"
            );
            return Err(("selector", why));
        }
        if self.island_rate == Some(0) {
            return Err(("island_rate", "at least 1 byte a second".into()));
        }
        if self.island_rate.is_some() && self.together != Together::Island {
            return Err(("island_rate", "it goes with `together` `island`".into()));
        }
        let Exclude { boxes, racks, slots } = &self.exclude;
        for (field, count) in [
            ("exclude.boxes", boxes.len()),
            ("exclude.racks", racks.len()),
            ("exclude.slots", slots.len()),
        ] {
            if count > MAX_EXCLUDED {
                return Err((field, format!("at most {MAX_EXCLUDED}, not {count}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::selector::{Comparison, Condition};

    #[test]
    fn values_that_change_how_they_are_shown_are_refused() {
        let with = |value: &str| {
            let values = vec![value.to_owned()];
            let condition = Condition { attribute: "arch".into(), is: Comparison::Is, values };
            let selector = Selector::new(vec![condition]).unwrap();
            Wishes { selector, ..Wishes::default() }.check()
        };
        with("grün").unwrap();
        for turned in ["a\u{202e}b", "\u{2028}"] {
            let (field, why) = with(turned).unwrap_err();
            assert!(field == "selector" && why.starts_with("arch: "), "{field}: {why}");
        }
    }
}
