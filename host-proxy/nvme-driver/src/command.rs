//! Submission queue entries (NVMe 1.4 section 4.2).

use std::fmt;

/// Bytes of a submission queue entry.
pub const SUBMISSION_ENTRY: usize = 64;
/// Bytes of a completion queue entry.
pub const COMPLETION_ENTRY: usize = 16;

/// An opcode, with the queue that gives it its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// An admin command (NVMe 1.4 figure 138).
    Admin(u8),
    /// A command of the NVM set (figure 345).
    Nvm(u8),
}

impl Opcode {
    /// Delete I/O Submission Queue.
    pub const DELETE_SQ: Opcode = Opcode::Admin(0x00);
    /// Create I/O Submission Queue.
    pub const CREATE_SQ: Opcode = Opcode::Admin(0x01);
    /// Get Log Page.
    pub const GET_LOG_PAGE: Opcode = Opcode::Admin(0x02);
    /// Delete I/O Completion Queue.
    pub const DELETE_CQ: Opcode = Opcode::Admin(0x04);
    /// Create I/O Completion Queue.
    pub const CREATE_CQ: Opcode = Opcode::Admin(0x05);
    /// Identify.
    pub const IDENTIFY: Opcode = Opcode::Admin(0x06);
    /// Abort.
    pub const ABORT: Opcode = Opcode::Admin(0x08);
    /// Set Features.
    pub const SET_FEATURES: Opcode = Opcode::Admin(0x09);
    /// Get Features.
    pub const GET_FEATURES: Opcode = Opcode::Admin(0x0a);
    /// Flush.
    pub const FLUSH: Opcode = Opcode::Nvm(0x00);
    /// Write.
    pub const WRITE: Opcode = Opcode::Nvm(0x01);
    /// Read.
    pub const READ: Opcode = Opcode::Nvm(0x02);
    /// Write Zeroes.
    pub const WRITE_ZEROES: Opcode = Opcode::Nvm(0x08);
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: Opcode = Opcode::Nvm(0x09);

    /// The byte.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Admin(byte) | Self::Nvm(byte) => byte,
        }
    }

    /// The specification's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DELETE_SQ => "Delete I/O Submission Queue",
            Self::CREATE_SQ => "Create I/O Submission Queue",
            Self::GET_LOG_PAGE => "Get Log Page",
            Self::DELETE_CQ => "Delete I/O Completion Queue",
            Self::CREATE_CQ => "Create I/O Completion Queue",
            Self::IDENTIFY => "Identify",
            Self::ABORT => "Abort",
            Self::SET_FEATURES => "Set Features",
            Self::GET_FEATURES => "Get Features",
            Self::FLUSH => "Flush",
            Self::WRITE => "Write",
            Self::READ => "Read",
            Self::WRITE_ZEROES => "Write Zeroes",
            Self::DATASET_MANAGEMENT => "Dataset Management",
            Self::Admin(_) => "admin command",
            Self::Nvm(_) => "NVM command",
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (opcode {:#04x})", self.name(), self.byte())
    }
}

/// A command without its identifier and data pointer, which the queue pair fills in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What to do.
    pub opcode: Opcode,
    /// Namespace: 0 for none, 0xffff_ffff for all.
    pub nsid: u32,
    /// Command doublewords 10 to 15.
    pub dwords: [u32; 6],
}

impl Command {
    /// A command with all its doublewords 0.
    pub const fn new(opcode: Opcode, nsid: u32) -> Self {
        Self { opcode, nsid, dwords: [0; 6] }
    }

    /// Sets command doubleword `n`.
    ///
    /// # Panics
    ///
    /// When `n` is not 10 to 15.
    #[must_use]
    pub const fn dword(mut self, n: usize, value: u32) -> Self {
        assert!(n >= 10 && n <= 15, "commands have doublewords 10 to 15 of their own");
        self.dwords[n - 10] = value;
        self
    }

    /// The 64 bytes, with PRPs (CDW0.PSDT = 0).
    pub fn to_bytes(&self, id: u16, prp: [u64; 2]) -> [u8; SUBMISSION_ENTRY] {
        let mut bytes = [0; SUBMISSION_ENTRY];
        bytes[0] = self.opcode.byte();
        bytes[2..4].copy_from_slice(&id.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.nsid.to_le_bytes());
        bytes[24..32].copy_from_slice(&prp[0].to_le_bytes());
        bytes[32..40].copy_from_slice(&prp[1].to_le_bytes());
        for (place, value) in bytes[40..].chunks_exact_mut(4).zip(self.dwords) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_specification_puts_them() {
        let bytes = Command::new(Opcode::READ, 1)
            .dword(10, 0x1122_3344)
            .dword(15, 0x5566_7788)
            .to_bytes(0xabcd, [0x10_0000_1000, 0x2000]);
        assert_eq!(bytes[0], 2);
        assert_eq!(bytes[1], 0);
        assert_eq!(bytes[2..4], [0xcd, 0xab]);
        assert_eq!(bytes[4..8], [1, 0, 0, 0]);
        assert_eq!(bytes[24..32], 0x10_0000_1000_u64.to_le_bytes());
        assert_eq!(bytes[32..40], 0x2000_u64.to_le_bytes());
        assert_eq!(bytes[40..44], [0x44, 0x33, 0x22, 0x11]);
        assert_eq!(bytes[60..64], [0x88, 0x77, 0x66, 0x55]);
    }
}
