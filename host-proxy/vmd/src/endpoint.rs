//! The adapter's own configuration space: a type 0 header, and the few registers that tell the
//! driver what it can do.

use crate::settings::{Interrupts, Region, VmdConfig};
use proxy_core::config_space::{ConfigSpace, Layout, Register, ResetKind, capability};

const INTEL: u32 = 0x8086;
/// Volume management device whose MSI remapping can be turned off.
const BYPASSING: u32 = 0x28c0;
/// Volume management device that remaps.
const REMAPPING: u32 = 0xa77f;

/// MSI-X vectors.
pub(crate) const VECTORS: u16 = 64;

/// Where the MSI-X table is in BAR 4, and the pending bits.
const TABLE: u32 = 0;
const PENDING: u32 = 0x1000;
/// Bytes of BAR 4 that are the adapter's own: the table, the pending bits, and a page in which a
/// hypervisor that passes a real device through tells physical addresses.
pub(crate) const OWN_PAGES: u64 = 0x3000;

const COMMAND: u16 = 0x04;
const MEMORY_ENABLE: u32 = 1 << 1;
const BUS_MASTER: u32 = 1 << 2;
const COMMAND_WRITABLE: u32 = MEMORY_ENABLE | BUS_MASTER | 1 << 6 | 1 << 8 | 1 << 10;
const CAPABILITIES_LIST: u32 = 1 << 20;
/// RAID controller.
const CLASS: u32 = 0x01_0400 << 8 | 1;
const BARS: [u16; 6] = [0x10, 0x14, 0x18, 0x1c, 0x20, 0x24];
const MEMORY_64_BIT: u32 = 0b100;
const PREFETCHABLE: u32 = 0b1000;

/// VMCAP: bit 0 would say that only part of the bus numbers are there.
const CAPABILITY: u16 = 0x40;
/// VMCONFIG.
const CONFIG: u16 = 0x44;
/// VMCONFIG: interrupts are not remapped.
const BYPASS: u32 = 1 << 1;
/// VMLOCK: says whether the page of physical addresses means anything.
const LOCK: u16 = 0x70;

const EXPRESS: u16 = 0x80;
const EXPRESS_ID: u8 = 0x10;
/// Version 2, root complex integrated endpoint.
const EXPRESS_TYPE: u16 = 2 | 9 << 4;
const ROLE_BASED_ERRORS: u32 = 1 << 15;
const DEVICE_CONTROL: u16 = EXPRESS + 8;
const MSI_X: u16 = 0xc0;
const MSI_X_ID: u8 = 0x11;
const MSI_X_CONTROL: u32 = 0b11 << 30;
const BAR_4: u32 = 4;
const POWER: u16 = 0xd0;
const POWER_ID: u8 = 1;
const POWER_CONTROL: u16 = POWER + 4;
const POWER_STATE: u32 = 0b11;
const D0: u32 = 0;
const D3_HOT: u32 = 3;

static LAYOUT: Layout = proxy_core::layout!(&[&[
    Register::read_only(0x00, 0),
    Register::read_only(COMMAND, CAPABILITIES_LIST).writable(COMMAND_WRITABLE),
    Register::read_only(0x08, CLASS),
    Register::read_only(0x0c, 0).writable(0xff),
    Register::read_only(BARS[0], 0).writable(!0xf),
    Register::read_only(BARS[1], 0).writable(u32::MAX),
    Register::read_only(BARS[2], 0).writable(!0xf),
    Register::read_only(BARS[3], 0).writable(u32::MAX),
    Register::read_only(BARS[4], 0).writable(!0xf),
    Register::read_only(BARS[5], 0).writable(u32::MAX),
    Register::read_only(0x2c, 0xd0b3 << 16 | 0x1234),
    Register::read_only(0x34, EXPRESS as u32),
    Register::read_only(0x3c, 0).writable(0xff),
    Register::read_only(CAPABILITY, 0),
    Register::read_only(CONFIG, 0).writable(BYPASS),
    Register::read_only(LOCK, 0),
    Register::read_only(EXPRESS, capability(EXPRESS_ID, MSI_X, EXPRESS_TYPE)),
    Register::read_only(EXPRESS + 4, ROLE_BASED_ERRORS),
    Register::read_only(DEVICE_CONTROL, 0x2810).writable(0x7fff).clearable(0xf << 16),
    Register::read_only(MSI_X, capability(MSI_X_ID, POWER, VECTORS - 1)).writable(MSI_X_CONTROL),
    Register::read_only(MSI_X + 4, TABLE | BAR_4),
    Register::read_only(MSI_X + 8, PENDING | BAR_4),
    // Version 3, D0 and D3hot.
    Register::read_only(POWER, capability(POWER_ID, 0, 3)),
    Register::read_only(POWER_CONTROL, 1 << 3).writable(POWER_STATE),
]]);

/// The adapter as the machine's own bus shows it.
pub(crate) struct Endpoint {
    config: ConfigSpace,
    /// For each base address register, the bits that software cannot set.
    fixed: [u32; 6],
}

