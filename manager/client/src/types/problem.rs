//! What can be wrong with a request, in one vocabulary for API, operations and command line.

use super::ids::AllocationId;
use super::names::{NodeName, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

macro_rules! problem_codes {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal, $status:literal, $title:literal,
        $advice:literal;)+) => {
        /// Kinds of problems. Each has its HTTP status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum ProblemCode {
            $($(#[doc = $doc])* $name,)+
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

            /// What it means.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),*).trim(),)+ }
            }

            /// What to do about it.
            pub const fn advice(self) -> &'static str {
                match self { $(Self::$name => $advice,)+ }
            }
        }
    };
}

problem_codes! {
    /// A field, parameter or header is wrong; `field` names it.
    InvalidRequest = "invalid-request", 400, "The request is not valid",
        "Correct the field that `field` names; `detail` says what it may be.";
    /// No such address under the API.
    NoSuchPath = "no-such-path", 404, "There is nothing at this address",
        "Look the address up in `/v1/openapi.json`.";
    /// The address is there but not with this method.
    MethodNotAllowed = "method-not-allowed", 405, "The method is not allowed here",
        "Look up in `/v1/openapi.json` which methods the address has.";
    /// The body is larger than allowed.
    BodyTooLarge = "body-too-large", 413, "The body is too large",
        "Send less: 64 KiB at most; an inventory has 16 MiB, the image of a card 4 MiB.";
    /// The request's body did not come in time. A connection whose head does not is closed.
    RequestTimeout = "request-timeout", 408, "The request did not come in time",
        "Send head and body of the request without pauses; `http_ms` is the bound of each.";
    /// The resource is not what `If-Match` says.
    PreconditionFailed = "precondition-failed", 412, "The resource has changed",
        "Look at the resource again, decide anew, and send the tag that it has now.";
    /// The body is not JSON.
    UnsupportedMediaType = "unsupported-media-type", 415, "The body is not application/json",
        "Send the header `content-type: application/json`.";
    /// No proxy of this name is known.
    NoSuchNode = "no-such-node", 404, "There is no such proxy",
        "`dxpu-manager nodes` lists those that are; one that was forgotten is none of them.";
    /// No host of this name is known.
    NoSuchHost = "no-such-host", 404, "There is no such host",
        "`dxpu-manager nodes` lists those that are; one that was forgotten is none of them.";
    /// No box of this name is known.
    NoSuchBox = "no-such-box", 404, "There is no such box",
        "`dxpu-manager nodes` lists those that are; one that was forgotten is none of them.";
    /// The box has no such slot.
    NoSuchSlot = "no-such-slot", 404, "There is no such slot",
        "`dxpu-manager list` lists all slots.";
    /// The inventory has no such rack, site or fabric.
    NoSuchPlace = "no-such-place", 404, "There is no such rack, site or fabric",
        "`dxpu-manager inventory show` has the racks, sites and fabrics.";
    /// No such allocation now.
    NoSuchAllocation = "no-such-allocation", 404, "There is no such allocation",
        "`dxpu-manager allocations` lists what is lent now; what was released is told by `dxpu-manager events`.";
    /// No such binding now.
    NoSuchBinding = "no-such-binding", 404, "There is no such binding",
        "`dxpu-manager allocations` lists what is lent now, with its bindings.";
    /// No such operation, or no longer.
    NoSuchOperation = "no-such-operation", 404, "There is no such operation",
        "`dxpu-manager operations` lists those that are kept.";
    /// No such erasure, or no longer.
    NoSuchErasure = "no-such-erasure", 404, "There is no such erasure",
        "`dxpu-manager erasures` lists those that are kept.";
    /// No such recording, or no longer.
    NoSuchRecording = "no-such-recording", 404, "There is no such recording",
        "`dxpu-manager recordings` lists those that are kept; record again.";
    /// The recording has not ended.
    RecordingRuns = "recording-runs", 409, "The recording still runs",
        "Wait for its end, or stop it.";
    /// No such firmware image, or no longer.
    NoSuchImage = "no-such-image", 404, "There is no such firmware image",
        "`dxpu-manager firmware list` lists the images; send it again.";
    /// Firmware was never brought to cards.
    NoSuchRollout = "no-such-rollout", 404, "There is no rollout",
        "`dxpu-manager firmware push` begins one.";
    /// The body is no firmware image that a card would start.
    NotAnImage = "not-an-image", 400, "This is no firmware image for cards",
        "Make the file with `dxpu-flash image build`; `dxpu-flash image inspect` says what a file is.";
    /// The image is for another board or role, too large or too old for a card.
    WrongImage = "wrong-image", 409, "The firmware image is not for the card",
        "`dxpu-manager firmware list` shows what each card takes; send the image that is for it.";
    /// A card is to go back to the image before, and has none that it would start.
    NoWayBack = "no-way-back", 409, "The card has no image to go back to",
        "`dxpu-manager firmware list` shows what is in its slots; push the image that it should run.";
    /// A rollout has not ended.
    RolloutRuns = "rollout-runs", 409, "A rollout still runs",
        "`dxpu-manager firmware status --watch` waits for its end.";
    /// A card has bindings that a restart would interrupt.
    CardInUse = "card-in-use", 409, "The card is in use",
        "Release what is lent over the card, or allow it with `--interrupt`.";
    /// The proxy is of the other role.
    WrongRole = "wrong-role", 400, "The proxy has the other role",
        "Ask for a host where a host is asked for, and for a box where a box is.";
    /// The proxy is a program and no card, or a card that did not start from a slot.
    NotACard = "not-a-card", 400, "The proxy is no card with firmware in slots",
        "`dxpu-manager firmware list` shows the cards; a proxy that is a program is updated by its package.";
    /// The slot is lent; `owner` says to whom since when.
    SlotInUse = "slot-in-use", 409, "The slot is in use",
        "Release it first, or choose another slot; `owner` says who has it.";
    /// The slot has no device.
    SlotEmpty = "slot-empty", 409, "The slot is empty",
        "Put a device in, or choose another slot.";
    /// The slot's device failed its reset or readiness test.
    SlotQuarantined = "slot-quarantined", 409, "The slot is quarantined",
        "`dxpu-manager recover BOX/SLOT` tries again; if that fails, the device needs a person.";
    /// The slot's device is not ready, or is being taken back.
    SlotBusy = "slot-busy", 409, "The slot is busy",
        "Wait and ask again; `detail` says for what it waits.";
    /// A device is lent while something is asked that needs it not to be.
    NotLent = "not-lent", 409, "The slot is not lent",
        "Nothing is to be done: it is free already.";
    /// No choice fits; `reasons` says for each constraint what stood in the way.
    NothingFits = "nothing-fits", 409, "Nothing fits the request",
        "Change what `reasons` names, or wait until something is released; `allocate --dry-run` explains.";
    /// The same idempotency key came with another request.
    IdempotencyKeyReused = "idempotency-key-reused", 422, "The idempotency key was used for another request",
        "Use a new key for each new request.";
    /// The request was made before, and what came of it is no longer known.
    OutcomeForgotten = "outcome-forgotten", 410, "What came of the request is no longer known",
        "Look at what is there now, such as `dxpu-manager allocations`, and ask anew with a new key if it is needed.";
    /// The epochs of a function ran out.
    EpochsExhausted = "epochs-exhausted", 409, "The function has no epochs left",
        "Move the device to another slot: the function there has counted all bindings that it can.";
    /// The proxy is not connected.
    NotConnected = "not-connected", 503, "The proxy is not connected",
        "See that the proxy runs and reaches the manager; it connects by itself.";
    /// The proxy is connected, and what is asked needs it not to be.
    StillConnected = "still-connected", 409, "The proxy is connected",
        "End the proxy first, or wait until it is away.";
    /// The proxy refused.
    ProxyRefused = "proxy-refused", 502, "The proxy refused",
        "`detail` has what the proxy said; look at its log.";
    /// The proxy did not answer in time.
    ProxyTimeout = "proxy-timeout", 504, "The proxy did not answer in time",
        "Ask again; if it stays so, look at the proxy and its network.";
    /// The operation did not end within its bound.
    OperationTimeout = "operation-timeout", 504, "The operation did not end in time",
        "`dxpu-manager show op-N` says what it waits for; a release goes on by itself.";
    /// Devices are plugged, and the operating system did not enumerate them in time; `reasons` names each.
    NotEnumerated = "not-enumerated", 504, "The operating system did not enumerate the device in time",
        "See what the operating system says of the new device, then ask again; `--keep-unenumerated` keeps what is plugged.";
    /// The operation was overtaken by a release of the same slots.
    Superseded = "superseded", 409, "The slots were released meanwhile",
        "Nothing is to be done: somebody wanted the slots back. Ask anew if they are still needed.";
    /// It is held back; the detail says why and since when.
    Held = "held", 409, "It is held back",
        "`dxpu-manager maintain PLACE --off` ends it; `dxpu-manager holds` says why it is so.";
    /// It is not held back.
    NotHeld = "not-held", 404, "It is not held back",
        "Nothing is to be done: it can be used.";
    /// Somebody called the operation back.
    Cancelled = "cancelled", 409, "The operation was cancelled",
        "Nothing is to be done: everything is as it was before. Ask anew if it is still wanted.";
    /// The operation has ended, or has done what cannot be called back.
    TooLate = "too-late", 409, "It is too late for that",
        "`dxpu-manager show op-N` says how it ended or how far it is.";
    /// The store could not write.
    StoreFailed = "store-failed", 503, "The store cannot write",
        "Make room on the disk and see that the store can be written; `dxpu-manager store check` looks at it. It goes on by itself.";
    /// The manager has reached one of its limits.
    LimitReached = "limit-reached", 503, "A limit of the manager is reached",
        "Ask again later; `detail` names the limit.";
    /// The manager is stopping.
    Stopping = "stopping", 503, "The manager is stopping",
        "Ask again when it runs again.";
    /// The manager's own fault.
    Internal = "internal", 500, "The manager made a mistake",
        "Report it, with the log of the manager around that time.";
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for ProblemCode {
    type Err = NoSuchCode;

    fn from_str(text: &str) -> Result<Self, NoSuchCode> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text).ok_or(NoSuchCode)
    }
}

