//! What is held back: nothing new is placed there.

use super::ids::OperationId;
use super::names::{InvalidName, NodeName, SlotAddress, Timestamp};
use super::topology::PlaceName;
use proxy_core::limits::MAX_PATHS;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;

/// What can be held back, as people and the API write it: `box1/3`, `box1`, `host1`, `path:1`,
/// `rack:r3`, `site:s1`, `fabric:f2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Place {
    /// One slot.
    Slot(SlotAddress),
    /// A box, or a host.
    Node(NodeName),
    /// A path between all proxies, by its number.
    Path(u8),
    /// The boxes and hosts in a rack, those that come into it later too.
    Rack(PlaceName),
    /// The boxes and hosts at a site, those that come there later too.
    Site(PlaceName),
    /// The paths that run over a fabric.
    Fabric(PlaceName),
}

impl utoipa::PartialSchema for Place {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        String::schema()
    }
}

impl ToSchema for Place {}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(slot) => f.pad(&slot.to_string()),
            Self::Node(name) => f.pad(name.as_str()),
            Self::Path(path) => f.pad(&format!("path:{path}")),
            Self::Rack(name) => f.pad(&format!("rack:{name}")),
            Self::Site(name) => f.pad(&format!("site:{name}")),
            Self::Fabric(name) => f.pad(&format!("fabric:{name}")),
        }
    }
}

impl FromStr for Place {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if let Some(number) = text.strip_prefix("path:") {
            let path = number.parse::<u8>().ok().filter(|path| usize::from(*path) < MAX_PATHS);
            let wrong = || format!("{text:?}: paths are path:0 to path:{}", MAX_PATHS - 1);
            return path.map(Self::Path).ok_or_else(|| InvalidName(wrong()));
        }
        match text.split_once(':') {
            Some(("rack", name)) => return name.parse().map(Self::Rack),
            Some(("site", name)) => return name.parse().map(Self::Site),
            Some(("fabric", name)) => return name.parse().map(Self::Fabric),
            _ => {}
        }
        if text.contains('/') {
            return text.parse().map(Self::Slot);
        }
        text.parse().map(Self::Node)
    }
}

impl TryFrom<String> for Place {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<Place> for String {
    fn from(place: Place) -> Self {
        place.to_string()
    }
}

/// Why something is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HoldKind {
    /// Somebody works on it.
    Maintenance,
    /// It is emptied, or was, for somebody to work on it.
    Drained,
    /// Its device was replaced by another one.
    Replaced,
    /// Its health is bad; it ends when that is good again.
    Unhealthy,
}

impl fmt::Display for HoldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Maintenance => "maintenance",
            Self::Drained => "drained",
            Self::Replaced => "replaced",
            Self::Unhealthy => "unhealthy",
        })
    }
}

/// Something that is held back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldRecord {
    /// What.
    pub place: Place,
    /// Why.
    pub kind: HoldKind,
    /// Why, in the words of who wanted it.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// The operation that empties it, or did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        for text in ["box1", "box1/3", "path:0", "path:7", "rack:r3", "site:s-1", "fabric:f.2"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for text in [
            "path:8", "path:", "path:-1", "box1/0", "box1/", "", "a b", "rack:", "rack:a/1",
            "row:1",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text:?}");
        }
    }
}
