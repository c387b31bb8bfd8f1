//! The board's identity EEPROM (Microchip 24AA02E48) on I2C bus 0: of what it holds, the EUI-48.

/// Its address on the bus, and where its EUI-48 is (data sheet DS20002124, "Preprogrammed EUI-48").
pub const IDENTITY: u8 = 0x50;
/// See [`IDENTITY`].
pub const EUI_48: u8 = 0xfa;

/// The card's Ethernet address, as this memory has it: Microchip's, and a number of no part.
pub const ADDRESS: [u8; 6] = [0x00, 0x04, 0xa3, 1, 2, 3];

/// `i2c.status`: nobody acknowledged.
const NACK: u32 = 1 << 9;

/// The memory, of which one byte after the other is read from the address that was written last.
#[derive(Debug, Default)]
pub(super) struct Eeprom {
    /// It was called, to be read or to be written.
    called: bool,
    pointer: u8,
}

impl Eeprom {
    /// Does a command of `i2c.command`: what `i2c.status` says of it.
    pub(super) fn carry_out(&mut self, command: u32) -> u32 {
        let [start, write, read, stop] = [8, 9, 10, 12].map(|bit| command >> bit & 1 != 0);
        let byte = command as u8;
        let mut said = 0;
        if start {
            self.called = byte >> 1 == IDENTITY;
        } else if write && self.called {
            self.pointer = byte;
        }
        if write && !self.called {
            said = NACK;
        } else if read && self.called {
            let index = usize::from(self.pointer.wrapping_sub(EUI_48));
            said = u32::from(ADDRESS.get(index).copied().unwrap_or(0xff));
            self.pointer = self.pointer.wrapping_add(1);
        }
        self.called &= !stop;
        said
    }
}
