//! What becomes of a TLP, and the counters of everything that was not passed on.

use crate::counters::CounterList;
use tlp_codec::ids::PortId;
use tlp_codec::tlp::CplStatus;

/// What becomes of a TLP from the root complex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum DownstreamVerdict {
    /// It goes, as it now stands, to the device behind this port.
    Forward(PortId),
    /// A copy goes to the device behind every port whose link is up
    /// ([`VirtualSwitch::is_link_up`](super::VirtualSwitch::is_link_up)).
    Broadcast,
    /// The switch was meant and has answered.
    Consumed,
    /// It goes nowhere. A non-posted request has been answered.
    Discarded(Cause),
}

/// What becomes of a TLP from the device behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum UpstreamVerdict {
    /// It goes to the root complex.
    ToRoot,
    /// It goes to the device behind another port.
    ToPort(PortId),
    /// The switch was meant and has acted.
    Consumed,
    /// It goes nowhere. A non-posted request has been answered.
    Discarded(Cause),
}

/// Something that is wrong with a TLP or with a port, as AER tells it apart
/// (PCIe 5.0 section 6.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortError {
    /// Poisoned TLP received.
    Poisoned,
    /// A completion did not come in time.
    CompletionTimeout,
    /// A request was completed with Completer Abort.
    CompleterAbort,
    /// A completion that nobody waits for.
    UnexpectedCompletion,
    /// A TLP that breaks a rule.
    Malformed,
    /// A request that nobody claims.
    UnsupportedRequest,
    /// Access control refused it.
    AcsViolation,
    /// Something broke inside, for which the port stands.
    Internal,
    /// An atomic operation may not leave by that port.
    AtomicBlocked,
    /// A TLP with an end-end prefix may not leave by that port.
    PrefixBlocked,
    /// Something broke inside and was put right.
    CorrectedInternal,
}

macro_rules! causes {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal,)*) => {
        /// Why a TLP was not passed on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Cause {
            $($(#[doc = $doc])* $name,)*
        }

        impl Cause {
            /// All of them, in the order of their counters.
            pub const ALL: &[Cause] = &[$(Cause::$name,)*];

            /// The names of their counters, in the same order.
            const NAMES: [&str; Self::ALL.len()] = [$($text,)*];

            /// The counter's name.
            pub const fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }
        }
    };
}

causes! {
    /// No function has this ID: an empty port, a function that is not there.
    NoFunction = "switch.no_function",
    /// The bus number is behind no port.
    NoBus = "switch.no_bus",
    /// The address is in no open window.
    NoWindow = "switch.no_window",
    /// The port is empty, or its link is disabled or in reset.
    LinkDown = "switch.link_down",
    /// The device is not ready yet: a configuration request is to be retried.
    NotReady = "switch.not_ready",
    /// The port, or the upstream port, may not pass requests upstream.
    BusMasterOff = "switch.bus_master_off",
    /// The device wants to reach itself.
    OwnWindow = "switch.own_window",
    /// The requester ID is not one behind the port (ACS source validation).
    SourceValidation = "switch.acs_source_validation",
    /// A translated address or a translation request, which ACS Translation Blocking stops.
    Translation = "switch.acs_translation_blocking",
    /// A translated address or anything else of address translation, which was not granted.
    NotGranted = "switch.translation_not_granted",
    /// An atomic operation may not leave by that port.
    AtomicBlocked = "switch.atomic_blocked",
    /// A TLP with an end-end prefix may not leave by that port.
    PrefixBlocked = "switch.prefix_blocked",
    /// Nobody waits for the completion.
    UnexpectedCompletion = "switch.unexpected_completion",
    /// A request of a type that may not come from that side, or a locked one: nothing holds other
    /// traffic back on the way to a device.
    UnsupportedType = "switch.unsupported_type",
    /// A message that the switch does not take.
    UnsupportedMessage = "switch.unsupported_message",
    /// A message that nobody takes and that the specification lets vanish: vendor-defined of type
    /// 1, and the hot-plug messages of PCIe 1.0.
    IgnoredMessage = "switch.ignored_message",
    /// An error message that no enable bit lets pass.
    ErrorMessageMasked = "switch.error_message_masked",
    /// More data than Max_Payload_Size allows.
    PayloadTooLarge = "switch.payload_too_large",
    /// Bytes that are no TLP.
    Malformed = "switch.malformed",
    /// A poisoned write to a register of the switch, or message that would change one.
    Poisoned = "switch.poisoned",
}

