//! A card's flash through a probe, as `embedded_storage`'s traits: what the code of images, slots
//! and settings works on, here as on the card.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use card_image::{JOURNAL_TRIES, Region};
use embedded_storage::nor_flash::{
    ErrorType, NorFlash, NorFlashError, NorFlashErrorKind, ReadNorFlash,
};
use flash_algorithm::Fault;
use probe_rs::{Core, MemoryInterface, Target};

use super::algorithm::Loaded;
use super::held::Held;
use super::{GOES_ON, jedec, lost, still, stopped};
use crate::board::Board;
use crate::failure::{Failure, Kind};
use crate::probe::{ProbeName, told};

/// Bytes that are read at once where one reading follows the other, and kept: each reading costs a
/// few round trips over USB.
const AHEAD: u32 = 4 << 10;

/// Two pieces hold as many records of settings, the largest ones, as a journal leaves blank at most.
const _: () = assert!(2 * AHEAD as usize >= JOURNAL_TRIES * soc::settings::RECORD);

/// Pieces of that many bytes that are kept.
const KEPT: usize = 1024;

/// Bytes of a page.
const PAGE: u32 = 256;

/// Why the flash did not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlashFault {
    /// The card does not answer any more.
    Lost(String),
    /// The part, or the block that it is at.
    Part(Fault),
    /// The algorithm gave a number that is no fault's.
    Strange(u32),
    /// The algorithm did not come back in time.
    Late(Duration),
    /// It stopped here instead of coming back.
    Astray(u32),
    /// The board file's algorithm cannot be used.
    Algorithm(String),
    /// The card's memory does not keep what is written to it.
    Memory,
    /// The flash was opened for reading.
    ReadOnly,
    /// A person has interrupted it while it read, and the card's program goes on.
    Interrupted,
    /// The same, and the card's program stood still before.
    StillHalted,
    /// A person has interrupted it while it wrote, and the card's program stands still.
    LeftHalted,
    /// The card's program never left the flash alone.
    InUse,
    /// A program that stands still was stopped while it used the flash.
    StoppedInUse,
    /// The SPI block is not at the board file's address.
    NoSpi {
        /// The address.
        at: u32,
        /// What is there instead.
        found: String,
    },
    /// Address or length are not aligned.
    NotAligned,
    /// Beyond the end.
    OutOfBounds,
}

impl fmt::Display for FlashFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(why) => write!(f, "the card does not answer any more ({why})"),
            Self::Part(fault) => fault.fmt(f),
            Self::Strange(code) => write!(f, "the flash algorithm gave the unknown number {code}"),
            Self::Late(timeout) => {
                write!(f, "the flash algorithm was not done after {} s", timeout.as_secs_f32())
            }
            Self::Astray(pc) => write!(f, "the flash algorithm stopped at {pc:#010x}"),
            Self::Algorithm(why) => write!(f, "the flash algorithm cannot be used: {why}"),
            Self::Memory => f.write_str("the card's memory does not keep what is written to it"),
            Self::ReadOnly => f.write_str("the flash was opened for reading"),
            Self::Interrupted => f.write_str("it was interrupted; the card's program goes on"),
            Self::StillHalted => f.write_str("it was interrupted; the card is halted, as it was"),
            Self::LeftHalted => f.write_str("it was interrupted; the card is left halted"),
            Self::InUse => f.write_str(
                "the card's program uses the flash all the time, so that nobody else can read it",
            ),
            Self::StoppedInUse => f.write_str(
                "the card was halted while its program used the flash, which cannot be read so",
            ),
            Self::NoSpi { at, found } => write!(
                f,
                "the card's SPI block is not at {at:#010x}, where the board file has it ({found})"
            ),
            Self::NotAligned => f.write_str("address or length are not aligned"),
            Self::OutOfBounds => f.write_str("there is no such address in the flash"),
        }
    }
}

impl std::error::Error for FlashFault {}

impl From<probe_rs::Error> for FlashFault {
    fn from(error: probe_rs::Error) -> Self {
        Self::Lost(told(&error))
    }
}

impl NorFlashError for FlashFault {
    fn kind(&self) -> NorFlashErrorKind {
        match self {
            Self::NotAligned => NorFlashErrorKind::NotAligned,
            Self::OutOfBounds => NorFlashErrorKind::OutOfBounds,
            _ => NorFlashErrorKind::Other,
        }
    }
}

