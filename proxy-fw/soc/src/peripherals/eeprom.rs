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

/// One of the texts by which a module says what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// What of it: its maker, the maker's number of the part, or its serial number.
    pub what: &'static str,
    /// As it stands there, filled up with blanks.
    pub text: [u8; 16],
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, text } = self;
        write!(f, "{what} {}", Text(text))
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

/// Bytes that are read at once: 2 ms of the slowest bus. The card stands still meanwhile, and links give up
/// after 10 ms.
pub(super) const PIECE: usize = 16;

/// Pieces of the page in which a module says what it is.
const PIECES: usize = 6;

/// The texts in it, each as long as a piece, and where they are.
pub(super) const TEXTS: [(&str, usize); 3] = [("vendor", 20), ("part", 40), ("serial number", 68)];

/// A module that is being asked what it is, a piece at a time. Nothing of the page is kept, for a card has
/// little memory: all of it is read for its check sums, and then the texts.
#[derive(Clone, Copy, Debug)]
pub struct Inquiry {
    /// Its kind (SFF-8024, table 4-1), when it has said that.
    kind: Option<u8>,
    /// Pieces and texts that are read.
    read: u8,
    /// Of the bytes of the page since the last check sum.
    sum: u8,
}

impl Inquiry {
    /// Of a module that was not asked yet.
    pub const NEW: Self = Self { kind: None, read: 0, sum: 0 };

    /// Reads what comes next from the module on a bus: a text, when those have begun.
    ///
    /// # Errors
    ///
    /// When there is no module, or it says nothing that can be used.
    ///
    /// # Panics
    ///
    /// When it [is over](Self::is_over).
    pub fn go_on<I: I2c>(&mut self, bus: I) -> Result<Option<Said>, ModuleError<I::Error>> {
        let mut memory = Eeprom::new(bus, MODULE, Addressing::One);
        let Some(kind) = self.kind else {
            let mut kind = [0];
            memory.read(0, &mut kind).map_err(ModuleError::Bus)?;
            self.kind = Some(kind[0]);
            return Ok(None);
        };
        // Where the page begins.
        let base = match kind {
            // SFF-8472 rev 12.4, table 4-1: 3 is SFP and later ones.
            0x03 => 0,
            // SFF-8636 rev 2.11, table 6-14: QSFP+, QSFP28.
            0x0d | 0x11 => 128,
            kind => return Err(ModuleError::UnknownKind(kind)),
        };
        let read = usize::from(self.read);
        let text = read.checked_sub(PIECES).map(|number| TEXTS[number]);
        let at = text.map_or(read * PIECE, |(_, at)| at);
        let mut piece = [0; PIECE];
        memory.read(base + at as u16, &mut piece).map_err(ModuleError::Bus)?;
        self.read += 1;
        if let Some((what, _)) = text {
            return Ok(Some(Said { what, text: piece }));
        }
        self.sum = piece.iter().fold(self.sum, |sum, byte| sum.wrapping_add(*byte));
        // CC_BASE over bytes 0 to 62, CC_EXT over 64 to 94, of all kinds.
        let last = piece[PIECE - 1];
        if matches!(at + PIECE, 64 | 96) && core::mem::take(&mut self.sum) != last.wrapping_mul(2) {
            return Err(ModuleError::CheckSum);
        }
        Ok(None)
    }

    /// Whether all was said.
    pub fn is_over(&self) -> bool {
        usize::from(self.read) == PIECES + TEXTS.len()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use embedded_hal::i2c::ErrorKind;
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

    /// What is read of it, one after the other.
    pub(in crate::peripherals) fn reads(kind: u8, base: u8, page: &[u8]) -> Vec<Transaction> {
        let kind = Transaction::write_read(MODULE, vec![0], vec![kind]);
        let pieces = (0..page.len()).step_by(PIECE);
        let texts = TEXTS.into_iter().map(|(_, at)| at).filter(|_| !page.is_empty());
        let rest = pieces.chain(texts).map(|at| {
            let piece = page[at..at + PIECE].to_vec();
            Transaction::write_read(MODULE, vec![base + at as u8], piece)
        });
        core::iter::once(kind).chain(rest).collect()
    }

    fn identify(kind: u8, base: u8, page: &[u8]) -> Result<Vec<Said>, ModuleError<ErrorKind>> {
        let (mut inquiry, mut said) = (Inquiry::NEW, Vec::new());
        for read in reads(kind, base, page) {
            assert!(!inquiry.is_over());
            let mut bus = Mock::new(&[read]);
            let found = inquiry.go_on(&mut bus);
            bus.done();
            said.extend(found?);
        }
        assert!(inquiry.is_over());
        Ok(said)
    }

    #[test]
    fn modules_say_what_they_are() {
        for (kind, base) in [(0x03, 0), (0x0d, 128), (0x11, 128)] {
            let said = identify(kind, base, &page(kind)).unwrap();
            let said: Vec<_> = said.iter().map(Said::to_string).collect();
            assert_eq!(said, ["vendor Maker", "part PART-10G-SR", "serial number SN0042"]);
        }
    }

    #[test]
    fn a_wrong_bit_is_found() {
        for at in 0..96 {
            for bit in [0x10, 0x80] {
                let mut page = page(3);
                page[at] ^= bit;
                assert_eq!(identify(3, 0, &page), Err(ModuleError::CheckSum), "byte {at}");
            }
        }
    }

    #[test]
    fn another_kind_is_said() {
        let mut bus = Mock::new(&reads(0xff, 0, &[]));
        let mut inquiry = Inquiry::NEW;
        assert_eq!(inquiry.go_on(&mut bus), Ok(None));
        let error = inquiry.go_on(&mut bus).unwrap_err();
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
