//! The accelerator's registers, from `box-proxy/devices/docs/accelerator.md`, version 1.0.

/// Vendor ID.
pub const VENDOR_ID: u16 = 0x1b36;
/// Device ID.
pub const DEVICE_ID: u16 = 0xd0ac;
/// The BAR that has the registers.
pub const REGISTER_BAR: u8 = 0;
/// The BAR that is device memory.
pub const MEMORY_BAR: u8 = 2;

/// `DXAC`.
pub const ID: u64 = 0x000;
/// [`ID`]'s value.
pub const ID_VALUE: u32 = 0x4341_5844;
/// Major and minor version.
pub const VERSION: u64 = 0x004;
/// The major version that this driver knows.
pub const VERSION_MAJOR: u32 = 1;
/// Job slots, vectors, tags.
pub const CAPABILITIES: u64 = 0x008;
/// Largest write and read request.
pub const PAYLOAD: u64 = 0x00c;
/// Bytes of device memory, 64 bits.
pub const MEMORY_SIZE: u64 = 0x010;
/// Keeps what is written.
pub const SCRATCH: u64 = 0x018;
/// Control.
pub const CONTROL: u64 = 0x024;
/// Reset bit of [`CONTROL`].
pub const CONTROL_RESET: u32 = 1;
/// Abort bits of job slots.
pub const ABORT: u64 = 0x02c;
/// Tags to use.
pub const TAGS: u64 = 0x030;
/// Largest read request to make.
pub const READ_REQUEST: u64 = 0x034;
/// Largest write to make; reads as 0 where it cannot be chosen.
pub const WRITE_PAYLOAD: u64 = 0x040;

/// Job slot 0, the one that this driver uses.
pub const SLOT: u64 = 0x100;
/// Slot: host address or seed.
pub const SLOT_HOST: u64 = SLOT;
/// Slot: bytes after which the host address starts again.
pub const SLOT_HOST_WINDOW: u64 = SLOT + 0x08;
/// Slot: offset in device memory.
pub const SLOT_DEVICE: u64 = SLOT + 0x10;
/// Slot: bytes.
pub const SLOT_LENGTH: u64 = SLOT + 0x18;
/// Slot: operation and interrupt.
pub const SLOT_COMMAND: u64 = SLOT + 0x20;
/// Slot: state and error.
pub const SLOT_STATUS: u64 = SLOT + 0x28;
/// Slot: CRC of the job's bytes.
pub const SLOT_CRC: u64 = SLOT + 0x2c;
/// Slot: nanoseconds that the job took.
pub const SLOT_ELAPSED: u64 = SLOT + 0x30;
/// Slot: bytes done.
pub const SLOT_TRANSFERRED: u64 = SLOT + 0x38;
/// Slot: TLPs sent.
pub const SLOT_REQUESTS: u64 = SLOT + 0x40;
/// Slot: sum of round trips, nanoseconds.
pub const SLOT_RTT_SUM: u64 = SLOT + 0x48;
/// Slot: shortest round trip.
pub const SLOT_RTT_MIN: u64 = SLOT + 0x50;
/// Slot: longest round trip.
pub const SLOT_RTT_MAX: u64 = SLOT + 0x54;
/// Slot: most requests outstanding.
pub const SLOT_PEAK: u64 = SLOT + 0x58;
/// Doorbell of the slot.
pub const DOORBELL: u64 = 0x1000;

/// Operation: host to device.
pub const OP_READ: u32 = 0;
/// Operation: device to host.
pub const OP_WRITE: u32 = 1;
/// Operation: pattern into device memory.
pub const OP_FILL: u32 = 2;
/// Interrupt with vector 0 when the job ends.
pub const COMMAND_INTERRUPT: u32 = 1 << 8;

/// State: the job runs.
pub const STATE_RUNNING: u8 = 1;
/// State: the job is done.
pub const STATE_DONE: u8 = 2;

/// What an error code of a job says.
pub const fn error_name(code: u8) -> &'static str {
    match code {
        1 => "a parameter has no sense",
        2 => "a request was completed with Unsupported Request",
        3 => "a request was completed with Completer Abort",
        4 => "a completion did not come in time",
        5 => "data came poisoned",
        6 => "it was aborted",
        7 => "Bus Master is off",
        8 => "a completion did not fit its request",
        9 => "every tag waits for a completion that timed out",
        _ => "an error that this driver does not know",
    }
}

/// Word `k` of the pattern that a fill makes from `seed` (SplitMix64).
pub const fn pattern_word(seed: u64, k: u64) -> u64 {
    let z = seed.wrapping_add(k.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
