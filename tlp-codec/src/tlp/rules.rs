//! The rules that a receiver checks, where they stand, and what it does when one is broken.
//!
//! The base specification is not public. Sections are those of *PCI Express Base Specification
//! revision 5.0 version 1.0*. What the rules say was taken from public accounts of it:
//!
//! - \[PEB383\] IDT (Renesas) *PEB383 User Manual*, July 2011, table 19 "Malformed TLP errors";
//! - \[A10\] Intel *Arria 10 Avalon-ST Interface for PCIe User Guide* (683647), section 9.3
//!   "Transaction layer errors";
//! - \[pci.h\], \[pci_regs.h\] Linux, `drivers/pci/pci.h` and `include/uapi/linux/pci_regs.h`;
//! - \[libspdm\] DMTF *libspdm*, IDE for PCIe, for what stands in the byte enables' place;
//! - cocotbext-pcie's `Tlp`, whose packets the tests compare with ours.
//!
//! Where they disagree, the rule's documentation says so.

use core::fmt;

/// What a receiver does with a TLP that breaks a rule (PCIe 5.0 sections 2.3 and 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handling {
    /// Malformed TLP: dropped, never completed; fatal by default.
    MalformedTlp,
    /// Unsupported Request: a non-posted request is completed with status UR, a posted one is
    /// dropped; non-fatal by default.
    UnsupportedRequest,
    /// Poisoned TLP: the data is not used, a request is completed with UR where it needs a
    /// completion (PCIe 5.0 section 2.7.2); non-fatal by default.
    PoisonedTlp,
    /// ECRC check failed: dropped; non-fatal by default.
    EcrcFailed,
}

