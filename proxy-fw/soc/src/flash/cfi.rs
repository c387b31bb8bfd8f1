//! Parallel NOR flash with the Common Flash Interface (JEDEC JESD68.01) and Intel's command set:
//! two 16-bit devices side by side on a 32-bit bus.

use core::convert::Infallible;

use embedded_hal::delay::DelayNs;
use embedded_storage::nor_flash::{ErrorType, NorFlash, ReadNorFlash};

use super::{FlashError, check_erase, check_range, pieces};

/// A command, as both devices are given it.
const fn both(command: u16) -> u32 {
    (command as u32) << 16 | command as u32
}

const READ_ARRAY: u32 = both(0xff);
const CLEAR_STATUS: u32 = both(0x50);
const QUERY: u32 = both(0x98);
const ERASE: u32 = both(0x20);
const CONFIRM: u32 = both(0xd0);
const BUFFERED_PROGRAM: u32 = both(0xe8);
const CHANGE_LOCK: u32 = both(0x60);
const READ_STATUS: u32 = both(0x70);

/// Status of both: ready.
const READY: u32 = both(0x80);
/// Status of either: the block is locked, or the programming voltage is missing.
const PROTECTED: u32 = both(0x0a);
/// Status of either: erasing or programming failed.
const FAILED: u32 = both(0x30);

/// How often, every 10 µs, the status is asked for: 4 s.
const POLLS: u32 = 400_000;
const POLL_US: u32 = 10;

/// A bus that a flash is on. Offsets are in bytes from the flash's beginning, multiples of 4;
/// each access reaches the flash as it is, once, in its order.
pub trait Bus32 {
    /// Reads a word.
    fn read(&mut self, offset: u32) -> u32;

    /// Writes a word.
    fn write(&mut self, offset: u32, value: u32);
}

/// A driver for such a flash, whose blocks have `BLOCK` bytes, of both devices together.
#[derive(Debug)]
pub struct CfiFlash<B, D, const BLOCK: usize> {
    bus: B,
    delay: D,
    /// Bytes.
    size: u32,
    /// Bytes that are programmed at once.
    buffer: u32,
    /// An operation did not end in time.
    late: bool,
}

type Error = FlashError<Infallible>;

impl<B: Bus32, D: DelayNs, const BLOCK: usize> CfiFlash<B, D, BLOCK> {
    /// Asks the flash what it is.
    ///
    /// # Errors
    ///
    /// When it does not answer, or is of a kind that cannot be used.
    pub fn new(mut bus: B, delay: D) -> Result<Self, Error> {
        bus.write(0, READ_ARRAY);
        bus.write(4 * 0x55, QUERY);
        let found = Self::identify(&mut bus);
        bus.write(0, READ_ARRAY);
        let (size, buffer) = found?;
        Ok(Self { bus, delay, size, buffer, late: false })
    }

    /// Reads size and buffer from the query table.
    fn identify(bus: &mut B) -> Result<(u32, u32), Error> {
        let mut at = |word: u32| bus.read(4 * word);
        if [at(0x10), at(0x11), at(0x12)] != [b'Q', b'R', b'Y'].map(|byte| both(byte.into())) {
            return Err(FlashError::NotAnswering);
        }
        let mut byte = |word: u32| at(word) & 0xff;
        if byte(0x13) | byte(0x14) << 8 != 1 {
            return Err(FlashError::Unsupported("its command set is not Intel's"));
        }
        // Sizes are those of one device; there are two.
        let size = match byte(0x27) {
            exponent @ 16..=29 => 2 << exponent,
            _ => return Err(FlashError::Unsupported("its size makes no sense")),
        };
        let buffer = match byte(0x2a) | byte(0x2b) << 8 {
            exponent @ 1..=16 => 2 << exponent,
            _ => return Err(FlashError::Unsupported("it has no write buffer")),
        };
        let block = 2 * 256 * (byte(0x2f) | byte(0x30) << 8);
        if byte(0x2c) != 1 || block as usize != BLOCK {
            return Err(FlashError::Unsupported("its blocks are not those of the board"));
        }
        Ok((size, buffer))
    }

