//! NOR flash on SPI, of the kind that all makers have: JEDEC ID, SFDP, 4 KB sectors.
//!
//! Commands as in JESD216B and in the data sheet of Winbond's W25Q128JV, revision F, 8.

use embedded_hal::delay::DelayNs;
use embedded_hal::spi::{Operation, SpiDevice};
use embedded_storage::nor_flash::{ErrorType, NorFlash, ReadNorFlash};

use super::{FlashError, check_erase, check_range, pieces};

/// The sector that every part must be able to erase.
pub const SECTOR: u32 = 4 << 10;

/// The largest part that three address bytes reach all of. A larger one would have to be put into
/// another address mode, and a reset that finds it in that mode would end the card: the core's first
/// instruction is read through a window that gives three.
const LARGEST: u32 = 16 << 20;

const READ_STATUS: u8 = 0x05;
const WRITE_ENABLE: u8 = 0x06;
const PAGE_PROGRAM: u8 = 0x02;
const FAST_READ: u8 = 0x0b;
const READ_ID: u8 = 0x9f;
const READ_SFDP: u8 = 0x5a;
const WAKE_UP: u8 = 0xab;
const ENABLE_RESET: u8 = 0x66;
const RESET: u8 = 0x99;

/// Status: programming or erasing.
const BUSY: u8 = 1 << 0;
/// Status: a write is enabled.
const WRITE_ENABLED: u8 = 1 << 1;

/// How often and after how long the status is asked for: of programming (3 ms at most in data
/// sheets), and of erasing (2 s). What one request makes a card wait for, a part that is busy still and
/// an erasure, is within its watchdog's time.
const PROGRAM_WAIT: Wait = Wait { times: 200, step_us: 50 };
const ERASE_WAIT: Wait = Wait { times: 2500, step_us: 1000 };

/// A part needs so long after it was woken or reset (30 µs).
const RECOVERY_US: u32 = 100;

#[derive(Clone, Copy)]
struct Wait {
    times: u32,
    step_us: u32,
}

/// What a part says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpiPart {
    /// Manufacturer, memory type, capacity.
    pub jedec: [u8; 3],
    /// Bytes.
    pub size: u32,
    /// Bytes of a program page.
    pub page: u32,
    /// The command that erases a sector: cards erase one at a time.
    pub erase: u8,
}

/// A driver for one part. Where the part is write-protected it looks as if it did what it was told.
#[derive(Debug)]
pub struct SpiFlash<S, D> {
    spi: S,
    delay: D,
    part: SpiPart,
    /// Something did not end in time.
    late: bool,
}

impl<S: SpiDevice, D: DelayNs> SpiFlash<S, D> {
    /// Wakes and resets the part, after it has ended what it was doing, and asks it what it is.
    ///
    /// # Errors
    ///
    /// When it does not answer, is for ever busy, or is of a kind that cannot be used.
    pub fn new(mut spi: S, mut delay: D) -> Result<Self, FlashError<S::Error>> {
        command(&mut spi, &[WAKE_UP])?;
        delay.delay_us(RECOVERY_US);
        if status(&mut spi)? == 0xff {
            return Err(FlashError::NotAnswering);
        }
        // A reset in the middle of an erase would tear the block.
        wait(&mut spi, &mut delay, ERASE_WAIT, 0)?;
        command(&mut spi, &[ENABLE_RESET])?;
        command(&mut spi, &[RESET])?;
        delay.delay_us(RECOVERY_US);
        let part = SpiPart::identify(&mut spi)?;
        Ok(Self { spi, delay, part, late: false })
    }

    /// What the part said of itself.
    pub fn part(&self) -> &SpiPart {
        &self.part
    }

    /// Gives bus and delay back.
    pub fn release(self) -> (S, D) {
        (self.spi, self.delay)
    }

    /// Enables a write, and looks whether it is.
    fn enable(&mut self, at: u32) -> Result<(), FlashError<S::Error>> {
        command(&mut self.spi, &[WRITE_ENABLE])?;
        match status(&mut self.spi)? {
            0xff => Err(FlashError::NotAnswering),
            // With what did not end in time. To wait for it again and again would take a card's watchdog.
            status if status & BUSY != 0 => Err(FlashError::Timeout { at }),
            status if status & WRITE_ENABLED != 0 => Ok(()),
            _ => Err(FlashError::Protected { at }),
        }
    }

    fn wait(&mut self, longest: Wait, at: u32) -> Result<(), FlashError<S::Error>> {
        let ended = wait(&mut self.spi, &mut self.delay, longest, at);
        self.late = matches!(ended, Err(FlashError::Timeout { .. }));
        ended
    }

    fn erase_sector(&mut self, at: u32) -> Result<(), FlashError<S::Error>> {
        self.enable(at)?;
        command(&mut self.spi, &addressed(self.part.erase, at))?;
        self.wait(ERASE_WAIT, at)
    }

    fn program(&mut self, at: u32, bytes: &[u8]) -> Result<(), FlashError<S::Error>> {
        self.enable(at)?;
        let header = addressed(PAGE_PROGRAM, at);
        let mut operations = [Operation::Write(&header), Operation::Write(bytes)];
        self.spi.transaction(&mut operations).map_err(FlashError::Bus)?;
        self.wait(PROGRAM_WAIT, at)
    }

    fn read_raw(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), FlashError<S::Error>> {
        // With what did not end in time it says nothing of what it keeps.
        if self.late {
            self.wait(ERASE_WAIT, at)?;
        }
        read_with(&mut self.spi, FAST_READ, at, bytes)
    }
}

