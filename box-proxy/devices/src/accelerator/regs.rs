//! The register map as constants. `docs/accelerator.md` says what each means.

/// Vendor ID: Red Hat's, from whose range QEMU's models have theirs.
pub const VENDOR_ID: u16 = 0x1b36;
/// Device ID, not assigned by QEMU.
pub const DEVICE_ID: u16 = 0xd0ac;
/// Class code: processing accelerator (base class 12h of the PCI Code and ID Assignment).
pub const CLASS_CODE: u32 = 0x12_0000;

/// BAR with registers, doorbells and MSI-X.
pub const REGISTER_BAR: usize = 0;
/// Size of that BAR in bytes.
pub const REGISTER_BAR_SIZE: u64 = 0x4000;
/// BAR with device memory.
pub const MEMORY_BAR: usize = 2;
/// Device memory in bytes where nothing else is configured.
pub const DEFAULT_MEMORY_SIZE: u64 = 2 << 20;

/// Job slots.
pub const SLOTS: usize = 4;
/// MSI-X vectors.
pub const VECTORS: u16 = 8;
/// Tags of the DMA engine where nothing else is configured (the figure of the DxPU paper).
pub const DEFAULT_TAGS: u16 = 140;
/// Largest read request in bytes where nothing else is configured (the figure of the DxPU paper).
pub const DEFAULT_READ_REQUEST: u16 = 128;
/// Longest job in bytes.
pub const MAX_LENGTH: u64 = 1 << 40;

/// [`ID`]'s value: `DXAC` in memory order.
pub const ID_VALUE: u32 = u32::from_le_bytes(*b"DXAC");
/// [`VERSION`]'s value: 1.1.
pub const VERSION_VALUE: u32 = 1 << 16 | 1;

/// RO, 32 bits: [`ID_VALUE`].
pub const ID: u64 = 0x000;
/// RO, 32 bits: major and minor.
pub const VERSION: u64 = 0x004;
/// RO, 32 bits: slots, vectors, tags.
pub const CAPABILITIES: u64 = 0x008;
/// RO, 32 bits: largest write and largest read request now.
pub const PAYLOAD: u64 = 0x00c;
/// RO, 64 bits: bytes of device memory.
pub const MEMORY_SIZE: u64 = 0x010;
/// RW, 32 bits: nothing.
pub const SCRATCH: u64 = 0x018;
/// Read to clear, 32 bits.
pub const COUNTER: u64 = 0x01c;
/// WO, 32 bits: adds to [`COUNTER`].
pub const COUNTER_ADD: u64 = 0x020;
/// WO, 32 bits: [`CONTROL_RESET`].
pub const CONTROL: u64 = 0x024;
/// RO, 32 bits: a bit for each running slot.
pub const RUNNING: u64 = 0x028;
/// WO, 32 bits: a bit for each slot to be aborted.
pub const ABORT: u64 = 0x02c;
/// RW, 32 bits: tags to use.
pub const TAGS: u64 = 0x030;
/// RW, 32 bits: largest read request.
pub const READ_REQUEST: u64 = 0x034;
/// RO, 32 bits: doorbells of running slots.
pub const BAD_DOORBELLS: u64 = 0x038;
/// RO, 32 bits: read requests outstanding now.
pub const IN_FLIGHT: u64 = 0x03c;
/// RW, 32 bits: largest write. From version 1.1 on.
pub const WRITE_PAYLOAD: u64 = 0x040;

/// [`CONTROL`]: reset.
pub const CONTROL_RESET: u32 = 1;

/// First job slot.
pub const SLOT_BASE: u64 = 0x100;
/// From one job slot to the next.
pub const SLOT_STRIDE: u64 = 0x80;

/// Slot, RW, 64 bits: host address, or seed.
pub const SLOT_HOST: u64 = 0x00;
/// Slot, RW, 64 bits: bytes after which the host address starts again.
pub const SLOT_HOST_WINDOW: u64 = 0x08;
/// Slot, RW, 64 bits: offset in device memory.
pub const SLOT_DEVICE: u64 = 0x10;
/// Slot, RW, 64 bits: bytes.
pub const SLOT_LENGTH: u64 = 0x18;
/// Slot, RW, 32 bits: operation, interrupt, vector.
pub const SLOT_COMMAND: u64 = 0x20;
/// Slot, RO, 32 bits: the doorbell's value.
pub const SLOT_JOB_ID: u64 = 0x24;
/// Slot, RO, 32 bits: state and error.
pub const SLOT_STATUS: u64 = 0x28;
/// Slot, RO, 32 bits: CRC.
pub const SLOT_CRC: u64 = 0x2c;
/// Slot, RO, 64 bits: nanoseconds.
pub const SLOT_ELAPSED: u64 = 0x30;
/// Slot, RO, 64 bits: bytes.
pub const SLOT_TRANSFERRED: u64 = 0x38;
/// Slot, RO, 64 bits: TLPs.
pub const SLOT_REQUESTS: u64 = 0x40;
/// Slot, RO, 64 bits: nanoseconds.
pub const SLOT_RTT_SUM: u64 = 0x48;
/// Slot, RO, 32 bits: nanoseconds.
pub const SLOT_RTT_MIN: u64 = 0x50;
/// Slot, RO, 32 bits: nanoseconds.
pub const SLOT_RTT_MAX: u64 = 0x54;
/// Slot, RO, 32 bits: read requests.
pub const SLOT_PEAK: u64 = 0x58;