impl FlashFault {
    /// That nothing was done to a card, whose program stood still before or goes on.
    pub(super) fn interrupted(was_halted: bool) -> Self {
        if was_halted { Self::StillHalted } else { Self::Interrupted }
    }

    /// As a person is told.
    #[must_use]
    pub fn told(&self, probe: &ProbeName) -> Failure {
        let failure = |kind| Failure::new(kind, self);
        match self {
            Self::Lost(why) => {
                let why = std::io::Error::other(why.clone());
                lost(probe, "the card does not answer any more", &why)
            }
            Self::Part(Fault::Protected) => failure(Kind::Flash)
                .check("is the flash's write-protect jumper or switch set?")
                .check("are its block protection bits set? A vendor's tool may have done that"),
            Self::Part(Fault::Bus | Fault::NotAnswering | Fault::NoParameters) => {
                failure(Kind::Flash).checks(&[
                    "is it the right board file? Its SPI block may be elsewhere",
                    "is the FPGA configured with a card's bitstream?",
                    "is the flash chip on this board fitted?",
                ])
            }
            Self::InUse | Self::StoppedInUse => failure(Kind::Flash)
                .check("stop the card before its program: `dxpu-flash reset --halt`, then the same command again")
                .check("`dxpu-flash reset` starts the card when all is read"),
            Self::NoSpi { .. } => failure(Kind::Input)
                .check("correct `spi`, or `window`, in the board file (docs/boards.md)")
                .check("is it the file of this board, and the FPGA configured with this board's bitstream?"),
            Self::Part(Fault::NoSuchErase) => failure(Kind::Flash)
                .check("the board file's erase_block is not one of this flash's; another flash may be fitted"),
            Self::Part(Fault::Busy | Fault::NotBlank) | Self::Late(_) => failure(Kind::Flash)
                .check("give the same command again; if it stays so, the flash is worn out or its supply is too low"),
            Self::Memory => failure(Kind::Card).checks(&[
                "`load_address` in the board file: the memory there has to work right after a reset, which \
                 one that a BIOS sets up does not (docs/boards.md)",
                "is the clock too fast? Try --clock 1000",
            ]),
            Self::Strange(_) | Self::Astray(_) => failure(Kind::Card).checks(&[
                "is the clock too fast? Try --clock 1000",
                "is it the right board file? Its memory may be elsewhere",
            ]),
            Self::Algorithm(_) => {
                failure(Kind::Input).check("correct the part `target` of the board file")
            }
            Self::Part(Fault::NoLongAddresses) => failure(Kind::Flash)
                .check("another flash than the board's may be fitted: `dxpu-flash info` has its ID"),
            Self::Interrupted => failure(Kind::Other).check("give the command again"),
            Self::StillHalted => failure(Kind::Other)
                .check("give the command again")
                .check("`dxpu-flash reset` starts the card"),
            Self::LeftHalted => failure(Kind::Other)
                .check(format!("give the command again: {GOES_ON}"))
                .check("`dxpu-flash reset` starts the card"),
            Self::Part(Fault::OutOfRange) | Self::NotAligned | Self::OutOfBounds => {
                failure(Kind::Flash).check(
                    "is it the right board file? Its `layout` has to be that of the flash (docs/boards.md)",
                )
            }
            // Nobody writes what was opened so: a mistake in the program.
            Self::ReadOnly => failure(Kind::Other).check("use another version of dxpu-flash"),
        }
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0xff)
}

/// The flash of a card that is attached to.
pub struct CardFlash<'card> {
    core: Core<'card>,
    /// Whether the card's program is to go on when this is done with.
    goes_on: bool,
    /// Signals wait until it goes on.
    held: Option<Held>,
    /// Manufacturer, kind and capacity; known where the flash is read.
    id: [u8; 3],
    window: u32,
    /// Address of the SPI block.
    spi: u32,
    size: u32,
    block: u32,
    /// Without it the flash is only read.
    loaded: Option<Loaded>,
    /// Regions of two blocks that are journals.
    journals: [Region; 2],
    /// What was read ahead and not written since, by its number.
    kept: BTreeMap<u32, Vec<u8>>,
    /// What is known to be blank.
    blank: Vec<Range<u32>>,
    /// Where the last reading ended.
    last_end: u32,
}

