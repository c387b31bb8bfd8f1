//! What happened, in order.

use super::ids::{AllocationId, BindingId, OperationId};
use super::names::{NodeName, SlotAddress, Timestamp};
use super::text::plain;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

macro_rules! event_kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// Kinds of events. Later versions may add some.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum EventKind {
            $($(#[$doc])* $name,)+
        }

        impl EventKind {
            /// Every kind.
            pub const ALL: &[EventKind] = &[$(Self::$name,)+];
        }

        impl fmt::Display for EventKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$name => $text,)+ })
            }
        }
    };
}

event_kinds! {
    /// The manager started, with a new term.
    ManagerStarted = "manager-started",
    /// A proxy was here for the first time and has a node number.
    NodeAdded = "node-added",
    /// A proxy connected and its tables were read.
    NodeConnected = "node-connected",
    /// A proxy's connection ended.
    NodeDisconnected = "node-disconnected",
    /// A card was reset, and says why.
    CardReset = "card-reset",
    /// Firmware is on its way to cards.
    FirmwareRolloutStarted = "firmware-rollout-started",
    /// A card has joined with the firmware that it should have.
    FirmwareUpdated = "firmware-updated",
    /// A card does not run the firmware that it should.
    FirmwareFailed = "firmware-failed",
    /// No more cards get that firmware: all have it, or one failed.
    FirmwareRolloutEnded = "firmware-rollout-ended",
    /// A proxy is gone for good, and the records have it no more.
    NodeForgotten = "node-forgotten",
    /// A proxy was not let in.
    NodeRefused = "node-refused",
    /// A proxy connects and goes, or its name is claimed, again and again; how often is said once in
    /// a while.
    NodeFlapping = "node-flapping",
    /// A proxy caused more events than are recorded of one; the detail says how many were left out.
    EventsSuppressed = "events-suppressed",
    /// A part of what a proxy reports cannot be; that part is left out.
    ReportRefused = "report-refused",
    /// A device has another one's serial number; neither is lent until one of them is gone.
    SerialContested = "serial-contested",
    /// A device came into a slot, changed or went.
    DeviceChanged = "device-changed",
    /// What a file says of the pool changed.
    InventoryChanged = "inventory-changed",
    /// A proxy reports something else than the inventory says; the proxy's word counts.
    InventoryContradicted = "inventory-contradicted",
    /// A slot's device failed its reset or readiness test.
    SlotQuarantined = "slot-quarantined",
    /// A link between two proxies came up.
    LinkUp = "link-up",
    /// A link between two proxies went down.
    LinkDown = "link-down",
    /// What a proxy sends by one path of a link does not arrive.
    PathLost = "path-lost",
    /// What a proxy sends by a path arrives again.
    PathFound = "path-found",
    /// A host has a root complex again.
    RootComplexFound = "root-complex-found",
    /// A host has no root complex: it was switched off or killed, or was not started yet.
    RootComplexLost = "root-complex-lost",
    /// A host had no root complex for too long; what it had is taken back.
    HostGraceOver = "host-grace-over",
    /// A downstream port changed its state.
    PortChanged = "port-changed",
    /// Slots were chosen and recorded for a host.
    Allocated = "allocated",
    /// A binding's device is plugged into its host.
    Bound = "bound",
    /// The host's operating system enabled a device.
    Configured = "configured",
    /// A binding is dead; it will be made again if its allocation stands.
    BindingFailed = "binding-failed",
    /// A host's operating system let go of a device without being asked.
    HostLetGo = "host-let-go",
    /// A binding gets new epochs and is made again.
    Rebinding = "rebinding",
    /// A binding is out of its host.
    Withdrawn = "withdrawn",
    /// A binding ended; its slot can be lent again (or is quarantined).
    Released = "released",
    /// A binding ended with its box, which is gone for good.
    BindingLost = "binding-lost",
    /// A released device was erased.
    Erased = "erased",
    /// A released device could not be erased; the detail says why.
    NotErased = "not-erased",
    /// A device was taken out of its slot before it was erased, or one that was is back in a slot.
    ErasureOwed = "erasure-owed",
    /// A table had a binding that the records do not have; it was taken out.
    OrphanRemoved = "orphan-removed",
    /// A table lacked a binding that it had; it is written again.
    BindingMissing = "binding-missing",
    /// A lease ends soon.
    LeaseEnding = "lease-ending",
    /// A lease was extended.
    LeaseExtended = "lease-extended",
    /// A lease is over; what was lent is taken back.
    LeaseOver = "lease-over",
    /// What a host has is going to be taken back, and when.
    TakeBackNotice = "take-back-notice",
    /// A host did not let go in time; it is not waited for any more.
    TakeBackForced = "take-back-forced",
    /// Something is held back: it gets nothing new.
    Held = "held",
    /// Something is not held back any more.
    HoldEnded = "hold-ended",
    /// The new device of a replacement is in place, and the old one goes.
    Replaced = "replaced",
    /// Something is better or worse than it was.
    HealthChanged = "health-changed",
    /// The store can be written again; the detail says since when it could not, and why.
    StoreRecovered = "store-recovered",
    /// The last write before a kill was not in the store as it was written; the manager went back to
    /// the one before and began a new generation of epochs and numbers.
    StoreWentBack = "store-went-back",
    /// The wall clock jumped.
    ClockJumped = "clock-jumped",
    /// Something cannot go on as it is; the detail says what.
    Trouble = "trouble",
    /// An operation began.
    OperationStarted = "operation-started",
    /// An operation is being undone.
    OperationRollingBack = "operation-rolling-back",
    /// An operation ended well.
    OperationSucceeded = "operation-succeeded",
    /// An operation ended otherwise.
    OperationFailed = "operation-failed",
    /// An operation was called back and is over.
    OperationCancelled = "operation-cancelled",
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventRecord {
    /// Counts up by one; never used twice.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// For a person.
    pub detail: String,
    /// The proxy that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// The slot that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<SlotAddress>,
    /// The binding that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingId>,
    /// The allocation that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    /// The operation that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
}

impl EventRecord {
    /// An event of some kind; the records give it number and time when it is added.
    pub fn new(kind: EventKind, detail: impl Into<String>) -> Self {
        Self {
            sequence: 0,
            at: Timestamp::now(),
            kind,
            // Proxies and devices have a say in it.
            detail: plain(&detail.into()),
            node: None,
            slot: None,
            binding: None,
            allocation: None,
            operation: None,
        }
    }

    /// About this proxy.
    pub fn node(mut self, name: &NodeName) -> Self {
        self.node = Some(name.clone());
        self
    }

    /// About this slot.
    pub fn slot(mut self, slot: &SlotAddress) -> Self {
        self.slot = Some(slot.clone());
        self
    }

    /// About this operation.
    pub fn operation(mut self, id: OperationId) -> Self {
        self.operation = Some(id);
        self
    }

    /// About this binding, its slot, allocation and operation.
    pub fn binding(mut self, binding: &super::BindingRecord) -> Self {
        self.slot = Some(binding.slot.clone());
        self.binding = Some(binding.id);
        self.allocation = Some(binding.allocation);
        self.operation = binding.operation;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_called_the_same_in_text_and_json() {
        for kind in EventKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.to_string());
        }
    }
}
