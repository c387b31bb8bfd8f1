//! What a function is, and the configuration space that follows from it.

use super::config::ConfigSpace;
use super::registers::*;
use super::requester::MAX_TAGS;
use std::time::Duration;

/// A base address register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarLayout {
    /// Bytes: a power of two, 16 at least; below 2 GB for a 32-bit BAR.
    pub size: u64,
    /// 64 bits wide: takes the next BAR's place too.
    pub wide: bool,
    /// Prefetchable.
    pub prefetchable: bool,
}

/// Where MSI-X's table and pending bits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixLayout {
    /// Vectors, 1 to 2048.
    pub vectors: u16,
    /// BAR of both.
    pub bar: usize,
    /// Offset of the table, a multiple of 8.
    pub table: u32,
    /// Offset of the pending bits, a multiple of 8.
    pub pba: u32,
}

/// A PCI Express endpoint function, as its maker decides it.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Subsystem vendor ID.
    pub subsystem_vendor: u16,
    /// Subsystem ID.
    pub subsystem: u16,
    /// Revision ID.
    pub revision: u8,
    /// Class code, 24 bits.
    pub class: u32,
    /// Device serial number (an EUI-64).
    pub serial: u64,
    /// Base address registers.
    pub bars: [Option<BarLayout>; 6],
    /// MSI-X, if the function has it.
    pub msix: Option<MsixLayout>,
    /// MSI messages: 0 (no MSI), 1, 2, 4, 8, 16 or 32.
    pub msi: u8,
    /// Largest payload in bytes: 128 to 4096, a power of two.
    pub max_payload: u16,
    /// Tags for reads, 1 to 768. A function with more than 256 can use tags of 10 bits.
    pub tags: u16,
    /// Largest read request in bytes: 64 to 4096, a power of two. Device Control limits it too.
    pub max_read_request: u16,
    /// Whether bulk data is marked no snoop where Device Control allows it: its host looks after
    /// coherence itself.
    pub no_snoop_data: bool,
    /// Link speed as the register has it: 1 (2.5 GT/s) to 5 (32 GT/s).
    pub link_speed: u8,
    /// Link width in lanes.
    pub link_width: u8,
    /// How long after a reset configuration requests are answered with retry status.
    pub ready_after: Duration,
}

impl Layout {
    /// Configuration space after power-on.
    ///
    /// # Panics
    ///
    /// When the layout breaks a rule that its fields' documentation states.
    pub(super) fn config_space(&self) -> ConfigSpace {
        self.check();
        let mut c = ConfigSpace::new();
        self.header(&mut c);
        power_management(&mut c);
        self.message_interrupts(&mut c);
        self.express(&mut c);
        self.extended(&mut c);
        self.link_capabilities(&mut c);
        c
    }

