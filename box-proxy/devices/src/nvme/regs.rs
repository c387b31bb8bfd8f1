//! Controller registers (NVM Express 1.4 section 3.1).

/// Vendor ID: Red Hat's, from whose range QEMU's models have theirs.
pub const VENDOR_ID: u16 = 0x1b36;
/// Device ID, not assigned by QEMU: drivers have quirks for QEMU's own NVMe controller (0010h).
pub const DEVICE_ID: u16 = 0xd0ae;
/// Class code: NVM Express I/O controller.
pub const CLASS_CODE: u32 = 0x01_0802;

/// BAR with registers, doorbells and MSI-X.
pub const REGISTER_BAR: usize = 0;
/// Its size in bytes.
pub const REGISTER_BAR_SIZE: u64 = 0x4000;
/// MSI-X table in that BAR.
pub const MSIX_TABLE: u64 = 0x2000;
/// MSI-X pending bits in that BAR.
pub const MSIX_PBA: u64 = 0x3000;

/// Controller Capabilities, 64 bits.
pub const CAP: u64 = 0x00;
/// Version.
pub const VS: u64 = 0x08;
/// Interrupt Mask Set.
pub const INTMS: u64 = 0x0c;
/// Interrupt Mask Clear.
pub const INTMC: u64 = 0x10;
/// Controller Configuration.
pub const CC: u64 = 0x14;
/// Controller Status.
pub const CSTS: u64 = 0x1c;
/// NVM Subsystem Reset.
pub const NSSR: u64 = 0x20;
/// Admin Queue Attributes.
pub const AQA: u64 = 0x24;
/// Admin Submission Queue base, 64 bits.
pub const ASQ: u64 = 0x28;
/// Admin Completion Queue base, 64 bits.
pub const ACQ: u64 = 0x30;
/// First doorbell; the stride is 4 bytes.
pub const DOORBELLS: u64 = 0x1000;

/// [`VS`]: 1.4.0.
pub const VERSION: u32 = 0x0001_0400;
/// [`NSSR`]: the letters that start a subsystem reset.
pub const NSSR_VALUE: u32 = 0x4e56_4d65;
/// [`CC`]: enable.
pub const CC_EN: u32 = 1;
/// [`CSTS`]: ready.
pub const CSTS_RDY: u32 = 1;
/// [`CSTS`]: fatal status.
pub const CSTS_CFS: u32 = 2;
/// [`CSTS`]: shutdown processing occurring.
pub const CSTS_SHST_OCCURRING: u32 = 1 << 2;
/// [`CSTS`]: shutdown processing complete.
pub const CSTS_SHST_COMPLETE: u32 = 2 << 2;
/// [`CSTS`]: both shutdown bits.
pub const CSTS_SHST: u32 = 3 << 2;
/// [`CSTS`]: NVM subsystem reset occurred; writing a one clears it.
pub const CSTS_NSSRO: u32 = 1 << 4;

/// Entries that a queue can have.
pub const MAX_QUEUE_ENTRIES: u16 = 1024;
/// Largest [`CC`] memory page size: 2^(12 + this).
pub const MAX_PAGE_SHIFT: u32 = 4;

/// [`CAP`]'s value: largest queue, contiguous queues required, ready within 10 s, subsystem
/// reset, NVM command set, pages of 4 to 64 KB, doorbell stride 4.
pub const CAP_VALUE: u64 = (MAX_QUEUE_ENTRIES as u64 - 1)
    | 1 << 16
    | 20 << 24
    | 1 << 36
    | 1 << 37
    | (MAX_PAGE_SHIFT as u64) << 52;
