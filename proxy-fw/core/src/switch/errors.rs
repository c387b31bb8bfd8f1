//! Errors: what is latched, what is logged, and which message goes to the root complex
//! (PCIe 5.0 sections 6.2.4 to 6.2.6 and 7.8.4).

use super::bridge::Bridge;
use super::config::{error_reporting as aer, express, header};
use super::verdict::PortError;
use tlp_codec::tlp::{MsgCode, Packet};

/// The three kinds of error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Severity {
    Correctable = 1 << 0,
    NonFatal = 1 << 1,
    Fatal = 1 << 2,
}

impl Severity {
    pub(crate) const ALL: [Severity; 3] = [Self::Correctable, Self::NonFatal, Self::Fatal];

    /// Its place in [`ALL`](Self::ALL).
    pub(crate) const fn index(self) -> usize {
        (self as u8).trailing_zeros() as usize
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Correctable => "correctable",
            Self::NonFatal => "non-fatal",
            Self::Fatal => "fatal",
        }
    }

    pub(crate) const fn message(self) -> MsgCode {
        match self {
            Self::Correctable => MsgCode::ErrCor,
            Self::NonFatal => MsgCode::ErrNonFatal,
            Self::Fatal => MsgCode::ErrFatal,
        }
    }

    pub(crate) const fn of_message(code: MsgCode) -> Option<Self> {
        match code {
            MsgCode::ErrCor => Some(Self::Correctable),
            MsgCode::ErrNonFatal => Some(Self::NonFatal),
            MsgCode::ErrFatal => Some(Self::Fatal),
            _ => None,
        }
    }

    /// The enable bit in Device Control.
    const fn enable(self) -> u32 {
        match self {
            Self::Correctable => express::REPORT_CORRECTABLE,
            Self::NonFatal => express::REPORT_NON_FATAL,
            Self::Fatal => express::REPORT_FATAL,
        }
    }

    /// The bit in Device Status.
    const fn detected(self) -> u32 {
        match self {
            Self::Correctable => express::CORRECTABLE_DETECTED,
            Self::NonFatal => express::NON_FATAL_DETECTED,
            Self::Fatal => express::FATAL_DETECTED,
        }
    }
}

/// Error messages that are still to be sent, one of each severity at most: a second error of the
/// same severity before the first is told needs no message of its own, since software reads the
/// status registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Severities(u8);

impl Severities {
    pub(crate) fn add(&mut self, severity: Severity) {
        self.0 |= severity as u8;
    }

    pub(crate) fn remove(&mut self, severity: Severity) {
        self.0 &= !(severity as u8);
    }

    pub(crate) fn contains(self, severity: Severity) -> bool {
        self.0 & severity as u8 != 0
    }
}

impl PortError {
    /// The bit in the uncorrectable error registers; `None` for the correctable one.
    const fn uncorrectable_bit(self) -> Option<u32> {
        Some(match self {
            Self::Poisoned => aer::POISONED,
            Self::CompletionTimeout => aer::COMPLETION_TIMEOUT,
            Self::CompleterAbort => aer::COMPLETER_ABORT,
            Self::UnexpectedCompletion => aer::UNEXPECTED_COMPLETION,
            Self::Malformed => aer::MALFORMED,
            Self::UnsupportedRequest => aer::UNSUPPORTED,
            Self::AcsViolation => aer::ACS_VIOLATION,
            Self::Internal => aer::INTERNAL,
            Self::AtomicBlocked => aer::ATOMIC_BLOCKED,
            Self::PrefixBlocked => aer::PREFIX_BLOCKED,
            Self::CorrectedInternal => return None,
        })
    }
}

impl Bridge {
    /// Latches an error and, where it is enabled, gets a message ready. `advisory`: the requester
    /// is told otherwise, so that a non-fatal error counts as correctable (section 6.2.3.2.4).
    pub(crate) fn report(&mut self, error: PortError, advisory: bool, tlp: Option<&[u8]>) {
        let Some(bit) = error.uncorrectable_bit() else {
            self.report_correctable(aer::CORRECTED_INTERNAL);
            return;
        };
        let unsupported = error == PortError::UnsupportedRequest;
        if unsupported {
            self.config.set(express::DEVICE_CONTROL, express::UNSUPPORTED_DETECTED);
        }
        if self.config.any(aer::UNCORRECTABLE_SEVERITY, bit) {
            self.report_uncorrectable(bit, Severity::Fatal, tlp);
        } else if !advisory {
            self.report_uncorrectable(bit, Severity::NonFatal, tlp);
        } else {
            self.report_advisory(bit, tlp);
        }
    }

