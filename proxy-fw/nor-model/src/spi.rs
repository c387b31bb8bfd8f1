//! The part as it is spoken to over SPI: a command, its address, its data, while selected.

use crate::nor::Nor;
use crate::sfdp;

/// Status register 1: busy.
const BUSY: u8 = 1 << 0;
/// Status register 1: writes are enabled.
const WRITE_ENABLED: u8 = 1 << 1;
/// Status register 1: block protection bits 0 to 2.
const PROTECTION: u8 = 0b111 << 2;

/// Nobody drives the line.
const IDLE: u8 = 0xff;

/// A SPI NOR flash. Unknown commands, and those that do not fit its state, it ignores, as parts do.
#[derive(Clone, Debug)]
pub struct SpiNor {
    /// The array behind it.
    pub nor: Nor,
    write_enabled: bool,
    /// Protection bits, where they are in status register 1. They outlast the power.
    protection: u8,
    four_byte: bool,
    powered_down: bool,
    /// Command 66 was the last one.
    reset_enabled: bool,
    /// The bytes since it was selected; none when it is not.
    received: Option<Vec<u8>>,
}

impl SpiNor {
    /// Puts an array behind an SPI interface.
    #[must_use]
    pub fn new(nor: Nor) -> Self {
        Self {
            nor,
            write_enabled: false,
            protection: 0,
            four_byte: false,
            powered_down: false,
            reset_enabled: false,
            received: None,
        }
    }

    /// Takes the power away now.
    pub fn power_off(&mut self) {
        self.nor.power_off();
    }

    /// Gives the power back: the interface begins anew, what is in the array and the protection
    /// stay.
    pub fn power_on(&mut self) {
        self.nor.power_on();
        self.begin_anew();
        self.received = None;
    }

    fn begin_anew(&mut self) {
        self.write_enabled = false;
        self.four_byte = false;
        self.powered_down = false;
        self.reset_enabled = false;
    }

    /// Chip select becomes active.
    pub fn select(&mut self) {
        self.received = Some(Vec::new());
    }

    /// Eight clocks: takes a byte and gives one. A part that is not selected gives 0xff.
    pub fn exchange(&mut self, byte: u8) -> u8 {
        if !self.nor.is_powered() {
            return IDLE;
        }
        let Some(mut received) = self.received.take() else { return IDLE };
        let given = if received.is_empty() { IDLE } else { self.give(&received) };
        received.push(byte);
        self.received = Some(received);
        given
    }

    /// Chip select becomes inactive: what was commanded begins.
    pub fn deselect(&mut self) {
        let Some(received) = self.received.take() else { return };
        if self.nor.is_powered() && !received.is_empty() {
            self.act(received[0], &received[1..]);
        }
    }

    /// Status register 1.
    fn status(&self) -> u8 {
        let busy = if self.nor.is_busy() { BUSY } else { 0 };
        // The latch falls when the operation is over.
        let enabled = if self.write_enabled || self.nor.is_busy() { WRITE_ENABLED } else { 0 };
        busy | enabled | self.protection
    }

    fn address_bytes(&self) -> usize {
        if self.four_byte { 4 } else { 3 }
    }

    /// The address that follows a command, when all of it is there. It wraps at the part's end.
    fn address(&self, after: &[u8]) -> Option<u32> {
        let bytes = after.get(..self.address_bytes())?;
        let address = bytes.iter().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
        Some(address & (self.nor.part().size - 1))
    }

    /// The next byte of an answer to a command, of which so much has come.
    fn give(&mut self, received: &[u8]) -> u8 {
        let (command, after) = (received[0], &received[1..]);
        if self.powered_down {
            return if command == 0xab { self.electronic_id(after) } else { IDLE };
        }
        match command {
            0x05 => self.status(),
            0x35 => 0,
            _ if self.nor.is_busy() => IDLE,
            0x9f => self.nor.part().jedec.get(after.len()).copied().unwrap_or(IDLE),
            0xab => self.electronic_id(after),
            0x5a => self.parameter(after),
            0x03 => self.array(after, 0),
            0x0b => self.array(after, 1),
            _ => IDLE,
        }
    }

