//! Placeholders: functions that hold room at boot.
//!
//! Firmware that sizes only what it sees gives an empty port no windows worth having. A port can
//! show a function with registers of the wanted sizes instead, which answers configuration
//! requests and nothing else, and is hot-removed before the first device is plugged.

use super::config::{
    ConfigSpace, Layout, Register, ResetKind, Written, capability, header, layouts,
};
use super::settings::SwitchConfig;
use core::fmt;

/// How much room a placeholder asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placeholder {
    memory: u32,
    prefetchable: u64,
    io: u16,
}

/// A size that no base address register can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceholderSize {
    what: &'static str,
    size: u64,
    least: u64,
    most: u64,
}

impl fmt::Display for PlaceholderSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, size, least, most } = self;
        write!(
            f,
            "a placeholder's {what} of {size:#x} bytes is not possible: choose 0 or a power of \
             two from {least:#x} to {most:#x}"
        )
    }
}

impl core::error::Error for PlaceholderSize {}

impl Placeholder {
    /// So many bytes in each window: 32-bit memory, 64-bit prefetchable memory, I/O. Each is 0
    /// (none) or a power of two.
    ///
    /// # Errors
    ///
    /// When a size is not one that a base address register can ask for: memory from 16 bytes to
    /// 2 GB, prefetchable from 16 bytes to 8 EB, I/O from 4 to 256 bytes (PCIe 5.0 section
    /// 7.5.1.2.1).
    pub fn new(memory: u32, prefetchable: u64, io: u16) -> Result<Self, PlaceholderSize> {
        check("32-bit memory", memory.into(), 16, 1 << 31)?;
        check("prefetchable memory", prefetchable, 16, 1 << 63)?;
        check("I/O range", io.into(), 4, 256)?;
        Ok(Self { memory, prefetchable, io })
    }
}

fn check(what: &'static str, size: u64, least: u64, most: u64) -> Result<(), PlaceholderSize> {
    if size == 0 || size.is_power_of_two() && (least..=most).contains(&size) {
        return Ok(());
    }
    Err(PlaceholderSize { what, size, least, most })
}

const MEMORY_BAR: u16 = 0x10;
const PREFETCHABLE_BAR: u16 = 0x18;
const PREFETCHABLE_BAR_UPPER: u16 = 0x1c;
const IO_BAR: u16 = 0x20;
const SUBSYSTEM: u16 = 0x2c;
const EXPRESS_AT: u16 = layouts::FIRST_CAPABILITY;

/// 64-bit, prefetchable.
const PREFETCHABLE_TYPE: u32 = 0b1100;
const IO_TYPE: u32 = 0b01;
/// Class FFh: fits no defined class.
const NO_CLASS: u32 = 0xff_0000 << 8;
const CAPABILITIES_LIST: u32 = 1 << 20;
const COMMAND_WRITABLE: u32 = 0x0547;
/// PCI Express capability, version 2, endpoint.
const ENDPOINT: u32 = capability(0x10, 0, 2);
const ROLE_BASED_ERRORS: u32 = 1 << 15;
/// 2.5 GT/s on one lane.
const LINK: u32 = 1 | 1 << 4;

static LAYOUT: Layout = crate::layout!(&[&[
    Register::read_only(header::ID, 0),
    Register::read_only(header::COMMAND, CAPABILITIES_LIST).writable(COMMAND_WRITABLE),
    Register::read_only(header::CLASS, NO_CLASS),
    Register::read_only(MEMORY_BAR, 0).writable(!0xf),
    Register::read_only(PREFETCHABLE_BAR, 0).writable(!0xf),
    Register::read_only(PREFETCHABLE_BAR_UPPER, 0).writable(u32::MAX),
    Register::read_only(IO_BAR, 0).writable(!0x3),
    Register::read_only(SUBSYSTEM, 0),
    Register::read_only(0x34, EXPRESS_AT as u32),
    Register::read_only(0x3c, 0).writable(0xff),
    Register::read_only(EXPRESS_AT, ENDPOINT),
    Register::read_only(EXPRESS_AT + 0x04, ROLE_BASED_ERRORS),
    Register::read_only(EXPRESS_AT + 0x08, 0).writable(0xffff),
    Register::read_only(EXPRESS_AT + 0x0c, LINK),
    Register::read_only(EXPRESS_AT + 0x10, LINK << 16),
    Register::read_only(EXPRESS_AT + 0x2c, 1 << 1),
    Register::read_only(EXPRESS_AT + 0x30, 1),
]]);