impl Cause {
    /// How a non-posted request that is refused for this is completed, and what is reported as
    /// an error.
    pub(crate) const fn answer(self) -> (CplStatus, Option<PortError>) {
        use PortError as E;
        let unsupported = CplStatus::UnsupportedRequest;
        match self {
            Self::NotReady => (CplStatus::ConfigRetry, None),
            // Not the requester's fault: the link went away (PCIe 5.0 section 2.9.1).
            Self::LinkDown | Self::ErrorMessageMasked | Self::IgnoredMessage => (unsupported, None),
            // PCIe 5.0 section 6.12.4.
            Self::SourceValidation | Self::Translation => {
                (CplStatus::CompleterAbort, Some(E::AcsViolation))
            }
            Self::AtomicBlocked => (unsupported, Some(E::AtomicBlocked)),
            Self::PrefixBlocked => (unsupported, Some(E::PrefixBlocked)),
            Self::UnexpectedCompletion => (unsupported, Some(E::UnexpectedCompletion)),
            Self::PayloadTooLarge | Self::Malformed => (unsupported, Some(E::Malformed)),
            Self::Poisoned => (unsupported, Some(E::Poisoned)),
            Self::NoFunction
            | Self::NoBus
            | Self::NoWindow
            | Self::BusMasterOff
            | Self::OwnWindow
            | Self::UnsupportedType
            | Self::NotGranted
            | Self::UnsupportedMessage => (unsupported, Some(E::UnsupportedRequest)),
        }
    }
}

macro_rules! counted {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal,)*) => {
        /// What is counted beside the TLPs that went nowhere.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Counted {
            $($(#[doc = $doc])* $name,)*
        }

        const COUNTED: &[&str] = &[$($text,)*];
    };
}

counted! {
    /// Configuration reads that the switch answered.
    ConfigRead = "switch.config_reads",
    /// Configuration writes that the switch took.
    ConfigWrite = "switch.config_writes",
    /// Interrupt messages sent.
    Interrupt = "switch.interrupts",
    /// Error messages sent.
    ErrorMessage = "switch.error_messages",
    /// Power management events sent.
    PowerEvent = "switch.power_events",
    /// Attention button presses.
    ButtonPress = "switch.button_presses",
    /// TLPs that were poisoned and went on.
    PoisonedPassed = "switch.poisoned_passed",
    /// Completions that went on with another status than success.
    Unsuccessful = "switch.unsuccessful_completions",
    /// Completions that found no room: the caller broke the rule that there is some.
    CompletionLost = "switch.completions_lost",
}

/// The counters of a switch.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    discarded: [u64; Cause::ALL.len()],
    counted: [u64; COUNTED.len()],
}

impl Counters {
    pub(crate) const fn new() -> Self {
        Self { discarded: [0; Cause::ALL.len()], counted: [0; COUNTED.len()] }
    }

    pub(crate) fn discard(&mut self, cause: Cause) {
        self.discarded[cause as usize] += 1;
    }

    pub(crate) fn count(&mut self, what: Counted) {
        self.counted[what as usize] += 1;
    }

    pub(crate) fn list(&self, list: &mut CounterList) {
        list.add_values(&Cause::NAMES, &self.discarded);
        list.add_values(COUNTED, &self.counted);
    }
}