/// A command with an address.
fn addressed(command: u8, at: u32) -> [u8; 4] {
    let [_, high, middle, low] = at.to_be_bytes();
    [command, high, middle, low]
}

fn command<S: SpiDevice>(spi: &mut S, bytes: &[u8]) -> Result<(), FlashError<S::Error>> {
    spi.write(bytes).map_err(FlashError::Bus)
}

fn status<S: SpiDevice>(spi: &mut S) -> Result<u8, FlashError<S::Error>> {
    let mut status = [0];
    let mut operations = [Operation::Write(&[READ_STATUS]), Operation::Read(&mut status)];
    spi.transaction(&mut operations).map_err(FlashError::Bus)?;
    Ok(status[0])
}

/// Waits until the part is not busy.
fn wait<S: SpiDevice, D: DelayNs>(
    spi: &mut S,
    delay: &mut D,
    wait: Wait,
    at: u32,
) -> Result<(), FlashError<S::Error>> {
    for _ in 0..wait.times {
        if status(spi)? & BUSY == 0 {
            return Ok(());
        }
        delay.delay_us(wait.step_us);
    }
    Err(FlashError::Timeout { at })
}

impl SpiPart {
    /// Asks a part for its ID and its parameters (JESD216B, 6.2 to 6.4).
    fn identify<S: SpiDevice>(spi: &mut S) -> Result<Self, FlashError<S::Error>> {
        let mut jedec = [0; 3];
        let mut operations = [Operation::Write(&[READ_ID]), Operation::Read(&mut jedec)];
        spi.transaction(&mut operations).map_err(FlashError::Bus)?;
        if jedec == [0xff; 3] || jedec == [0; 3] {
            return Err(FlashError::NotAnswering);
        }
        let mut header = [0; 16];
        read_with(spi, READ_SFDP, 0, &mut header)?;
        // The basic table comes first, whatever follows.
        if header[..4] != *b"SFDP" || header[8] != 0 {
            return Err(FlashError::Unsupported("it has no SFDP parameters"));
        }
        let at = u32::from_le_bytes([header[12], header[13], header[14], 0]);
        let words = usize::from(header[11]).min(16);
        let mut table = [0; 64];
        read_with(spi, READ_SFDP, at, &mut table[..4 * words])?;
        Self::from_table(jedec, &table).map_err(FlashError::Unsupported)
    }

    /// Reads the basic parameter table; words that a part does not have are zero.
    fn from_table(jedec: [u8; 3], table: &[u8; 64]) -> Result<Self, &'static str> {
        let word = |number: usize| {
            let at = 4 * (number - 1);
            u32::from_le_bytes([table[at], table[at + 1], table[at + 2], table[at + 3]])
        };
        let bits = match word(2) {
            density if density >> 31 == 0 => u64::from(density) + 1,
            density => 1_u64.checked_shl(density & 0x7fff_ffff).unwrap_or(0),
        };
        if bits / 8 > LARGEST.into() {
            return Err("it has more than 16 MB");
        }
        let size = (bits / 8) as u32;
        if !size.is_power_of_two() || size < SECTOR {
            return Err("its size makes no sense");
        }
        let kinds = [word(8), word(8) >> 16, word(9), word(9) >> 16];
        let sectors = kinds.into_iter().find(|kind| kind & 0xff == SECTOR.ilog2());
        let erase = (sectors.ok_or("it has no 4 KB sectors")? >> 8) as u8;
        // Parts of the standard's first revision have pages of 256 bytes, or do not say.
        let page = match word(11) >> 4 & 15 {
            0 => 256,
            exponent => 1 << exponent,
        };
        Ok(Self { jedec, size, page, erase })
    }
}

/// Reads by a command with an address, and a byte of anything before the data.
fn read_with<S: SpiDevice>(
    spi: &mut S,
    command: u8,
    at: u32,
    bytes: &mut [u8],
) -> Result<(), FlashError<S::Error>> {
    let [command, high, middle, low] = addressed(command, at);
    let header = [command, high, middle, low, 0];
    let mut operations = [Operation::Write(&header), Operation::Read(bytes)];
    spi.transaction(&mut operations).map_err(FlashError::Bus)
}

impl<S: SpiDevice, D> ErrorType for SpiFlash<S, D> {
    type Error = FlashError<S::Error>;
}

impl<S: SpiDevice, D: DelayNs> ReadNorFlash for SpiFlash<S, D> {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), Self::Error> {
        check_range(offset, bytes.len(), self.part.size, 1)?;
        self.read_raw(offset, bytes)
    }

    fn capacity(&self) -> usize {
        self.part.size as usize
    }
}

impl<S: SpiDevice, D: DelayNs> NorFlash for SpiFlash<S, D> {
    const WRITE_SIZE: usize = 1;
    const ERASE_SIZE: usize = SECTOR as usize;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), Self::Error> {
        check_erase(from, to, self.part.size, SECTOR)?;
        (from..to).step_by(Self::ERASE_SIZE).try_for_each(|at| self.erase_sector(at))
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), Self::Error> {
        check_range(offset, bytes.len(), self.part.size, 1)?;
        let mut rest = bytes;
        for (at, length) in pieces(offset, bytes.len() as u32, self.part.page) {
            let (now, later) = rest.split_at(length as usize);
            self.program(at, now)?;
            rest = later;
        }
        Ok(())
    }
}
