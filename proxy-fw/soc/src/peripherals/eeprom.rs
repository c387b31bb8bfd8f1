//! Memories on I2C that are read by address: the board's own with its vital product data, and
//! those of modules in cages.

use super::Text;
use core::fmt;
use embedded_hal::i2c::I2c;

/// Bytes of an address inside the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// One: memories of up to 256 bytes, and modules (SFF-8472, section 4; SFF-8636, section 5).
    One,
    /// Two, the high one first: larger memories.
    Two,
}

/// Such a memory.
#[derive(Debug)]
pub struct Eeprom<I> {
    bus: I,
    address: u8,
    addressing: Addressing,
}

impl<I: I2c> Eeprom<I> {
    /// The memory at a 7-bit address of a bus.
    pub fn new(bus: I, address: u8, addressing: Addressing) -> Self {
        Self { bus, address, addressing }
    }

    /// Reads from an address on.
    ///
    /// # Errors
    ///
    /// What the bus says.
    ///
    /// # Panics
    ///
    /// When the range is beyond what can be addressed.
    pub fn read(&mut self, from: u16, into: &mut [u8]) -> Result<(), I::Error> {
        let size = if self.addressing == Addressing::One { 1 << 8 } else { 1 << 16 };
        assert!(usize::from(from) + into.len() <= size, "inside the memory");
        let [high, low] = from.to_be_bytes();
        match self.addressing {
            Addressing::One => self.bus.write_read(self.address, &[low], into),
            Addressing::Two => self.bus.write_read(self.address, &[high, low], into),
        }
    }

    /// Gives the bus back.
    pub fn release(self) -> I {
        self.bus
    }
}

/// The address of a module's memory.
pub const MODULE: u8 = 0x50;

/// What a module says it is. Text is as it stands there, filled up with blanks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its kind (SFF-8024, table 4-1): 3 is SFP and later ones, 0x11 QSFP28.
    pub kind: u8,
    /// Its maker.
    pub vendor: [u8; 16],
    /// The maker's number of the part.
    pub part: [u8; 16],
    /// Its serial number.
    pub serial: [u8; 16],
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [vendor, part, serial] =
            [&self.vendor, &self.part, &self.serial].map(|text| Text(text));
        write!(f, "{vendor} {part}, serial number {serial}")
    }
}

/// Why nothing is known of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleError<E> {
    /// What the bus says: there is no module.
    Bus(E),
    /// It is of a kind whose memory is not known here.
    UnknownKind(u8),
    /// A check sum is wrong.
    CheckSum,
}

impl<E> fmt::Display for ModuleError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bus(_) => f.write_str("it does not answer"),
            Self::UnknownKind(kind) => write!(f, "it is of kind {kind:#04x}"),
            Self::CheckSum => f.write_str("a check sum of its memory is wrong"),
        }
    }
}

impl Module {
    /// Asks the module on a bus.
    ///
    /// # Errors
    ///
    /// When there is none, or it says nothing that can be used.
    pub fn identify<I: I2c>(bus: I) -> Result<Self, ModuleError<I::Error>> {
        let mut memory = Eeprom::new(bus, MODULE, Addressing::One);
        let mut kind = [0];
        memory.read(0, &mut kind).map_err(ModuleError::Bus)?;
        // Where the identification begins, and vendor, part and serial number in it.
        let (base, vendor, part, serial) = match kind[0] {
            // SFF-8472 rev 12.4, table 4-1.
            0x03 => (0, 20, 40, 68),
            // SFF-8636 rev 2.11, table 6-14: QSFP+, QSFP28.
            0x0d | 0x11 => (128, 20, 40, 68),
            kind => return Err(ModuleError::UnknownKind(kind)),
        };
        let mut page = [0; 96];
        memory.read(base, &mut page).map_err(ModuleError::Bus)?;
        // CC_BASE over bytes 0 to 62, CC_EXT over 64 to 94, of both kinds.
        let is_right = |bytes: &[u8], sum: u8| {
            bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)) == sum
        };
        if !is_right(&page[..63], page[63]) || !is_right(&page[64..95], page[95]) {
            return Err(ModuleError::CheckSum);
        }
        let text = |at: usize| core::array::from_fn(|n| page[at + n]);
        Ok(Self { kind: kind[0], vendor: text(vendor), part: text(part), serial: text(serial) })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use embedded_hal_mock::eh1::i2c::{Mock, Transaction};
    use std::string::ToString;
    use std::vec;
    use std::vec::Vec;

    /// What such a module has in its memory.
    pub(in crate::peripherals) fn page(kind: u8) -> Vec<u8> {
        let mut page = vec![0; 96];
        page[0] = kind;
        page[20..36].copy_from_slice(b"Maker           ");
        page[40..56].copy_from_slice(b"PART-10G-SR     ");
        page[68..84].copy_from_slice(b"SN0042          ");
        for (range, at) in [(0..63, 63), (64..95, 95)] {
            page[at] = page[range].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        }
        page
    }

    fn identify(kind: u8, base: u8, page: &[u8]) -> Result<Module, ModuleError<impl Sized>> {
        let mut bus = Mock::new(&[
            Transaction::write_read(MODULE, vec![0], vec![kind]),
            Transaction::write_read(MODULE, vec![base], page.to_vec()),
        ]);
        let found = Module::identify(&mut bus);
        bus.done();
        found
    }

    #[test]
    fn modules_say_what_they_are() {
        for (kind, base) in [(0x03, 0), (0x0d, 128), (0x11, 128)] {
            let module = identify(kind, base, &page(kind)).ok().unwrap();
            assert_eq!(module.kind, kind);
            assert_eq!(&module.vendor[..5], b"Maker");
            assert_eq!(&module.part, b"PART-10G-SR     ");
            assert_eq!(&module.serial[..6], b"SN0042");
            assert_eq!(module.to_string(), "Maker PART-10G-SR, serial number SN0042");
        }
    }

    #[test]
    fn a_wrong_bit_is_found() {
        for at in 0..96 {
            let mut page = page(3);
            page[at] ^= 0x10;
            assert!(matches!(identify(3, 0, &page), Err(ModuleError::CheckSum)), "byte {at}");
        }
    }

    #[test]
    fn another_kind_is_said() {
        let mut bus = Mock::new(&[Transaction::write_read(MODULE, vec![0], vec![0xff])]);
        let error = Module::identify(&mut bus).unwrap_err();
        assert_eq!(error, ModuleError::UnknownKind(0xff));
        assert_eq!(error.to_string(), "it is of kind 0xff");
        bus.done();
    }

    #[test]
    fn large_memories_have_two_bytes_of_address() {
        let read = Transaction::write_read(0x51, vec![0x12, 0x34], vec![7, 8]);
        let mut memory = Eeprom::new(Mock::new(&[read]), 0x51, Addressing::Two);
        let mut bytes = [0; 2];
        memory.read(0x1234, &mut bytes).unwrap();
        assert_eq!(bytes, [7, 8]);
        memory.release().done();
    }
}
