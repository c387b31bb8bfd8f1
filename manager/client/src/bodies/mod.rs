//! What requests carry.

mod problem;
mod reading;

pub use problem::{ProblemBody, ProblemKind, RETRY_AFTER_S};
pub use reading::Unambiguous;

use crate::types::{BindingId, Exclude, ImageId, LinkUse, NodeName, Role, Selector, Together};
use crate::views::Format;
use reading::object;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is wanted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AllocateBody {
    /// The host that gets it.
    pub host: String,
    /// How many slots, all or none.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 32)]
    pub count: u32,
    /// Only this model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Only from this box.
    #[serde(default, rename = "box", skip_serializing_if = "Option::is_none")]
    pub box_name: Option<String>,
    /// Only this slot of the box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub slot: Option<u8>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub reason: Option<String>,
    /// How the devices are to use the links.
    #[serde(default, deserialize_with = "object", skip_serializing_if = "LinkUse::is_default")]
    pub link: LinkUse,
    /// For how long, milliseconds; then it is taken back. For ever if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 315_619_200_000_u64)]
    pub lease_ms: Option<u64>,
    /// Only devices with these attributes.
    #[serde(default, skip_serializing_if = "Selector::is_empty")]
    pub selector: Selector,
    /// Only devices of which this CEL expression says true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 512)]
    pub cel: Option<String>,
    /// How the slots lie to each other.
    #[serde(default, skip_serializing_if = "is_any")]
    pub together: Together,
    /// How fast one device has to reach another in their island, bytes a second; only with
    /// `together` `island`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub island_rate: Option<u64>,
    /// Whether what is in the host's rack comes first, then what is at its site.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub near: bool,
    /// What is not to be taken.
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Exclude::is_empty")]
    pub exclude: Exclude,
    /// For whom, for people and to filter by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub tenant: Option<String>,
    /// Whether devices stay plugged that the operating system does not enumerate in time; else the
    /// allocation fails and nothing of it stays lent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_unenumerated: bool,
}

fn is_any(together: &Together) -> bool {
    *together == Together::Any
}

/// How long something is lent from now on.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseBody {
    /// So many milliseconds.
    #[schema(minimum = 1, maximum = 315_619_200_000_u64)]
    pub lease_ms: u64,
}

/// What the lender takes back.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeBackBody {
    /// alloc-N, bind-N, BOX/SLOT, or the name of a host or box, rack:NAME or site:NAME: everything
    /// that is lent there.
    pub what: String,
    /// How long the borrower has until its operating system is asked, milliseconds; 0 if it is not
    /// given.
    #[serde(default)]
    #[schema(maximum = 315_619_200_000_u64)]
    pub grace_ms: u64,
    /// How long the operating system then has, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 600_000)]
    pub within_ms: Option<u32>,
    /// Why, for the borrower.
    #[schema(max_length = 256)]
    pub reason: String,
}

/// What is held back.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldBody {
    /// BOX/SLOT, the name of a host or box, rack:NAME, site:NAME, fabric:NAME or path:N.
    pub place: String,
    /// Why, for people.
    #[schema(max_length = 256)]
    pub reason: String,
}

/// What is emptied.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainBody {
    /// BOX/SLOT, the name of a host or box, rack:NAME, site:NAME, fabric:NAME or path:N.
    pub place: String,
    /// Whether devices are replaced by others on the same hosts instead of being released.
    #[serde(default)]
    pub replace: bool,
    /// How long each operating system has to let go, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 600_000)]
    pub within_ms: Option<u32>,
    /// Why, for people.
    #[schema(max_length = 256)]
    pub reason: String,
}

/// How a device is replaced by another one on the same host.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceBody {
    /// Take the old one by force, without asking the operating system: it is broken.
    #[serde(default)]
    pub force: bool,
    /// How long the operating system has to let go of the old one, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 600_000)]
    pub within_ms: Option<u32>,
    /// Why, for people.
    #[schema(max_length = 256)]
    pub reason: String,
}

fn one() -> u32 {
    1
}

