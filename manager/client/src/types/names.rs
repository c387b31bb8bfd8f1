//! Names, slot addresses and points in time, each checked when it is made.

use proxy_core::control::MAX_NAME;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tlp_codec::ids::SlotId;
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

/// A text that is no name, address or number of the kind that was asked for. Says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidName(pub String);

/// The name of a proxy: 1 to 64 of the characters `A-Z a-z 0-9 . _ -`, a letter or digit first.
/// It goes into addresses and paths as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", example = "box1")]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// When it has another length or other characters than the type says.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidName> {
        let name = name.into();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > MAX_NAME {
            let length = name.len();
            return Err(InvalidName(format!("a name has 1 to {MAX_NAME} bytes, not {length}")));
        }
        if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(plain) {
            return Err(InvalidName(format!(
                "{name:?} is no name: letters, digits, '.', '_' and '-', a letter or digit first"
            )));
        }
        Ok(Self(name.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for NodeName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl TryFrom<String> for NodeName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> String {
        name.0.to_string()
    }
}

/// A slot of a box, written `BOX/SLOT`. Slots are numbered from 1; 0 is the host's own end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SlotAddress {
    box_name: NodeName,
    slot: SlotId,
}

impl SlotAddress {
    /// Puts an address together.
    ///
    /// # Errors
    ///
    /// When `slot` is 0, which is no slot of a box.
    pub fn new(box_name: NodeName, slot: SlotId) -> Result<Self, InvalidName> {
        if slot == SlotId::HOST {
            return Err(InvalidName("slots are numbered from 1".into()));
        }
        Ok(Self { box_name, slot })
    }

    /// The box.
    pub fn box_name(&self) -> &NodeName {
        &self.box_name
    }

    /// The slot in it.
    pub fn slot(&self) -> SlotId {
        self.slot
    }
}

impl utoipa::PartialSchema for SlotAddress {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("A slot of a box, BOX/SLOT."))
            .pattern(Some("^[A-Za-z0-9][A-Za-z0-9._-]{0,63}/[0-9]{1,3}$"))
            .examples(["box1/3"])
            .into()
    }
}

impl ToSchema for SlotAddress {}

impl fmt::Display for SlotAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.box_name, self.slot))
    }
}

impl FromStr for SlotAddress {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let wrong = || InvalidName(format!("{text:?} is no slot: write BOX/SLOT, such as box1/3"));
        let (name, slot) = text.split_once('/').ok_or_else(wrong)?;
        let slot: u8 = slot.parse().map_err(|_| wrong())?;
        Self::new(NodeName::new(name)?, SlotId::new(slot).map_err(|_| wrong())?)
    }
}

impl TryFrom<String> for SlotAddress {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<SlotAddress> for String {
    fn from(address: SlotAddress) -> String {
        address.to_string()
    }
}

/// A point in time by the manager's wall clock, to the millisecond; RFC 3339 in UTC outside. It is
/// for people: nothing is decided by it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, format = DateTime, example = "2026-11-20T12:00:00.000Z")]
pub struct Timestamp(u64);

/// The last millisecond of the year 9999, after which RFC 3339 has no text.
const LAST_TIMESTAMP: u64 = 253_402_300_799_999;

impl Timestamp {
    /// Now.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_millis(since.as_millis() as u64)
    }

    /// So many milliseconds after 1970-01-01T00:00:00Z, at most the end of the year 9999.
    pub fn from_millis(millis: u64) -> Self {
        Self(millis.min(LAST_TIMESTAMP))
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub fn as_millis(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = UNIX_EPOCH + Duration::from_millis(self.0);
        write!(f, "{}", humantime::format_rfc3339_millis(time))
    }
}

impl TryFrom<String> for Timestamp {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        let wrong = || InvalidName(format!("{text:?} is no time as RFC 3339 writes it"));
        let time = humantime::parse_rfc3339(&text).map_err(|_| wrong())?;
        let since = time.duration_since(UNIX_EPOCH).map_err(|_| wrong())?;
        Ok(Self(since.as_millis() as u64))
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> String {
        time.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["box1", "0", "rack-3.host_2", &"x".repeat(64)] {
            assert_eq!(NodeName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "-x", ".", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(NodeName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn slot_addresses_read_as_they_are_written() {
        let address: SlotAddress = "box1/3".parse().unwrap();
        assert_eq!((address.box_name().as_str(), address.slot().get()), ("box1", 3));
        assert_eq!(address.to_string(), "box1/3");
        for bad in ["box1", "box1/0", "box1/256", "/1", "box1/x", "a/b/1"] {
            assert!(bad.parse::<SlotAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn times_survive_their_text() {
        let now = Timestamp::now();
        assert_eq!(Timestamp::try_from(now.to_string()), Ok(now));
        assert!(Timestamp::try_from("yesterday".to_owned()).is_err());
    }
}
