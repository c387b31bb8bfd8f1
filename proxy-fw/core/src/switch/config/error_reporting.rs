//! Advanced Error Reporting (PCIe 5.0 section 7.8.4). Bits are Linux's `PCI_ERR_UNC_*` and
//! `PCI_ERR_COR_*`.

use super::{Register, extended_capability};

/// Where it is: the first extended capability.
pub(crate) const AT: u16 = 0x100;
const ID: u16 = 0x01;
const VERSION: u8 = 2;

/// Uncorrectable Error Status.
pub(crate) const UNCORRECTABLE_STATUS: u16 = AT + 0x04;
/// Uncorrectable Error Mask.
pub(crate) const UNCORRECTABLE_MASK: u16 = AT + 0x08;
/// Uncorrectable Error Severity: set is fatal.
pub(crate) const UNCORRECTABLE_SEVERITY: u16 = AT + 0x0c;
/// Poisoned TLP Received.
pub(crate) const POISONED: u32 = 1 << 12;
/// Completion Timeout.
pub(crate) const COMPLETION_TIMEOUT: u32 = 1 << 14;
/// Completer Abort.
pub(crate) const COMPLETER_ABORT: u32 = 1 << 15;
/// Unexpected Completion.
pub(crate) const UNEXPECTED_COMPLETION: u32 = 1 << 16;
/// Malformed TLP.
pub(crate) const MALFORMED: u32 = 1 << 18;
/// Unsupported Request.
pub(crate) const UNSUPPORTED: u32 = 1 << 20;
/// ACS Violation.
pub(crate) const ACS_VIOLATION: u32 = 1 << 21;
/// Uncorrectable Internal Error.
pub(crate) const INTERNAL: u32 = 1 << 22;
/// AtomicOp Egress Blocked.
pub(crate) const ATOMIC_BLOCKED: u32 = 1 << 24;
/// TLP Prefix Blocked.
pub(crate) const PREFIX_BLOCKED: u32 = 1 << 25;
/// Data link protocol and flow control errors and receiver overflow cannot happen on a link that
/// is not there, but software may expect their mask and severity bits to be writable.
const NEVER: u32 = 1 << 4 | 1 << 13 | 1 << 17;
const UNCORRECTABLE: u32 = NEVER
    | POISONED
    | COMPLETION_TIMEOUT
    | COMPLETER_ABORT
    | UNEXPECTED_COMPLETION
    | MALFORMED
    | UNSUPPORTED
    | ACS_VIOLATION
    | INTERNAL
    | ATOMIC_BLOCKED
    | PREFIX_BLOCKED;
const FATAL_BY_DEFAULT: u32 = NEVER | MALFORMED | INTERNAL;

/// Correctable Error Status.
pub(crate) const CORRECTABLE_STATUS: u16 = AT + 0x10;
/// Correctable Error Mask.
pub(crate) const CORRECTABLE_MASK: u16 = AT + 0x14;
/// Advisory Non-Fatal Error.
pub(crate) const ADVISORY: u32 = 1 << 13;
/// Corrected Internal Error.
pub(crate) const CORRECTED_INTERNAL: u32 = 1 << 14;
const CORRECTABLE_NEVER: u32 = 1 << 0 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 12;
const CORRECTABLE: u32 = CORRECTABLE_NEVER | ADVISORY | CORRECTED_INTERNAL;

/// Advanced Error Capabilities and Control. No ECRC: IDs are rewritten on the way.
pub(crate) const CONTROL: u16 = AT + 0x18;
/// First Error Pointer.
pub(crate) const FIRST_ERROR: u32 = 0x1f;
/// TLP Prefix Log Present.
pub(crate) const PREFIX_LOGGED: u32 = 1 << 11;
/// Header Log, four doublewords.
pub(crate) const HEADER_LOG: u16 = AT + 0x1c;
/// TLP Prefix Log, four doublewords.
pub(crate) const PREFIX_LOG: u16 = AT + 0x38;