    fn check(&self) {
        let power = |n: u16, low| n.is_power_of_two() && (low..=4096).contains(&n);
        assert!(power(self.max_payload, 128), "max_payload {}", self.max_payload);
        assert!(power(self.max_read_request, 64), "max_read_request {}", self.max_read_request);
        assert!((1..=MAX_TAGS).contains(&self.tags), "tags {}", self.tags);
        assert!(self.msi == 0 || self.msi.is_power_of_two() && self.msi <= 32, "msi {}", self.msi);
        assert!((1..=5).contains(&self.link_speed), "link_speed {}", self.link_speed);
        for (i, bar) in self.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let most = if bar.wide { 1 << 63 } else { 1 << 30 };
            assert!(bar.size.is_power_of_two() && (16..=most).contains(&bar.size), "BAR {i}");
            assert!(!bar.wide || i < 5 && self.bars[i + 1].is_none(), "BAR {i} has no second half");
        }
        if let Some(m) = self.msix {
            let size = self.bars[m.bar].map_or(0, |b| b.size);
            let (table, pba) = (m.table_range(), m.pba_range());
            assert!((1..=2048).contains(&m.vectors) && m.table % 8 == 0 && m.pba % 8 == 0, "MSI-X");
            assert!(table.end.max(pba.end) <= size, "MSI-X does not fit its BAR");
            assert!(table.end <= pba.start || pba.end <= table.start, "MSI-X table over PBA");
        }
    }

    fn header(&self, c: &mut ConfigSpace) {
        c.define16(VENDOR_ID, self.vendor, 0);
        c.define16(DEVICE_ID, self.device, 0);
        let command = COMMAND_MEMORY
            | COMMAND_BUS_MASTER
            | COMMAND_PARITY
            | COMMAND_SERR
            | COMMAND_INTX_DISABLE;
        c.define16(COMMAND, 0, command);
        c.define16(STATUS, STATUS_CAPABILITIES, 0);
        let clear = STATUS_MASTER_PARITY
            | STATUS_SIGNALED_TARGET_ABORT
            | STATUS_RECEIVED_TARGET_ABORT
            | STATUS_RECEIVED_MASTER_ABORT
            | STATUS_SIGNALED_ERROR
            | STATUS_DETECTED_PARITY;
        c.clear_by_one(COMMAND, u32::from(clear) << 16);
        c.define32(REVISION_CLASS, self.class << 8 | u32::from(self.revision), 0);
        c.define32(CACHE_LINE, 0, 0xff);
        for (i, bar) in self.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let at = BAR0 + 4 * i as u16;
            let mask = !(bar.size - 1);
            let flags = if bar.wide { BAR_64 } else { 0 }
                | if bar.prefetchable { BAR_PREFETCHABLE } else { 0 };
            c.define32(at, flags, mask as u32);
            if bar.wide {
                c.define32(at + 4, 0, (mask >> 32) as u32);
            }
        }
        let subsystem = u32::from(self.subsystem) << 16 | u32::from(self.subsystem_vendor);
        c.define32(SUBSYSTEM, subsystem, 0);
        c.define32(INTERRUPT, 0, 0xff);
    }

    fn message_interrupts(&self, c: &mut ConfigSpace) {
        if self.msi > 0 {
            let log2 = self.msi.trailing_zeros() as u16;
            c.define16(MSI_CONTROL, MSI_64_AND_MASKING | log2 << 1, MSI_ENABLE | 7 << 4);
            c.define32(MSI_ADDRESS, 0, !3);
            c.define32(MSI_ADDRESS + 4, 0, u32::MAX);
            c.define16(MSI_DATA, 0, 0xffff);
            let vectors = ((1_u64 << self.msi) - 1) as u32;
            c.define32(MSI_MASK, 0, vectors);
        }
        if let Some(m) = self.msix {
            c.define16(MSIX_CONTROL, m.vectors - 1, MSIX_ENABLE | MSIX_FUNCTION_MASK);
            c.define32(MSIX + 4, m.table | m.bar as u32, 0);
            c.define32(MSIX + 8, m.pba | m.bar as u32, 0);
        }
    }

    fn express(&self, c: &mut ConfigSpace) {
        // Capability version 2, endpoint.
        c.define16(EXPRESS + 2, 2, 0);
        let payload = self.max_payload.trailing_zeros() - 7;
        let capabilities =
            payload | DEVICE_CAP_EXTENDED_TAG | DEVICE_CAP_ROLE_BASED | DEVICE_CAP_FLR;
        c.define32(DEVICE_CAPABILITIES, capabilities, 0);
        // PCIe 5.0 section 6.6.2: a function-level reset leaves the slot's power limit, which nothing
        // tells again, and Max_Payload_Size.
        c.keep_in_flr(DEVICE_CAPABILITIES, CAPTURED_POWER_LIMIT);
        // After reset: relaxed ordering, no snoop and extended tags on, 128 and 512 bytes.
        let initial = DEVICE_CONTROL_RELAXED
            | DEVICE_CONTROL_NO_SNOOP
            | DEVICE_CONTROL_EXTENDED_TAG
            | 2 << DEVICE_CONTROL_MRRS_SHIFT;
        c.define16(DEVICE_CONTROL, initial, 0xf9ff);
        c.clear_by_one(DEVICE_CONTROL, 0x000f_0000);
        c.keep_in_flr(DEVICE_CONTROL, 7 << DEVICE_CONTROL_MPS_SHIFT);
        let (speed, width) = (u16::from(self.link_speed), u16::from(self.link_width) << 4);
        // ASPM Optionality Compliance: none is supported.
        c.define32(LINK_CAPABILITIES, u32::from(speed | width) | 1 << 22, 0);
        c.define16(LINK_CONTROL, 0, 0x00cb);
        c.keep_in_flr(LINK_CONTROL, 0x00cb);
        // Slot Clock Configuration.
        c.define16(LINK_STATUS, speed | width | 1 << 12, 0);
        // Completion timeout ranges A to D and its disabling; 10-bit tags as a completer, and as a
        // requester of as many.
        let ten_bit = self.tags > 256;
        let capabilities = 0xf | 1 << 4 | 1 << 16 | u32::from(ten_bit) << 17;
        c.define32(DEVICE_CAPABILITIES_2, capabilities, 0);
        let control = 0x001f | if ten_bit { DEVICE_CONTROL_2_TEN_BIT_TAGS } else { 0 };
        c.define16(DEVICE_CONTROL_2, 0, control);
        c.define32(LINK_CAPABILITIES_2, ((1 << self.link_speed) - 1) << 1, 0);
        c.define16(LINK_CONTROL_2, speed, 0x000f);
        c.sticky(LINK_CONTROL_2, 0x000f);
    }

    fn extended(&self, c: &mut ConfigSpace) {
        c.define32(AER, 0x0001 | 2 << 16 | u32::from(SERIAL) << 20, 0);
        // Those of section 7.8.4 that an endpoint without ACS, multicast or prefixes can see.
        let errors = 0x005f_f030;
        c.clear_by_one(AER_UNCORRECTABLE, errors);
        c.define32(AER_UNCORRECTABLE_MASK, 0, errors);
        c.define32(AER_SEVERITY, 0x0046_2030, errors);
        c.clear_by_one(AER_CORRECTABLE, 0x0000_f1c1);
        c.define32(AER_CORRECTABLE_MASK, 0x0000_6000, 0x0000_f1c1);
        for at in (AER_UNCORRECTABLE..AER_HEADER_LOG + 16).step_by(4) {
            c.sticky(at, u32::MAX);
        }
        c.define32(SERIAL, 0x0003 | 1 << 16, 0);
        c.define32(SERIAL + 4, self.serial as u32, 0);
        c.define32(SERIAL + 8, (self.serial >> 32) as u32, 0);
    }

    /// The list of capabilities, in the order of their places.
    fn link_capabilities(&self, c: &mut ConfigSpace) {
        let list = [
            (PM, 0x01, true),
            (MSI, 0x05, self.msi > 0),
            (EXPRESS, 0x10, true),
            (MSIX, 0x11, self.msix.is_some()),
        ];
        let mut pointer_at = CAPABILITIES;
        for (at, id, _) in list.into_iter().filter(|&(_, _, there)| there) {
            let below = c.get8(pointer_at) as u16 | at << 8;
            if pointer_at == CAPABILITIES {
                c.define16(CAPABILITIES, at, 0);
            } else {
                c.define16(pointer_at, below, 0);
            }
            c.define16(at, id, 0);
            pointer_at = at;
        }
    }
}

impl MsixLayout {
    /// Offsets of the table.
    pub fn table_range(&self) -> std::ops::Range<u64> {
        let at = u64::from(self.table);
        at..at + 16 * u64::from(self.vectors)
    }

    /// Offsets of the pending bits.
    pub fn pba_range(&self) -> std::ops::Range<u64> {
        let at = u64::from(self.pba);
        at..at + 8 * u64::from(self.vectors.div_ceil(64))
    }
}

fn power_management(c: &mut ConfigSpace) {
    // Version 3, no PME, no D1 or D2.
    c.define16(PM + 2, 3, 0);
    c.define16(PM_CONTROL, PM_NO_SOFT_RESET, PM_STATE);
}