/// A placeholder's function.
pub(crate) struct PlaceholderFunction {
    what: Placeholder,
    config: ConfigSpace,
}

impl PlaceholderFunction {
    pub(crate) fn new(what: &Placeholder, settings: &SwitchConfig) -> Self {
        let mut config = ConfigSpace::new(&LAYOUT);
        let id = u32::from(settings.downstream_device_id) << 16 | u32::from(settings.vendor_id);
        config.define(header::ID, u32::MAX, id);
        config.define(SUBSYSTEM, u32::MAX, id);
        if what.prefetchable != 0 {
            config.define(PREFETCHABLE_BAR, 0xf, PREFETCHABLE_TYPE);
        }
        if what.io != 0 {
            config.define(IO_BAR, 0x3, IO_TYPE);
        }
        Self { what: *what, config }
    }

    pub(crate) fn read(&self, register: u16) -> u32 {
        self.config.read(register)
    }

    /// The address bits below a register's size are 0, and all of them where it has none.
    pub(crate) fn write(&mut self, register: u16, value: u32, enables: u8) -> Option<Written> {
        let keep = |size: u64| if size == 0 { 0 } else { !(size - 1) };
        let kept = match register {
            MEMORY_BAR => keep(self.what.memory.into()) as u32,
            PREFETCHABLE_BAR => keep(self.what.prefetchable) as u32,
            PREFETCHABLE_BAR_UPPER => (keep(self.what.prefetchable) >> 32) as u32,
            IO_BAR => keep(self.what.io.into()) as u32,
            _ => u32::MAX,
        };
        self.config.write(register, value & kept, enables)
    }

    pub(crate) fn reset(&mut self, kind: ResetKind) {
        self.config.reset(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(memory: u32, prefetchable: u64, io: u16) -> PlaceholderFunction {
        let what = Placeholder::new(memory, prefetchable, io).unwrap();
        PlaceholderFunction::new(&what, &SwitchConfig::default())
    }

    fn sized(function: &mut PlaceholderFunction, register: u16) -> u32 {
        function.write(register, u32::MAX, 0xf);
        function.read(register)
    }

    #[test]
    fn registers_size_as_asked() {
        let mut function = function(1 << 20, 16 << 30, 256);
        assert_eq!(sized(&mut function, MEMORY_BAR), 0xfff0_0000);
        assert_eq!(sized(&mut function, PREFETCHABLE_BAR), 0x0000_000c);
        assert_eq!(sized(&mut function, PREFETCHABLE_BAR_UPPER), 0xffff_fffc);
        assert_eq!(sized(&mut function, IO_BAR), 0xffff_ff01);
        assert_eq!(sized(&mut function, 0x14), 0);
    }

    #[test]
    fn a_size_of_nothing_is_no_register() {
        let mut function = function(0, 0, 0);
        for register in (0x10..=0x24).step_by(4) {
            assert_eq!(sized(&mut function, register), 0, "{register:#x}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(Placeholder::new(3 << 20, 0, 0).is_err());
        assert!(Placeholder::new(8, 0, 0).is_err());
        assert!(Placeholder::new(0, 0, 512).is_err());
        let error = Placeholder::new(0, 3, 0).unwrap_err();
        assert!(std::format!("{error}").contains("power of two"));
    }
}
