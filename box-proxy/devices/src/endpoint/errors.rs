//! What a function does about an error: status bits, the log, a message.
//!
//! PCIe 5.0 section 6.2, with role-based error reporting.

use super::config::ConfigSpace;
use super::registers::*;
use tlp_codec::tlp::MsgCode;

/// Errors of the transaction layer, by their bit in the uncorrectable error registers
/// (PCIe 5.0 section 7.8.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    Poisoned = 12,
    CompletionTimeout = 14,
    UnexpectedCompletion = 16,
    ReceiverOverflow = 17,
    Malformed = 18,
    UnsupportedRequest = 20,
}

/// Whether a non-fatal error was dealt with in another way already (section 6.2.3.2.4): a
/// completion told the requester, say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advisory {
    Yes,
    No,
}

/// Records an error and gives the message that is to be sent about it, if one is.
pub(super) fn report(
    config: &mut ConfigSpace,
    fault: Fault,
    advisory: Advisory,
    header: Option<&[u8]>,
) -> Option<MsgCode> {
    let bit = 1_u32 << fault as u32;
    let fatal = config.get32(AER_SEVERITY) & bit != 0;
    let control = config.get16(DEVICE_CONTROL);
    if fault == Fault::UnsupportedRequest {
        add16(config, DEVICE_STATUS, DEVICE_STATUS_UR);
    }
    let advisory = advisory == Advisory::Yes && !fatal;
    add16(
        config,
        DEVICE_STATUS,
        match (advisory, fatal) {
            (true, _) => DEVICE_STATUS_CORRECTABLE,
            (_, true) => DEVICE_STATUS_FATAL,
            _ => DEVICE_STATUS_NON_FATAL,
        },
    );
    if advisory {
        add32(config, AER_CORRECTABLE, AER_ADVISORY);
        // Section 6.2.4.3: the uncorrectable error's own registers tell nothing of it then.
        if config.get32(AER_CORRECTABLE_MASK) & AER_ADVISORY != 0 {
            return None;
        }
    }
    let masked = config.get32(AER_UNCORRECTABLE_MASK) & bit != 0;
    log(config, fault, masked, header);
    let serr = config.get16(COMMAND) & COMMAND_SERR != 0;
    let reporting = |enable: u16| control & enable != 0;
    let ur_reported = fault != Fault::UnsupportedRequest || reporting(DEVICE_CONTROL_UR);
    if advisory {
        let send = reporting(DEVICE_CONTROL_CORRECTABLE) && ur_reported;
        return send.then_some(MsgCode::ErrCor);
    }
    let (enable, code) = if fatal {
        (DEVICE_CONTROL_FATAL, MsgCode::ErrFatal)
    } else {
        (DEVICE_CONTROL_NON_FATAL, MsgCode::ErrNonFatal)
    };
    let send = !masked && (serr || reporting(enable) && ur_reported);
    if send && serr {
        add16(config, STATUS, STATUS_SIGNALED_ERROR);
    }
    send.then_some(code)
}

/// Sets the status bit. The header log and First Error Pointer hold the first error that is not
/// masked until software clears it.
fn log(config: &mut ConfigSpace, fault: Fault, masked: bool, header: Option<&[u8]>) {
    let control = config.get32(AER_CONTROL);
    let first = control & 0x1f;
    let logged = config.get32(AER_UNCORRECTABLE) >> first & 1 != 0;
    add32(config, AER_UNCORRECTABLE, 1 << fault as u32);
    if logged {
        return;
    }
    if masked {
        // A pointer that was over does not point to this one now. Bit 0 is no error's.
        if first == fault as u32 {
            config.set32(AER_CONTROL, control & !0x1f);
        }
        return;
    }
    config.set32(AER_CONTROL, control & !0x1f | fault as u32);
    for (i, at) in (AER_HEADER_LOG..AER_HEADER_LOG + 16).step_by(4).enumerate() {
        // The header's first byte is the register's highest.
        let word = header.and_then(|h| h.get(4 * i..4 * i + 4));
        config.set32(at, word.map_or(0, |w| u32::from_be_bytes([w[0], w[1], w[2], w[3]])));
    }
}

fn add16(config: &mut ConfigSpace, at: u16, bits: u16) {
    config.set16(at, config.get16(at) | bits);
}

fn add32(config: &mut ConfigSpace, at: u16, bits: u32) {
    config.set32(at, config.get32(at) | bits);
}
