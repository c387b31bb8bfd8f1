//! Configuration space of the model device: a type 0 header with one 4 KB BAR of 32 bits, or one of
//! 64 bits that is prefetchable, a PCI Express
//! capability with function-level reset, and a serial number.

/// Where the PCI Express capability is.
const EXPRESS: usize = 0x40;
const COMMAND: usize = 0x04;
const HEADER_TYPE: usize = 0x0e;
const BAR: usize = 0x10;
const DEVICE_CONTROL: usize = EXPRESS + 0x08;
const DEVICE_CONTROL_2: usize = EXPRESS + 0x28;
const SIZE: usize = 0x110;

/// Vendor and device ID.
pub(crate) const ID: u32 = 0x51d0_1b36;

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Nothing,
    FunctionReset,
}

#[derive(Debug)]
pub(super) struct Config {
    bytes: [u8; SIZE],
    /// There are further functions.
    several: bool,
    /// Its BAR has 64 bits.
    wide: bool,
}

/// In the lowest byte of a BAR: 64 bits, prefetchable.
const WIDE: u8 = 0b1100;

impl Config {
    pub(super) fn new(serial: u64, several: bool, wide: bool) -> Self {
        let mut config = Self { bytes: [0; SIZE], several, wide };
        config.reset(serial);
        config
    }

    pub(super) fn reset(&mut self, serial: u64) {
        self.bytes.fill(0);
        self.put(0x00, ID);
        self.put(0x08, 0x1200_0001);
        self.put(0x2c, 0x0001_1b36);
        self.bytes[HEADER_TYPE] = u8::from(self.several) << 7;
        self.bytes[BAR] = self.kind();
        self.bytes[0x06] = 0x10;
        self.bytes[0x34] = EXPRESS as u8;
        self.put(EXPRESS, 0x0002_0010);
        // Payloads of 4096 bytes, role-based errors, function-level reset.
        self.put(EXPRESS + 0x04, 5 | 1 << 15 | 1 << 28);
        self.put(DEVICE_CONTROL, 2 << 12);
        // Completion timeout ranges A to D, and off; 10-bit tags as a requester.
        self.put(EXPRESS + 0x24, 0x1f | 1 << 17);
        self.put(0x100, 0x0001_0003);
        self.put(0x104, serial as u32);
        self.put(0x108, (serial >> 32) as u32);
    }

    fn kind(&self) -> u8 {
        if self.wide { WIDE } else { 0 }
    }

    fn put(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub(super) fn read(&self, at: usize) -> u32 {
        let bytes = self.bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    }

    /// Whether a write is one to begin a function-level reset.
    pub(super) fn resets(at: usize, enables: u8, data: &[u8]) -> bool {
        at == DEVICE_CONTROL && enables & 2 != 0 && data.get(1).is_some_and(|high| high & 0x80 != 0)
    }

    pub(super) fn write(&mut self, at: usize, enables: u8, data: &[u8]) -> Written {
        if Self::resets(at, enables, data) {
            return Written::FunctionReset;
        }
        for (i, byte) in data.iter().enumerate().take(4) {
            if enables >> i & 1 == 0 {
                continue;
            }
            let at = at + i;
            match at {
                BAR => self.bytes[at] = self.kind(),
                // 4 KB.
                at if at == BAR + 1 => self.bytes[at] = byte & 0xf0,
                at if self.wide && (BAR + 4..BAR + 8).contains(&at) => self.bytes[at] = *byte,
                at if at == BAR + 2
                    || at == BAR + 3
                    || (COMMAND..COMMAND + 2).contains(&at)
                    || (DEVICE_CONTROL..DEVICE_CONTROL + 2).contains(&at)
                    || (DEVICE_CONTROL_2..DEVICE_CONTROL_2 + 2).contains(&at) =>
                {
                    self.bytes[at] = *byte;
                }
                _ => {}
            }
        }
        Written::Nothing
    }

    /// Device Status, Transactions Pending.
    pub(super) fn set_pending(&mut self, pending: bool) {
        let at = DEVICE_CONTROL + 2;
        self.bytes[at] = self.bytes[at] & !0x20 | u8::from(pending) << 5;
    }

    pub(super) fn decodes_memory(&self) -> bool {
        self.bytes[COMMAND] & 2 != 0
    }

    pub(super) fn masters(&self) -> bool {
        self.bytes[COMMAND] & 4 != 0
    }

    pub(super) fn max_payload(&self) -> usize {
        128 << (self.read(DEVICE_CONTROL) >> 5 & 7).min(5)
    }

    /// Whether its requests have tags of 10 bits.
    pub(super) fn ten_bit_tags(&self) -> bool {
        self.read(DEVICE_CONTROL_2) >> 12 & 1 != 0
    }

    pub(super) fn max_read(&self) -> usize {
        128 << (self.read(DEVICE_CONTROL) >> 12 & 7).min(5)
    }
}
