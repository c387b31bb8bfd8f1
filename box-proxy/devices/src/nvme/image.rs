//! Where a namespace's blocks are: a file, or memory for tests.

pub use super::background::{Full, SLOW_OPS};

use super::background::{Background, Step};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What can take long: the image does it beside everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlowOp {
    /// Make everything durable that was written.
    Flush,
    /// Make ranges of bytes read as zeros.
    Zero {
        /// The bytes.
        extents: Vec<Range<u64>>,
        /// What becomes of the storage behind them.
        how: Zeroing,
        /// Whether it is to be durable then.
        flush: bool,
    },
}

/// How bytes become zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    /// Their storage is kept.
    Kept,
    /// Their storage may be given up.
    Deallocated,
    /// Their storage is given up if it can be; else they stay as they are (NVM Express 1.4 section 6.7: a
    /// host does not need them any more).
    Discarded,
}

impl SlowOp {
    /// Zeros one range of bytes.
    pub fn zero(extent: Range<u64>, how: Zeroing, flush: bool) -> Self {
        Self::Zero { extents: std::iter::once(extent).collect(), how, flush }
    }
}

/// The blocks of a namespace.
///
/// Reads and writes are bounded by the controller's largest transfer and are done when the call
/// returns; everything else is started and polled. No call waits for what was started.
pub trait Image: Send {
    /// Bytes in all.
    fn size(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// Reads `buf.len()` bytes from `offset`.
    ///
    /// # Errors
    ///
    /// Those of the storage.
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes at `offset`.
    ///
    /// # Errors
    ///
    /// Those of the storage.
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Starts what can take long. Those started earlier may end later.
    ///
    /// # Errors
    ///
    /// [`Full`], and nothing was started, when [`SLOW_OPS`] are there that were not yet told by
    /// [`finished`](Image::finished).
    fn start(&mut self, id: u64, op: SlowOp) -> Result<(), Full>;

    /// What was started and has ended: each once, unless it was abandoned.
    fn finished(&mut self) -> Option<(u64, io::Result<()>)>;

    /// Takes back what was started under that identifier: it ends early, as failed, unless it is
    /// too late. Until [`finished`](Image::finished) tells it, it may still be under way.
    fn cancel(&mut self, id: u64);

    /// Gives up everything that was started: nothing more of it begins, and
    /// [`finished`](Image::finished) tells nothing of it.
    fn abandon(&mut self);

    /// Whether nothing that was abandoned can change a block any more.
    fn is_settled(&self) -> bool;
}

/// An image in memory.
#[derive(Debug, Default)]
pub struct MemoryImage {
    bytes: Vec<u8>,
    done: VecDeque<(u64, io::Result<()>)>,
}

impl MemoryImage {
    /// All zeros.
    pub fn new(size: usize) -> Self {
        Self { bytes: vec![0; size], done: VecDeque::new() }
    }

    fn range(&mut self, offset: u64, len: usize) -> io::Result<&mut [u8]> {
        let at = usize::try_from(offset).ok();
        let range = at.and_then(|at| Some(at..at.checked_add(len)?));
        range.and_then(|range| self.bytes.get_mut(range)).ok_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the image")
        })
    }
}

impl Image for MemoryImage {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let len = buf.len();
        buf.copy_from_slice(self.range(offset, len)?);
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.range(offset, data.len())?.copy_from_slice(data);
        Ok(())
    }

    fn start(&mut self, id: u64, op: SlowOp) -> Result<(), Full> {
        if self.done.len() >= SLOW_OPS {
            return Err(Full);
        }
        let result = match op {
            SlowOp::Flush => Ok(()),
            SlowOp::Zero { extents, .. } => extents.into_iter().try_for_each(|extent| {
                let len = usize::try_from(extent.end - extent.start).unwrap_or(usize::MAX);
                self.range(extent.start, len).map(|range| range.fill(0))
            }),
        };
        self.done.push_back((id, result));
        Ok(())
    }

    fn finished(&mut self) -> Option<(u64, io::Result<()>)> {
        self.done.pop_front()
    }

    /// It is always too late.
    fn cancel(&mut self, _id: u64) {}

    fn abandon(&mut self) {
        self.done.clear();
    }

    fn is_settled(&self) -> bool {
        true
    }
}

/// An image file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It cannot be opened or looked at.
    #[error("image {}: {error}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// Another process has it.
    #[error("image {} is in use by another process; give each drive an image of its own", .0.display())]
    InUse(PathBuf),
    /// It is neither a file nor a block device, or empty.
    #[error("image {} has no size; make it with, say, `truncate -s 1G {}`", .0.display(), .0.display())]
    Empty(PathBuf),
}

