//! PCI Express capability of a switch port, but for its slot, and the extended capability that
//! goes with its link (PCIe 5.0 sections 7.5.3 and 7.7.3).

use super::{Register, capability, extended_capability};

/// Where it is; the upper half is PCI Express Capabilities.
pub(crate) const AT: u16 = 0x70;
const ID: u8 = 0x10;
const VERSION: u16 = 2;
const ROOT_PORT: u16 = 4 << 4;
const UPSTREAM_PORT: u16 = 5 << 4;
const DOWNSTREAM_PORT: u16 = 6 << 4;
const SLOT_IMPLEMENTED: u16 = 1 << 8;

/// Device Capabilities.
pub(crate) const DEVICE_CAPABILITIES: u16 = AT + 0x04;
/// Max_Payload_Size Supported: 128 bytes shifted left by this.
pub(crate) const PAYLOAD_SUPPORTED: u32 = 0b111;
const EXTENDED_TAG: u32 = 1 << 5;
const ROLE_BASED_ERRORS: u32 = 1 << 15;
/// Captured Slot Power Limit, value and scale, of an upstream port.
pub(crate) const CAPTURED_POWER_LIMIT: u32 = 0x3ff << 18;

/// Device Control (lower half) and Device Status (upper half).
pub(crate) const DEVICE_CONTROL: u16 = AT + 0x08;
/// Correctable Error Reporting Enable.
pub(crate) const REPORT_CORRECTABLE: u32 = 1 << 0;
/// Non-Fatal Error Reporting Enable.
pub(crate) const REPORT_NON_FATAL: u32 = 1 << 1;
/// Fatal Error Reporting Enable.
pub(crate) const REPORT_FATAL: u32 = 1 << 2;
/// Unsupported Request Reporting Enable.
pub(crate) const REPORT_UNSUPPORTED: u32 = 1 << 3;
const RELAXED_ORDERING: u32 = 1 << 4;
/// Max_Payload_Size.
pub(crate) const PAYLOAD_SIZE: u32 = 0b111 << 5;
const EXTENDED_TAG_ENABLE: u32 = 1 << 8;
const NO_SNOOP: u32 = 1 << 11;
const READ_REQUEST_SIZE: u32 = 0b111 << 12;
const READ_REQUEST_512: u32 = 0b010 << 12;
/// Device Status: Correctable Error Detected.
pub(crate) const CORRECTABLE_DETECTED: u32 = 1 << 16;
/// Device Status: Non-Fatal Error Detected.
pub(crate) const NON_FATAL_DETECTED: u32 = 1 << 17;
/// Device Status: Fatal Error Detected.
pub(crate) const FATAL_DETECTED: u32 = 1 << 18;
/// Device Status: Unsupported Request Detected.
pub(crate) const UNSUPPORTED_DETECTED: u32 = 1 << 19;

/// Link Capabilities.
pub(crate) const LINK_CAPABILITIES: u16 = AT + 0x0c;
/// 8.0 GT/s on 16 lanes: what a 100 Gb/s network behind it fills, and the fastest link that needs
/// no equalisation or margining capabilities of later generations.
const SPEED: u32 = LINK_SPEED as u32;
const WIDTH: u32 = (LINK_WIDTH as u32) << 4;
/// Speed of every link of the switch, as Link Status codes it.
pub const LINK_SPEED: u8 = 3;
/// Width of every link of the switch, in lanes.
pub const LINK_WIDTH: u8 = 16;
const LINK_ACTIVE_REPORTING: u32 = 1 << 20;
const BANDWIDTH_NOTIFICATION: u32 = 1 << 21;
const ASPM_OPTIONALITY: u32 = 1 << 22;
/// Port Number.
pub(crate) const PORT_NUMBER: u32 = 0xff << 24;

