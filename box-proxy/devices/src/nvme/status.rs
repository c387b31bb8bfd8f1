//! Status codes (NVM Express 1.4 section 4.6.1).

/// A command's status field: code, code type and Do Not Retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(u16);

/// Do Not Retry.
const DNR: u16 = 1 << 14;
/// More: the error log has an entry about it.
const MORE: u16 = 1 << 13;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $kind:literal, $code:literal, $retry:ident;)*) => {
        #[allow(missing_docs)] // the names are the specification's
        impl Status {
            $($(#[$doc])* pub const $name: Status =
                Status($kind << 8 | $code | codes!(@ $retry));)*
        }
    };
    (@ retry) => { 0 };
    (@ never) => { DNR };
}

codes! {
    SUCCESS = 0, 0x00, retry;
    INVALID_OPCODE = 0, 0x01, never;
    INVALID_FIELD = 0, 0x02, never;
    COMMAND_ID_CONFLICT = 0, 0x03, never;
    DATA_TRANSFER_ERROR = 0, 0x04, retry;
    INTERNAL_ERROR = 0, 0x06, retry;
    ABORT_REQUESTED = 0, 0x07, retry;
    ABORTED_SQ_DELETION = 0, 0x08, retry;
    INVALID_NAMESPACE = 0, 0x0b, never;
    COMMAND_SEQUENCE_ERROR = 0, 0x0c, never;
    PRP_OFFSET_INVALID = 0, 0x13, never;
    SANITIZE_FAILED = 0, 0x1c, never;
    SANITIZE_IN_PROGRESS = 0, 0x1d, retry;
    NAMESPACE_WRITE_PROTECTED = 0, 0x20, never;
    LBA_OUT_OF_RANGE = 0, 0x80, never;
    FORMAT_IN_PROGRESS = 0, 0x84, retry;
    COMPLETION_QUEUE_INVALID = 1, 0x00, never;
    INVALID_QUEUE_ID = 1, 0x01, never;
    INVALID_QUEUE_SIZE = 1, 0x02, never;
    ABORT_LIMIT_EXCEEDED = 1, 0x03, retry;
    EVENT_REQUEST_LIMIT_EXCEEDED = 1, 0x05, never;
    INVALID_INTERRUPT_VECTOR = 1, 0x08, never;
    INVALID_LOG_PAGE = 1, 0x09, never;
    INVALID_FORMAT = 1, 0x0a, never;
    INVALID_QUEUE_DELETION = 1, 0x0c, never;
    FEATURE_NOT_SAVEABLE = 1, 0x0d, never;
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, never;
    WRITE_FAULT = 2, 0x80, retry;
    /// Write Fault of a flush. Asked once more it would be good, and what was written is lost all the
    /// same: only who writes it again can mend that.
    FLUSH_FAULT = 2, 0x80, never;
    UNRECOVERED_READ_ERROR = 2, 0x81, retry;
    COMPARE_FAILURE = 2, 0x85, never;
}

impl Status {
    /// Whether it is success.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    #[cfg(test)]
    pub(super) const fn from_field(field: u16) -> Self {
        Self(field)
    }

    /// Status code, 8 bits, with its type in the three bits above.
    pub const fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// The 15 bits of a completion's status field, without phase. Errors say that the error log
    /// has more.
    pub(super) const fn field(self) -> u16 {
        if self.is_success() { 0 } else { self.0 | MORE }
    }
}
