//! Allocations and their bindings.

use super::device::FunctionAddress;
use super::ids::{AllocationId, BindingId, OperationId};
use super::link_use::LinkUse;
use super::names::{NodeName, SlotAddress, Timestamp};
use super::problem::Owner;
use super::wishes::Wishes;
use proxy_core::control::PathSet;
use serde::{Deserialize, Serialize};
use std::fmt;
use tlp_codec::ids::{BindingKey, Epoch, PortId, SlotFunction};
use utoipa::ToSchema;

/// How far a binding has got. The way in is `Reserved` → `SlotBound` → `Bound` → `Configured`; the
/// way out, from any of them, is `Withdrawn` and then gone (or `Reserved` again, under new epochs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Recorded, with its epochs; the proxies may not know of it yet.
    Reserved,
    /// The box has it.
    SlotBound,
    /// The host has it too: the device is plugged.
    Bound,
    /// The host's operating system enumerated the device and enabled it.
    Configured,
    /// Dead under these epochs: its link went down, or a proxy restarted or gave it up.
    Failed,
    /// Out of the host; the box has it to release.
    Withdrawn,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Phase; 6] = [
        Self::Reserved,
        Self::SlotBound,
        Self::Bound,
        Self::Configured,
        Self::Failed,
        Self::Withdrawn,
    ];

    /// The transition table: whether a binding in this phase may come to be in `next`.
    pub const fn may_become(self, next: Phase) -> bool {
        use Phase::{Bound, Configured, Failed, Reserved, SlotBound, Withdrawn};
        match self {
            Reserved => matches!(next, SlotBound | Failed | Withdrawn),
            // The operating system may be quicker than the host proxy's answer.
            SlotBound => matches!(next, Reserved | Bound | Configured | Failed | Withdrawn),
            Bound => matches!(next, Reserved | SlotBound | Configured | Failed | Withdrawn),
            Configured => matches!(next, Reserved | SlotBound | Failed | Withdrawn),
            Failed => matches!(next, Withdrawn),
            Withdrawn => matches!(next, Reserved),
        }
    }

    /// Whether the box should have the binding in its table.
    pub const fn at_box(self) -> bool {
        matches!(self, Self::SlotBound | Self::Bound | Self::Configured)
    }

    /// Whether the host should have the binding in its table.
    pub const fn at_host(self) -> bool {
        matches!(self, Self::Bound | Self::Configured)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reserved => "reserved",
            Self::SlotBound => "slot-bound",
            Self::Bound => "bound",
            Self::Configured => "configured",
            Self::Failed => "failed",
            Self::Withdrawn => "withdrawn",
        })
    }
}

/// What is wanted of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Desired {
    /// That it stands. A binding that failed is made again under new epochs.
    Bound,
    /// That it ends, once the operating system let go.
    Released {
        /// After so many milliseconds it is taken by force.
        within_ms: u32,
    },
    /// That it ends at once; a host that cannot be reached is not waited for.
    Forced,
}

impl Desired {
    /// Whether the binding is to end.
    pub const fn is_release(self) -> bool {
        !matches!(self, Self::Bound)
    }
}

/// A function and the number of its binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionEpoch {
    /// The function.
    pub function: SlotFunction,
    /// The epoch.
    pub epoch: Epoch,
}

/// One slot lent to one port of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingRecord {
    /// Its number.
    pub id: BindingId,
    /// The allocation that it belongs to.
    pub allocation: AllocationId,
    /// The box and the slot.
    pub slot: SlotAddress,
    /// The functions in it, lowest first, never empty.
    pub functions: Vec<FunctionEpoch>,
    /// The host.
    pub host: NodeName,
    /// The downstream port there.
    pub port: PortId,
    /// The model of the device when it was chosen; empty if nobody said. What replaces it has the
    /// same.
    #[serde(default)]
    pub model: String,
    /// What the device took of its proxies' bandwidth when it was chosen, bytes a second: that is not
    /// given to others while it is not there. Nothing if an earlier manager chose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand: Option<u64>,
    /// The paths that both ends were given under these epochs; nothing before the box has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_set: Option<PathSet>,
    /// How far it has got.
    pub phase: Phase,
    /// What is wanted.
    pub desired: Desired,
    /// The box's life in which it got it; until then, the last one that was known when the epochs
    /// were given.
    pub box_incarnation: Option<u32>,
    /// The host proxy's life in which it got it.
    pub host_incarnation: Option<u32>,
    /// The operation that waits for it.
    pub operation: Option<OperationId>,
    /// What went wrong last, if it is not right yet.
    pub trouble: Option<String>,
    /// When it was recorded.
    pub since: Timestamp,
    /// When its phase last changed.
    pub changed: Timestamp,
}

impl BindingRecord {
    /// The keys under which both proxies know it, one for each function.
    pub fn keys(&self) -> impl Iterator<Item = BindingKey> + '_ {
        self.functions.iter().map(|f| BindingKey {
            slot: self.slot.slot(),
            function: f.function,
            epoch: f.epoch,
        })
    }

    /// Who has it, since when.
    pub fn owner(&self) -> Owner {
        Owner { host: self.host.clone(), allocation: self.allocation, since: self.since }
    }

    /// Whether a key that the binding's box or host named is this binding's.
    pub fn has_key(&self, key: BindingKey) -> bool {
        self.keys().any(|own| own == key)
    }

    /// The epoch that names the binding at the host's port: the first function's.
    ///
    /// # Panics
    ///
    /// When the binding has no function; none is made so.
    pub fn port_epoch(&self) -> Epoch {
        self.functions.first().expect("a binding has a function").epoch
    }

    /// The addresses of its functions.
    pub fn addresses(&self) -> impl Iterator<Item = FunctionAddress> + '_ {
        self.functions
            .iter()
            .map(|f| FunctionAddress { slot: self.slot.clone(), function: f.function })
    }
}

/// What one request lent to one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRecord {
    /// Its number.
    pub id: AllocationId,
    /// The host.
    pub host: NodeName,
    /// Why, in the words of who asked.
    pub reason: Option<String>,
    /// When.
    pub since: Timestamp,
    /// How its devices use the links.
    #[serde(default)]
    pub link: LinkUse,
    /// When it ends by itself, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// For whom, in the words of who asked.
    #[serde(default)]
    pub tenant: Option<String>,
    /// What its devices were chosen by.
    #[serde(default)]
    pub wishes: Wishes,
}

/// A time for which something is lent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// When it ends, by the wall clock.
    pub until: Timestamp,
    /// The whole time that was given, milliseconds.
    pub whole_ms: u64,
    /// Whether the borrower has been told that it ends.
    pub warned: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table once more, as a picture: row by row, `x` where the column may follow.
    #[test]
    fn all_pairs_of_phases() {
        let rows = [
            //                R S B C F W
            (Phase::Reserved, ". x . . x x"),
            (Phase::SlotBound, "x . x x x x"),
            (Phase::Bound, "x x . x x x"),
            (Phase::Configured, "x x . . x x"),
            (Phase::Failed, ". . . . . x"),
            (Phase::Withdrawn, "x . . . . ."),
        ];
        for (from, row) in rows {
            for (to, mark) in Phase::ALL.into_iter().zip(row.split(' ')) {
                assert_eq!(from.may_become(to), mark == "x", "{from} to {to}");
            }
        }
    }

    #[test]
    fn every_phase_has_a_way_out() {
        for phase in Phase::ALL {
            assert!(phase == Phase::Withdrawn || phase.may_become(Phase::Withdrawn), "{phase}");
        }
    }
}
