//! A file with what is in a bank of the flash.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sim_card::Card;

/// Bytes that are written at once when one of them changed.
const CHUNK: usize = 64 << 10;

/// The file of one bank. It has all of the bank's bytes, those of empty cells, too.
pub(crate) struct FlashFile {
    path: PathBuf,
    file: File,
    bank: usize,
    /// What is in the file.
    saved: Vec<u8>,
    /// Steps of the flash then.
    steps: u64,
}

impl FlashFile {
    /// Puts what is in the file into the bank. A file that is not there is made, and it or an empty
    /// one is filled with empty cells. One of another length is no bank's: it is left as it is.
    pub(crate) fn open(path: &Path, bank: usize, card: &mut Card) -> Result<Self> {
        let shown = path.display();
        let (_, size) = card.board.flash();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| format!("cannot open flash file {shown} for reading and writing"))?;
        let there = file.metadata().with_context(|| format!("cannot look at {shown}"))?;
        if !there.is_file() {
            bail!("flash file {shown} is no file; give one that a card's flash is kept in");
        }
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            bail!(
                "flash file {shown} is in use, by another card or by another bank of this one; give \
                 each a file of its own"
            );
        }
        let length = there.len();
        if length != 0 && length != u64::from(size) {
            bail!(
                "flash file {shown} has {length} bytes, a bank of the flash has {size}; give the \
                 file of one bank, or one that is not there yet for a new flash"
            );
        }
        let mut saved = Vec::with_capacity(size as usize);
        file.read_to_end(&mut saved).with_context(|| format!("cannot read flash file {shown}"))?;
        let missing = vec![0xff; size as usize - saved.len()];
        file.write_all(&missing).with_context(|| format!("cannot write flash file {shown}"))?;
        saved.extend(missing);
        let nor = card.board.nor(bank);
        nor.preload(0, &saved);
        Ok(Self { path: path.to_owned(), file, bank, saved, steps: nor.steps() })
    }

    /// Writes what has changed.
    pub(crate) fn save(&mut self, card: &mut Card) -> Result<()> {
        let nor = card.board.nor(self.bank);
        if self.steps == nor.steps() {
            return Ok(());
        }
        // Steps count when an operation begins, and cells change when it ends.
        if !nor.is_busy() {
            self.steps = nor.steps();
        }
        let chunks = nor.cells().chunks(CHUNK).zip(self.saved.chunks_mut(CHUNK));
        for (at, (now, before)) in (0..).step_by(CHUNK).zip(chunks) {
            if now != before {
                self.file
                    .seek(SeekFrom::Start(at))
                    .and_then(|_| self.file.write_all(now))
                    .with_context(|| format!("cannot write flash file {}", self.path.display()))?;
                before.copy_from_slice(now);
            }
        }
        Ok(())
    }
}
