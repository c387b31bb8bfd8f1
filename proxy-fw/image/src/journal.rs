//! Records in two erase blocks of flash, of which the newest counts (`docs/image.md`, "Journal").
//!
//! A record is written in one piece where nothing was since the block was erased. When a block is
//! full, the other one is erased and takes the next record; the full block keeps the newest one
//! until that is there. So a power cut at any point leaves the record before or the new one.

use core::fmt;

use embedded_storage::nor_flash::NorFlash;

use crate::header::crc32;
use crate::layout::Region;

/// Records that are tried before flash that does not keep them is given up: in front of one that is kept
/// there is one place less that may look blank.
pub const TRIES: usize = 8;

/// Erases that may fail meanwhile, one of each block: each may take seconds, in which a card does nothing else.
const ERASES: usize = 2;

/// Why nothing was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalError<E> {
    /// The flash did not do it. What is read next time is the old record, or the new one.
    Flash(E),
    /// What was written read back as something else, again and again: the flash is worn out, or
    /// protected.
    Worn,
    /// There are no sequence numbers left.
    Exhausted,
}

impl<E: fmt::Debug> fmt::Display for JournalError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flash(error) => write!(f, "the flash did not take a record: {error:?}"),
            Self::Worn => {
                f.write_str("the flash does not keep records: it is worn out or protected")
            }
            Self::Exhausted => f.write_str("the journal has no sequence numbers left"),
        }
    }
}

impl<E: fmt::Debug> core::error::Error for JournalError<E> {}

/// A journal with records of `N` bytes, of which 8 are its own: the sequence number before the
/// content, the CRC after it. `N` is a power of two, so that records never share a program page
/// with half of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal<const N: usize> {
    region: Region,
    /// Which of the two blocks has the newest record, when there is one.
    holder: Option<u8>,
    /// The block that is written next, and where in it.
    block: u8,
    next: u32,
    /// The highest number that was used.
    sequence: u32,
}

impl<const N: usize> Journal<N> {
    const FITS: () = assert!(N > 8 && N.is_power_of_two(), "records fill program pages");

    /// Looks for the newest record in a region of two erase blocks. Each one that is not older
    /// than those before is given to `content`, `N - 8` bytes, which says whether it means something to
    /// it: one that does not is no record, and is never what keeps an older one from being kept.
    ///
    /// # Errors
    ///
    /// When the flash cannot be read.
    ///
    /// # Panics
    ///
    /// When records are not whole units of this flash, or the blocks not whole erase blocks: the
    /// board's constants are wrong.
    pub fn open<F: NorFlash>(
        flash: &mut F,
        region: Region,
        mut content: impl FnMut(&[u8]) -> bool,
    ) -> Result<Self, F::Error> {
        let () = Self::FITS;
        assert!(N.is_multiple_of(F::WRITE_SIZE) && N.is_multiple_of(F::READ_SIZE));
        assert!((region.len as usize / 2).is_multiple_of(F::ERASE_SIZE));
        assert!((region.len as usize / 2).is_multiple_of(N), "records fill a block");
        let newest = find(flash, region, &mut [0; N], &mut content)?;
        let Some(Newest { sequence, holder, end }) = newest else {
            // Nothing says that what looks blank was ever erased. The first block comes next.
            return Ok(Self { region, holder: None, block: 1, next: region.len / 2, sequence: 0 });
        };
        Ok(Self { region, holder: Some(holder), block: holder, next: end, sequence })
    }