const fn log(at: u16, index: u16) -> Register {
    Register::read_only(at + 4 * index, 0).sticky(u32::MAX)
}

/// The capability; the next one is at `next`.
pub(crate) const fn registers(next: u16) -> [Register; 15] {
    [
        Register::read_only(AT, extended_capability(ID, VERSION, next)),
        Register::read_only(UNCORRECTABLE_STATUS, 0).clearable(UNCORRECTABLE).sticky(UNCORRECTABLE),
        Register::read_only(UNCORRECTABLE_MASK, INTERNAL)
            .writable(UNCORRECTABLE)
            .sticky(UNCORRECTABLE),
        Register::read_only(UNCORRECTABLE_SEVERITY, FATAL_BY_DEFAULT)
            .writable(UNCORRECTABLE)
            .sticky(UNCORRECTABLE),
        Register::read_only(CORRECTABLE_STATUS, 0).clearable(CORRECTABLE).sticky(CORRECTABLE),
        Register::read_only(CORRECTABLE_MASK, ADVISORY | CORRECTED_INTERNAL)
            .writable(CORRECTABLE)
            .sticky(CORRECTABLE),
        Register::read_only(CONTROL, 0).sticky(FIRST_ERROR | PREFIX_LOGGED),
        log(HEADER_LOG, 0),
        log(HEADER_LOG, 1),
        log(HEADER_LOG, 2),
        log(HEADER_LOG, 3),
        log(PREFIX_LOG, 0),
        log(PREFIX_LOG, 1),
        log(PREFIX_LOG, 2),
        log(PREFIX_LOG, 3),
    ]
}

/// Root Error Command, of a root port: reporting of each severity by interrupt.
pub(crate) const ROOT_COMMAND: u16 = AT + 0x2c;
/// Correctable Error Reporting Enable. Those of the other severities follow.
pub(crate) const ROOT_CORRECTABLE: u32 = 1 << 0;
/// Non-Fatal Error Reporting Enable.
pub(crate) const ROOT_NON_FATAL: u32 = 1 << 1;
/// Fatal Error Reporting Enable.
pub(crate) const ROOT_FATAL: u32 = 1 << 2;
/// Root Error Status.
pub(crate) const ROOT_STATUS: u16 = AT + 0x30;
/// ERR_COR Received.
pub(crate) const CORRECTABLE_RECEIVED: u32 = 1 << 0;
/// Multiple ERR_COR Received.
pub(crate) const CORRECTABLE_MULTIPLE: u32 = 1 << 1;
/// ERR_FATAL/NONFATAL Received.
pub(crate) const UNCORRECTABLE_RECEIVED: u32 = 1 << 2;
/// Multiple ERR_FATAL/NONFATAL Received.
pub(crate) const UNCORRECTABLE_MULTIPLE: u32 = 1 << 3;
/// First Uncorrectable Fatal.
pub(crate) const FIRST_FATAL: u32 = 1 << 4;
/// Non-Fatal Error Messages Received.
pub(crate) const NON_FATAL_RECEIVED: u32 = 1 << 5;
/// Fatal Error Messages Received.
pub(crate) const FATAL_RECEIVED: u32 = 1 << 6;
const RECEIVED: u32 = 0x7f;
/// Error Source Identification: of the first correctable error (lower half) and of the first
/// other one (upper half).
pub(crate) const SOURCE: u16 = AT + 0x34;

/// What a root port has beside [`registers`].
pub(crate) const ROOT_REGISTERS: &[Register] = &[
    Register::read_only(ROOT_COMMAND, 0).writable(ROOT_CORRECTABLE | ROOT_NON_FATAL | ROOT_FATAL),
    Register::read_only(ROOT_STATUS, 0).clearable(RECEIVED).sticky(RECEIVED),
    Register::read_only(SOURCE, 0).sticky(u32::MAX),
];