impl Endpoint {
    pub(crate) fn new(settings: &VmdConfig) -> Self {
        let mut config = ConfigSpace::new(&LAYOUT);
        let device = match settings.interrupts {
            Interrupts::MemoryWrites => BYPASSING,
            Interrupts::Remapped => REMAPPING,
        };
        config.define(0, u32::MAX, device << 16 | INTEL);
        let mut fixed = [0; 6];
        for (bar, region, kind) in [
            (0, Region::Configuration, MEMORY_64_BIT | PREFETCHABLE),
            // Below 4 GB, whatever firmware prefers: a bridge's window for memory that is not
            // prefetchable is nowhere else.
            (2, Region::Memory, 0),
            (4, Region::Prefetchable, MEMORY_64_BIT | PREFETCHABLE),
        ] {
            let below = settings.size(region) - 1;
            fixed[bar] = below as u32;
            fixed[bar + 1] = if kind == 0 { u32::MAX } else { (below >> 32) as u32 };
            config.define(BARS[bar], 0xf, kind);
        }
        Self { config, fixed }
    }

    /// The doubleword at a multiple of 4.
    pub(crate) fn read(&self, register: u16) -> u32 {
        self.config.read(register)
    }

    /// Software writes the bytes that `enables` (bit n: byte n) names of a doubleword.
    pub(crate) fn write(&mut self, register: u16, value: u32, enables: u8) {
        let before = self.config.get(POWER_CONTROL) & POWER_STATE;
        self.config.write(register, value, enables);
        // There is no D1 and no D2: such a value is discarded (PCIe 5.0 section 7.5.2.2).
        if ![D0, D3_HOT].contains(&(self.config.get(POWER_CONTROL) & POWER_STATE)) {
            self.config.put(POWER_CONTROL, POWER_STATE, before);
        }
        if let Some(bar) = BARS.iter().position(|bar| *bar == register) {
            let kind = if bar % 2 == 0 { 0xf } else { 0 };
            self.config.put(register, self.fixed[bar] & !kind, 0);
        }
    }

    pub(crate) fn reset(&mut self) {
        self.config.reset(ResetKind::Fundamental);
    }

    /// The address that software gave a window.
    pub(crate) fn base(&self, region: Region) -> u64 {
        let bar = match region {
            Region::Configuration | Region::Own => BARS[0],
            Region::Memory => BARS[2],
            Region::Prefetchable => BARS[4],
        };
        let low = self.config.get(bar) & !0xf;
        u64::from(self.config.get(bar + 4)) << 32 | u64::from(low)
    }

    /// Whether the adapter may write to the machine's memory (Bus Master Enable).
    pub(crate) fn masters(&self) -> bool {
        self.config.any(COMMAND, BUS_MASTER)
    }

    /// Whether interrupts of devices are the memory writes that they are.
    pub(crate) fn bypasses(&self) -> bool {
        self.config.get(0) >> 16 == BYPASSING && self.config.any(CONFIG, BYPASS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_device_that_the_driver_looks_for() {
        let endpoint = Endpoint::new(&VmdConfig::default());
        assert_eq!(endpoint.read(0), 0x28c0_8086);
        assert_eq!(endpoint.read(8) >> 8, 0x01_0400);
        let remapping = VmdConfig { interrupts: Interrupts::Remapped, ..VmdConfig::default() };
        assert_eq!(Endpoint::new(&remapping).read(0), 0xa77f_8086);
        // VMCAP and VMLOCK: every bus, no shadow of physical addresses.
        assert_eq!((endpoint.read(0x40), endpoint.read(0x70)), (0, 0));
    }

    #[test]
    fn its_windows_have_the_configured_sizes() {
        let mut endpoint = Endpoint::new(&VmdConfig::default());
        for bar in BARS {
            endpoint.write(bar, u32::MAX, 0xf);
        }
        let read = BARS.map(|bar| endpoint.read(bar));
        assert_eq!(read[0..2], [0xf000_000c, u32::MAX]);
        assert_eq!(read[2..4], [0xf000_0000, 0], "below 4 GB");
        assert_eq!(read[4..6], [0x0000_000c, 0xffff_fffc]);
        endpoint.write(0x18, 0xd000_0000, 0xf);
        endpoint.write(0x1c, 0, 0xf);
        assert_eq!(endpoint.base(Region::Memory), 0xd000_0000);
        endpoint.write(0x20, 0, 0xf);
        endpoint.write(0x24, 0x8, 0xf);
        assert_eq!(endpoint.base(Region::Prefetchable), 0x8_0000_0000);
    }

    #[test]
    fn its_capabilities_can_be_walked() {
        let endpoint = Endpoint::new(&VmdConfig::default());
        let (mut at, mut seen) = (endpoint.read(0x34) as u16, vec![]);
        while at != 0 {
            seen.push(endpoint.read(at) as u8);
            at = (endpoint.read(at) >> 8) as u16 & 0xfc;
        }
        assert_eq!(seen, [EXPRESS_ID, MSI_X_ID, POWER_ID]);
    }

    #[test]
    fn a_power_state_that_is_not_there_is_discarded() {
        let mut endpoint = Endpoint::new(&VmdConfig::default());
        for (written, state) in [(1, 0), (2, 0), (3, 3), (2, 3), (1, 3), (0, 0)] {
            endpoint.write(0xd4, written, 0xf);
            assert_eq!(endpoint.read(0xd4), 1 << 3 | state, "D{written}");
        }
    }

    #[test]
    fn remapping_is_turned_off_where_it_can_be() {
        let mut endpoint = Endpoint::new(&VmdConfig::default());
        assert!(!endpoint.bypasses());
        endpoint.write(0x44, 0x2, 0xf);
        assert!(endpoint.bypasses());
        endpoint.reset();
        assert!(!endpoint.bypasses());
        let remapping = VmdConfig { interrupts: Interrupts::Remapped, ..VmdConfig::default() };
        let mut endpoint = Endpoint::new(&remapping);
        endpoint.write(0x44, 0x2, 0xf);
        assert!(!endpoint.bypasses());
    }
}