/// An image file, or a block device. Locked while it is open.
///
/// Reads and writes go through the page cache; a thread of its own does what can take long.
#[derive(Debug)]
pub struct FileImage {
    file: File,
    size: u64,
    read_only: bool,
    background: Background,
}

impl FileImage {
    /// Opens an image.
    ///
    /// # Errors
    ///
    /// [`ImageError`] names the file and says what to do.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, ImageError> {
        let failed = |error| ImageError::Open { path: path.into(), error };
        let file = OpenOptions::new().read(true).write(!read_only).open(path).map_err(failed)?;
        let lock = if read_only {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        flock(&file, lock).map_err(|error| match error {
            Errno::WOULDBLOCK => ImageError::InUse(path.into()),
            error => failed(error.into()),
        })?;
        // Unlike its metadata, the end of a block device is its size.
        let size = io::Seek::seek(&mut &file, io::SeekFrom::End(0)).map_err(failed)?;
        if size == 0 {
            return Err(ImageError::Empty(path.into()));
        }
        let worker = file.try_clone().map_err(failed)?;
        let background = Background::spawn(move |step| carry_out(&worker, step)).map_err(failed)?;
        Ok(Self { file, size, read_only, background })
    }
}

fn carry_out(file: &File, step: Step) -> io::Result<()> {
    match step {
        Step::Flush => file.sync_data(),
        Step::Zero { offset, len, how } => {
            let flags = match how {
                Zeroing::Kept => FallocateFlags::ZERO_RANGE,
                Zeroing::Deallocated | Zeroing::Discarded => FallocateFlags::PUNCH_HOLE,
            };
            match fallocate(file, flags | FallocateFlags::KEEP_SIZE, offset, len) {
                // Not all storage can, nor any part of its own blocks; all of it can be written to. That
                // takes as long as it takes, and is not done for what nobody needs to be zeros.
                Err(Errno::OPNOTSUPP | Errno::INVAL) => match how {
                    Zeroing::Discarded => Ok(()),
                    Zeroing::Kept | Zeroing::Deallocated => write_zeros(file, offset, len),
                },
                result => result.map_err(io::Error::from),
            }
        }
    }
}

fn write_zeros(file: &File, mut offset: u64, mut len: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
    while len > 0 {
        let part = len.min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..part as usize], offset)?;
        (offset, len) = (offset + part, len - part);
    }
    Ok(())
}

impl Image for FileImage {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn start(&mut self, id: u64, op: SlowOp) -> Result<(), Full> {
        self.background.start(id, op)
    }

    fn finished(&mut self) -> Option<(u64, io::Result<()>)> {
        self.background.finished()
    }

    fn cancel(&mut self, id: u64) {
        self.background.cancel(id);
    }

    fn abandon(&mut self) {
        self.background.abandon();
    }

    fn is_settled(&self) -> bool {
        self.background.is_settled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(image: &mut FileImage) -> (u64, io::Result<()>) {
        loop {
            if let Some(ended) = image.finished() {
                return ended;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_file_keeps_what_is_written_and_forgets_what_is_zeroed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, vec![7; 1 << 16]).unwrap();
        let mut image = FileImage::open(&path, false).unwrap();
        assert_eq!(image.size(), 1 << 16);
        image.write(4096, b"hello").unwrap();
        for (id, how) in [(1, Zeroing::Deallocated), (2, Zeroing::Kept)] {
            let op = SlowOp::zero(8192 * id..8192 * (id + 1), how, true);
            image.start(id, op).unwrap();
            assert!(matches!(wait(&mut image), (i, Ok(())) if i == id));
        }
        image.start(3, SlowOp::Flush).unwrap();
        assert!(matches!(wait(&mut image), (3, Ok(()))));
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 1 << 16);
        assert_eq!(&bytes[4096..4102], b"hello\x07");
        assert!(bytes[8192..8192 * 3].iter().all(|&byte| byte == 0));
        assert_eq!(bytes[8192 * 3], 7);
        assert!(image.read(1 << 16, &mut [0]).is_err());
    }

    #[test]
    fn images_that_cannot_be_used_say_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let error = FileImage::open(&path, false).unwrap_err().to_string();
        assert!(error.contains("image") && error.contains("No such file"), "{error}");
        std::fs::write(&path, []).unwrap();
        assert!(FileImage::open(&path, false).unwrap_err().to_string().contains("truncate"));
        std::fs::write(&path, [1; 4096]).unwrap();
        let _held = FileImage::open(&path, false).unwrap();
        let error = FileImage::open(&path, false).unwrap_err();
        assert!(matches!(error, ImageError::InUse(_)), "{error}");
    }
}
