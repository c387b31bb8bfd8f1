//! A SPI NOR flash: commands as in JESD216B and in the data sheet of Winbond's W25Q128JV, revision
//! F, 8.

use crate::Fault;
use crate::port::Port;

const READ_STATUS: u8 = 0x05;
const WRITE_ENABLE: u8 = 0x06;
const PAGE_PROGRAM: u8 = 0x02;
const READ_ID: u8 = 0x9f;
const READ_SFDP: u8 = 0x5a;
const WAKE_UP: u8 = 0xab;
const ENTER_FOUR_BYTE: u8 = 0xb7;
const EXIT_FOUR_BYTE: u8 = 0xe9;

/// Status: programming or erasing.
const BUSY: u8 = 1 << 0;
/// Status: block protection bits 0 to 2.
const PROTECTION: u8 = 0b111 << 2;
/// Status: a write is enabled.
const WRITE_ENABLED: u8 = 1 << 1;

/// Bytes of a page: what all makers have.
pub const PAGE: usize = 256;

/// How often the status is asked for: tens of seconds on any card. The probe gives up sooner.
const POLLS: u32 = 1 << 25;

/// A part, and the bytes that are erased at once on its board.
#[derive(Debug)]
pub struct Flash<P> {
    port: P,
    erase_block: u32,
}

/// What a part says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// Bytes.
    size: u32,
    /// The largest block that it erases at once and of which the board's are made, and its
    /// command.
    erase: (u32, u8),
    four_byte: FourByte,
}

/// How it is made to take addresses of four bytes, and to take three again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FourByte {
    NotNeeded,
    Command,
    CommandAfterWriteEnable,
}

impl<P: Port> Flash<P> {
    /// The part at a port.
    pub fn new(port: P, erase_block: u32) -> Self {
        Self { port, erase_block }
    }

    /// The port back.
    pub fn release(self) -> P {
        self.port
    }

    /// Looks whether there is a part that can be used.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn identify(&mut self) -> Result<(), Fault> {
        self.with_part(|_, _| Ok(()))
    }

    /// The part's manufacturer, kind and capacity.
    ///
    /// # Errors
    ///
    /// When none answers.
    pub fn jedec_id(&mut self) -> Result<[u8; 3], Fault> {
        self.port.close_window();
        let id = self.ready().and_then(|()| self.read_id());
        self.port.open_window();
        id
    }

    /// Whether block protection bits are set in the part's status. A part takes no notice of what it is to
    /// change in what they protect, and says nothing of it.
    ///
    /// # Errors
    ///
    /// When none answers.
    pub fn is_protected(&mut self) -> Result<bool, Fault> {
        self.port.close_window();
        let status = self.ready().and_then(|()| self.status());
        self.port.open_window();
        status.map(|status| status & PROTECTION != 0)
    }

    /// Erases the board's block that begins at an address.
    ///
    /// # Errors
    ///
    /// When none begins there, or the part does not do it.
    pub fn erase(&mut self, at: u32) -> Result<(), Fault> {
        let block = self.erase_block;
        self.with_part(|flash, part| {
            if !at.is_multiple_of(block) || at >= part.size || part.size - at < block {
                return Err(Fault::OutOfRange);
            }
            let (size, command) = part.erase;
            let end = at + block;
            for at in (at..end).step_by(size as usize) {
                flash.enable_write()?;
                let (header, length) = addressed(part, command, at);
                flash.command(&header[..length])?;
                flash.wait()?;
            }
            Ok(())
        })
    }

    /// Writes bytes within a page.
    ///
    /// # Errors
    ///
    /// When they are not within one, or the part does not do it.
    pub fn program(&mut self, at: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.with_part(|flash, part| {
            let room = PAGE - at as usize % PAGE;
            if at >= part.size || bytes.is_empty() || bytes.len() > room {
                return Err(Fault::OutOfRange);
            }
            flash.enable_write()?;
            let (header, length) = addressed(part, PAGE_PROGRAM, at);
            flash.port.select();
            let sent = header[..length]
                .iter()
                .chain(bytes)
                .try_for_each(|byte| flash.port.exchange(*byte).map(drop));
            flash.port.deselect();
            sent?;
            flash.wait()
        })
    }

    /// Asks the part what it is and does something, outside of the window, with long addresses
    /// where they are needed; then everything is as it was.
    fn with_part(
        &mut self,
        act: impl FnOnce(&mut Self, &Part) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.port.close_window();
        let outcome = self.act_on_part(act);
        self.port.open_window();
        outcome
    }

    fn act_on_part(
        &mut self,
        act: impl FnOnce(&mut Self, &Part) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.ready()?;
        self.read_id()?;
        let part = self.read_part()?;
        self.long_addresses(&part, ENTER_FOUR_BYTE)?;
        let outcome = act(self, &part);
        // Whoever opened the window expects the addresses that it is set to.
        let left = self.long_addresses(&part, EXIT_FOUR_BYTE);
        outcome.and(left)
    }

    /// Wakes the part, and waits for what it was doing.
    fn ready(&mut self) -> Result<(), Fault> {
        self.command(&[WAKE_UP])?;
        if self.status()? == 0xff {
            return Err(Fault::NotAnswering);
        }
        self.wait()
    }

    fn read_id(&mut self) -> Result<[u8; 3], Fault> {
        let mut id = [0; 3];
        self.ask(&[READ_ID], &mut id)?;
        if id == [0; 3] || id == [0xff; 3] { Err(Fault::NotAnswering) } else { Ok(id) }
    }

    /// The part's parameters (JESD216B, 6.2 to 6.4).
    fn read_part(&mut self) -> Result<Part, Fault> {
        let mut header = [0; 16];
        self.ask(&sfdp(0), &mut header)?;
        // The basic table comes first, whatever follows.
        if header[..4] != *b"SFDP" || header[8] != 0 {
            return Err(Fault::NoParameters);
        }
        let at = u32::from_le_bytes([header[12], header[13], header[14], 0]);
        let words = usize::from(header[11]).min(16);
        let mut table = [0; 64];
        self.ask(&sfdp(at), &mut table[..4 * words])?;
        Part::from_table(&table, self.erase_block)
    }

    fn long_addresses(&mut self, part: &Part, command: u8) -> Result<(), Fault> {
        match part.four_byte {
            FourByte::NotNeeded => Ok(()),
            FourByte::Command => self.command(&[command]),
            FourByte::CommandAfterWriteEnable => {
                self.command(&[WRITE_ENABLE])?;
                self.command(&[command])
            }
        }
    }

    fn enable_write(&mut self) -> Result<(), Fault> {
        self.command(&[WRITE_ENABLE])?;
        if self.status()? & WRITE_ENABLED != 0 { Ok(()) } else { Err(Fault::Protected) }
    }

    fn wait(&mut self) -> Result<(), Fault> {
        for _ in 0..POLLS {
            if self.status()? & BUSY == 0 {
                return Ok(());
            }
        }
        Err(Fault::Busy)
    }

    fn status(&mut self) -> Result<u8, Fault> {
        let mut status = [0];
        self.ask(&[READ_STATUS], &mut status)?;
        Ok(status[0])
    }

    fn command(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.ask(bytes, &mut [])
    }

    /// Sends a command and takes its answer.
    fn ask(&mut self, command: &[u8], answer: &mut [u8]) -> Result<(), Fault> {
        self.port.select();
        let sent = command.iter().try_for_each(|byte| self.port.exchange(*byte).map(drop));
        let outcome = sent.and_then(|()| {
            answer.iter_mut().try_for_each(|into| self.port.exchange(0).map(|byte| *into = byte))
        });
        self.port.deselect();
        outcome
    }
}