impl AllocateBody {
    /// Any one slot for this host.
    pub fn for_host(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            count: 1,
            model: None,
            box_name: None,
            slot: None,
            reason: None,
            link: LinkUse::default(),
            lease_ms: None,
            selector: Selector::default(),
            cel: None,
            together: Together::Any,
            island_rate: None,
            near: false,
            exclude: Exclude::default(),
            tenant: None,
            keep_unenumerated: false,
        }
    }
}

/// What is wanted of the device in a slot.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EraseBody {
    /// Do not erase it: take it as it is, for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 256)]
    pub waive: Option<String>,
}

/// Why a device that is not erased is taken as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WaiveBody {
    /// The reason.
    #[schema(min_length = 1, max_length = 256)]
    pub reason: String,
}

/// How much a proxy logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogLevelBody {
    /// The least that it logs.
    pub level: LogLevelName,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum LogLevelName {
    /// Everything.
    Trace,
    /// What helps to find a mistake in the proxy.
    Debug,
    /// What goes on.
    Info,
    /// What should not be, and can be lived with.
    Warn,
    /// What failed.
    Error,
}

/// Most of which one is sampled: what OpenAPI's `int32` goes to.
pub const MAX_ONE_IN: u32 = i32::MAX as u32;

/// How many TLPs are stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "mode", rename_all = "kebab-case", try_from = "WrittenSampling")]
pub enum SamplingBody {
    /// None.
    Off,
    /// Every non-posted request and its completions.
    All,
    /// One non-posted request, and its completions, in so many.
    OneIn {
        /// So many.
        #[schema(minimum = 1, maximum = 2_147_483_647)]
        n: u32,
    },
}

/// [`SamplingBody`] as it is read: a tagged enum of serde's would not say which field is wrong.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSampling {
    mode: SamplingMode,
    n: Option<u32>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SamplingMode {
    Off,
    All,
    OneIn,
}

impl TryFrom<WrittenSampling> for SamplingBody {
    type Error = &'static str;

    fn try_from(WrittenSampling { mode, n }: WrittenSampling) -> Result<Self, &'static str> {
        match (mode, n) {
            (SamplingMode::Off, None) => Ok(Self::Off),
            (SamplingMode::All, None) => Ok(Self::All),
            (SamplingMode::OneIn, Some(n)) => Ok(Self::OneIn { n }),
            (SamplingMode::OneIn, None) => Err("missing field `n`"),
            (SamplingMode::Off | SamplingMode::All, Some(_)) => {
                Err("unknown field `n`: only one-in has it")
            }
        }
    }
}

/// What is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordBody {
    /// The binding.
    pub binding: BindingId,
    /// What is made of it.
    pub format: Format,
    /// The proxy that it is seen from; `host` if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_from: Option<Role>,
    /// How long it runs if nothing ends it before, milliseconds; 10000 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_600_000)]
    pub duration_ms: Option<u32>,
    /// Memory that it may take, bytes; 64 MB if it is not given. When it is reached, the recording
    /// ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 268_435_456)]
    pub limit_bytes: Option<u64>,
    /// Bytes that are kept of each TLP or frame; all if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub snap: Option<u16>,
}

/// Seconds that a card is given if the request does not say: longer than three trials of 300 s,
/// after which a card's boot loader has gone back to the image before.
pub const DEFAULT_WITHIN_S: u32 = 1200;

/// What is to be brought to which cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutBody {
    /// The image; if it is not given, the cards go back to the image that they had before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageId>,
    /// The cards; if it is not given, all that are connected and that the image is for. Needed to
    /// go back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1)]
    pub nodes: Option<Vec<NodeName>>,
    /// Cards at a time, at most; 1 if it is not given. Never both ends of a binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub wave_size: Option<u32>,
    /// Whether cards with bindings are restarted, too. Their devices go away from their hosts and
    /// come back when the card is back.
    #[serde(default)]
    pub interrupt: bool,
    /// Seconds that a card has at most to be connected, and then to start what it got; 1200 if it
    /// is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86400)]
    pub within_s: Option<u32>,
}
