//! Erasing devices between one tenant and the next.

use super::binding::FunctionEpoch;
use super::device::PciKind;
use super::ids::{AllocationId, BindingId, ErasureId, OperationId};
use super::names::{NodeName, SlotAddress, Timestamp};
use proxy_core::control::EraseMethod;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use utoipa::ToSchema;

macro_rules! means {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// How a device can be erased by its own means (NVM Express 1.4, sections 5.23 and 5.24).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum EraseMeans {
            $($(#[$doc])* $name,)+
        }

        impl EraseMeans {
            /// All of them.
            pub const ALL: &[EraseMeans] = &[$(Self::$name,)+];
        }

        impl fmt::Display for EraseMeans {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$name => $text,)+ })
            }
        }

        impl From<EraseMeans> for EraseMethod {
            fn from(means: EraseMeans) -> Self {
                match means { $(EraseMeans::$name => EraseMethod::$name,)+ }
            }
        }

        impl From<EraseMethod> for EraseMeans {
            fn from(method: EraseMethod) -> Self {
                match method { $(EraseMethod::$name => EraseMeans::$name,)+ }
            }
        }
    };
}

means! {
    /// NVMe Sanitize, cryptographic erase.
    SanitizeCrypto = "sanitize-crypto",
    /// NVMe Sanitize, block erase.
    SanitizeBlock = "sanitize-block",
    /// NVMe Sanitize, overwrite, one pass.
    SanitizeOverwrite = "sanitize-overwrite",
    /// NVMe Format NVM, cryptographic erase.
    FormatCrypto = "format-crypto",
    /// NVMe Format NVM, user data erase.
    FormatUser = "format-user",
}

/// How devices are erased when they are released: by the box, or by a program that the vendor or
/// the operator gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EraseRule {
    /// Only devices of this class code, 24 bits: 0x010802 are NVMe drives, 0x030200 3D controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
    /// Only devices of this model, upper and lower case alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The device's own means that will do, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub means: Vec<EraseMeans>,
    /// A program that does it, at the manager. It gets the device as JSON on its standard input;
    /// status 0 means erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub hook: Option<PathBuf>,
    /// How long it may take, seconds.
    #[serde(default = "default_within")]
    pub within_s: u32,
    /// Whether a device that could not be erased is kept from being lent.
    #[serde(default = "yes")]
    pub required: bool,
}

/// Seconds that an erasure may take unless a rule says otherwise: a day, since an overwrite of a
/// large drive takes hours.
pub const DEFAULT_ERASE_WITHIN_S: u32 = 24 * 3600;

const fn default_within() -> u32 {
    DEFAULT_ERASE_WITHIN_S
}

const fn yes() -> bool {
    true
}

/// Where an erasure stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErasureState {
    /// It goes on, or waits for its box.
    Running,
    /// The device was taken out of its slot before it was erased; it is erased when it is seen again.
    Owed,
    /// The device is erased.
    Done,
    /// It is not.
    Failed,
    /// It is not, and somebody takes it as it is.
    Waived,
}

impl ErasureState {
    /// Every state.
    pub const ALL: [ErasureState; 5] =
        [Self::Running, Self::Owed, Self::Done, Self::Failed, Self::Waived];

    /// The transition table.
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Running => !matches!(next, Self::Running),
            Self::Owed => matches!(next, Self::Running | Self::Waived),
            Self::Failed => matches!(next, Self::Waived),
            Self::Done | Self::Waived => false,
        }
    }
}

impl fmt::Display for ErasureState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Owed => "owed",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Waived => "waived",
        })
    }
}

/// A function that is erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasedFunction {
    /// The function, and the binding that left its data.
    #[serde(flatten)]
    pub binding: FunctionEpoch,
    /// Serial number of the device, 0 if it has none.
    pub serial: u64,
    /// What it is; nothing in records of earlier versions, or if it was gone already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<PciKind>,
}

impl ErasedFunction {
    /// Whether it can be of this kind: one that is not known can be any.
    fn may_be(&self, kind: PciKind) -> bool {
        self.kind.is_none_or(|own| own == kind)
    }
}

/// One erasure: what of whom was, is or could not be erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasureRecord {
    /// Its number.
    pub id: ErasureId,
    /// Where the device is, or was when it was seen last.
    pub slot: SlotAddress,
    /// Its functions, lowest first, never empty.
    pub functions: Vec<ErasedFunction>,
    /// Its model.
    pub model: String,
    /// Who had it last, if a record says so.
    pub host: Option<NodeName>,
    /// By this allocation.
    pub allocation: Option<AllocationId>,
    /// The binding that ended.
    pub binding: Option<BindingId>,
    /// The operation that waits for it.
    pub operation: Option<OperationId>,
    /// How it is to be done.
    pub rule: EraseRule,
    /// Where it stands.
    pub state: ErasureState,
    /// How far it is, in thousandths, as far as the device says.
    pub permille: u16,
    /// Whether the rule's program is at the device, so that nobody may take it as it is now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub program_runs: bool,
    /// How it was done, why it could not be, or what it waits for.
    pub detail: String,
    /// When it began.
    pub since: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

impl ErasureRecord {
    /// Serial numbers of the device; nothing if it has none. It is known wherever it is by one of
    /// them and its kind: makers count for themselves, and models of one maker may count apart.
    pub fn serials(&self) -> impl Iterator<Item = u64> + '_ {
        self.functions.iter().map(|function| function.serial).filter(|serial| *serial != 0)
    }

    /// The first of them.
    pub fn serial(&self) -> Option<u64> {
        self.serials().next()
    }

    /// Whether the function with this serial number, not 0, and of this kind is of its device.
    pub fn is_of(&self, serial: u64, kind: PciKind) -> bool {
        let mut functions = self.functions.iter();
        serial != 0 && functions.any(|own| own.serial == serial && own.may_be(kind))
    }

    /// Whether its device can be of this kind, whatever the serial number.
    pub fn may_be(&self, kind: PciKind) -> bool {
        self.functions.iter().any(|own| own.may_be(kind))
    }

    /// Whether the device must not be lent because of it.
    pub fn is_open(&self) -> bool {
        match self.state {
            ErasureState::Running | ErasureState::Owed => true,
            ErasureState::Failed => self.rule.required,
            ErasureState::Done | ErasureState::Waived => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_called_the_same_in_text_and_json_and_are_those_of_the_boxes() {
        for means in EraseMeans::ALL {
            assert_eq!(serde_json::to_value(means).unwrap(), means.to_string());
            assert_eq!(EraseMeans::from(EraseMethod::from(*means)), *means);
        }
        assert_eq!(EraseMeans::ALL.len(), EraseMethod::ALL.len());
    }

    #[test]
    fn all_pairs_of_states() {
        let rows = [
            //                     R O D F W
            (ErasureState::Running, ". x x x x"),
            (ErasureState::Owed, "x . . . x"),
            (ErasureState::Done, ". . . . ."),
            (ErasureState::Failed, ". . . . x"),
            (ErasureState::Waived, ". . . . ."),
        ];
        for (from, row) in rows {
            for (to, mark) in ErasureState::ALL.into_iter().zip(row.split(' ')) {
                assert_eq!(from.may_become(to), mark == "x", "{from} to {to}");
            }
        }
    }
}
