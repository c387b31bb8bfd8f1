//! Registers of a type 0 function, where they are in our functions, and their bits.
//!
//! Names and numbers are those of PCI Local Bus 3.0, PCI Express Base 5.0 chapter 7 and Linux's
//! `pci_regs.h`, which agree. All our functions have their capabilities at the same places.

/// Vendor ID, 16 bits.
pub const VENDOR_ID: u16 = 0x00;
/// Device ID, 16 bits.
pub const DEVICE_ID: u16 = 0x02;
/// Command, 16 bits.
pub const COMMAND: u16 = 0x04;
/// Command: Memory Space Enable.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Command: Bus Master Enable.
pub const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// Command: Parity Error Response.
pub const COMMAND_PARITY: u16 = 1 << 6;
/// Command: SERR# Enable.
pub const COMMAND_SERR: u16 = 1 << 8;
/// Command: Interrupt Disable.
pub const COMMAND_INTX_DISABLE: u16 = 1 << 10;
/// Status, 16 bits.
pub const STATUS: u16 = 0x06;
/// Status: Capabilities List.
pub const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Status: Master Data Parity Error.
pub const STATUS_MASTER_PARITY: u16 = 1 << 8;
/// Status: Signaled Target Abort.
pub const STATUS_SIGNALED_TARGET_ABORT: u16 = 1 << 11;
/// Status: Received Target Abort.
pub const STATUS_RECEIVED_TARGET_ABORT: u16 = 1 << 12;
/// Status: Received Master Abort.
pub const STATUS_RECEIVED_MASTER_ABORT: u16 = 1 << 13;
/// Status: Signaled System Error.
pub const STATUS_SIGNALED_ERROR: u16 = 1 << 14;
/// Status: Detected Parity Error.
pub const STATUS_DETECTED_PARITY: u16 = 1 << 15;
/// Revision ID and, above it, the class code.
pub const REVISION_CLASS: u16 = 0x08;
/// Cache Line Size, latency timer, header type, BIST.
pub const CACHE_LINE: u16 = 0x0c;
/// First of six base address registers.
pub const BAR0: u16 = 0x10;
/// Base address register: 64 bits wide.
pub const BAR_64: u32 = 0b100;
/// Base address register: prefetchable.
pub const BAR_PREFETCHABLE: u32 = 0b1000;
/// Subsystem vendor ID and, above it, subsystem ID.
pub const SUBSYSTEM: u16 = 0x2c;
/// Capabilities pointer.
pub const CAPABILITIES: u16 = 0x34;
/// Interrupt Line and Interrupt Pin.
pub const INTERRUPT: u16 = 0x3c;

/// Power management capability.
pub const PM: u16 = 0x40;
/// Power Management Control/Status.
pub const PM_CONTROL: u16 = PM + 4;
/// PMCSR: PowerState.
pub const PM_STATE: u16 = 3;
/// PowerState: D0.
pub const PM_D0: u16 = 0;
/// PowerState: D3hot.
pub const PM_D3_HOT: u16 = 3;
/// PMCSR: No_Soft_Reset.
pub const PM_NO_SOFT_RESET: u16 = 1 << 3;

/// MSI capability.
pub const MSI: u16 = 0x50;
/// MSI message control.
pub const MSI_CONTROL: u16 = MSI + 2;
/// MSI message control: enable.
pub const MSI_ENABLE: u16 = 1;
/// MSI message control: 64-bit address, and per-vector masking.
pub const MSI_64_AND_MASKING: u16 = 1 << 7 | 1 << 8;
/// MSI message address.
pub const MSI_ADDRESS: u16 = MSI + 4;
/// MSI message data.
pub const MSI_DATA: u16 = MSI + 0xc;
/// MSI mask bits.
pub const MSI_MASK: u16 = MSI + 0x10;
/// MSI pending bits.
pub const MSI_PENDING: u16 = MSI + 0x14;

