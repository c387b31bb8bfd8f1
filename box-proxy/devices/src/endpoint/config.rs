//! Configuration space as a table: for each bit its value, whether it can be written, whether a
//! one clears it, and which resets it outlives.

use super::registers::CONFIG_SIZE;

/// What a reset reaches (PCIe 5.0 section 7.4: sticky registers outlive all but loss of power).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Function-level reset: leaves sticky bits and those that
    /// [`keep_in_flr`](ConfigSpace::keep_in_flr) names.
    Function,
    /// Hot reset: leaves sticky bits.
    Hot,
    /// PERST# or power: leaves nothing.
    Fundamental,
}

/// 4096 bytes of configuration space.
#[derive(Clone)]
pub(super) struct ConfigSpace {
    value: Box<[u8]>,
    initial: Box<[u8]>,
    writable: Box<[u8]>,
    clear_by_one: Box<[u8]>,
    sticky: Box<[u8]>,
    keep_in_flr: Box<[u8]>,
}

fn zeros() -> Box<[u8]> {
    vec![0; CONFIG_SIZE].into()
}

impl ConfigSpace {
    /// All zero and read-only.
    pub(super) fn new() -> Self {
        Self {
            value: zeros(),
            initial: zeros(),
            writable: zeros(),
            clear_by_one: zeros(),
            sticky: zeros(),
            keep_in_flr: zeros(),
        }
    }

    /// Defines 16 bits: value after reset and which bits can be written.
    ///
    /// # Panics
    ///
    /// When `at` is not inside configuration space, as everywhere here: offsets are ours.
    pub(super) fn define16(&mut self, at: u16, initial: u16, writable: u16) {
        self.initial[span(at, 2)].copy_from_slice(&initial.to_le_bytes());
        self.value[span(at, 2)].copy_from_slice(&initial.to_le_bytes());
        self.writable[span(at, 2)].copy_from_slice(&writable.to_le_bytes());
    }

    /// Defines 32 bits: value after reset and which bits can be written.
    pub(super) fn define32(&mut self, at: u16, initial: u32, writable: u32) {
        self.define16(at, initial as u16, writable as u16);
        self.define16(at + 2, (initial >> 16) as u16, (writable >> 16) as u16);
    }

    /// Bits of the 32 at `at` that writing a one clears.
    pub(super) fn clear_by_one(&mut self, at: u16, mask: u32) {
        self.clear_by_one[span(at, 4)].copy_from_slice(&mask.to_le_bytes());
    }

    /// Bits of the 32 at `at` that only a fundamental reset changes.
    pub(super) fn sticky(&mut self, at: u16, mask: u32) {
        self.sticky[span(at, 4)].copy_from_slice(&mask.to_le_bytes());
    }

    /// Bits of the 32 at `at` that a function-level reset leaves.
    pub(super) fn keep_in_flr(&mut self, at: u16, mask: u32) {
        self.keep_in_flr[span(at, 4)].copy_from_slice(&mask.to_le_bytes());
    }

    /// A byte.
    pub(super) fn get8(&self, at: u16) -> u8 {
        self.value[usize::from(at)]
    }

    /// 16 bits.
    pub(super) fn get16(&self, at: u16) -> u16 {
        let b = &self.value[span(at, 2)];
        u16::from_le_bytes([b[0], b[1]])
    }

    /// 32 bits.
    pub(super) fn get32(&self, at: u16) -> u32 {
        u32::from(self.get16(at)) | u32::from(self.get16(at + 2)) << 16
    }

    /// 64 bits.
    pub(super) fn get64(&self, at: u16) -> u64 {
        u64::from(self.get32(at)) | u64::from(self.get32(at + 4)) << 32
    }

    /// Sets 16 bits from the device's side, whatever software may write there.
    pub(super) fn set16(&mut self, at: u16, value: u16) {
        self.value[span(at, 2)].copy_from_slice(&value.to_le_bytes());
    }

    /// Sets 32 bits from the device's side.
    pub(super) fn set32(&mut self, at: u16, value: u32) {
        self.value[span(at, 4)].copy_from_slice(&value.to_le_bytes());
    }

    /// What a configuration read of the doubleword at `at` gives.
    pub(super) fn read(&self, at: u16) -> [u8; 4] {
        self.get32(at & 0xffc).to_le_bytes()
    }

    /// A configuration write of the doubleword at `at` with byte enables.
    pub(super) fn write(&mut self, at: u16, data: [u8; 4], enables: u8) {
        for (i, byte) in data.into_iter().enumerate() {
            if enables >> i & 1 == 0 {
                continue;
            }
            let at = usize::from(at & 0xffc) + i;
            let writable = self.writable[at];
            let kept = self.value[at] & !writable & !(byte & self.clear_by_one[at]);
            self.value[at] = kept | byte & writable;
        }
    }

    /// Back to the values after reset, as far as `depth` reaches.
    pub(super) fn reset(&mut self, depth: Depth) {
        for at in 0..CONFIG_SIZE {
            let kept = match depth {
                Depth::Function => self.sticky[at] | self.keep_in_flr[at],
                Depth::Hot => self.sticky[at],
                Depth::Fundamental => 0,
            };
            self.value[at] = self.value[at] & kept | self.initial[at] & !kept;
        }
    }
}

impl Default for ConfigSpace {
    fn default() -> Self {
        Self::new()
    }
}

fn span(at: u16, len: usize) -> std::ops::Range<usize> {
    usize::from(at)..usize::from(at) + len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_reach_writable_bits_of_enabled_bytes_only() {
        let mut c = ConfigSpace::new();
        c.define32(0x10, 0x1234_5678, 0x00ff_0ff0);
        c.write(0x10, [0xff; 4], 0b0101);
        assert_eq!(c.get32(0x10), 0x12ff_56f8);
        c.write(0x10, [0; 4], 0b1111);
        assert_eq!(c.get32(0x10), 0x1200_5008);
    }

    #[test]
    fn a_one_clears_and_a_zero_leaves() {
        let mut c = ConfigSpace::new();
        c.clear_by_one(0x4, 0xf900_0000);
        c.set16(0x6, 0x3010);
        c.write(0x4, [0, 0, 0xff, 0x10], 0b1111);
        assert_eq!(c.get16(0x6), 0x2010);
    }

    #[test]
    fn resets_reach_as_deep_as_they_should() {
        let mut c = ConfigSpace::new();
        c.define32(0x20, 0, u32::MAX);
        c.define32(0x24, 0, u32::MAX);
        c.define32(0x28, 7, u32::MAX);
        c.sticky(0x20, u32::MAX);
        c.keep_in_flr(0x24, 0xe0);
        let write = |c: &mut ConfigSpace| [0x20, 0x24, 0x28].map(|at| c.write(at, [0xff; 4], 0xf));
        let read = |c: &ConfigSpace| [0x20, 0x24, 0x28].map(|at| c.get32(at));
        write(&mut c);
        c.reset(Depth::Function);
        assert_eq!(read(&c), [u32::MAX, 0xe0, 7]);
        write(&mut c);
        c.reset(Depth::Hot);
        assert_eq!(read(&c), [u32::MAX, 0, 7]);
        c.reset(Depth::Fundamental);
        assert_eq!(read(&c), [0, 0, 7]);
    }
}