impl Handling {
    /// The bit of AER's uncorrectable error status, mask and severity registers
    /// (`PCI_ERR_UNC_*` of pci_regs.h).
    pub const fn aer_bit(self) -> u32 {
        match self {
            Self::PoisonedTlp => 1 << 12,
            Self::MalformedTlp => 1 << 18,
            Self::EcrcFailed => 1 << 19,
            Self::UnsupportedRequest => 1 << 20,
        }
    }
}

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident, $handling:ident, $section:literal, $what:literal;)*) => {
        /// A rule of the specification, by what a TLP did that broke it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Rule {
            $(
                $(#[$doc])*
                #[doc = ""]
                #[doc = concat!($section, ".")]
                $name,
            )*
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

            /// The names of counters of TLPs that broke them, in the order of their numbers.
            pub const COUNTERS: [&str; Self::COUNT] =
                [$(concat!("malformed.", stringify!($name)),)*];

            /// The name of a counter of TLPs that broke it.
            pub const fn counter(self) -> &'static str {
                Self::COUNTERS[self as usize]
            }

            /// The variant's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

rules! {
    /// The bytes end before the header does, or behind a prefix.
    HeaderCutShort, MalformedTlp, "PCIe 5.0 section 2.2.1",
        "the header is not all there";
    /// Fmt and Type are not a combination that table 2-3 lists (\[PEB383\], \[A10\]).
    ReservedType, MalformedTlp, "PCIe 5.0 section 2.2.1",
        "Fmt and Type are a reserved combination";
    /// There are more or fewer bytes than Fmt, Length and TD say (\[PEB383\], \[A10\]).
    LengthMismatch, MalformedTlp, "PCIe 5.0 sections 2.2.2 and 2.2.3",
        "the bytes that are there are not as many as Fmt, Length and TD say";
    /// More data than the Max_Payload_Size in force. Checked by
    /// [`Repr::check_max_payload`](super::Repr::check_max_payload).
    PayloadAboveMax, MalformedTlp, "PCIe 5.0 section 2.2.2",
        "the data is longer than the Max_Payload_Size in force";
    /// A local prefix stands behind an end-to-end prefix.
    LocalPrefixBehindEndToEnd, MalformedTlp, "PCIe 5.0 section 2.2.10",
        "a local TLP prefix follows an end-to-end one";
    /// More than four end-to-end prefixes, or more prefixes in all than
    /// [`MAX_PREFIXES`](super::MAX_PREFIXES), which is this implementation's bound.
    TooManyPrefixes, MalformedTlp, "PCIe 5.0 section 2.2.10.2",
        "there are more than four end-to-end TLP prefixes, or more than five in all";
    /// First byte enables are 0 although there is more than one doubleword (\[PEB383\]).
    FirstEnablesEmpty, MalformedTlp, "PCIe 5.0 section 2.2.5",
        "the first byte enables are 0000b in a request of more than one doubleword";
    /// Last byte enables are 0 although there is more than one doubleword (\[PEB383\]).
    LastEnablesEmpty, MalformedTlp, "PCIe 5.0 section 2.2.5",
        "the last byte enables are 0000b in a request of more than one doubleword";
    /// Last byte enables are not 0 in a request of one doubleword (\[PEB383\]).
    LastEnablesOfOneDw, MalformedTlp, "PCIe 5.0 section 2.2.5",
        "the last byte enables are not 0000b in a request of one doubleword";
    /// First byte enables have a gap or do not reach the doubleword's end. Only one doubleword,
    /// or two that start at a multiple of 8, may have gaps (\[PEB383\]).
    FirstEnablesGap, MalformedTlp, "PCIe 5.0 section 2.2.5",
        "the first byte enables are not contiguous";
    /// Last byte enables have a gap or do not start at the doubleword's start; permitted where
    /// [`Rule::FirstEnablesGap`] permits it (\[PEB383\]).
    LastEnablesGap, MalformedTlp, "PCIe 5.0 section 2.2.5",
        "the last byte enables are not contiguous";
    /// Address and length reach over a multiple of 4096 (\[PEB383\], \[A10\]; checking is
    /// optional, says \[A10\]).
    Crosses4K, MalformedTlp, "PCIe 5.0 section 2.2.7",
        "address and length cross a 4 KB boundary";
    /// An I/O or configuration request has another length than one doubleword (\[PEB383\]).
    RequestLengthNotOne, MalformedTlp, "PCIe 5.0 section 2.2.7",
        "the length of an I/O or configuration request is not one doubleword";
    /// An I/O or configuration request has another traffic class than 0 (\[PEB383\]).
    RequestTrafficClass, MalformedTlp, "PCIe 5.0 section 2.2.7",
        "the traffic class of an I/O or configuration request is not 0";
    /// An I/O or configuration request has RO or NS set (\[PEB383\]; IDO is reserved there and
    /// ignored).
    RequestAttributes, MalformedTlp, "PCIe 5.0 section 2.2.7",
        "relaxed ordering or no snoop is set in an I/O or configuration request";
    /// An I/O or configuration request has AT other than 0. (\[PEB383\], of a revision without
    /// AT, does not list it.)
    RequestAddressType, MalformedTlp, "PCIe 5.0 section 2.2.7",
        "AT is not 00b in an I/O or configuration request";
    /// An atomic's length is not that of an architected operand size. (A size that is architected
    /// but not supported is an Unsupported Request, which the completer says.)
    AtomicLength, MalformedTlp, "PCIe 5.0 section 2.2.7, table 2-12",
        "an atomic request's operand is not of 4 or 8 (or, for CAS, 16) bytes";
    /// An atomic's address is not a multiple of its operand size.
    AtomicAlignment, MalformedTlp, "PCIe 5.0 section 2.2.7",
        "the address of an atomic request is not a multiple of its operand size";
    /// A deferrable write is longer than any completer may support. (Device Capabilities 2 has
    /// two lengths, 64 and 128 bytes; what a completer does not support is an Unsupported
    /// Request.)
    DeferrableWriteTooLong, UnsupportedRequest, "PCI-SIG ECN Deferrable Memory Write",
        "a deferrable memory write has more than 128 bytes";
    /// A message's routing is not what the tables say for its code. The sources that list
    /// malformed TLPs (\[PEB383\], \[A10\]) do not name it; routing for each code: \[pci.h\].
    MessageRouting, MalformedTlp, "PCIe 5.0 section 2.2.8",
        "the message's routing is not the one of its code";
    /// A message's code goes with data and there is none, or the other way round, or with
    /// another length.
    MessageData, MalformedTlp, "PCIe 5.0 section 2.2.8",
        "the message's code does not go with that many bytes of data";
    /// A message that must be in traffic class 0 is not (\[PEB383\]: INTx, power management,
    /// error, unlock; \[A10\] adds slot power limit).
    MessageTrafficClass, MalformedTlp, "PCIe 5.0 section 2.2.8",
        "the message's traffic class is not 0, as its code needs";
    /// A message code that nobody defined. Parsing keeps it; checked by
    /// [`Repr::check_known_message`](super::Repr::check_known_message).
    UnknownMessage, UnsupportedRequest, "PCIe 5.0 section 2.3.1",
        "the message code is not a known one";
    /// A completion has more data than its byte count and lower address leave. The specification
    /// recommends Malformed TLP and permits Unexpected Completion.
    CompletionByteCount, MalformedTlp, "PCIe 5.0 sections 2.2.9 and 2.3.2",
        "the completion has more data than its byte count and lower address leave";
    /// A completion that is not the last of its read ends elsewhere than at the read completion
    /// boundary (\[PEB383\]). Checked by
    /// [`Repr::check_read_completion_boundary`](super::Repr::check_read_completion_boundary).
    ReadCompletionBoundary, MalformedTlp, "PCIe 5.0 section 2.3.1.1",
        "a completion that is not the last does not end at the read completion boundary";
    /// EP is set on data. Parsing keeps it; checked by
    /// [`Repr::check_poison`](super::Repr::check_poison).
    Poisoned, PoisonedTlp, "PCIe 5.0 section 2.7.2",
        "the data is poisoned";
    /// The digest is not the ECRC. Parsing keeps it; checked by
    /// [`Packet::check_digest`](super::Packet::check_digest).
    Ecrc, EcrcFailed, "PCIe 5.0 section 2.7.1",
        "the digest is not the ECRC of the TLP";
}

/// A broken rule, and the value that broke it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RuleError {
    /// Which rule.
    pub rule: Rule,
    /// What was found where the rule wants something else: the field's value as it came.
    pub found: u64,
}

