//! The type 1 header (PCIe 5.0 section 7.5.1.1 and 7.5.1.3; PCI-to-PCI Bridge 1.2 chapter 3).

use super::{ConfigSpace, Register};

/// Vendor and device ID.
pub(crate) const ID: u16 = 0x00;

/// Command (lower half) and Status (upper half).
pub(crate) const COMMAND: u16 = 0x04;
/// I/O Space Enable.
pub(crate) const IO_ENABLE: u32 = 1 << 0;
/// Memory Space Enable.
pub(crate) const MEMORY_ENABLE: u32 = 1 << 1;
/// Bus Master Enable.
pub(crate) const BUS_MASTER: u32 = 1 << 2;
/// Parity Error Response.
pub(crate) const PARITY_RESPONSE: u32 = 1 << 6;
/// SERR# Enable.
pub(crate) const SERR_ENABLE: u32 = 1 << 8;
/// Interrupt Disable.
pub(crate) const INTX_DISABLE: u32 = 1 << 10;
const CAPABILITIES_LIST: u32 = 1 << 20;
/// Status: Master Data Parity Error.
pub(crate) const MASTER_DATA_PARITY: u32 = 1 << 24;
/// Status: Signaled Target Abort.
pub(crate) const SIGNALED_TARGET_ABORT: u32 = 1 << 27;
/// Status: Received Target Abort.
pub(crate) const RECEIVED_TARGET_ABORT: u32 = 1 << 28;
/// Status: Received Master Abort.
pub(crate) const RECEIVED_MASTER_ABORT: u32 = 1 << 29;
/// Status: Signaled System Error. In Secondary Status the same bit is Received System Error.
pub(crate) const SYSTEM_ERROR: u32 = 1 << 30;
/// Status: Detected Parity Error.
pub(crate) const DETECTED_PARITY: u32 = 1 << 31;
const STATUS_CLEARABLE: u32 = MASTER_DATA_PARITY
    | SIGNALED_TARGET_ABORT
    | RECEIVED_TARGET_ABORT
    | RECEIVED_MASTER_ABORT
    | SYSTEM_ERROR
    | DETECTED_PARITY;

/// Revision and class code.
pub(crate) const CLASS: u16 = 0x08;
const PCI_BRIDGE: u32 = 0x06_0400 << 8;
const CACHE_LINE: u16 = 0x0c;
const HEADER_TYPE_1: u32 = 1 << 16;

/// Primary, secondary and subordinate bus number.
pub(crate) const BUSES: u16 = 0x18;
/// I/O base and limit (lower half), Secondary Status (upper half, bits as in Status).
pub(crate) const IO: u16 = 0x1c;
const IO_32_BIT: u32 = 0x0101;
/// Memory base and limit.
pub(crate) const MEMORY: u16 = 0x20;
/// Prefetchable memory base and limit.
pub(crate) const PREFETCHABLE: u16 = 0x24;
const PREFETCHABLE_64_BIT: u32 = 0x0001_0001;
/// Upper half of the prefetchable base.
pub(crate) const PREFETCHABLE_BASE_UPPER: u16 = 0x28;
/// Upper half of the prefetchable limit.
pub(crate) const PREFETCHABLE_LIMIT_UPPER: u16 = 0x2c;
/// Upper halves of I/O base and limit.
pub(crate) const IO_UPPER: u16 = 0x30;
const CAPABILITIES: u16 = 0x34;

/// Interrupt line and pin (lower half), Bridge Control (upper half).
pub(crate) const BRIDGE_CONTROL: u16 = 0x3c;
/// Bridge Control: Parity Error Response Enable.
pub(crate) const BRIDGE_PARITY_RESPONSE: u32 = 1 << 16;
/// Bridge Control: SERR# Enable, which lets error messages pass from below.
pub(crate) const BRIDGE_SERR: u32 = 1 << 17;
/// Bridge Control: ISA Enable.
pub(crate) const BRIDGE_ISA: u32 = 1 << 18;
/// Bridge Control: Secondary Bus Reset.
pub(crate) const SECONDARY_BUS_RESET: u32 = 1 << 22;