/// A command with an address, and how many bytes of it count.
fn addressed(part: &Part, command: u8, at: u32) -> ([u8; 5], usize) {
    let [high, b, c, d] = at.to_be_bytes();
    match part.four_byte {
        FourByte::NotNeeded => ([command, b, c, d, 0], 4),
        _ => ([command, high, b, c, d], 5),
    }
}

/// Three bytes of address and one of anything.
fn sfdp(at: u32) -> [u8; 5] {
    let [_, high, middle, low] = at.to_be_bytes();
    [READ_SFDP, high, middle, low, 0]
}

impl Part {
    /// Reads the basic parameter table; words that a part does not have are zero.
    fn from_table(table: &[u8; 64], erase_block: u32) -> Result<Self, Fault> {
        let word = |number: usize| {
            let at = 4 * (number - 1);
            u32::from_le_bytes([table[at], table[at + 1], table[at + 2], table[at + 3]])
        };
        let bits = match word(2) {
            density if density >> 31 == 0 => u64::from(density) + 1,
            density => 1_u64.checked_shl(density & 0x7fff_ffff).unwrap_or(0),
        };
        let size = u32::try_from(bits / 8).map_err(|_| Fault::NoParameters)?;
        if !size.is_power_of_two() || size < PAGE as u32 {
            return Err(Fault::NoParameters);
        }
        let kinds = [word(8), word(8) >> 16, word(9), word(9) >> 16];
        let sizes = kinds.into_iter().filter_map(|kind| match kind & 0xff {
            0 | 32.. => None,
            exponent => Some((1_u32 << exponent, (kind >> 8) as u8)),
        });
        let fitting = sizes.filter(|(size, _)| erase_block.is_multiple_of(*size));
        let erase = fitting.max_by_key(|(size, _)| *size).ok_or(Fault::NoSuchErase)?;
        let enter = word(16) >> 24;
        let four_byte = match size {
            ..=0x0100_0000 => FourByte::NotNeeded,
            _ if enter & 1 != 0 => FourByte::Command,
            _ if enter & 2 != 0 => FourByte::CommandAfterWriteEnable,
            _ => return Err(Fault::NoLongAddresses),
        };
        Ok(Self { size, erase, four_byte })
    }
}

#[cfg(test)]
mod tests;