    /// Three bytes of anything, then the ID: one below the capacity's exponent.
    fn electronic_id(&self, after: &[u8]) -> u8 {
        if after.len() < 3 { IDLE } else { self.nor.part().jedec[2] - 1 }
    }

    /// Always three bytes of address and one of anything.
    fn parameter(&self, after: &[u8]) -> u8 {
        let [high, middle, low, _, read @ ..] = after else { return IDLE };
        let at = u32::from_be_bytes([0, *high, *middle, *low]) as usize + read.len();
        sfdp::table(self.nor.part()).get(at).copied().unwrap_or(IDLE)
    }

    fn array(&mut self, after: &[u8], dummies: usize) -> u8 {
        let Some(address) = self.address(after) else { return IDLE };
        let Some(read) = after.len().checked_sub(self.address_bytes() + dummies) else {
            return IDLE;
        };
        let size = self.nor.part().size;
        let mut byte = [IDLE];
        let read = self.nor.read((address + read as u32) % size, &mut byte);
        if read.is_ok() { byte[0] } else { IDLE }
    }

    fn act(&mut self, command: u8, after: &[u8]) {
        let reset_enabled = core::mem::replace(&mut self.reset_enabled, command == 0x66);
        if self.powered_down {
            self.powered_down = command != 0xab;
            return;
        }
        if command == 0x99 && reset_enabled {
            self.nor.stop();
            self.begin_anew();
            return;
        }
        if self.nor.is_busy() {
            return;
        }
        match (command, after) {
            (0x06, []) => self.write_enabled = true,
            (0x04, []) => self.write_enabled = false,
            (0xb9, []) => self.powered_down = true,
            // Parts that three bytes reach all of do not know these.
            (0xb7, []) if self.nor.part().size > 1 << 24 => self.four_byte = true,
            (0xe9, []) => self.four_byte = false,
            _ if self.write_enabled => self.write(command, after),
            _ => {}
        }
    }

    /// Commands that the latch admits. What is torn by a power cut is the array's to say.
    fn write(&mut self, command: u8, after: &[u8]) {
        let size = self.nor.part().size;
        let erase = self.nor.part().erases.iter().find(|kind| kind.opcode == command).copied();
        let begun = match (command, after) {
            (0x01, &[status, ..]) => {
                self.protection = status & PROTECTION;
                self.nor.occupy(self.nor.part().timing.write_status)
            }
            (0x02, _) if after.len() > self.address_bytes() => self.program(after),
            (0xc7 | 0x60, []) => {
                if self.protected_from() == size {
                    self.nor.erase(0, size)
                } else {
                    Ok(())
                }
            }
            _ => match (erase, self.address(after)) {
                (Some(kind), Some(address)) if after.len() == self.address_bytes() => {
                    let at = address & !(kind.size - 1);
                    if self.is_protected(at + kind.size - 1) {
                        Ok(())
                    } else {
                        self.nor.erase(at, kind.size)
                    }
                }
                _ => return,
            },
        };
        // The latch falls also where protection refused; a cut shows in what follows.
        self.write_enabled = false;
        let _ = begun;
    }

    fn program(&mut self, after: &[u8]) -> Result<(), crate::Fault> {
        let address = self.address(after).expect("it is longer than an address");
        let data = &after[self.address_bytes()..];
        if self.is_protected(address) {
            return Ok(());
        }
        // Of more than a page the last bytes count, where they have come to lie.
        let page = self.nor.part().page as usize;
        let lost = data.len().saturating_sub(page);
        let start = address & !(page as u32 - 1);
        let at = start + (address - start + lost as u32) % page as u32;
        self.nor.program(at, &data[lost..])
    }

    /// The first address that the protection bits protect: the upper 1/64, 1/32 … 1/2, all (as
    /// W25Q128JV, revision F, 7.1.8, with its bits for 4 KB and for the lower part clear).
    fn protected_from(&self) -> u32 {
        let size = self.nor.part().size;
        match self.protection >> 2 {
            0 => size,
            bits => size - (size >> (7 - bits)),
        }
    }

    fn is_protected(&self, address: u32) -> bool {
        address >= self.protected_from()
    }
}

#[cfg(test)]
mod tests;