    fn report_correctable(&mut self, bit: u32) {
        self.config.set(express::DEVICE_CONTROL, express::CORRECTABLE_DETECTED);
        self.config.set(aer::CORRECTABLE_STATUS, bit);
        if !self.config.any(aer::CORRECTABLE_MASK, bit) {
            self.send(Severity::Correctable);
        }
    }

    fn report_advisory(&mut self, bit: u32, tlp: Option<&[u8]>) {
        self.config.set(express::DEVICE_CONTROL, express::CORRECTABLE_DETECTED);
        self.config.set(aer::CORRECTABLE_STATUS, aer::ADVISORY);
        if self.config.any(aer::CORRECTABLE_MASK, aer::ADVISORY) {
            return;
        }
        self.log(bit, tlp);
        // The uncorrectable error's mask is for the log alone (figure 6-2).
        if self.may_report(bit) {
            self.send(Severity::Correctable);
        }
    }

    fn report_uncorrectable(&mut self, bit: u32, severity: Severity, tlp: Option<&[u8]>) {
        self.config.set(express::DEVICE_CONTROL, severity.detected());
        self.log(bit, tlp);
        if self.config.any(aer::UNCORRECTABLE_MASK, bit) {
            return;
        }
        if self.config.any(header::COMMAND, header::SERR_ENABLE) {
            self.config.set(header::COMMAND, header::SYSTEM_ERROR);
            self.unsent.errors.add(severity);
        } else if self.may_report(bit) {
            self.send(severity);
        }
    }

    /// Unsupported Requests have an enable bit of their own (section 7.5.3.4).
    fn may_report(&self, bit: u32) -> bool {
        bit != aer::UNSUPPORTED
            || self.config.any(express::DEVICE_CONTROL, express::REPORT_UNSUPPORTED)
    }

    fn send(&mut self, severity: Severity) {
        if self.config.any(express::DEVICE_CONTROL, severity.enable()) {
            self.unsent.errors.add(severity);
        }
    }

    /// Sets the status bit and, if it is the first error that is not masked, points to it and
    /// keeps its header (section 6.2.4.2).
    fn log(&mut self, bit: u32, tlp: Option<&[u8]>) {
        let first = self.config.get(aer::CONTROL) & aer::FIRST_ERROR;
        let logged = self.config.any(aer::UNCORRECTABLE_STATUS, 1 << first);
        self.config.set(aer::UNCORRECTABLE_STATUS, bit);
        if logged {
            return;
        }
        if self.config.any(aer::UNCORRECTABLE_MASK, bit) {
            // A pointer that was over does not point to this one now. Bit 0 is no error's.
            if 1 << first == bit {
                self.config.put(aer::CONTROL, aer::FIRST_ERROR, 0);
            }
            return;
        }
        self.config.put(aer::CONTROL, aer::FIRST_ERROR, bit.trailing_zeros());
        let packet = tlp.and_then(|bytes| Packet::new_header_checked(bytes).ok());
        let (prefixes, header) = match &packet {
            Some(packet) => packet.as_bytes().split_at(packet.prefix_bytes().len()),
            None => (&[][..], &[][..]),
        };
        let header_length = packet.as_ref().map_or(0, |p| p.header_len() - prefixes.len());
        self.log_words(aer::HEADER_LOG, &header[..header_length]);
        self.log_words(aer::PREFIX_LOG, prefixes);
        let present = if prefixes.is_empty() { 0 } else { aer::PREFIX_LOGGED };
        self.config.put(aer::CONTROL, aer::PREFIX_LOGGED, present);
    }