impl<'card> CardFlash<'card> {
    /// The flash of a card whose program is stopped meanwhile; one that is halted stays so.
    pub(super) fn reading(
        mut core: Core<'card>,
        is_halted: bool,
        board: &Board,
    ) -> Result<Self, FlashFault> {
        let held = Held::new();
        still::stop(&mut core, is_halted, board, &held)?;
        if is_halted && held.is_interrupted() {
            // From here on a signal ends this program, since the card needs nothing of it.
            return Err(FlashFault::interrupted(is_halted));
        }
        let mut flash = Self::new(core, board, None);
        (flash.goes_on, flash.held) = (!is_halted, (!is_halted).then_some(held));
        flash.id = jedec::jedec_id(&mut flash.core, board.spi)?;
        Ok(flash)
    }

    /// The flash of a card that is reset and stays halted; `was_halted`: its program stood still before.
    pub(super) fn writing(
        mut core: Core<'card>,
        was_halted: bool,
        target: &Target,
        board: &Board,
    ) -> Result<Self, FlashFault> {
        let held = Held::new();
        if held.is_interrupted() {
            // It came when what was read before was at its end: the card is as it was.
            return Err(FlashFault::interrupted(was_halted));
        }
        stopped::stops();
        let loaded = Loaded::load(&mut core, target, board)?;
        let mut flash = Self::new(core, board, Some(loaded));
        flash.held = Some(held);
        Ok(flash)
    }

    fn new(core: Core<'card>, board: &Board, loaded: Option<Loaded>) -> Self {
        Self {
            core,
            goes_on: false,
            held: None,
            id: [0; 3],
            window: board.window,
            spi: board.spi,
            size: board.layout.parts().flash,
            block: board.layout.erase_block(),
            loaded,
            journals: [board.layout.boot_state(), board.layout.config()],
            kept: BTreeMap::new(),
            blank: Vec::new(),
            last_end: u32::MAX,
        }
    }

    /// The flash's manufacturer, kind and capacity (JEDEC JEP106), where it was opened for reading.
    #[must_use]
    pub fn jedec_id(&self) -> [u8; 3] {
        self.id
    }

    /// Whether it was opened for writing, too.
    #[must_use]
    pub fn is_to_be_written(&self) -> bool {
        self.loaded.is_some()
    }

    /// Compares bytes with what is there: the first address that differs.
    ///
    /// # Errors
    ///
    /// When the flash cannot be read.
    pub fn difference(&mut self, at: u32, bytes: &[u8]) -> Result<Option<u32>, FlashFault> {
        let mut there = vec![0; bytes.len()];
        self.read(at, &mut there)?;
        Ok(there.iter().zip(bytes).position(|(is, should)| is != should).map(|n| at + n as u32))
    }

    /// An error if a signal came.
    fn unless_interrupted(&self) -> Result<(), FlashFault> {
        match (&self.held, &self.loaded) {
            (Some(held), None) if held.is_interrupted() => Err(FlashFault::Interrupted),
            (Some(held), Some(_)) if held.is_interrupted() => Err(FlashFault::LeftHalted),
            _ => Ok(()),
        }
    }

    fn check(&self, offset: u32, length: u64) -> Result<(), FlashFault> {
        if u64::from(offset) + length > self.size.into() {
            Err(FlashFault::OutOfBounds)
        } else {
            Ok(())
        }
    }

    /// After so much that is blank, whether all is that follows in the block: the card itself finds
    /// out much sooner than a probe reads it. Where nothing is loaded that asks it, a journal is
    /// known to have nothing after two such pieces: so many places it leaves blank in front of no record.
    fn look_beyond(&mut self, from: u32) -> Result<(), FlashFault> {
        let end = from.next_multiple_of(self.block);
        if from == end {
            return Ok(());
        }
        let blank = match &self.loaded {
            Some(loaded) => {
                let address = self.window + from;
                match loaded.check_blank(&mut self.core, address, end - from) {
                    Ok(()) => true,
                    Err(FlashFault::Part(Fault::NotBlank)) => false,
                    Err(fault) => return Err(fault),
                }
            }
            None => {
                let before = self.kept.get(&(from / AHEAD).wrapping_sub(2));
                end - self.block + 2 * AHEAD <= from
                    && before.is_some_and(|piece| is_blank(piece))
                    && self.journals.iter().any(|journal| journal.contains(from, end - from))
            }
        };
        if blank {
            self.blank.push(from..end);
        }
        Ok(())
    }

