//! The part as a parallel flash with Intel's command set (Common Flash Interface, primary command
//! set 1), one or two 16-bit devices side by side, as QEMU's `pflash_cfi01` has it.

use crate::nor::{Fault, Nor};

/// Ready, when set.
const READY: u8 = 0x80;
/// Erase failed.
const ERASE_ERROR: u8 = 0x20;
/// Programming failed. With [`ERASE_ERROR`]: the command sequence was wrong.
const PROGRAM_ERROR: u8 = 0x10;
/// The block is locked.
const LOCKED: u8 = 0x02;

/// Words of the write buffer of each device (CFI: 2^11 bytes).
const BUFFER_WORDS: u32 = 1 << 10;

/// What reads give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Array,
    Status,
    Id,
    Query,
}

/// What the next write is.
#[derive(Clone, Debug)]
enum Expects {
    Command,
    ProgramData,
    EraseConfirm { at: u32 },
    Lock { at: u32 },
    BufferCount,
    BufferData { left: u32, words: Vec<(u32, u32)> },
    BufferConfirm { words: Vec<(u32, u32)> },
}

/// A parallel NOR flash on a bus as wide as its devices together.
#[derive(Clone, Debug)]
pub struct CfiNor {
    /// The array behind it.
    pub nor: Nor,
    /// Bytes of the bus: 2 with one device, 4 with two.
    width: u32,
    mode: Mode,
    expects: Expects,
    errors: u8,
    /// Blocks that are locked. They are unlocked by command.
    locked: std::collections::BTreeSet<u32>,
}

impl CfiNor {
    /// Puts an array behind so many 16-bit devices.
    ///
    /// # Panics
    ///
    /// When there is neither one device nor two.
    #[must_use]
    pub fn new(nor: Nor, devices: u32) -> Self {
        assert!(matches!(devices, 1 | 2), "one device, or two side by side");
        Self {
            nor,
            width: 2 * devices,
            mode: Mode::Array,
            expects: Expects::Command,
            errors: 0,
            locked: Default::default(),
        }
    }

    /// Bytes of one bus access.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Takes the power away now.
    pub fn power_off(&mut self) {
        self.nor.power_off();
    }

    /// Gives the power back: the interface begins anew, the array and the locks stay.
    pub fn power_on(&mut self) {
        self.nor.power_on();
        self.mode = Mode::Array;
        self.expects = Expects::Command;
        self.errors = 0;
    }

    /// Locks the block at this address, as some parts do at power-up.
    pub fn lock(&mut self, at: u32) {
        self.locked.insert(self.block(at));
    }

    /// Reads one bus word. Addresses wrap at the end, as on a bus that decodes no more bits.
    pub fn read(&mut self, offset: u32) -> u32 {
        let offset = self.aligned(offset);
        if !self.nor.is_powered() {
            return self.each(0xffff);
        }
        if self.nor.is_busy() {
            return self.each(self.errors.into());
        }
        match self.mode {
            Mode::Array => self.array(offset),
            Mode::Status => self.each((self.errors | READY).into()),
            Mode::Id => self.each(self.id(offset / self.width)),
            Mode::Query => self.each(self.query(offset / self.width).into()),
        }
    }

    /// Writes one bus word. Both devices are given the same command; the first one's counts.
    pub fn write(&mut self, offset: u32, value: u32) {
        let offset = self.aligned(offset);
        if !self.nor.is_powered() || self.nor.is_busy() {
            return;
        }
        let command = value as u8;
        match core::mem::replace(&mut self.expects, Expects::Command) {
            Expects::Command => self.command(offset, command),
            Expects::ProgramData => self.program(offset, &[(offset, value)]),
            Expects::EraseConfirm { at } => self.confirm_erase(at, command),
            Expects::Lock { at } => match command {
                0x01 => self.lock(at),
                0xd0 => drop(self.locked.remove(&self.block(at))),
                0xff => self.mode = Mode::Array,
                _ => self.wrong_sequence(),
            },
            Expects::BufferCount => match value & 0xffff {
                count @ 0..BUFFER_WORDS => {
                    self.expects = Expects::BufferData { left: count + 1, words: Vec::new() };
                }
                _ => self.wrong_sequence(),
            },
            Expects::BufferData { left, mut words } => {
                words.push((offset, value));
                self.expects = match left - 1 {
                    0 => Expects::BufferConfirm { words },
                    left => Expects::BufferData { left, words },
                };
            }
            Expects::BufferConfirm { words } if command == 0xd0 => self.program_buffer(&words),
            Expects::BufferConfirm { .. } => self.wrong_sequence(),
        }
    }