/// A text is no code of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such kind of problem; `dxpu-manager problems` lists all")]
pub struct NoSuchCode;

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

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) since {}", self.host, self.allocation, self.since)
    }
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

/// Most characters of a field's name that are said: it may be the client's own.
const MAX_FIELD: usize = 128;

/// Most characters that are said of what is wrong with a field.
const MAX_DETAIL: usize = 2_048;

/// So many characters of a text at most, of its beginning and its end.
fn cut(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let half = most / 2;
    let begin: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(count - (most - half - 1)).collect();
    format!("{begin}…{end}")
}

impl Problem {
    /// A problem of some kind.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        let (detail, reasons) = (detail.into(), Vec::new());
        Self { code, detail, field: None, reasons, owner: None, transient: false }
    }

    /// A request that is not valid in this field.
    pub fn invalid(field: &str, detail: impl fmt::Display) -> Self {
        let (field, detail) = (cut(field, MAX_FIELD), cut(&detail.to_string(), MAX_DETAIL));
        let mut problem = Self::new(ProblemCode::InvalidRequest, format!("{field}: {detail}"));
        problem.field = Some(field);
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
            assert_eq!(code.as_str().parse(), Ok(*code));
            assert!((400..600).contains(&code.status()), "{code}");
            for text in [code.meaning(), code.advice()] {
                assert!(text.ends_with('.') && !text.contains('|'), "{code}: {text}");
            }
        }
    }

    #[test]
    fn a_client_s_own_names_are_said_in_part() {
        let name = "ä".repeat(60_000);
        let problem = Problem::invalid(&name, format!("unknown field `{name}`, expected `host`"));
        let field = problem.field.unwrap();
        assert_eq!(field.chars().count(), MAX_FIELD);
        assert!(problem.detail.chars().count() <= MAX_FIELD + 2 + MAX_DETAIL);
        assert!(problem.detail.ends_with("expected `host`"), "{}", problem.detail);
        assert_eq!(Problem::invalid("host", "no name").detail, "host: no name");
    }
}
