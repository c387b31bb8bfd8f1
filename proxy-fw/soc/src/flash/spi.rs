//! NOR flash on SPI, of the kind that all makers have: JEDEC ID, SFDP, 4 KB sectors.
//!
//! Commands as in JESD216B and in the data sheet of Winbond's W25Q128JV, revision F, 8.

use embedded_hal::delay::DelayNs;
use embedded_hal::spi::{Operation, SpiDevice};
use embedded_storage::nor_flash::{ErrorType, NorFlash, ReadNorFlash};

use super::{FlashError, check_erase, check_range, pieces};

/// The sector that every part must be able to erase.
pub const SECTOR: u32 = 4 << 10;

const READ_STATUS: u8 = 0x05;
const WRITE_ENABLE: u8 = 0x06;
const PAGE_PROGRAM: u8 = 0x02;
const FAST_READ: u8 = 0x0b;
const READ_ID: u8 = 0x9f;
const READ_SFDP: u8 = 0x5a;
const WAKE_UP: u8 = 0xab;
const ENABLE_RESET: u8 = 0x66;
const RESET: u8 = 0x99;
const ENTER_FOUR_BYTE: u8 = 0xb7;

/// Status: programming or erasing.
const BUSY: u8 = 1 << 0;
/// Status: a write is enabled.
const WRITE_ENABLED: u8 = 1 << 1;
/// Status: block protection.
const PROTECTION: u8 = 0b111 << 2;

/// How often and after how long the status is asked for: of programming (3 ms at most in data
/// sheets), and of erasing (2 s).
const PROGRAM_WAIT: Wait = Wait { times: 200, step_us: 50 };
const ERASE_WAIT: Wait = Wait { times: 4000, step_us: 1000 };

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
    /// Sizes that can be erased at once in bytes, with their commands; 0 where there is none.
    pub erases: [(u32, u8); 4],
    four_byte: FourByte,
}

/// How a part is made to take addresses of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FourByte {
    NotNeeded,
    Command,
    CommandAfterWriteEnable,
}

