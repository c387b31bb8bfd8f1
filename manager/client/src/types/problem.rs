//! What can be wrong with a request, in one vocabulary for API, operations and command line.

use super::ids::AllocationId;
use super::names::{NodeName, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

macro_rules! problem_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $title:literal;)+) => {
        /// Kinds of problems. Each has its HTTP status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum ProblemCode {
            $($(#[$doc])* $name,)+
        }

        impl ProblemCode {
            /// Every code.
            pub const ALL: &[ProblemCode] = &[$(Self::$name,)+];

            /// As programs read it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)+ }
            }

            /// In a few words for a person.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }
        }
    };
}

problem_codes! {
    /// A field, parameter or header is wrong; `field` names it.
    InvalidRequest = "invalid-request", 400, "The request is not valid";
    /// No such address under the API.
    NoSuchPath = "no-such-path", 404, "There is nothing at this address";
    /// The address is there but not with this method.
    MethodNotAllowed = "method-not-allowed", 405, "The method is not allowed here";
    /// The body is larger than allowed.
    BodyTooLarge = "body-too-large", 413, "The body is too large";
    /// The request's head or body did not come in time.
    RequestTimeout = "request-timeout", 408, "The request did not come in time";
    /// The resource is not what `If-Match` says.
    PreconditionFailed = "precondition-failed", 412, "The resource has changed";
    /// The body is not JSON.
    UnsupportedMediaType = "unsupported-media-type", 415, "The body is not application/json";
    /// No proxy of this name was ever here.
    NoSuchNode = "no-such-node", 404, "There is no such proxy";
    /// No host of this name was ever here.
    NoSuchHost = "no-such-host", 404, "There is no such host";
    /// No box of this name was ever here.
    NoSuchBox = "no-such-box", 404, "There is no such box";
    /// The box has no such slot.
    NoSuchSlot = "no-such-slot", 404, "There is no such slot";
    /// The inventory has no such rack, site or fabric.
    NoSuchPlace = "no-such-place", 404, "There is no such rack, site or fabric";
    /// No such allocation now.
    NoSuchAllocation = "no-such-allocation", 404, "There is no such allocation";
    /// No such binding now.
    NoSuchBinding = "no-such-binding", 404, "There is no such binding";
    /// No such operation, or no longer.
    NoSuchOperation = "no-such-operation", 404, "There is no such operation";
    /// No such erasure, or no longer.
    NoSuchErasure = "no-such-erasure", 404, "There is no such erasure";
    /// No such recording, or no longer.
    NoSuchRecording = "no-such-recording", 404, "There is no such recording";
    /// The recording has not ended.
    RecordingRuns = "recording-runs", 409, "The recording still runs";
    /// No such firmware image, or no longer.
    NoSuchImage = "no-such-image", 404, "There is no such firmware image";
    /// Firmware was never brought to cards.
    NoSuchRollout = "no-such-rollout", 404, "There is no rollout";
    /// The body is no firmware image that a card would start.
    NotAnImage = "not-an-image", 400, "This is no firmware image for cards";
    /// The image is for another board or role, too large or too old for a card.
    WrongImage = "wrong-image", 409, "The firmware image is not for the card";
    /// A rollout has not ended.
    RolloutRuns = "rollout-runs", 409, "A rollout still runs";
    /// A card has bindings that a restart would interrupt.
    CardInUse = "card-in-use", 409, "The card is in use";
    /// The proxy is of the other role.
    WrongRole = "wrong-role", 400, "The proxy has the other role";
    /// The slot is lent; `owner` says to whom since when.
    SlotInUse = "slot-in-use", 409, "The slot is in use";
    /// The slot has no device.
    SlotEmpty = "slot-empty", 409, "The slot is empty";
    /// The slot's device failed its reset or readiness test.
    SlotQuarantined = "slot-quarantined", 409, "The slot is quarantined";
    /// The slot's device is not ready, or is being taken back.
    SlotBusy = "slot-busy", 409, "The slot is busy";
    /// A device is lent while something is asked that needs it not to be.
    NotLent = "not-lent", 409, "The slot is not lent";
    /// No choice fits; `reasons` says for each constraint what stood in the way.
    NothingFits = "nothing-fits", 409, "Nothing fits the request";
    /// The same idempotency key came with another request.
    IdempotencyKeyReused = "idempotency-key-reused", 422, "The idempotency key was used for another request";
    /// The request was made before, and what came of it is no longer known.
    OutcomeForgotten = "outcome-forgotten", 410, "What came of the request is no longer known";
    /// The epochs of a function ran out.
    EpochsExhausted = "epochs-exhausted", 409, "The function has no epochs left";
    /// The proxy is not connected.
    NotConnected = "not-connected", 503, "The proxy is not connected";
    /// The proxy is connected, and what is asked needs it not to be.
    StillConnected = "still-connected", 409, "The proxy is connected";
    /// The proxy refused.
    ProxyRefused = "proxy-refused", 502, "The proxy refused";
    /// The proxy did not answer in time.
    ProxyTimeout = "proxy-timeout", 504, "The proxy did not answer in time";
    /// The operation did not end within its bound.
    OperationTimeout = "operation-timeout", 504, "The operation did not end in time";
    /// Devices are plugged, and the operating system did not enable them in time; `reasons` names each.
    NotEnumerated = "not-enumerated", 504, "The operating system did not enable the device in time";
    /// The operation was overtaken by a release of the same slots.
    Superseded = "superseded", 409, "The slots were released meanwhile";
    /// It is held back; the detail says why and since when.
    Held = "held", 409, "It is held back";
    /// It is not held back.
    NotHeld = "not-held", 404, "It is not held back";
    /// Somebody called the operation back.
    Cancelled = "cancelled", 409, "The operation was cancelled";
    /// The operation has ended, or has done what cannot be called back.
    TooLate = "too-late", 409, "It is too late for that";
    /// The store could not write.
    StoreFailed = "store-failed", 503, "The store cannot write";
    /// The manager has reached one of its limits.
    LimitReached = "limit-reached", 503, "A limit of the manager is reached";
    /// The manager is stopping.
    Stopping = "stopping", 503, "The manager is stopping";
    /// The manager's own fault.
    Internal = "internal", 500, "The manager made a mistake";
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Who holds what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Owner {
    /// The host that has it.
    pub host: NodeName,
    /// By this allocation.
    pub allocation: AllocationId,
    /// Since then.
    pub since: Timestamp,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{detail}")]
pub struct Problem {
    /// Its kind.
    pub code: ProblemCode,
    /// What is wrong with which thing, and what to do, for a person.
    pub detail: String,
    /// The field, parameter or header that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What stood in the way, one for each constraint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Who holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Whether it may pass by itself in a moment, so that the same request is worth repeating: a
    /// proxy is connecting, a device is being reset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transient: bool,
}

impl Problem {
    /// A problem of some kind.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        let (detail, reasons) = (detail.into(), Vec::new());
        Self { code, detail, field: None, reasons, owner: None, transient: false }
    }

    /// A request that is not valid in this field.
    pub fn invalid(field: &str, detail: impl fmt::Display) -> Self {
        let mut problem = Self::new(ProblemCode::InvalidRequest, format!("{field}: {detail}"));
        problem.field = Some(field.to_owned());
        problem
    }

    /// Names who holds it.
    pub fn owned_by(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Says that it may pass by itself, if it may.
    pub fn passing(mut self, transient: bool) -> Self {
        self.transient = transient;
        self
    }

    /// Names what stood in the way.
    pub fn because(mut self, reasons: Vec<String>) -> Self {
        self.reasons = reasons;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_called_the_same_in_text_and_json() {
        for code in ProblemCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert!((400..600).contains(&code.status()), "{code}");
        }
    }
}
