//! `embedded_storage`'s traits straight on the array.

use embedded_storage::nor_flash::{
    ErrorType, MultiwriteNorFlash, NorFlash, NorFlashError, NorFlashErrorKind, ReadNorFlash,
};

use crate::nor::{Fault, Nor};

/// A flash as what is above a driver sees it: every operation is over when it returns. `WRITE`
/// and `ERASE` are the granularities in bytes.
#[derive(Clone, Debug)]
pub struct Direct<const WRITE: usize, const ERASE: usize>(pub Nor);

impl NorFlashError for Fault {
    fn kind(&self) -> NorFlashErrorKind {
        match self {
            Self::OutOfBounds => NorFlashErrorKind::OutOfBounds,
            Self::NotABlock => NorFlashErrorKind::NotAligned,
            Self::NoPower | Self::Busy => NorFlashErrorKind::Other,
        }
    }
}

impl<const WRITE: usize, const ERASE: usize> ErrorType for Direct<WRITE, ERASE> {
    type Error = Fault;
}

impl<const WRITE: usize, const ERASE: usize> ReadNorFlash for Direct<WRITE, ERASE> {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        self.0.read(offset, bytes)
    }

    fn capacity(&self) -> usize {
        self.0.part().size as usize
    }
}

impl<const WRITE: usize, const ERASE: usize> NorFlash for Direct<WRITE, ERASE> {
    const WRITE_SIZE: usize = WRITE;
    const ERASE_SIZE: usize = ERASE;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), Fault> {
        let size = ERASE as u32;
        if !from.is_multiple_of(size) || !to.is_multiple_of(size) || from > to {
            return Err(Fault::NotABlock);
        }
        for at in (from..to).step_by(ERASE) {
            self.0.erase(at, size)?;
            self.0.finish();
        }
        Ok(())
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), Fault> {
        if !(offset as usize).is_multiple_of(WRITE) || !bytes.len().is_multiple_of(WRITE) {
            return Err(Fault::NotABlock);
        }
        let page = self.0.part().page;
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let room = (page - at % page) as usize;
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.0.program(at, now)?;
            self.0.finish();
            at += now.len() as u32;
            rest = later;
        }
        Ok(())
    }
}

impl<const WRITE: usize, const ERASE: usize> MultiwriteNorFlash for Direct<WRITE, ERASE> {}