    /// Gives bus and delay back.
    pub fn release(self) -> (B, D) {
        (self.bus, self.delay)
    }

    /// Unlocks the block of an address, of parts whose blocks are locked after power-up.
    ///
    /// # Errors
    ///
    /// When there is no such address, or the part does not do it.
    pub fn unlock(&mut self, at: u32) -> Result<(), Error> {
        check_range(at, 1, self.size, 1)?;
        let block = at & !(BLOCK as u32 - 1);
        self.bus.write(block, CHANGE_LOCK);
        self.bus.write(block, CONFIRM);
        self.bus.write(block, READ_STATUS);
        self.settle(block)
    }

    /// Before an operation. A part that did not end one in time has it still: to wait for it again and
    /// again would take a card's watchdog.
    fn begin(&mut self, at: u32) -> Result<(), Error> {
        if self.late {
            return Err(FlashError::Timeout { at });
        }
        self.bus.write(at, CLEAR_STATUS);
        Ok(())
    }

    fn erase_block(&mut self, at: u32) -> Result<(), Error> {
        self.begin(at)?;
        self.bus.write(at, ERASE);
        self.bus.write(at, CONFIRM);
        self.settle(at)
    }

    /// Programs words of one buffer.
    fn program(&mut self, at: u32, bytes: &[u8]) -> Result<(), Error> {
        let (words, _) = bytes.as_chunks::<4>();
        self.begin(at)?;
        self.bus.write(at, BUFFERED_PROGRAM);
        self.wait(at)?;
        self.bus.write(at, both(words.len() as u16 - 1));
        for (at, word) in (at..).step_by(4).zip(words) {
            self.bus.write(at, u32::from_le_bytes(*word));
        }
        self.bus.write(at, CONFIRM);
        self.settle(at)
    }

    /// Waits for both devices to be ready: their status.
    fn wait(&mut self, at: u32) -> Result<u32, Error> {
        for _ in 0..POLLS {
            let status = self.bus.read(at);
            if status & READY == READY {
                return Ok(status);
            }
            self.delay.delay_us(POLL_US);
        }
        self.bus.write(at, READ_ARRAY);
        self.late = true;
        Err(FlashError::Timeout { at })
    }

    /// Waits until an operation is over, makes the array readable again, and says how it went.
    fn settle(&mut self, at: u32) -> Result<(), Error> {
        let status = self.wait(at)?;
        self.bus.write(at, CLEAR_STATUS);
        self.bus.write(at, READ_ARRAY);
        if status & PROTECTED != 0 {
            Err(FlashError::Protected { at })
        } else if status & FAILED != 0 {
            Err(FlashError::Failed { at })
        } else {
            Ok(())
        }
    }
}

impl<B, D, const BLOCK: usize> ErrorType for CfiFlash<B, D, BLOCK> {
    type Error = Error;
}

impl<B: Bus32, D: DelayNs, const BLOCK: usize> ReadNorFlash for CfiFlash<B, D, BLOCK> {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), Error> {
        check_range(offset, bytes.len(), self.size, 1)?;
        let mut rest = bytes;
        for (at, length) in pieces(offset, rest.len() as u32, 4) {
            let word = self.bus.read(at & !3).to_le_bytes();
            let skip = at as usize % 4;
            let (now, later) = rest.split_at_mut(length as usize);
            now.copy_from_slice(&word[skip..skip + length as usize]);
            rest = later;
        }
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.size as usize
    }
}

impl<B: Bus32, D: DelayNs, const BLOCK: usize> NorFlash for CfiFlash<B, D, BLOCK> {
    const WRITE_SIZE: usize = 4;
    const ERASE_SIZE: usize = BLOCK;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), Error> {
        check_erase(from, to, self.size, BLOCK as u32)?;
        (from..to).step_by(BLOCK).try_for_each(|at| self.erase_block(at))
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        check_range(offset, bytes.len(), self.size, 4)?;
        let mut rest = bytes;
        for (at, length) in pieces(offset, bytes.len() as u32, self.buffer) {
            let (now, later) = rest.split_at(length as usize);
            self.program(at, now)?;
            rest = later;
        }
        Ok(())
    }
}