/// [`SLOT_COMMAND`]: host to device.
pub const COMMAND_READ: u32 = 0;
/// [`SLOT_COMMAND`]: device to host.
pub const COMMAND_WRITE: u32 = 1;
/// [`SLOT_COMMAND`]: pattern into device memory.
pub const COMMAND_FILL: u32 = 2;
/// [`SLOT_COMMAND`]: CRC of device memory.
pub const COMMAND_CHECK: u32 = 3;
/// [`SLOT_COMMAND`]: the operation's bits.
pub const COMMAND_OPERATION: u32 = 3;
/// [`SLOT_COMMAND`]: interrupt when the job ends.
pub const COMMAND_INTERRUPT: u32 = 1 << 8;
/// [`SLOT_COMMAND`]: lowest bit of the vector (8 bits).
pub const COMMAND_VECTOR_SHIFT: u32 = 16;

/// [`SLOT_STATUS`] 7:0: nothing started since reset.
pub const STATE_IDLE: u8 = 0;
/// [`SLOT_STATUS`] 7:0: running.
pub const STATE_RUNNING: u8 = 1;
/// [`SLOT_STATUS`] 7:0: done.
pub const STATE_DONE: u8 = 2;
/// [`SLOT_STATUS`] 7:0: ended with the error in 15:8.
pub const STATE_FAILED: u8 = 3;

/// [`SLOT_STATUS`] 15:8: a register of the slot has no sense.
pub const ERROR_PARAMETER: u8 = 1;
/// [`SLOT_STATUS`] 15:8: a request was completed with Unsupported Request.
pub const ERROR_UNSUPPORTED_REQUEST: u8 = 2;
/// [`SLOT_STATUS`] 15:8: a request was completed with Completer Abort.
pub const ERROR_COMPLETER_ABORT: u8 = 3;
/// [`SLOT_STATUS`] 15:8: completion timeout.
pub const ERROR_TIMEOUT: u8 = 4;
/// [`SLOT_STATUS`] 15:8: poisoned data.
pub const ERROR_POISONED: u8 = 5;
/// [`SLOT_STATUS`] 15:8: by [`ABORT`] or [`CONTROL`].
pub const ERROR_ABORTED: u8 = 6;
/// [`SLOT_STATUS`] 15:8: Bus Master Enable is or became 0.
pub const ERROR_BUS_MASTER_OFF: u8 = 7;
/// [`SLOT_STATUS`] 15:8: a completion that does not fit its request.
pub const ERROR_MALFORMED: u8 = 8;
/// [`SLOT_STATUS`] 15:8: every tag waits for a completion that timed out.
pub const ERROR_NO_TAGS: u8 = 9;

/// First doorbell, 32 bits each.
pub const DOORBELL_BASE: u64 = 0x1000;
/// MSI-X table.
pub const MSIX_TABLE: u64 = 0x2000;
/// MSI-X pending bits.
pub const MSIX_PBA: u64 = 0x3000;

/// Offset of a slot's register.
///
/// # Panics
///
/// When there is no such slot.
pub const fn slot(slot: usize, register: u64) -> u64 {
    assert!(slot < SLOTS);
    SLOT_BASE + SLOT_STRIDE * slot as u64 + register
}

/// Offset of a slot's doorbell.
///
/// # Panics
///
/// When there is no such slot.
pub const fn doorbell(slot: usize) -> u64 {
    assert!(slot < SLOTS);
    DOORBELL_BASE + 4 * slot as u64
}

/// Word `k` of the pattern that [`COMMAND_FILL`] makes from `seed` (SplitMix64).
pub const fn pattern_word(seed: u64, k: u64) -> u64 {
    let z = seed.wrapping_add(k.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