/// Link Control (lower half) and Link Status (upper half).
pub(crate) const LINK_CONTROL: u16 = AT + 0x10;
const ASPM_CONTROL: u32 = 0b11;
/// Link Disable, of a downstream port.
pub(crate) const LINK_DISABLE: u32 = 1 << 4;
/// Retrain Link, of a downstream port; reads 0.
pub(crate) const RETRAIN: u32 = 1 << 5;
const COMMON_CLOCK: u32 = 1 << 6;
const EXTENDED_SYNCH: u32 = 1 << 7;
const AUTONOMOUS_WIDTH_DISABLE: u32 = 1 << 9;
/// Link Bandwidth Management Interrupt Enable.
pub(crate) const BANDWIDTH_INTERRUPT: u32 = 1 << 10;
/// Link Autonomous Bandwidth Interrupt Enable.
const AUTONOMOUS_INTERRUPT: u32 = 1 << 11;
/// Link Status: speed and width. Both always say what the link has or would have: a width of 0
/// makes Linux's pciehp give up on a slot.
const NEGOTIATED: u32 = (SPEED | WIDTH) << 16;
const SLOT_CLOCK: u32 = 1 << 28;
/// Link Status: Data Link Layer Link Active, of a downstream port.
pub(crate) const LINK_ACTIVE: u32 = 1 << 29;
/// Link Status: Link Bandwidth Management Status.
pub(crate) const BANDWIDTH_STATUS: u32 = 1 << 30;
const AUTONOMOUS_STATUS: u32 = 1 << 31;

const DEVICE_CAPABILITIES_2: u16 = AT + 0x24;
const ARI_SUPPORTED: u32 = 1 << 5;
const ATOMIC_ROUTING: u32 = 1 << 6;
const TEN_BIT_TAG_COMPLETER: u32 = 1 << 16;
const EXTENDED_FMT: u32 = 1 << 20;
const END_END_PREFIXES: u32 = 1 << 21;

/// Device Control 2 (lower half).
pub(crate) const DEVICE_CONTROL_2: u16 = AT + 0x28;
/// ARI Forwarding Enable, of a downstream port.
pub(crate) const ARI_FORWARDING: u32 = 1 << 5;
/// AtomicOp Egress Blocking.
pub(crate) const ATOMIC_BLOCKING: u32 = 1 << 7;
/// End-End TLP Prefix Blocking.
pub(crate) const PREFIX_BLOCKING: u32 = 1 << 15;

const LINK_CAPABILITIES_2: u16 = AT + 0x2c;
/// 2.5, 5.0 and 8.0 GT/s.
const SPEEDS: u32 = 0b111 << 1;
const LINK_CONTROL_2: u16 = AT + 0x30;
const TARGET_SPEED: u32 = 0xf;
const LINK_CONTROL_2_REST: u32 = 1 << 4 | 1 << 5 | 0b111 << 7 | 1 << 10 | 1 << 11 | 0xf << 12;

const DEVICE: u32 = EXTENDED_TAG | ROLE_BASED_ERRORS;
const LINK: u32 = SPEED | WIDTH | ASPM_OPTIONALITY;
const LINK_WRITABLE: u32 = ASPM_CONTROL | COMMON_CLOCK | EXTENDED_SYNCH | AUTONOMOUS_WIDTH_DISABLE;
const DEVICE_2: u32 = ATOMIC_ROUTING | TEN_BIT_TAG_COMPLETER | EXTENDED_FMT | END_END_PREFIXES;

const fn common(
    head: u32,
    link: u32,
    link_status: u32,
    link_writable: u32,
    link_clearable: u32,
    device_2: u32,
    device_2_writable: u32,
) -> [Register; 9] {
    [
        Register::read_only(AT, head),
        Register::read_only(DEVICE_CAPABILITIES, DEVICE),
        Register::read_only(DEVICE_CONTROL, RELAXED_ORDERING | NO_SNOOP | READ_REQUEST_512)
            .writable(
                REPORT_CORRECTABLE
                    | REPORT_NON_FATAL
                    | REPORT_FATAL
                    | REPORT_UNSUPPORTED
                    | RELAXED_ORDERING
                    | PAYLOAD_SIZE
                    | EXTENDED_TAG_ENABLE
                    | NO_SNOOP
                    | READ_REQUEST_SIZE,
            )
            .clearable(
                CORRECTABLE_DETECTED | NON_FATAL_DETECTED | FATAL_DETECTED | UNSUPPORTED_DETECTED,
            ),
        Register::read_only(LINK_CAPABILITIES, link),
        Register::read_only(LINK_CONTROL, link_status)
            .writable(link_writable)
            .clearable(link_clearable),
        Register::read_only(DEVICE_CAPABILITIES_2, device_2),
        Register::read_only(DEVICE_CONTROL_2, 0).writable(device_2_writable),
        Register::read_only(LINK_CAPABILITIES_2, SPEEDS),
        Register::read_only(LINK_CONTROL_2, SPEED)
            .writable(TARGET_SPEED | LINK_CONTROL_2_REST)
            .sticky(TARGET_SPEED | LINK_CONTROL_2_REST),
    ]
}

