//! Configuration space registers. Names and numbers as in Linux's `pci_regs.h` and PCIe 5.0
//! chapter 7.

/// Command and, in the upper half, Status.
pub const COMMAND: u16 = 0x04;
/// Revision and class code.
pub const CLASS_REVISION: u16 = 0x08;
/// Header type is byte 2 of this doubleword.
pub const HEADER: u16 = 0x0c;
/// First base address register.
pub const BAR0: u16 = 0x10;
/// Primary, secondary and subordinate bus (type 1).
pub const BUSES: u16 = 0x18;
/// I/O base and limit (type 1), 16 bits.
pub const IO_WINDOW: u16 = 0x1c;
/// Memory base and limit (type 1).
pub const MEMORY_WINDOW: u16 = 0x20;
/// Prefetchable memory base and limit (type 1).
pub const PREFETCH_WINDOW: u16 = 0x24;
/// Upper halves of prefetchable base and limit (type 1).
pub const PREFETCH_BASE_UPPER: u16 = 0x28;
/// As [`PREFETCH_BASE_UPPER`], the limit.
pub const PREFETCH_LIMIT_UPPER: u16 = 0x2c;
/// Upper 16 bits of I/O base and limit (type 1).
pub const IO_WINDOW_UPPER: u16 = 0x30;
/// Subsystem vendor and device (type 0).
pub const SUBSYSTEM: u16 = 0x2c;
/// Capabilities pointer.
pub const CAPABILITY_POINTER: u16 = 0x34;
/// Bridge Control (type 1), 16 bits.
pub const BRIDGE_CONTROL: u16 = 0x3e;

/// Command: Memory Space Enable.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Command: Bus Master Enable.
pub const COMMAND_MASTER: u16 = 1 << 2;
/// Command: SERR# Enable.
pub const COMMAND_SERR: u16 = 1 << 8;
/// Command: Interrupt Disable.
pub const COMMAND_INTX_DISABLE: u16 = 1 << 10;
/// Status: there is a capability list.
pub const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Bridge Control: SERR# Enable: errors of below are passed on.
pub const BRIDGE_SERR: u16 = 1 << 1;

/// Capability: MSI.
pub const CAP_MSI: u8 = 0x05;
/// Capability: PCI Express.
pub const CAP_EXPRESS: u8 = 0x10;
/// Capability: MSI-X.
pub const CAP_MSIX: u8 = 0x11;
/// Extended capability: Advanced Error Reporting.
pub const EXT_AER: u16 = 0x0001;
/// Advanced Error Reporting: Uncorrectable Error Status.
pub const AER_UNCORRECTABLE: u16 = 0x04;
/// Advanced Error Reporting: Correctable Error Status.
pub const AER_CORRECTABLE: u16 = 0x10;
/// Extended capability: Access Control Services.
pub const EXT_ACS: u16 = 0x000d;

/// PCI Express capability: Device Capabilities.
pub const EXP_DEVCAP: u16 = 0x04;
/// Device Control.
pub const EXP_DEVCTL: u16 = 0x08;
/// Device Status.
pub const EXP_DEVSTA: u16 = 0x0a;
/// Link Control.
pub const EXP_LNKCTL: u16 = 0x10;
/// Slot Capabilities.
pub const EXP_SLTCAP: u16 = 0x14;
/// Slot Control.
pub const EXP_SLTCTL: u16 = 0x18;
/// Slot Status.
pub const EXP_SLTSTA: u16 = 0x1a;

/// Device Capabilities: Extended Tag Field Supported.
pub const DEVCAP_EXT_TAG: u32 = 1 << 5;
/// Device Control: reporting of correctable, non-fatal, fatal errors and unsupported requests.
pub const DEVCTL_ERRORS: u16 = 0xf;
/// Device Control: Enable Relaxed Ordering.
pub const DEVCTL_RELAXED: u16 = 1 << 4;
/// Device Control: Extended Tag Field Enable.
pub const DEVCTL_EXT_TAG: u16 = 1 << 8;
/// Device Control: Enable No Snoop.
pub const DEVCTL_NO_SNOOP: u16 = 1 << 11;
/// Link Control: Read Completion Boundary is 128 bytes.
pub const LNKCTL_RCB: u16 = 1 << 3;
/// Link Status: Link Training.
pub const LNKSTA_TRAINING: u16 = 1 << 11;
/// Link Status: Data Link Layer Link Active.
pub const LNKSTA_ACTIVE: u16 = 1 << 13;

/// Slot Capabilities and Slot Control/Status bits.
pub mod slot {
    /// Capabilities: Attention Button Present.
    pub const CAP_BUTTON: u32 = 1 << 0;
    /// Capabilities: Power Controller Present.
    pub const CAP_POWER: u32 = 1 << 1;
    /// Capabilities: Attention Indicator Present.
    pub const CAP_ATTENTION: u32 = 1 << 3;
    /// Capabilities: Power Indicator Present.
    pub const CAP_INDICATOR: u32 = 1 << 4;
    /// Capabilities: Hot-Plug Capable.
    pub const CAP_HOTPLUG: u32 = 1 << 6;
    /// Capabilities: No Command Completed Support.
    pub const CAP_NCCS: u32 = 1 << 18;
    /// Control: Attention Button Pressed Enable.
    pub const CTL_BUTTON: u16 = 1 << 0;
    /// Control: Presence Detect Changed Enable.
    pub const CTL_PRESENCE: u16 = 1 << 3;
    /// Control: Hot-Plug Interrupt Enable.
    pub const CTL_INTERRUPT: u16 = 1 << 5;
    /// Control: Attention Indicator, shift of its two bits.
    pub const CTL_ATTENTION_SHIFT: u16 = 6;
    /// Control: Power Indicator, shift of its two bits.
    pub const CTL_INDICATOR_SHIFT: u16 = 8;
    /// Control: Power Controller Control: 1 is off.
    pub const CTL_POWER_OFF: u16 = 1 << 10;
    /// Control: Data Link Layer State Changed Enable.
    pub const CTL_LINK: u16 = 1 << 12;
    /// Status: Attention Button Pressed.
    pub const STA_BUTTON: u16 = 1 << 0;
    /// Status: Power Fault Detected.
    pub const STA_FAULT: u16 = 1 << 1;
    /// Status: Presence Detect Changed.
    pub const STA_PRESENCE_CHANGED: u16 = 1 << 3;
    /// Status: Command Completed.
    pub const STA_COMMAND: u16 = 1 << 4;
    /// Status: Presence Detect State.
    pub const STA_PRESENT: u16 = 1 << 6;
    /// Status: Data Link Layer State Changed.
    pub const STA_LINK_CHANGED: u16 = 1 << 8;
    /// Status: the bits that an event sets and a 1 clears.
    pub const STA_EVENTS: u16 =
        STA_BUTTON | STA_FAULT | STA_PRESENCE_CHANGED | STA_COMMAND | STA_LINK_CHANGED;

    /// The two bits of an indicator (PCIe 5.0 section 7.5.3.10).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Indicator {
        /// 01b.
        On = 1,
        /// 10b.
        Blink = 2,
        /// 11b.
        Off = 3,
    }
}
