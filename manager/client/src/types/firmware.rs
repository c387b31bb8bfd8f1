//! Firmware of cards: images that the manager has, and how one is brought to the cards.

use super::ids::RolloutId;
use super::names::{InvalidName, NodeName, Timestamp};
use super::node::Role;
use super::problem::{Problem, ProblemCode};
use card_image::{Header, Refusal};
use proxy_core::control::FirmwareId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;

/// Bytes of the longest image that is taken, with its header.
pub const MAX_IMAGE: usize = 4 << 20;

/// Images that are kept. When a further one comes, the one that came first goes, but not one that
/// a rollout is bringing to cards.
pub const MAX_IMAGES: usize = 16;

/// What an image is known by: 32 hexadecimal digits.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "6ed68e1542910c2e8a8d3d732c03a57b")]
pub struct ImageId(pub [u8; 16]);

impl From<FirmwareId> for ImageId {
    fn from(id: FirmwareId) -> Self {
        Self(id.0)
    }
}

impl From<ImageId> for FirmwareId {
    fn from(id: ImageId) -> Self {
        Self(id.0)
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FirmwareId(self.0).fmt(f)
    }
}

impl FromStr for ImageId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| digits);
        let wrong = || InvalidName(format!("{text:?} is no image: 32 hexadecimal digits are"));
        Ok(Self(number.ok_or_else(wrong)?.to_be_bytes()))
    }
}

impl TryFrom<String> for ImageId {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<ImageId> for String {
    fn from(id: ImageId) -> String {
        id.to_string()
    }
}

/// What an image says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageLabel {
    /// What it is known by.
    pub id: ImageId,
    /// The board that it is for.
    pub board: String,
    /// The role that it plays; none: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Version, for people: `major.minor.patch+build`.
    pub version: String,
    /// Version, for anti-downgrade.
    pub security: u32,
    /// Number of the key that signed it. Cards check the signature, the manager has no keys.
    pub key: u32,
    /// Bytes, with its header.
    pub bytes: u64,
}

impl ImageLabel {
    /// Reads an image, and checks all of it but the signature.
    ///
    /// # Errors
    ///
    /// Why it is none that a card would start.
    pub fn of(image: &[u8]) -> Result<Self, Problem> {
        let wrong = |refusal: Refusal| {
            let detail = format!("{refusal}; `dxpu-flash image inspect` shows what it is");
            Problem::new(ProblemCode::NotAnImage, detail)
        };
        let header = Header::parse(image).map_err(wrong)?;
        header.check_payload(image).map_err(wrong)?;
        if header.key == card_image::KeyId::NONE {
            return Err(wrong(Refusal::Unsigned));
        }
        if header.image_len() != image.len() as u64 {
            let (have, need) = (image.len(), header.image_len());
            let detail =
                format!("the image has {need} bytes, and the file {have}: more follows it");
            return Err(Problem::new(ProblemCode::NotAnImage, detail));
        }
        Ok(Self {
            id: ImageId(header.id().0),
            board: header.board.to_string(),
            role: match header.role {
                card_image::Role::Any => None,
                card_image::Role::Host => Some(Role::Host),
                card_image::Role::Box => Some(Role::Box),
            },
            version: header.version.to_string(),
            security: header.security.0,
            key: header.key.0,
            bytes: header.image_len(),
        })
    }
}

/// An image that the manager has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRecord {
    /// What it says of itself.
    pub label: ImageLabel,
    /// When it came.
    pub since: Timestamp,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// What is done to cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RolloutKind {
    /// Each gets this image and starts it.
    Push {
        /// The image.
        image: ImageLabel,
    },
    /// Each goes back to its other image.
    RollBack,
}

/// Where a rollout stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutState {
    /// It goes on.
    Running,
    /// Every card has what it should.
    Succeeded,
    /// A card failed; those that had not been begun were left alone.
    Failed,
}

/// Where one card stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum CardState {
    /// Its wave has not come.
    Waiting,
    /// It is being written, or told to go back.
    Writing,
    /// It is to start what it has got: from this life on, which ran this image.
    Restarting {
        /// The number of the life that is to end.
        incarnation: u32,
        /// What ran in it.
        left: ImageId,
    },
    /// It has joined with what it should have.
    Updated,
    /// It has not.
    Failed {
        /// Why, for a person.
        reason: String,
    },
    /// Another one failed before its wave came.
    LeftAlone,
}

impl CardState {
    /// What it is called.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Writing => "writing",
            Self::Restarting { .. } => "restarting",
            Self::Updated => "updated",
            Self::Failed { .. } => "failed",
            Self::LeftAlone => "left-alone",
        }
    }

    /// Whether its wave has come and it has not ended.
    pub const fn is_in_flight(&self) -> bool {
        matches!(self, Self::Writing | Self::Restarting { .. })
    }
}

/// One card of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutCard {
    /// The card's proxy.
    pub node: NodeName,
    /// Where it stands.
    #[serde(flatten)]
    pub state: CardState,
    /// The wave that it was in, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<u32>,
    /// The version that ran before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The image that ran when the rollout began or, where cards go back, when the card's turn did.
    /// Rollouts of older managers have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_image: Option<ImageId>,
    /// The version that runs, when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<String>,
}

/// One image on its way to cards, or cards on their way back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutRecord {
    /// Its number.
    pub id: RolloutId,
    /// What is done.
    pub what: RolloutKind,
    /// Where it stands.
    pub state: RolloutState,
    /// Cards that are updated at a time, at most.
    pub wave_size: u32,
    /// Whether cards with bindings are restarted, too.
    pub interrupt: bool,
    /// Seconds that a card has at most to do its next thing: to be connected, to start what it got.
    pub within_s: u32,
    /// The cards, in the order in which they are begun.
    pub cards: Vec<RolloutCard>,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// The one before, as it ended, without those before that: whoever waited for it may ask only
    /// when this one has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    pub former: Option<Box<RolloutRecord>>,
}

impl RolloutRecord {
    /// A card of it.
    pub fn card(&self, node: &NodeName) -> Option<&RolloutCard> {
        self.cards.iter().find(|card| card.node == *node)
    }

    /// Whether this image is on its way.
    pub fn needs(&self, id: ImageId) -> bool {
        let pushed = matches!(&self.what, RolloutKind::Push { image } if image.id == id);
        pushed && self.state == RolloutState::Running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_ids_read_as_they_are_written() {
        let id = ImageId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0eff");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in
            ["", "00", "+00102030405060708090a0b0c0d0eff", "g00102030405060708090a0b0c0d0eff"]
        {
            assert!(bad.parse::<ImageId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn states_are_called_the_same_in_text_and_json() {
        let left = ImageId([0; 16]);
        for state in [
            CardState::Waiting,
            CardState::Writing,
            CardState::Restarting { incarnation: 1, left },
            CardState::Updated,
            CardState::Failed { reason: String::new() },
            CardState::LeftAlone,
        ] {
            assert_eq!(serde_json::to_value(&state).unwrap()["state"], state.name());
        }
    }
}