/// The capability of an upstream port; the next one is at `next`.
pub(crate) const fn upstream(next: u16) -> [Register; 9] {
    common(
        capability(ID, next, VERSION | UPSTREAM_PORT),
        LINK,
        NEGOTIATED | SLOT_CLOCK,
        LINK_WRITABLE,
        0,
        DEVICE_2,
        ATOMIC_BLOCKING | PREFIX_BLOCKING,
    )
}

/// The capability of a downstream port with a slot; the next one is at `next`.
pub(crate) const fn downstream(next: u16) -> [Register; 9] {
    common(
        capability(ID, next, VERSION | DOWNSTREAM_PORT | SLOT_IMPLEMENTED),
        LINK | LINK_ACTIVE_REPORTING | BANDWIDTH_NOTIFICATION,
        NEGOTIATED | SLOT_CLOCK,
        LINK_WRITABLE | LINK_DISABLE | BANDWIDTH_INTERRUPT | AUTONOMOUS_INTERRUPT,
        BANDWIDTH_STATUS | AUTONOMOUS_STATUS,
        DEVICE_2 | ARI_SUPPORTED,
        ARI_FORWARDING | ATOMIC_BLOCKING | PREFIX_BLOCKING,
    )
}

/// The capability of a root port without a slot; the next one is at `next`.
pub(crate) const fn root(next: u16) -> [Register; 9] {
    common(
        capability(ID, next, VERSION | ROOT_PORT),
        LINK | LINK_ACTIVE_REPORTING,
        NEGOTIATED | SLOT_CLOCK | LINK_ACTIVE,
        LINK_WRITABLE | LINK_DISABLE,
        0,
        EXTENDED_FMT,
        0,
    )
}

/// Root Control (lower half) and Root Capabilities (upper half), of a root port.
pub(crate) const ROOT_CONTROL: u16 = AT + 0x1c;
const SYSTEM_ERRORS: u32 = 0b111;
/// PME Interrupt Enable.
pub(crate) const PME_INTERRUPT: u32 = 1 << 3;
/// CRS Software Visibility Enable (Configuration RRS in later revisions).
pub(crate) const RETRY_VISIBLE: u32 = 1 << 4;
const RETRY_VISIBILITY: u32 = 1 << 16;
/// Root Status.
pub(crate) const ROOT_STATUS: u16 = AT + 0x20;
/// PME Requester ID.
pub(crate) const PME_REQUESTER: u32 = 0xffff;
/// PME Status.
pub(crate) const PME_STATUS: u32 = 1 << 16;
/// PME Pending: a further one waits behind it.
pub(crate) const PME_PENDING: u32 = 1 << 17;

/// What a root port has beside [`root`].
pub(crate) const ROOT_REGISTERS: &[Register] = &[
    Register::read_only(ROOT_CONTROL, RETRY_VISIBILITY)
        .writable(SYSTEM_ERRORS | PME_INTERRUPT | RETRY_VISIBLE),
    Register::read_only(ROOT_STATUS, 0).clearable(PME_STATUS),
];

/// Where the Secondary PCI Express extended capability is, which a link of 8.0 GT/s has.
pub(crate) const SECONDARY_AT: u16 = 0x170;
const SECONDARY_ID: u16 = 0x19;
const LINK_CONTROL_3: u16 = SECONDARY_AT + 0x04;
const EQUALIZATION: u32 = 0b11;
const LANE_ERRORS: u16 = SECONDARY_AT + 0x08;
const LANES: u32 = 0xffff;
const LANE_EQUALIZATION: u16 = SECONDARY_AT + 0x0c;

/// The Secondary PCI Express extended capability, last of its list.
pub(crate) const SECONDARY: &[Register] = &[
    Register::read_only(SECONDARY_AT, extended_capability(SECONDARY_ID, 1, 0)),
    Register::read_only(LINK_CONTROL_3, 0).writable(EQUALIZATION),
    Register::read_only(LANE_ERRORS, 0).clearable(LANES).sticky(LANES),
    // Two lanes to each: no preset is wanted of a link that has no lanes.
    Register::read_only(LANE_EQUALIZATION, 0),
];
