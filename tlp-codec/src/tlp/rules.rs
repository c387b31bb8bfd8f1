//! The rules that a receiver checks, where they stand, and what it does when one is broken.
//!
//! The base specification is not public. Sections are those of PCI Express Base Specification
//! revision 5.0 version 1.0, as public texts quote them.

use core::fmt;

/// What a receiver does with a TLP that breaks a rule (PCIe 5.0 sections 2.3 and 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handling {
    /// Malformed TLP: dropped, no completion, a fatal error by default.
    MalformedTlp,
    /// Unsupported Request: a non-posted request is completed with status UR, a posted one is
    /// dropped; both are reported.
    UnsupportedRequest,
    /// Unexpected Completion: dropped and reported.
    UnexpectedCompletion,
}

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident, $handling:ident, $section:literal, $what:literal;)*) => {
        /// A rule of the specification, by what a TLP did that broke it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Rule {
            $($(#[$doc])* #[doc = ""] #[doc = concat!($section, ".")] $name,)*
        }

        impl Rule {
            /// Every rule, in the order of their numbers: an array of [`Rule::COUNT`] counters
            /// is indexed with `rule as usize`.
            pub const ALL: &[Rule] = &[$(Rule::$name,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// What the receiver does.
            pub const fn handling(self) -> Handling {
                match self { $(Self::$name => Handling::$handling,)* }
            }

            /// Document, revision and section.
            pub const fn section(self) -> &'static str {
                match self { $(Self::$name => $section,)* }
            }

            /// What is wrong, for people.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }

            /// The variant's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

rules! {
    /// Fmt and Type are not a combination that Table 2-3 lists.
    ReservedType, MalformedTlp, "PCIe 5.0 section 2.2.1",
        "Fmt and Type are a reserved combination";
    /// There are more or fewer bytes than Fmt, Length and TD say.
    LengthMismatch, MalformedTlp, "PCIe 5.0 section 2.2.2",
        "the bytes that are there are not as many as Fmt, Length and TD say";
    /// More data than the payload size that is in force.
    PayloadAboveMax, MalformedTlp, "PCIe 5.0 section 2.2.2",
        "the data is longer than the Max_Payload_Size in force";
    /// A local prefix stands behind an end-to-end prefix.
    LocalPrefixBehindEndToEnd, MalformedTlp, "PCIe 5.0 section 2.2.10",
        "a local TLP prefix follows an end-to-end one";
    /// More than four end-to-end prefixes.
    TooManyEndToEndPrefixes, MalformedTlp, "PCIe 5.0 section 2.2.10.2",
        "there are more than four end-to-end TLP prefixes";
    /// First byte enables are 0 although there is more than one doubleword.
    FirstEnablesEmpty, MalformedTlp, "PCIe 5.0 section 2.2.5",
        "the first byte enables are 0000b in a request of more than one doubleword";
    /// Last byte enables are 0 although there is more than one doubleword.
    LastEnablesEmpty, MalformedTlp, "PCIe 5.0 section 2.2.5",
        "the last byte enables are 0000b in a request of more than one doubleword";
    /// Last byte enables are not 0 in a request of one doubleword.
    LastEnablesOfOneDw, MalformedTlp, "PCIe 5.0 section 2.2.5",
        "the last byte enables are not 0000b in a request of one doubleword";
    /// First byte enables have a gap or do not reach the doubleword's end, where that is not
    /// permitted: only one doubleword, or two that start at a multiple of 8, may have gaps.
    FirstEnablesGap, MalformedTlp, "PCIe 5.0 section 2.2.5",
        "the first byte enables are not contiguous";
    /// Last byte enables have a gap or do not start at the doubleword's start, where that is not
    /// permitted.
    LastEnablesGap, MalformedTlp, "PCIe 5.0 section 2.2.5",
        "the last byte enables are not contiguous";
    /// Address and length reach over a multiple of 4096.
    Crosses4K, MalformedTlp, "PCIe 5.0 section 2.2.7",
        "address and length cross a 4 KB boundary";
    /// An I/O or configuration request has another length than one doubleword.
    RequestLengthNotOne, MalformedTlp, "PCIe 5.0 section 2.2.7",
        "the length of an I/O or configuration request is not one doubleword";
    /// An I/O or configuration request has another traffic class than 0.
    RequestTrafficClass, MalformedTlp, "PCIe 5.0 section 2.2.7",
        "the traffic class of an I/O or configuration request is not 0";
    /// An I/O or configuration request has Attr[1:0] other than 0.
    RequestAttributes, MalformedTlp, "PCIe 5.0 section 2.2.7",
        "relaxed ordering or no snoop is set in an I/O or configuration request";
    /// An I/O or configuration request has AT other than 0.
    RequestAddressType, MalformedTlp, "PCIe 5.0 section 2.2.7",
        "AT is not 00b in an I/O or configuration request";
    /// An atomic's length is not one of an architected operand size.
    AtomicLength, MalformedTlp, "PCIe 5.0 section 2.2.7, table 2-12",
        "the length of an atomic request is not that of an operand of 4 or 8 (CAS: 4, 8 or 16) bytes";
    /// An atomic's address is not a multiple of its operand size.
    AtomicAlignment, MalformedTlp, "PCIe 5.0 section 2.2.7",
        "the address of an atomic request is not a multiple of its operand size";
    /// A message's routing is not what the table says for its code.
    MessageRouting, MalformedTlp, "PCIe 5.0 section 2.2.8",
        "the message's routing is not the one of its code";
    /// A message's code goes with data and there is none, or the other way round.
    MessageData, MalformedTlp, "PCIe 5.0 section 2.2.8",
        "the message has data that its code does not have, or lacks it";
    /// A message that must be in traffic class 0 is not.
    MessageTrafficClass, MalformedTlp, "PCIe 5.0 section 2.2.8",
        "the message's traffic class is not 0, as its code needs";
    /// A completion has more data than its byte count leaves.
    CompletionByteCount, MalformedTlp, "PCIe 5.0 sections 2.2.9 and 2.3.2",
        "the completion has more data than its byte count and lower address leave";
}

/// A broken rule, and the value that broke it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Which rule.
    pub rule: Rule,
    /// What was found where the rule wants something else: the field's value as it came.
    pub found: u64,
}

impl Rule {
    /// That rule, broken by that value.
    pub const fn broken_by(self, found: u64) -> RuleError {
        RuleError { rule: self, found }
    }
}

impl RuleError {
    /// What the receiver does.
    pub const fn handling(&self) -> Handling {
        self.rule.handling()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.description(), self.section())
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule, found) = (self.rule, self.found);
        write!(f, "{}: found {found:#x} ({})", rule.description(), rule.section())
    }
}

impl core::error::Error for RuleError {}
