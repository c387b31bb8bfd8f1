//! What PCIe does not say with TLPs.

/// A function's power state (PCI Power Management 1.2, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceState {
    /// D0.
    D0,
    /// D1.
    D1,
    /// D2.
    D2,
    /// D3hot.
    D3Hot,
    /// D3cold: no main power.
    D3Cold,
}

/// A sideband record: something that happens to a binding beside its TLPs.
///
/// It travels in the link's one sequence but does not wait behind TLPs. Those that
/// [flush](Sideband::flushes) end everything the binding had under way before them, at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sideband {
    /// Host to box: reset the device through its link (Secondary Bus Reset, or a hot reset that
    /// came from above). Flushes.
    HotReset,
    /// Host to box: assert fundamental reset. Flushes.
    PerstAssert,
    /// Host to box: release fundamental reset.
    PerstDeassert,
    /// Box to host: the device's link is up.
    LinkUp {
        /// Current link speed as Link Status has it (1: 2.5 GT/s, ...).
        speed: u8,
        /// Negotiated width in lanes.
        width: u8,
    },
    /// Box to host: the device's link went down. Flushes.
    LinkDown,
    /// Host to box: the port's Link Disable was set. Flushes.
    LinkDisable,
    /// Host to box: the port's Link Disable was cleared.
    LinkEnable,
    /// Host to box: take the slot's power away. Flushes.
    PowerOff,
    /// Host to box: give the slot power.
    PowerOn,
    /// Box to host: the function is in this power state now.
    PowerState(DeviceState),
    /// Either way: end everything under way. Flushes.
    Flush,
    /// Box to host: the function answers configuration requests now.
    DeviceReady,
    /// Box to host: the device was pulled or failed for good. Flushes.
    DeviceGone,
    /// A code of a later version, kept as it came. Does not flush.
    Unknown {
        /// Code.
        code: u8,
        /// Argument.
        argument: u16,
    },
}

impl Sideband {
    /// From a record's code and argument.
    pub const fn from_code(code: u8, argument: u16) -> Self {
        match (code, argument) {
            (1, _) => Self::HotReset,
            (2, _) => Self::PerstAssert,
            (3, _) => Self::PerstDeassert,
            (4, _) => Self::LinkUp { speed: (argument >> 8) as u8, width: argument as u8 },
            (5, _) => Self::LinkDown,
            (6, _) => Self::LinkDisable,
            (7, _) => Self::LinkEnable,
            (8, _) => Self::PowerOff,
            (9, _) => Self::PowerOn,
            (10, 0) => Self::PowerState(DeviceState::D0),
            (10, 1) => Self::PowerState(DeviceState::D1),
            (10, 2) => Self::PowerState(DeviceState::D2),
            (10, 3) => Self::PowerState(DeviceState::D3Hot),
            (10, 4) => Self::PowerState(DeviceState::D3Cold),
            (11, _) => Self::Flush,
            (12, _) => Self::DeviceReady,
            (13, _) => Self::DeviceGone,
            (code, argument) => Self::Unknown { code, argument },
        }
    }

    /// Code and argument for a record.
    pub const fn code(self) -> (u8, u16) {
        match self {
            Self::HotReset => (1, 0),
            Self::PerstAssert => (2, 0),
            Self::PerstDeassert => (3, 0),
            Self::LinkUp { speed, width } => (4, (speed as u16) << 8 | width as u16),
            Self::LinkDown => (5, 0),
            Self::LinkDisable => (6, 0),
            Self::LinkEnable => (7, 0),
            Self::PowerOff => (8, 0),
            Self::PowerOn => (9, 0),
            Self::PowerState(DeviceState::D0) => (10, 0),
            Self::PowerState(DeviceState::D1) => (10, 1),
            Self::PowerState(DeviceState::D2) => (10, 2),
            Self::PowerState(DeviceState::D3Hot) => (10, 3),
            Self::PowerState(DeviceState::D3Cold) => (10, 4),
            Self::Flush => (11, 0),
            Self::DeviceReady => (12, 0),
            Self::DeviceGone => (13, 0),
            Self::Unknown { code, argument } => (code, argument),
        }
    }

    /// Whether the binding is flushed: what either end still had queued is dropped, and what was
    /// outstanding ends with Unsupported Request.
    pub const fn flushes(self) -> bool {
        matches!(
            self,
            Self::HotReset
                | Self::PerstAssert
                | Self::LinkDown
                | Self::LinkDisable
                | Self::PowerOff
                | Self::Flush
                | Self::DeviceGone
        )
    }
}