    /// Four doublewords, the first byte in the highest bits (section 7.8.4.8).
    fn log_words(&mut self, at: u16, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(4);
        for index in 0..4 {
            let word = words.next().map_or(0, |w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
            self.config.put(at + 4 * index, u32::MAX, word);
        }
    }

    /// An error message from below comes to the port: whether it goes on (section 6.2.6, figure
    /// 6-3; Bridge Control and Command in section 7.5.1).
    pub(crate) fn passes_error(&mut self, severity: Severity) -> bool {
        let uncorrectable = severity != Severity::Correctable;
        if uncorrectable {
            self.config.set(header::IO, header::SYSTEM_ERROR);
        }
        if !self.config.any(header::BRIDGE_CONTROL, header::BRIDGE_SERR) {
            return false;
        }
        if uncorrectable && self.config.any(header::COMMAND, header::SERR_ENABLE) {
            self.config.set(header::COMMAND, header::SYSTEM_ERROR);
            return true;
        }
        self.config.any(express::DEVICE_CONTROL, severity.enable())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::SwitchConfig;
    use crate::switch::bridge::Unsent;
    use crate::switch::config::layouts;

    fn bridge() -> Bridge {
        Bridge::new(&layouts::DOWNSTREAM, &SwitchConfig::default(), 1)
    }

    const TLP: [u8; 12] = [0, 0, 0, 1, 0x12, 0x34, 0x56, 0x0f, 0xde, 0xad, 0xbe, 0xe0];

    #[test]
    fn an_advisory_error_is_silent_by_default() {
        let mut bridge = bridge();
        bridge.write(express::DEVICE_CONTROL, 0xf, 0x1);
        bridge.report(PortError::UnsupportedRequest, true, Some(&TLP));
        let status = bridge.config.get(express::DEVICE_CONTROL);
        assert_ne!(status & express::UNSUPPORTED_DETECTED, 0);
        assert_ne!(status & express::CORRECTABLE_DETECTED, 0);
        assert_eq!(status & express::NON_FATAL_DETECTED, 0);
        assert_eq!(bridge.config.get(aer::CORRECTABLE_STATUS), aer::ADVISORY);
        assert_eq!(bridge.config.get(aer::UNCORRECTABLE_STATUS), 0);
        assert_eq!(bridge.unsent, Unsent::default());
    }

    #[test]
    fn an_advisory_error_that_is_not_masked_is_logged_and_sent_as_correctable() {
        let mut bridge = bridge();
        bridge.write(express::DEVICE_CONTROL, 0xf, 0x1);
        bridge.write(aer::CORRECTABLE_MASK, 0, 0xf);
        bridge.report(PortError::UnsupportedRequest, true, Some(&TLP));
        assert_eq!(bridge.config.get(aer::UNCORRECTABLE_STATUS), aer::UNSUPPORTED);
        assert_eq!(bridge.config.get(aer::CONTROL) & aer::FIRST_ERROR, 20);
        assert_eq!(bridge.config.get(aer::HEADER_LOG), 0x0000_0001);
        assert_eq!(bridge.config.get(aer::HEADER_LOG + 4), 0x1234_560f);
        assert_eq!(bridge.config.get(aer::HEADER_LOG + 8), 0xdead_bee0);
        assert_eq!(bridge.config.get(aer::HEADER_LOG + 12), 0);
        assert!(bridge.unsent.errors.contains(Severity::Correctable));
        assert!(!bridge.unsent.errors.contains(Severity::NonFatal));
    }

    #[test]
    fn an_advisory_error_is_sent_also_if_its_uncorrectable_bit_is_masked() {
        let mut bridge = bridge();
        bridge.write(express::DEVICE_CONTROL, 0xf, 0x1);
        bridge.write(aer::CORRECTABLE_MASK, 0, 0xf);
        bridge.write(aer::UNCORRECTABLE_MASK, aer::UNSUPPORTED, 0xf);
        bridge.report(PortError::UnsupportedRequest, true, Some(&TLP));
        assert_eq!(bridge.config.get(aer::UNCORRECTABLE_STATUS), aer::UNSUPPORTED);
        assert_eq!(bridge.config.get(aer::HEADER_LOG), 0);
        assert!(bridge.unsent.errors.contains(Severity::Correctable));
    }

    #[test]
    fn the_first_error_keeps_the_log_until_it_is_cleared() {
        let mut bridge = bridge();
        let other = [0x40, 0, 0, 1, 0, 0, 0, 0xf, 0, 0, 0, 0, 0, 0, 0, 0];
        bridge.report(PortError::AcsViolation, false, Some(&TLP));
        bridge.report(PortError::UnsupportedRequest, false, Some(&other));
        assert_eq!(bridge.config.get(aer::HEADER_LOG), 1);
        assert_eq!(bridge.config.get(aer::CONTROL) & aer::FIRST_ERROR, 21);
        bridge.write(aer::UNCORRECTABLE_STATUS, aer::ACS_VIOLATION, 0xf);
        bridge.report(PortError::UnsupportedRequest, false, Some(&other));
        assert_eq!(bridge.config.get(aer::HEADER_LOG), 0x4000_0001);
    }

    /// A pointer whose error was cleared is over, also when the same error comes again masked.
    #[test]
    fn a_masked_error_brings_no_old_pointer_back() {
        let mut bridge = bridge();
        let other = [0x40, 0, 0, 1, 0, 0, 0, 0xf, 0, 0, 0, 0, 0, 0, 0, 0];
        bridge.report(PortError::UnsupportedRequest, false, Some(&TLP));
        bridge.write(aer::UNCORRECTABLE_STATUS, aer::UNSUPPORTED, 0xf);
        bridge.write(aer::UNCORRECTABLE_MASK, aer::UNSUPPORTED, 0xf);
        bridge.report(PortError::UnsupportedRequest, false, Some(&other));
        assert_eq!(bridge.config.get(aer::UNCORRECTABLE_STATUS), aer::UNSUPPORTED);
        assert_eq!(bridge.config.get(aer::HEADER_LOG), 1, "what is masked is not logged");
        bridge.report(PortError::AcsViolation, false, Some(&other));
        assert_eq!(bridge.config.get(aer::CONTROL) & aer::FIRST_ERROR, 21);
        assert_eq!(bridge.config.get(aer::HEADER_LOG), 0x4000_0001);
    }

    #[test]
    fn severity_and_masks_decide_the_message() {
        let mut bridge = bridge();
        bridge.report(PortError::Malformed, false, None);
        assert_eq!(bridge.unsent, Unsent::default(), "reporting is off");
        bridge.write(express::DEVICE_CONTROL, 0xf, 0x1);
        bridge.report(PortError::Malformed, false, None);
        assert!(bridge.unsent.errors.contains(Severity::Fatal));
        bridge.unsent.errors.remove(Severity::Fatal);
        bridge.write(aer::UNCORRECTABLE_SEVERITY, 0, 0xf);
        bridge.report(PortError::Malformed, false, None);
        assert!(bridge.unsent.errors.contains(Severity::NonFatal));
        bridge.unsent.errors.remove(Severity::NonFatal);
        bridge.write(aer::UNCORRECTABLE_MASK, aer::MALFORMED, 0xf);
        bridge.report(PortError::Malformed, false, None);
        assert_eq!(bridge.unsent, Unsent::default());
    }

    #[test]
    fn unsupported_requests_need_their_own_enable() {
        let mut bridge = bridge();
        bridge.write(express::DEVICE_CONTROL, 0x7, 0x1);
        bridge.report(PortError::UnsupportedRequest, false, None);
        assert_eq!(bridge.unsent, Unsent::default());
        bridge.write(header::COMMAND, header::SERR_ENABLE, 0x3);
        bridge.report(PortError::UnsupportedRequest, false, None);
        assert!(bridge.unsent.errors.contains(Severity::NonFatal));
        assert!(bridge.config.any(header::COMMAND, header::SYSTEM_ERROR));
    }

    #[test]
    fn messages_from_below_need_bridge_control_and_an_enable() {
        let mut bridge = bridge();
        assert!(!bridge.passes_error(Severity::NonFatal));
        assert!(bridge.config.any(header::IO, header::SYSTEM_ERROR));
        bridge.write(header::BRIDGE_CONTROL, header::BRIDGE_SERR, 0xc);
        assert!(!bridge.passes_error(Severity::NonFatal));
        bridge.write(express::DEVICE_CONTROL, express::REPORT_NON_FATAL, 0x1);
        assert!(bridge.passes_error(Severity::NonFatal));
        assert!(!bridge.passes_error(Severity::Correctable));
    }
}