    fn command(&mut self, offset: u32, command: u8) {
        self.mode = match command {
            0x50 => {
                self.errors = 0;
                Mode::Array
            }
            0x70 => Mode::Status,
            0x90 => Mode::Id,
            0x98 => Mode::Query,
            0x10 | 0x40 => {
                self.expects = Expects::ProgramData;
                Mode::Status
            }
            0x20 => {
                self.expects = Expects::EraseConfirm { at: offset };
                Mode::Status
            }
            0x60 => {
                self.expects = Expects::Lock { at: offset };
                Mode::Status
            }
            0xe8 => {
                self.expects = Expects::BufferCount;
                Mode::Status
            }
            _ => Mode::Array,
        };
    }

    fn wrong_sequence(&mut self) {
        self.mode = Mode::Status;
        self.errors |= ERASE_ERROR | PROGRAM_ERROR;
    }

    fn confirm_erase(&mut self, at: u32, command: u8) {
        if command == 0xff {
            self.mode = Mode::Array;
        } else if command != 0xd0 {
            self.wrong_sequence();
        } else if self.locked.contains(&self.block(at)) {
            self.errors |= ERASE_ERROR | LOCKED;
        } else {
            let size = self.nor.part().block();
            let begun = self.nor.erase(self.block(at) * size, size);
            self.note(begun, ERASE_ERROR);
        }
    }

    fn program_buffer(&mut self, words: &[(u32, u32)]) {
        // All of a buffer goes into one block.
        let first = words[0].0;
        if words.iter().any(|(at, _)| self.block(*at) != self.block(first)) {
            return self.wrong_sequence();
        }
        self.program(first, words);
    }

    fn program(&mut self, at: u32, words: &[(u32, u32)]) {
        if self.locked.contains(&self.block(at)) {
            self.errors |= PROGRAM_ERROR | LOCKED;
            return;
        }
        let (width, page) = (self.width, self.nor.part().page);
        let follows = |one: u32, next: u32| next == one + width && !next.is_multiple_of(page);
        for run in words.chunk_by(|one, next| follows(one.0, next.0)) {
            let bytes: Vec<u8> = run
                .iter()
                .flat_map(|(_, word)| word.to_le_bytes().into_iter().take(width as usize))
                .collect();
            // The devices' time is for the whole buffer: what came before is done.
            self.nor.finish();
            let begun = self.nor.program(run[0].0, &bytes);
            self.note(begun, PROGRAM_ERROR);
        }
    }

    fn note(&mut self, begun: Result<(), Fault>, error: u8) {
        match begun {
            Ok(()) | Err(Fault::NoPower) => {}
            Err(Fault::Busy | Fault::OutOfBounds | Fault::NotABlock) => self.errors |= error,
        }
    }

    fn array(&mut self, offset: u32) -> u32 {
        let mut word = [0; 4];
        let read = self.nor.read(offset, &mut word[..self.width as usize]);
        if read.is_ok() { u32::from_le_bytes(word) } else { self.each(0xffff) }
    }

    /// The same from each device.
    fn each(&self, value: u32) -> u32 {
        if self.width == 4 { value << 16 | value } else { value }
    }

    fn aligned(&self, offset: u32) -> u32 {
        offset & (self.nor.part().size - 1) & !(self.width - 1)
    }

    fn block(&self, at: u32) -> u32 {
        at / self.nor.part().block()
    }

    /// Manufacturer and device; at 2 of each block, whether it is locked.
    fn id(&self, word: u32) -> u32 {
        let [manufacturer, _, device] = self.nor.part().jedec;
        match word & 0xff {
            0 => manufacturer.into(),
            1 => device.into(),
            2 => self.locked.contains(&self.block(word * self.width)).into(),
            _ => 0,
        }
    }

    /// A byte of the query table (JEDEC JEP137B; Intel's command set is 1). Sizes are a device's.
    fn query(&self, word: u32) -> u8 {
        let devices = self.width / 2;
        let part = self.nor.part();
        let blocks = part.size / part.block() - 1;
        let block_units = part.block() / devices / 256;
        match word & 0xff {
            0x10 => b'Q',
            0x11 => b'R',
            0x12 => b'Y',
            0x13 => 1,
            0x27 => (part.size / devices).trailing_zeros() as u8,
            // A 16-bit interface.
            0x28 => 1,
            0x2a => (BUFFER_WORDS * 2).trailing_zeros() as u8,
            // One region of blocks alike.
            0x2c => 1,
            0x2d => blocks as u8,
            0x2e => (blocks >> 8) as u8,
            0x2f => block_units as u8,
            0x30 => (block_units >> 8) as u8,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