    /// Whether there is a record.
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.holder.is_some()
    }

    /// The highest sequence number that was used; 0 when there is no record.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Adds a record, which is the newest then.
    ///
    /// # Errors
    ///
    /// When it is not there: the record before is still the newest, unless the flash did more
    /// than it said.
    ///
    /// # Panics
    ///
    /// When the content has not `N - 8` bytes.
    pub fn append<F: NorFlash>(
        &mut self,
        flash: &mut F,
        content: &[u8],
    ) -> Result<(), JournalError<F::Error>> {
        assert_eq!(content.len(), N - 8, "a record's content");
        let mut why = JournalError::Worn;
        let mut refused = 0;
        for tried in 0..TRIES {
            if tried == TRIES / 2 && self.holder.is_none() {
                // Who opens the journal begins here again: the other block gets its part of the tries.
                self.next = self.block_len();
            }
            if self.next == self.block_len()
                && let Err(error) = self.turn(flash)
            {
                why = JournalError::Flash(error);
                refused += 1;
                if refused == ERASES {
                    break;
                }
                continue;
            }
            let sequence = self.sequence.checked_add(1).ok_or(JournalError::Exhausted)?;
            let record = Self::record(sequence, content);
            let at = self.address(self.block, self.next);
            // Used up, however it ends.
            self.next += N as u32;
            self.sequence = sequence;
            let mut back = [0; N];
            let read = flash.write(at, &record).and_then(|()| flash.read(at, &mut back));
            why = match read {
                Ok(()) if back == record => {
                    self.holder = Some(self.block);
                    return Ok(());
                }
                Ok(()) => JournalError::Worn,
                // It may be the place's fault, as a part says that it could not program it.
                Err(error) => JournalError::Flash(error),
            };
        }
        Err(why)
    }

    /// Erases the block that does not have the newest record, to be written next; of two without one, the
    /// one that was not tried last, so that a block that is worn out from the beginning costs no more
    /// than itself. Whether all of it is blank shows in what reads back of the records: one bit that
    /// stays 0 costs one place, not the block.
    fn turn<F: NorFlash>(&mut self, flash: &mut F) -> Result<(), F::Error> {
        self.block = 1 - self.holder.unwrap_or(self.block);
        let start = self.address(self.block, 0);
        flash.erase(start, start + self.block_len())?;
        self.next = 0;
        Ok(())
    }

    fn block_len(&self) -> u32 {
        self.region.len / 2
    }

    fn address(&self, block: u8, at: u32) -> u32 {
        self.region.start + u32::from(block) * self.block_len() + at
    }

    fn record(sequence: u32, content: &[u8]) -> [u8; N] {
        let mut record = [0; N];
        record[..4].copy_from_slice(&sequence.to_le_bytes());
        record[4..N - 4].copy_from_slice(content);
        let crc = crc32(&record[..N - 4]);
        record[N - 4..].copy_from_slice(&crc.to_le_bytes());
        record
    }
}

/// The newest record.
struct Newest {
    sequence: u32,
    /// The block that has it.
    holder: u8,
    /// Where the records of that block end.
    end: u32,
}

/// Looks for the newest record, with room for one. The code is there once for records of any length.
#[inline(never)]
fn find<F: NorFlash>(
    flash: &mut F,
    region: Region,
    record: &mut [u8],
    content: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Option<Newest>, F::Error> {
    let block_len = region.len / 2;
    let mut newest: Option<Newest> = None;
    for block in 0..2 {
        let mut end = 0;
        for at in (0..block_len).step_by(record.len()) {
            let address = region.start + u32::from(block) * block_len + at;
            flash.read(address, record)?;
            if parse(record).is_none() && (end == at || record.iter().any(|&byte| byte != 0xff)) {
                // The bus tells no error: a bit of a good record may have come wrong, or a bit of the
                // command or the address, so that nothing answered. Nothing is behind what is blank.
                flash.read(address, record)?;
            }
            if record.iter().any(|&byte| byte != 0xff) {
                end = at + record.len() as u32;
            }
            let Some((sequence, found)) = parse(record) else { continue };
            let before = newest.as_ref().map_or(0, |newest| newest.sequence);
            if sequence >= before && content(found) {
                newest = Some(Newest { sequence, holder: block, end });
            }
        }
        if let Some(newest) = newest.as_mut().filter(|newest| newest.holder == block) {
            newest.end = end;
        }
    }
    Ok(newest)
}

/// Sequence number, which is not 0, and content of a whole record.
fn parse(record: &[u8]) -> Option<(u32, &[u8])> {
    let (covered, crc) = record.split_last_chunk::<4>()?;
    let (sequence, content) = covered.split_first_chunk::<4>()?;
    let sequence = u32::from_le_bytes(*sequence);
    let whole = sequence != 0 && crc32(covered) == u32::from_le_bytes(*crc);
    whole.then_some((sequence, content))
}

#[cfg(test)]
mod tests;
