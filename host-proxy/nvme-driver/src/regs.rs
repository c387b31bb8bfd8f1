//! Controller registers (NVMe 1.4 section 3.1), all in BAR 0.

use std::time::Duration;

/// Controller Capabilities, 8 bytes.
pub const CAP: u64 = 0x00;
/// Version.
pub const VS: u64 = 0x08;
/// Controller Configuration.
pub const CC: u64 = 0x14;
/// Controller Status.
pub const CSTS: u64 = 0x1c;
/// Admin Queue Attributes.
pub const AQA: u64 = 0x24;
/// Admin Submission Queue Base Address, 8 bytes.
pub const ASQ: u64 = 0x28;
/// Admin Completion Queue Base Address, 8 bytes.
pub const ACQ: u64 = 0x30;
/// Where the doorbells begin.
pub const DOORBELLS: u64 = 0x1000;

/// CC.EN.
pub const CC_ENABLE: u32 = 1;
/// CC.SHN = 01b: normal shutdown notification.
pub const CC_SHUTDOWN_NORMAL: u32 = 1 << 14;
/// CC.SHN's two bits.
pub const CC_SHUTDOWN_MASK: u32 = 3 << 14;
/// CC.IOSQES = 6 (64 bytes) and CC.IOCQES = 4 (16 bytes), the only sizes of the NVM command set.
pub const CC_ENTRY_SIZES: u32 = 6 << 16 | 4 << 20;

/// CSTS.RDY.
pub const CSTS_READY: u32 = 1;
/// CSTS.CFS: fatal status.
pub const CSTS_FATAL: u32 = 1 << 1;
/// CSTS.SHST's two bits.
pub const CSTS_SHUTDOWN_MASK: u32 = 3 << 2;
/// CSTS.SHST = 10b: shutdown complete.
pub const CSTS_SHUTDOWN_COMPLETE: u32 = 2 << 2;

/// Controller Capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// The most entries of a queue (CAP.MQES + 1).
    pub const fn max_queue_entries(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }

    /// How long the controller may take to become ready or not ready (CAP.TO, units of 500 ms).
    pub const fn ready_timeout(self) -> Duration {
        Duration::from_millis((self.0 >> 24 & 0xff) * 500)
    }

    /// Bytes between doorbells (CAP.DSTRD).
    pub const fn doorbell_stride(self) -> u64 {
        4 << (self.0 >> 32 & 0xf)
    }

    /// Whether the NVM command set is supported (CAP.CSS bit 0).
    pub const fn nvm_command_set(self) -> bool {
        self.0 >> 37 & 1 != 0
    }

    /// Smallest memory page size, in bytes (CAP.MPSMIN).
    pub const fn min_page_size(self) -> usize {
        1 << (12 + (self.0 >> 48 & 0xf))
    }
}

/// Byte offset in BAR 0 of a queue's submission tail doorbell; the completion head doorbell is
/// one stride further (NVMe 1.4 sections 3.1.24 and 3.1.25).
pub const fn submission_doorbell(queue: u16, stride: u64) -> u64 {
    DOORBELLS + 2 * queue as u64 * stride
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_taken_apart() {
        // MQES 0x3ff, TO 20 (10 s), DSTRD 1, CSS NVM, MPSMIN 0.
        let cap = Capabilities(0x3ff | 20 << 24 | 1 << 32 | 1 << 37);
        assert_eq!(cap.max_queue_entries(), 1024);
        assert_eq!(cap.ready_timeout(), Duration::from_secs(10));
        assert_eq!(cap.doorbell_stride(), 8);
        assert!(cap.nvm_command_set());
        assert_eq!(cap.min_page_size(), 4096);
        assert_eq!(submission_doorbell(3, 8), 0x1030);
    }
}
