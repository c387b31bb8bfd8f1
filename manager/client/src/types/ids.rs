//! Numbers that the manager gives out, with a prefix that says what they are of.

use super::names::InvalidName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;

macro_rules! prefixed_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $example:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
        )]
        #[serde(try_from = "String", into = "String")]
        #[schema(value_type = String, example = $example)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!(concat!($prefix, "-{}"), self.0))
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                text.strip_prefix(concat!($prefix, "-"))
                    .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
                    .and_then(|digits| digits.parse().ok())
                    .map(Self)
                    .ok_or_else(|| {
                        InvalidName(format!(concat!("{:?} is not of the form ", $prefix, "-N"), text))
                    })
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
    };
}

prefixed_id!(
    /// An allocation: the slots that one request lent to one host. Written `alloc-N`.
    AllocationId, "alloc", "alloc-7"
);
prefixed_id!(
    /// A binding: one slot lent to one port of one host. Written `bind-N`.
    BindingId, "bind", "bind-12"
);
prefixed_id!(
    /// An operation: one request that takes time. Written `op-N`.
    OperationId, "op", "op-3"
);

prefixed_id!(
    /// An erasure: one device erased between one tenant and the next. Written `erase-N`.
    ErasureId, "erase", "erase-1"
);

prefixed_id!(
    /// A recording: what the flight recorder has of one binding. Written `rec-N`.
    RecordingId, "rec", "rec-1"
);

prefixed_id!(
    /// A rollout: firmware on its way to cards. Written `roll-N`.
    RolloutId, "roll", "roll-1"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_as_they_are_written() {
        assert_eq!("alloc-7".parse(), Ok(AllocationId(7)));
        assert_eq!(BindingId(12).to_string(), "bind-12");
        for bad in ["7", "op-7", "alloc-", "alloc-+7", "alloc--7", "alloc-99999999999999999999"] {
            assert!(bad.parse::<AllocationId>().is_err(), "{bad}");
        }
    }
}
