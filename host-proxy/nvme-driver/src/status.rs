//! Completion status (NVMe 1.4 section 4.6.1).

use std::fmt;

/// The 15-bit status field of a completion, without the phase bit: bits 7:0 status code, 10:8
/// status code type, 12:11 command retry delay, 13 more, 14 do not retry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

impl Status {
    /// Successful completion.
    pub const SUCCESS: Status = Status(0);

    /// From the field, shifted so that the phase bit is gone.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x7fff)
    }

    /// The field.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether the command succeeded.
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// Status code type: 0 generic, 1 command specific, 2 media, 3 path, 7 vendor specific.
    pub const fn code_type(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }

    /// Status code.
    pub const fn code(self) -> u8 {
        self.0 as u8
    }

    /// Do not retry: the same command will fail again.
    pub const fn do_not_retry(self) -> bool {
        self.0 >> 14 & 1 != 0
    }

    /// The specification's name, for the codes of figures 127 to 130 that the commands of this
    /// driver can end with.
    pub const fn name(self) -> &'static str {
        match (self.code_type(), self.code()) {
            (0, 0x00) => "Successful Completion",
            (0, 0x01) => "Invalid Command Opcode",
            (0, 0x02) => "Invalid Field in Command",
            (0, 0x03) => "Command ID Conflict",
            (0, 0x04) => "Data Transfer Error",
            (0, 0x05) => "Commands Aborted due to Power Loss Notification",
            (0, 0x06) => "Internal Error",
            (0, 0x07) => "Command Abort Requested",
            (0, 0x08) => "Command Aborted due to SQ Deletion",
            (0, 0x0b) => "Invalid Namespace or Format",
            (0, 0x0c) => "Command Sequence Error",
            (0, 0x13) => "PRP Offset Invalid",
            (0, 0x20) => "Namespace is Write Protected",
            (0, 0x80) => "LBA Out of Range",
            (0, 0x81) => "Capacity Exceeded",
            (0, 0x82) => "Namespace Not Ready",
            (1, 0x00) => "Completion Queue Invalid",
            (1, 0x01) => "Invalid Queue Identifier",
            (1, 0x02) => "Invalid Queue Size",
            (1, 0x03) => "Abort Command Limit Exceeded",
            (1, 0x05) => "Asynchronous Event Request Limit Exceeded",
            (1, 0x08) => "Invalid Interrupt Vector",
            (1, 0x09) => "Invalid Log Page",
            (1, 0x0c) => "Invalid Queue Deletion",
            (1, 0x0d) => "Feature Identifier Not Saveable",
            (1, 0x0e) => "Feature Not Changeable",
            (1, 0x0f) => "Feature Not Namespace Specific",
            (1, 0x80) => "Conflicting Attributes",
            (1, 0x82) => "Attempted Write to Read Only Range",
            (2, 0x80) => "Write Fault",
            (2, 0x81) => "Unrecovered Read Error",
            (2, 0x85) => "Compare Failure",
            (2, 0x87) => "Deallocated or Unwritten Logical Block",
            (7, _) => "vendor specific status",
            _ => "unnamed status",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (type {}, code {:#04x})", self.name(), self.code_type(), self.code())?;
        if self.do_not_retry() { f.write_str(", do not retry") } else { Ok(()) }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_itself() {
        let status = Status::from_bits(0x4080);
        assert!(!status.is_success());
        assert!(status.do_not_retry());
        assert_eq!(status.to_string(), "LBA Out of Range (type 0, code 0x80), do not retry");
        // "More" alone does not make a failure.
        assert!(Status::from_bits(1 << 13).is_success());
    }
}
