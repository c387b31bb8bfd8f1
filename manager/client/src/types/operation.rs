//! Operations: requests that take time.

use super::hold::{HoldRecord, Place};
use super::ids::{AllocationId, BindingId, OperationId};
use super::names::{NodeName, SlotAddress, Timestamp};
use super::problem::Problem;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum OperationKind {
    /// Lend slots to a host.
    Allocate {
        /// The host.
        host: NodeName,
        /// The slots that were chosen.
        slots: Vec<SlotAddress>,
        /// Whether it is enough that they are plugged, if the operating system does not enumerate
        /// them in time.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keep_unenumerated: bool,
    },
    /// Take slots back.
    Release {
        /// The slots.
        slots: Vec<SlotAddress>,
        /// Whether the operating system is not asked.
        force: bool,
        /// Why, if nobody asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Take slots back that nobody wanted to give back, after a time to do it oneself.
    TakeBack {
        /// The slots.
        slots: Vec<SlotAddress>,
        /// When the operating systems are asked.
        due: Timestamp,
        /// How long the borrowers have until then, in all, milliseconds.
        grace_ms: u64,
        /// How long the operating systems then have, milliseconds.
        within_ms: u32,
        /// Why.
        reason: String,
        /// How far it is.
        stage: TakeBackStage,
    },
    /// Put another device in the place of one: the other one is plugged first, then the one goes.
    Replace {
        /// The host.
        host: NodeName,
        /// The slot whose device goes, and the one whose device comes.
        slots: Vec<SlotAddress>,
        /// How long the operating system has to let go of the one that goes, milliseconds; nothing:
        /// it is not asked.
        within_ms: Option<u32>,
        /// Why.
        reason: String,
        /// The operation that this is a part of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<OperationId>,
    },
    /// Empty something, which gets nothing new.
    Drain {
        /// What.
        place: Place,
        /// The slots that were lent.
        slots: Vec<SlotAddress>,
        /// Whether their devices are replaced by others instead of being released.
        replace: bool,
        /// How long each operating system has to let go, milliseconds.
        within_ms: u32,
        /// Why.
        reason: String,
        /// What held it back before, for another reason than its health: it does again if this is
        /// cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        former: Option<Box<HoldRecord>>,
    },
    /// Forget a proxy that is gone for good; what was lent there ends as lost.
    Forget {
        /// The proxy.
        node: NodeName,
        /// The slots that were lent.
        slots: Vec<SlotAddress>,
    },
}

/// How far it is that something is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TakeBackStage {
    /// The borrowers have been told.
    Notice,
    /// Their operating systems are asked.
    Orderly,
    /// What is left goes by force.
    Force,
}

impl fmt::Display for TakeBackStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Notice => "the borrower has been told",
            Self::Orderly => "the operating system is asked",
            Self::Force => "by force",
        })
    }
}

impl OperationKind {
    /// The slots that are lent or taken back.
    pub fn slots(&self) -> &[SlotAddress] {
        match self {
            Self::Allocate { slots, .. }
            | Self::Release { slots, .. }
            | Self::TakeBack { slots, .. }
            | Self::Replace { slots, .. }
            | Self::Drain { slots, .. }
            | Self::Forget { slots, .. } => slots,
        }
    }
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OperationState {
    /// Its steps are being done.
    Running,
    /// A step failed; what was done is being undone.
    RollingBack,
    /// Ended well.
    Succeeded,
    /// Ended otherwise; `error` says why.
    Failed,
    /// Ended because somebody wanted so; everything is as it was before it began.
    Cancelled,
}

impl OperationState {
    /// Every state.
    pub const ALL: [OperationState; 5] =
        [Self::Running, Self::RollingBack, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// Whether it has ended.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// The transition table: whether an operation in this state may come to be in `next`.
    pub const fn may_become(self, next: OperationState) -> bool {
        match self {
            Self::Running => !matches!(next, Self::Running),
            Self::RollingBack => matches!(next, Self::Failed | Self::Cancelled),
            Self::Succeeded | Self::Failed | Self::Cancelled => false,
        }
    }
}

impl fmt::Display for OperationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::RollingBack => "rolling-back",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepName {
    /// Write the box's table.
    BindSlot,
    /// Write the host's table: plug the device.
    BindPort,
    /// Wait for the host's operating system to enable the device.
    Enumerate,
    /// Take the device out of the host.
    UnbindPort,
    /// Let the box reset the device and free the slot.
    UnbindSlot,
    /// Put another device in the place of one, by an operation of its own.
    Replace,
    /// Take the device out of its host and plug it again, under new epochs.
    Rebind,
    /// Have the device erased.
    Erase,
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::BindSlot => "bind-slot",
            Self::BindPort => "bind-port",
            Self::Enumerate => "enumerate",
            Self::UnbindPort => "unbind-port",
            Self::UnbindSlot => "unbind-slot",
            Self::Replace => "replace",
            Self::Rebind => "rebind",
            Self::Erase => "erase",
        })
    }
}

/// Where a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepState {
    /// Not done yet.
    Pending,
    /// Done.
    Done,
    /// Could not be done.
    Failed,
    /// No longer wanted, or not seen within its bound and not waited for.
    Skipped,
}

impl fmt::Display for StepState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pending => "pending",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        })
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    /// What it does.
    pub name: StepName,
    /// To which binding.
    pub binding: BindingId,
    /// Where, for a person: a slot or a host's port.
    pub target: String,
    /// Where it stands.
    pub state: StepState,
    /// What is to say about it; while it is pending, which proxy it waits for that is away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// When the operating system was first asked to let go: from then on it may, and the step cannot
    /// be called back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    /// When its state last changed.
    pub changed: Timestamp,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationRecord {
    /// Its number.
    pub id: OperationId,
    /// What it does.
    pub what: OperationKind,
    /// Where it stands.
    pub state: OperationState,
    /// The allocation that it makes or ends, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    /// Its steps, in order for each binding.
    pub steps: Vec<Step>,
    /// Things that are not as they should be but did not make it fail.
    pub warnings: Vec<String>,
    /// Why it failed, or is rolling back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// The client's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<String>,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

impl OperationRecord {
    /// How many steps are over, and how many there are.
    pub fn progress(&self) -> (usize, usize) {
        let over = self.steps.iter().filter(|step| step.state != StepState::Pending);
        (over.count(), self.steps.len())
    }

    /// The step of this name for a binding.
    pub fn step_mut(&mut self, binding: BindingId, name: StepName) -> Option<&mut Step> {
        self.steps.iter_mut().find(|s| s.binding == binding && s.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table once more, as a picture: row by row, `x` where the column may follow.
    #[test]
    fn all_pairs_of_states() {
        let rows = [
            //                          R B S F C
            (OperationState::Running, ". x x x x"),
            (OperationState::RollingBack, ". . . x x"),
            (OperationState::Succeeded, ". . . . ."),
            (OperationState::Failed, ". . . . ."),
            (OperationState::Cancelled, ". . . . ."),
        ];
        for (from, row) in rows {
            for (to, mark) in OperationState::ALL.into_iter().zip(row.split(' ')) {
                assert_eq!(from.may_become(to), mark == "x", "{from} to {to}");
            }
            assert_eq!(from.is_final(), !row.contains('x'), "{from}");
        }
    }
}
