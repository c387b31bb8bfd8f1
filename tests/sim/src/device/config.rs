//! Configuration space of the model device: a type 0 header with one 4 KB BAR of 32 bits, or one of
//! 64 bits that is prefetchable, a PCI Express
//! capability with function-level reset, and a serial number. Where the profile says so, power management,
//! too: D0 and D3hot, with No_Soft_Reset or without.

/// Where the PCI Express capability is.
const EXPRESS: usize = 0x40;
const COMMAND: usize = 0x04;
const HEADER_TYPE: usize = 0x0e;
const BAR: usize = 0x10;
const DEVICE_CONTROL: usize = EXPRESS + 0x08;
const DEVICE_CONTROL_2: usize = EXPRESS + 0x28;
/// Where the power management capability is.
const POWER: usize = 0x80;
const POWER_CONTROL: usize = POWER + 4;
/// PowerState, of which there are D0 and D3hot, and No_Soft_Reset: it keeps what was set, and else is
/// reset when it comes back to D0.
const POWER_STATE: u8 = 0b11;
const NO_SOFT_RESET: u8 = 1 << 3;
/// Bytes of its registers.
const DECODED: u64 = 0x1000;
const SIZE: usize = 0x110;

/// Vendor and device ID.
pub(crate) const ID: u32 = 0x51d0_1b36;

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Nothing,
    FunctionReset,
    /// It was in D3hot, and is reset.
    SoftReset,
}

#[derive(Debug)]
pub(super) struct Config {
    bytes: [u8; SIZE],
    /// There are further functions.
    several: bool,
    /// Its BAR has 64 bits.
    wide: bool,
    /// It has power states, and is reset between them.
    sleeps: bool,
    forgets: bool,
}

/// In the lowest byte of a BAR: 64 bits, prefetchable.
const WIDE: u8 = 0b1100;

impl Config {
    pub(super) fn new(serial: u64, [several, wide, sleeps, forgets]: [bool; 4]) -> Self {
        let mut config = Self { bytes: [0; SIZE], several, wide, sleeps, forgets };
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
        if self.sleeps {
            self.bytes[EXPRESS + 1] = POWER as u8;
            // Version 3; no power management events.
            self.put(POWER, 0x0003_0001);
            self.bytes[POWER_CONTROL] = self.keeps();
        }
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
        let slept = !self.is_awake();
        for (i, byte) in data.iter().enumerate().take(4) {
            if enables >> i & 1 == 0 {
                continue;
            }
            let at = at + i;
            match at {
                BAR => self.bytes[at] = self.kind(),
                POWER_CONTROL => self.set_power(*byte),
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
        if slept && self.is_awake() && self.forgets {
            return Written::SoftReset;
        }
        Written::Nothing
    }

    /// Device Status, Transactions Pending.
    pub(super) fn set_pending(&mut self, pending: bool) {
        let at = DEVICE_CONTROL + 2;
        self.bytes[at] = self.bytes[at] & !0x20 | u8::from(pending) << 5;
    }

    /// Only states that are there are entered (PCIe 5.0 section 7.5.2.2).
    fn set_power(&mut self, value: u8) {
        let state = value & POWER_STATE;
        if self.sleeps && matches!(state, 0 | POWER_STATE) {
            self.bytes[POWER_CONTROL] = self.keeps() | state;
        }
    }

    /// No_Soft_Reset, if it has that.
    fn keeps(&self) -> u8 {
        if self.forgets { 0 } else { NO_SOFT_RESET }
    }

    /// Whether it waits for its answers for as long as it has by itself, 50 us to 50 ms.
    pub(super) fn is_impatient(&self) -> bool {
        self.sleeps && self.read(DEVICE_CONTROL_2) & 0xf == 0
    }

    /// In D0.
    fn is_awake(&self) -> bool {
        self.bytes[POWER_CONTROL] & POWER_STATE == 0
    }

    /// Whether its registers are at an address, and open.
    pub(super) fn decodes(&self, address: u64) -> bool {
        let low = u64::from(self.read(BAR) & !0xf);
        let high = if self.wide { u64::from(self.read(BAR + 4)) } else { 0 };
        let base = high << 32 | low;
        self.is_awake() && self.bytes[COMMAND] & 2 != 0 && address & !(DECODED - 1) == base
    }

    pub(super) fn masters(&self) -> bool {
        self.is_awake() && self.bytes[COMMAND] & 4 != 0
    }

    /// Whether it may send what it had begun with, too. One without power states is old-fashioned, and
    /// does.
    pub(super) fn may_ask(&self) -> bool {
        self.masters() || !self.sleeps
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config(sleeps: bool, forgets: bool) -> Config {
        let mut config = Config::new(1, [false, true, sleeps, forgets]);
        config.write(BAR, 0xf, &0x1_2000_u32.to_le_bytes());
        config.write(BAR + 4, 0xf, &3_u32.to_le_bytes());
        config.write(COMMAND, 0b11, &[6, 0]);
        config
    }

    #[test]
    fn it_hears_at_its_address_and_asks_while_it_may() {
        let mut config = config(true, false);
        assert!(config.decodes(0x3_0001_2ffc) && config.masters());
        assert!(!config.decodes(0x1_2000) && !config.decodes(0x3_0001_3000));
        config.write(COMMAND, 0b01, &[4, 0]);
        assert!(!config.decodes(0x3_0001_2000) && config.masters());
        config.write(COMMAND, 0b01, &[2, 0]);
        assert!(config.decodes(0x3_0001_2000) && !config.masters() && !config.may_ask());
        config.write(COMMAND, 0b01, &[6, 0]);
        assert_eq!(config.write(POWER_CONTROL, 0b01, &[3, 0]), Written::Nothing);
        assert!(!config.decodes(0x3_0001_2000) && !config.masters());
        assert_eq!(config.write(POWER_CONTROL, 0b01, &[1, 0]), Written::Nothing);
        assert!(!config.masters(), "it has no D1");
        assert_eq!(config.write(POWER_CONTROL, 0b01, &[0, 0]), Written::Nothing);
        assert!(config.decodes(0x3_0001_2000) && config.masters());
    }

    #[test]
    fn some_are_reset_on_their_way_from_d3hot_to_d0_and_from_nowhere_else() {
        let mut forgets = config(true, true);
        assert_eq!(forgets.read(POWER_CONTROL) & 8, 0);
        assert_eq!(forgets.write(POWER_CONTROL, 0b01, &[0, 0]), Written::Nothing);
        assert_eq!(forgets.write(POWER_CONTROL, 0b01, &[3, 0]), Written::Nothing);
        assert_eq!(forgets.write(POWER_CONTROL, 0b01, &[0, 0]), Written::SoftReset);
        let mut without = config(false, true);
        assert_eq!(without.write(POWER_CONTROL, 0b01, &[3, 0]), Written::Nothing);
        assert!(without.masters() && without.read(EXPRESS) >> 8 & 0xff == 0);
    }
}