    /// What was known of a range is not any more.
    fn forget(&mut self, from: u32, to: u32) {
        self.blank.retain(|range| range.end <= from || to <= range.start);
        self.kept.retain(|number, _| (number + 1) * AHEAD <= from || to <= number * AHEAD);
        // Reading what was just written is no reading ahead.
        self.last_end = u32::MAX;
    }

    /// Has a piece kept.
    fn keep(&mut self, number: u32) -> Result<(), FlashFault> {
        if self.kept.contains_key(&number) {
            return Ok(());
        }
        if self.kept.len() == KEPT {
            self.kept.clear();
        }
        let start = number * AHEAD;
        let mut piece = vec![0; AHEAD.min(self.size - start) as usize];
        self.fetch(start, &mut piece)?;
        if is_blank(&piece) {
            self.look_beyond(start + piece.len() as u32)?;
        }
        self.kept.insert(number, piece);
        Ok(())
    }

    /// Reads from the window.
    fn fetch(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), FlashFault> {
        self.unless_interrupted()?;
        let address = u64::from(self.window) + u64::from(offset);
        // Words are what a probe reads at once.
        if address.is_multiple_of(4) && bytes.len().is_multiple_of(4) {
            let mut words = vec![0; bytes.len() / 4];
            self.core.read_32(address, &mut words)?;
            for (into, word) in bytes.chunks_exact_mut(4).zip(words) {
                into.copy_from_slice(&word.to_le_bytes());
            }
            return Ok(());
        }
        Ok(self.core.read(address, bytes)?)
    }
}

impl Drop for CardFlash<'_> {
    fn drop(&mut self) {
        // A card that does not answer any more has been told of already.
        if self.goes_on && self.core.run().is_ok() {
            stopped::runs();
        }
    }
}

impl ErrorType for CardFlash<'_> {
    type Error = FlashFault;
}

impl ReadNorFlash for CardFlash<'_> {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), FlashFault> {
        self.check(offset, bytes.len() as u64)?;
        let end = offset + bytes.len() as u32;
        let follows = std::mem::replace(&mut self.last_end, end) == offset;
        if self.blank.iter().any(|range| range.start <= offset && end <= range.end) {
            bytes.fill(0xff);
            return Ok(());
        }
        let number = offset / AHEAD;
        // What does not lie in one piece is read as it is.
        if bytes.is_empty() || (end - 1) / AHEAD != number {
            return self.fetch(offset, bytes);
        }
        if follows {
            self.keep(number)?;
        }
        match self.kept.get(&number) {
            Some(piece) => {
                let start = (offset % AHEAD) as usize;
                bytes.copy_from_slice(&piece[start..start + bytes.len()]);
                Ok(())
            }
            None => self.fetch(offset, bytes),
        }
    }

    fn capacity(&self) -> usize {
        self.size as usize
    }
}

impl NorFlash for CardFlash<'_> {
    const WRITE_SIZE: usize = 1;
    // What all parts can at least; a board's blocks are larger, and checked.
    const ERASE_SIZE: usize = 256;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), FlashFault> {
        let length = to.checked_sub(from).ok_or(FlashFault::OutOfBounds)?;
        self.check(from, length.into())?;
        if !from.is_multiple_of(self.block) || !length.is_multiple_of(self.block) {
            return Err(FlashFault::NotAligned);
        }
        self.forget(from, to);
        let loaded = self.loaded.as_ref().ok_or(FlashFault::ReadOnly)?;
        for at in (from..to).step_by(self.block as usize) {
            self.unless_interrupted()?;
            let address = self.window + at;
            loaded.erase(&mut self.core, address)?;
            let blank = loaded.check_blank(&mut self.core, address, self.block);
            if matches!(blank, Err(FlashFault::Part(Fault::NotBlank)))
                && jedec::is_protected(&mut self.core, self.spi)?
            {
                return Err(FlashFault::Part(Fault::Protected));
            }
            blank?;
        }
        Ok(())
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), FlashFault> {
        self.check(offset, bytes.len() as u64)?;
        self.forget(offset, offset + bytes.len() as u32);
        let loaded = self.loaded.as_ref().ok_or(FlashFault::ReadOnly)?;
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            self.unless_interrupted()?;
            let room = (PAGE - at % PAGE) as usize;
            let (now, later) = rest.split_at(room.min(rest.len()));
            loaded.program(&mut self.core, self.window + at, now)?;
            at += now.len() as u32;
            rest = later;
        }
        Ok(())
    }
}