/// What [`RuleError::found`] is a number of.
enum Found {
    Bytes,
    DataBytes,
    Doublewords,
    Prefixes,
    Field(&'static str),
}

impl Rule {
    const fn found_in(self) -> Found {
        match self {
            Self::HeaderCutShort | Self::LengthMismatch => Found::Bytes,
            Self::PayloadAboveMax
            | Self::DeferrableWriteTooLong
            | Self::MessageData
            | Self::Poisoned => Found::DataBytes,
            Self::RequestLengthNotOne | Self::AtomicLength => Found::Doublewords,
            Self::TooManyPrefixes => Found::Prefixes,
            Self::LocalPrefixBehindEndToEnd => Found::Field("its place, counted from 0,"),
            Self::ReservedType => Found::Field("the byte of Fmt and Type"),
            Self::FirstEnablesEmpty | Self::FirstEnablesGap => Found::Field("first_be"),
            Self::LastEnablesEmpty | Self::LastEnablesOfOneDw | Self::LastEnablesGap => {
                Found::Field("last_be")
            }
            Self::Crosses4K | Self::AtomicAlignment => Found::Field("the address"),
            Self::RequestTrafficClass | Self::MessageTrafficClass => Found::Field("TC"),
            Self::RequestAttributes => Found::Field("Attr"),
            Self::RequestAddressType => Found::Field("AT"),
            Self::MessageRouting => Found::Field("the routing"),
            Self::UnknownMessage => Found::Field("the code"),
            Self::CompletionByteCount => Found::Field("the byte count"),
            Self::ReadCompletionBoundary => Found::Field("the end"),
            Self::Ecrc => Found::Field("the digest"),
        }
    }

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
        write!(f, "{}: ", rule.description())?;
        match rule.found_in() {
            Found::Bytes => write!(f, "{found} bytes in all")?,
            Found::DataBytes => write!(f, "{found} bytes of data")?,
            Found::Doublewords => write!(f, "{found} DW")?,
            Found::Prefixes => write!(f, "{found} of them")?,
            Found::Field(field) => write!(f, "{field} is {found:#x}")?,
        }
        write!(f, " ({})", rule.section())
    }
}

/// For a panic, which is read beside the source: what [`Rule::counter`] says and the value. A card
/// has no room for all that [`Display`](fmt::Display) says.
impl fmt::Debug for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:#x}", self.rule.counter(), self.found)
    }
}

impl core::error::Error for RuleError {}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    #[test]
    fn an_error_says_what_its_value_is_of() {
        assert_eq!(
            Rule::HeaderCutShort.broken_by(13).to_string(),
            "the header is not all there: 13 bytes in all (PCIe 5.0 section 2.2.1)"
        );
        assert_eq!(
            Rule::LastEnablesOfOneDw.broken_by(0xd).to_string(),
            "the last byte enables are not 0000b in a request of one doubleword: last_be is 0xd \
             (PCIe 5.0 section 2.2.5)"
        );
        assert_eq!(
            std::format!("{:?}", Rule::Crosses4K.broken_by(0xffc)),
            "malformed.Crosses4K: 0xffc"
        );
        for &rule in Rule::ALL {
            let text = rule.broken_by(0x5b).to_string();
            assert!(text.contains("0x5b") || text.contains("91 "), "{text}");
        }
    }
}