/// PCI Express capability.
pub const EXPRESS: u16 = 0x70;
/// Device Capabilities.
pub const DEVICE_CAPABILITIES: u16 = EXPRESS + 4;
/// Device Capabilities: Extended Tag Field Supported.
pub const DEVICE_CAP_EXTENDED_TAG: u32 = 1 << 5;
/// Device Capabilities: Role-Based Error Reporting.
pub const DEVICE_CAP_ROLE_BASED: u32 = 1 << 15;
/// Device Capabilities: Captured Slot Power Limit, value and scale.
pub const CAPTURED_POWER_LIMIT: u32 = 0x3ff << 18;
/// Device Capabilities: Function Level Reset Capability.
pub const DEVICE_CAP_FLR: u32 = 1 << 28;
/// Device Control.
pub const DEVICE_CONTROL: u16 = EXPRESS + 8;
/// Device Control: Correctable Error Reporting Enable.
pub const DEVICE_CONTROL_CORRECTABLE: u16 = 1;
/// Device Control: Non-Fatal Error Reporting Enable.
pub const DEVICE_CONTROL_NON_FATAL: u16 = 1 << 1;
/// Device Control: Fatal Error Reporting Enable.
pub const DEVICE_CONTROL_FATAL: u16 = 1 << 2;
/// Device Control: Unsupported Request Reporting Enable.
pub const DEVICE_CONTROL_UR: u16 = 1 << 3;
/// Device Control: Enable Relaxed Ordering.
pub const DEVICE_CONTROL_RELAXED: u16 = 1 << 4;
/// Device Control: lowest bit of Max_Payload_Size.
pub const DEVICE_CONTROL_MPS_SHIFT: u16 = 5;
/// Device Control: Extended Tag Field Enable.
pub const DEVICE_CONTROL_EXTENDED_TAG: u16 = 1 << 8;
/// Device Control: Enable No Snoop.
pub const DEVICE_CONTROL_NO_SNOOP: u16 = 1 << 11;
/// Device Control: lowest bit of Max_Read_Request_Size.
pub const DEVICE_CONTROL_MRRS_SHIFT: u16 = 12;
/// Device Control: Initiate Function Level Reset.
pub const DEVICE_CONTROL_FLR: u16 = 1 << 15;
/// Device Status.
pub const DEVICE_STATUS: u16 = EXPRESS + 0xa;
/// Device Status: Correctable Error Detected.
pub const DEVICE_STATUS_CORRECTABLE: u16 = 1;
/// Device Status: Non-Fatal Error Detected.
pub const DEVICE_STATUS_NON_FATAL: u16 = 1 << 1;
/// Device Status: Fatal Error Detected.
pub const DEVICE_STATUS_FATAL: u16 = 1 << 2;
/// Device Status: Unsupported Request Detected.
pub const DEVICE_STATUS_UR: u16 = 1 << 3;
/// Device Status: Transactions Pending.
pub const DEVICE_STATUS_PENDING: u16 = 1 << 5;
/// Link Capabilities.
pub const LINK_CAPABILITIES: u16 = EXPRESS + 0xc;
/// Link Control.
pub const LINK_CONTROL: u16 = EXPRESS + 0x10;
/// Link Status.
pub const LINK_STATUS: u16 = EXPRESS + 0x12;
/// Device Capabilities 2.
pub const DEVICE_CAPABILITIES_2: u16 = EXPRESS + 0x24;
/// Device Control 2.
pub const DEVICE_CONTROL_2: u16 = EXPRESS + 0x28;
/// Device Control 2: Completion Timeout Disable.
pub const DEVICE_CONTROL_2_TIMEOUT_DISABLE: u16 = 1 << 4;
/// 10-Bit Tag Requester Enable.
pub const DEVICE_CONTROL_2_TEN_BIT_TAGS: u16 = 1 << 12;
/// Link Capabilities 2.
pub const LINK_CAPABILITIES_2: u16 = EXPRESS + 0x2c;
/// Link Control 2.
pub const LINK_CONTROL_2: u16 = EXPRESS + 0x30;

/// MSI-X capability.
pub const MSIX: u16 = 0xb0;
/// MSI-X message control.
pub const MSIX_CONTROL: u16 = MSIX + 2;
/// MSI-X message control: enable.
pub const MSIX_ENABLE: u16 = 1 << 15;
/// MSI-X message control: function mask.
pub const MSIX_FUNCTION_MASK: u16 = 1 << 14;

/// Advanced error reporting capability.
pub const AER: u16 = 0x100;
/// AER: uncorrectable error status.
pub const AER_UNCORRECTABLE: u16 = AER + 4;
/// AER: uncorrectable error mask.
pub const AER_UNCORRECTABLE_MASK: u16 = AER + 8;
/// AER: uncorrectable error severity.
pub const AER_SEVERITY: u16 = AER + 0xc;
/// AER: correctable error status.
pub const AER_CORRECTABLE: u16 = AER + 0x10;
/// AER: correctable error mask.
pub const AER_CORRECTABLE_MASK: u16 = AER + 0x14;
/// AER: correctable error: Advisory Non-Fatal.
pub const AER_ADVISORY: u32 = 1 << 13;
/// AER: capabilities and control.
pub const AER_CONTROL: u16 = AER + 0x18;
/// AER: header log, four doublewords.
pub const AER_HEADER_LOG: u16 = AER + 0x1c;

/// Device serial number capability.
pub const SERIAL: u16 = 0x150;

/// Bytes of configuration space.
pub const CONFIG_SIZE: usize = 4096;
