//! Queue entries: commands as they come, completions as they go.

use super::status::Status;

/// Bytes of a submission queue entry.
pub(super) const SQE_LEN: usize = 64;
/// Bytes of a completion queue entry.
pub(super) const CQE_LEN: usize = 16;

/// A submission queue entry (NVM Express 1.4 section 4.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Sqe([u8; SQE_LEN]);

impl Sqe {
    /// From 64 bytes.
    ///
    /// # Panics
    ///
    /// When they are fewer.
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut this = Self([0; SQE_LEN]);
        this.0.copy_from_slice(&bytes[..SQE_LEN]);
        this
    }

    /// Command doubleword n.
    pub(super) fn dword(&self, n: usize) -> u32 {
        let b = &self.0[4 * n..4 * n + 4];
        u32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }

    /// Doublewords n and n + 1.
    pub(super) fn qword(&self, n: usize) -> u64 {
        u64::from(self.dword(n)) | u64::from(self.dword(n + 1)) << 32
    }

    pub(super) fn opcode(&self) -> u8 {
        self.0[0]
    }

    pub(super) fn command_id(&self) -> u16 {
        (self.dword(0) >> 16) as u16
    }

    pub(super) fn nsid(&self) -> u32 {
        self.dword(1)
    }

    pub(super) fn prp1(&self) -> u64 {
        self.qword(6)
    }

    pub(super) fn prp2(&self) -> u64 {
        self.qword(8)
    }

    /// Whether it wants fused operation or SGLs, of which we have neither.
    pub(super) fn is_fused_or_sgl(&self) -> bool {
        self.0[1] & 0xc3 != 0
    }

    /// First logical block of an NVM command.
    pub(super) fn slba(&self) -> u64 {
        self.qword(10)
    }

    /// Number of logical blocks of an NVM command, 1 to 65536.
    pub(super) fn blocks(&self) -> u64 {
        u64::from(self.dword(12) & 0xffff) + 1
    }

    /// Force Unit Access.
    pub(super) fn fua(&self) -> bool {
        self.dword(12) >> 30 & 1 != 0
    }
}

/// What a completion says, before it has a place in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) result: u32,
    pub(super) sq_head: u16,
    pub(super) sq: u16,
    pub(super) command_id: u16,
    pub(super) status: Status,
}

impl Completion {
    /// The entry (NVM Express 1.4 section 4.6).
    pub(super) fn entry(&self, phase: bool) -> [u8; CQE_LEN] {
        let mut entry = [0; CQE_LEN];
        entry[..4].copy_from_slice(&self.result.to_le_bytes());
        entry[8..10].copy_from_slice(&self.sq_head.to_le_bytes());
        entry[10..12].copy_from_slice(&self.sq.to_le_bytes());
        entry[12..14].copy_from_slice(&self.command_id.to_le_bytes());
        let status = self.status.field() << 1 | u16::from(phase);
        entry[14..].copy_from_slice(&status.to_le_bytes());
        entry
    }
}