/// A driver for one part.
#[derive(Debug)]
pub struct SpiFlash<S, D> {
    spi: S,
    delay: D,
    part: SpiPart,
    verify: bool,
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
        match part.four_byte {
            FourByte::NotNeeded => {}
            FourByte::Command => command(&mut spi, &[ENTER_FOUR_BYTE])?,
            FourByte::CommandAfterWriteEnable => {
                command(&mut spi, &[WRITE_ENABLE])?;
                command(&mut spi, &[ENTER_FOUR_BYTE])?;
            }
        }
        Ok(Self { spi, delay, part, verify: true })
    }

    /// Whether what was written or erased is read again and compared, which it is unless said
    /// otherwise. Without it a protected part looks as if it did what it was told.
    #[must_use]
    pub fn verify(self, verify: bool) -> Self {
        Self { verify, ..self }
    }

    /// What the part said of itself.
    pub fn part(&self) -> &SpiPart {
        &self.part
    }

    /// Gives bus and delay back.
    pub fn release(self) -> (S, D) {
        (self.spi, self.delay)
    }

    /// A command with an address, and how many bytes of it count.
    fn addressed(&self, command: u8, at: u32) -> ([u8; 6], usize) {
        let [high, rest @ ..] = at.to_be_bytes();
        let [b, c, d] = rest;
        match self.part.four_byte {
            FourByte::NotNeeded => ([command, b, c, d, 0, 0], 4),
            _ => ([command, high, b, c, d, 0], 5),
        }
    }

    /// Enables a write, and looks whether it is.
    fn enable(&mut self, at: u32) -> Result<(), FlashError<S::Error>> {
        command(&mut self.spi, &[WRITE_ENABLE])?;
        match status(&mut self.spi)? {
            0xff => Err(FlashError::NotAnswering),
            status if status & WRITE_ENABLED != 0 => Ok(()),
            _ => Err(FlashError::Protected { at }),
        }
    }

    fn erase_block(&mut self, at: u32, size: u32, opcode: u8) -> Result<(), FlashError<S::Error>> {
        self.enable(at)?;
        let (header, length) = self.addressed(opcode, at);
        command(&mut self.spi, &header[..length])?;
        wait(&mut self.spi, &mut self.delay, ERASE_WAIT, at)?;
        if self.verify {
            self.compare(at, size, None)?;
        }
        Ok(())
    }

    fn program(&mut self, at: u32, bytes: &[u8]) -> Result<(), FlashError<S::Error>> {
        self.enable(at)?;
        let (header, length) = self.addressed(PAGE_PROGRAM, at);
        let mut operations = [Operation::Write(&header[..length]), Operation::Write(bytes)];
        self.spi.transaction(&mut operations).map_err(FlashError::Bus)?;
        wait(&mut self.spi, &mut self.delay, PROGRAM_WAIT, at)?;
        if self.verify {
            self.compare(at, bytes.len() as u32, Some(bytes))?;
        }
        Ok(())
    }

    /// Compares what is there with what should be: so many bytes, which are blank where none are given.
    #[inline(never)] // it is there once for both
    fn compare(
        &mut self,
        at: u32,
        length: u32,
        should: Option<&[u8]>,
    ) -> Result<(), FlashError<S::Error>> {
        for (start, length) in pieces(at, length, 64) {
            let mut there = [0; 64];
            let there = &mut there[..length as usize];
            self.read_raw(start, there)?;
            let offset = (start - at) as usize;
            let should = |n: usize| should.map_or(0xff, |bytes| bytes[offset + n]);
            let wrong = there.iter().enumerate().position(|(n, &is)| is != should(n));
            if let Some(wrong) = wrong {
                let at = start + wrong as u32;
                let protected = status(&mut self.spi)? & PROTECTION != 0;
                return Err(match protected {
                    true => FlashError::Protected { at },
                    false => FlashError::VerifyFailed { at },
                });
            }
        }
        Ok(())
    }

    fn read_raw(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), FlashError<S::Error>> {
        let (header, length) = self.addressed(FAST_READ, at);
        // One byte of anything before the data.
        let mut operations = [Operation::Write(&header[..length + 1]), Operation::Read(bytes)];
        self.spi.transaction(&mut operations).map_err(FlashError::Bus)
    }

    /// The largest block that begins here and does not reach beyond the end.
    fn largest(&self, at: u32, end: u32) -> (u32, u8) {
        let fits = |size: u32| size > 0 && at.is_multiple_of(size) && end - at >= size;
        let blocks = self.part.erases.into_iter().filter(|(size, _)| fits(*size));
        blocks.max_by_key(|(size, _)| *size).expect("a sector fits: the range is whole sectors")
    }
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
        read_sfdp(spi, 0, &mut header)?;
        // The basic table comes first, whatever follows.
        if header[..4] != *b"SFDP" || header[8] != 0 {
            return Err(FlashError::Unsupported("it has no SFDP parameters"));
        }
        let at = u32::from_le_bytes([header[12], header[13], header[14], 0]);
        let words = usize::from(header[11]).min(16);
        let mut table = [0; 64];
        read_sfdp(spi, at, &mut table[..4 * words])?;
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
        let size =
            u32::try_from(bits / 8).map_err(|_| "it is larger than four address bytes reach")?;
        if !size.is_power_of_two() || size < SECTOR {
            return Err("its size makes no sense");
        }
        let kinds = [word(8), word(8) >> 16, word(9), word(9) >> 16];
        let erases = kinds.map(|kind| match kind & 0xff {
            0 | 32.. => (0, 0),
            exponent => (1 << exponent, (kind >> 8) as u8),
        });
        if !erases.iter().any(|(size, _)| *size == SECTOR) {
            return Err("it has no 4 KB sectors");
        }
        // Parts of the standard's first revision have pages of 256 bytes, or do not say.
        let page = match word(11) >> 4 & 15 {
            0 => 256,
            exponent => 1 << exponent,
        };
        let enter = word(16) >> 24;
        let four_byte = match size {
            ..=0x0100_0000 => FourByte::NotNeeded,
            _ if enter & 1 != 0 => FourByte::Command,
            _ if enter & 2 != 0 => FourByte::CommandAfterWriteEnable,
            _ => return Err("it does not take four address bytes by command"),
        };
        Ok(Self { jedec, size, page, erases, four_byte })
    }
}

fn read_sfdp<S: SpiDevice>(
    spi: &mut S,
    at: u32,
    bytes: &mut [u8],
) -> Result<(), FlashError<S::Error>> {
    let [_, high, middle, low] = at.to_be_bytes();
    let header = [READ_SFDP, high, middle, low, 0];
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
        let mut at = from;
        while at < to {
            let (size, opcode) = self.largest(at, to);
            self.erase_block(at, size, opcode)?;
            at += size;
        }
        Ok(())
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