/// The header. Windows are closed after reset (base above limit); VGA and INTx are not there.
pub(crate) const REGISTERS: &[Register] = &[
    Register::read_only(ID, 0),
    Register::read_only(COMMAND, CAPABILITIES_LIST)
        .writable(
            IO_ENABLE | MEMORY_ENABLE | BUS_MASTER | PARITY_RESPONSE | SERR_ENABLE | INTX_DISABLE,
        )
        .clearable(STATUS_CLEARABLE),
    Register::read_only(CLASS, PCI_BRIDGE),
    Register::read_only(CACHE_LINE, HEADER_TYPE_1).writable(0xff),
    Register::read_only(BUSES, 0).writable(0x00ff_ffff),
    Register::read_only(IO, 0xf0 | IO_32_BIT).writable(0xf0f0).clearable(STATUS_CLEARABLE),
    Register::read_only(MEMORY, 0xfff0).writable(0xfff0_fff0),
    Register::read_only(PREFETCHABLE, 0xfff0 | PREFETCHABLE_64_BIT).writable(0xfff0_fff0),
    Register::read_only(PREFETCHABLE_BASE_UPPER, 0).writable(u32::MAX),
    Register::read_only(PREFETCHABLE_LIMIT_UPPER, 0).writable(u32::MAX),
    Register::read_only(IO_UPPER, 0).writable(u32::MAX),
    Register::read_only(CAPABILITIES, super::layouts::FIRST_CAPABILITY as u32),
    Register::read_only(BRIDGE_CONTROL, 0)
        .writable(0xff | BRIDGE_PARITY_RESPONSE | BRIDGE_SERR | BRIDGE_ISA | SECONDARY_BUS_RESET),
];

/// A window: first and last address, or `None` where it is closed (base above limit).
pub(crate) type Range = Option<(u64, u64)>;

const fn range(base: u64, limit: u64) -> Range {
    if base > limit { None } else { Some((base, limit)) }
}

/// Whether an address is in a window.
pub(crate) fn holds(range: Range, address: u64) -> bool {
    range.is_some_and(|(base, limit)| (base..=limit).contains(&address))
}

/// The 32-bit window, in steps of 1 MB.
pub(crate) fn memory_window(config: &ConfigSpace) -> Range {
    let window = config.get(MEMORY);
    range(u64::from((window & 0xfff0) << 16), u64::from(window | 0x000f_ffff))
}

/// The 64-bit prefetchable window, in steps of 1 MB.
pub(crate) fn prefetchable_window(config: &ConfigSpace) -> Range {
    let window = config.get(PREFETCHABLE);
    let upper = |register| u64::from(config.get(register)) << 32;
    let base = upper(PREFETCHABLE_BASE_UPPER) | u64::from((window & 0xfff0) << 16);
    let limit = upper(PREFETCHABLE_LIMIT_UPPER) | u64::from(window | 0x000f_ffff);
    range(base, limit)
}

/// The I/O window, in steps of 4 KB.
pub(crate) fn io_window(config: &ConfigSpace) -> Range {
    let (window, upper) = (config.get(IO), config.get(IO_UPPER));
    let base = (upper & 0xffff) << 16 | (window & 0xf0) << 8;
    let limit = upper & 0xffff_0000 | window & 0xf000 | 0xfff;
    range(u64::from(base), u64::from(limit))
}

/// With ISA Enable, the upper 768 bytes of each aligned kilobyte of the first 64 KB are not the
/// bridge's (PCI-to-PCI Bridge 1.2 section 4.2.3).
pub(crate) fn is_isa_alias(address: u64) -> bool {
    address <= 0xffff && address & 0x300 != 0
}

/// Secondary and subordinate bus number.
pub(crate) fn buses(config: &ConfigSpace) -> (u8, u8) {
    let buses = config.get(BUSES);
    ((buses >> 8) as u8, (buses >> 16) as u8)
}
