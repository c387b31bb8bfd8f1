//! Where a namespace's blocks are: a file, or memory for tests.

pub use super::background::{Full, MAX_OPS};

use super::background::{Background, Step, Storage};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What may have to wait for storage: the image does it beside everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageOp {
    /// Read bytes.
    Read {
        /// The first one.
        offset: u64,
        /// How many.
        len: usize,
    },
    /// Write bytes.
    Write {
        /// The place of the first one.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
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

impl ImageOp {
    /// Whether it reads or writes blocks.
    pub(super) fn is_transfer(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Write { .. })
    }

    /// How many bytes it zeros.
    pub(super) fn zeroes(&self) -> u64 {
        match self {
            Self::Zero { extents, .. } => {
                extents.iter().map(|extent| extent.end - extent.start).sum()
            }
            Self::Read { .. } | Self::Write { .. } | Self::Flush => 0,
        }
    }

    /// Zeros one range of bytes.
    pub fn zero(extent: Range<u64>, how: Zeroing, flush: bool) -> Self {
        Self::Zero { extents: std::iter::once(extent).collect(), how, flush }
    }
}

/// An operation that has ended: what it was started as, and what came of it, which is the bytes of
/// one that reads.
pub type Ended = (u64, io::Result<Vec<u8>>);

/// The blocks of a namespace.
///
/// What can be done at once is done when the call returns; everything else is started and polled. No
/// call waits for storage.
pub trait Image: Send {
    /// Bytes in all.
    fn size(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// Reads `buf.len()` bytes from `offset`, unless that would have to wait: then it is `false`,
    /// the bytes may be any, and [`ImageOp::Read`] reads them.
    ///
    /// # Errors
    ///
    /// Those of the storage.
    fn read_now(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<bool>;

    /// Writes at `offset`, unless that would have to wait: then it is `false`, some of the bytes may
    /// be written, and [`ImageOp::Write`] writes them.
    ///
    /// # Errors
    ///
    /// Those of the storage.
    fn write_now(&mut self, offset: u64, data: &[u8]) -> io::Result<bool>;

    /// Starts what may have to wait. Those started earlier may end later; but what zeros blocks
    /// comes behind every write that was started before it.
    ///
    /// # Errors
    ///
    /// [`Full`], and nothing was started, when [`MAX_OPS`] are there that were not yet told by
    /// [`finished`](Image::finished).
    fn start(&mut self, id: u64, op: ImageOp) -> Result<(), Full>;

    /// What was started and has ended: each once, unless it was abandoned.
    fn finished(&mut self) -> Option<Ended>;

    /// Takes back what was started under that identifier: it ends early, as failed, unless it is
    /// too late. Until [`finished`](Image::finished) tells it, it may still be under way.
    fn cancel(&mut self, id: u64);

    /// Gives up everything that was started: nothing more of it begins, and
    /// [`finished`](Image::finished) tells nothing of it.
    fn abandon(&mut self);

    /// Whether nothing that was abandoned can change a block any more.
    fn is_settled(&self) -> bool;

    /// Bytes that what was started under that identifier has still to zero: of what has ended, or is not
    /// done bit by bit, none.
    fn left(&self, _id: u64) -> u64 {
        0
    }

    /// Whether a flush has failed since this was asked last: any, also one that was cancelled or
    /// abandoned, or with which something else ends. What was written before it may be lost although a
    /// later flush is good. An image whose flushes do not fail has nothing to say.
    fn take_loss(&mut self) -> bool {
        false
    }

    /// Flushes that have failed so far, as [`take_loss`](Image::take_loss) counts them. What was written
    /// when there were fewer may be lost, whatever came of its own flush.
    fn failed_flushes(&self) -> u64 {
        0
    }
}

/// An image in memory.
#[derive(Debug, Default)]
pub struct MemoryImage {
    bytes: Vec<u8>,
    done: VecDeque<Ended>,
}

impl MemoryImage {
    /// All zeros.
    pub fn new(size: usize) -> Self {
        Self { bytes: vec![0; size], done: VecDeque::new() }
    }

    /// Reads `buf.len()` bytes from `offset`.
    ///
    /// # Errors
    ///
    /// When that is beyond the end.
    pub fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let len = buf.len();
        buf.copy_from_slice(self.range(offset, len)?);
        Ok(())
    }

    /// Writes at `offset`.
    ///
    /// # Errors
    ///
    /// When that is beyond the end.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.range(offset, data.len())?.copy_from_slice(data);
        Ok(())
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

    fn read_now(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        self.read(offset, buf).map(|()| true)
    }

    fn write_now(&mut self, offset: u64, data: &[u8]) -> io::Result<bool> {
        self.write(offset, data).map(|()| true)
    }

    fn start(&mut self, id: u64, op: ImageOp) -> Result<(), Full> {
        if self.done.len() >= MAX_OPS {
            return Err(Full);
        }
        let result = match op {
            ImageOp::Read { offset, len } => self.range(offset, len).map(|range| range.to_vec()),
            ImageOp::Write { offset, data } => self.write(offset, &data).map(|()| Vec::new()),
            ImageOp::Flush => Ok(Vec::new()),
            ImageOp::Zero { extents, .. } => extents
                .into_iter()
                .try_for_each(|extent| {
                    let len = usize::try_from(extent.end - extent.start).unwrap_or(usize::MAX);
                    self.range(extent.start, len).map(|range| range.fill(0))
                })
                .map(|()| Vec::new()),
        };
        self.done.push_back((id, result));
        Ok(())
    }

    fn finished(&mut self) -> Option<Ended> {
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
/// Reads and writes go through the page cache; threads of its own do what it is not at once ready
/// for, and what can take long.
#[derive(Debug)]
pub struct FileImage {
    file: File,
    size: u64,
    read_only: bool,
    reads: Now,
    writes: Now,
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
        let file = open(path, read_only).map_err(failed)?;
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
        let background = file.try_clone().and_then(Background::spawn).map_err(failed)?;
        let (reads, writes) = Default::default();
        Ok(Self { file, size, read_only, reads, writes, background })
    }
}

/// Opens an image. A read is not to write when it was: that can wait for storage, too. Only who
/// owns the file may leave it out.
fn open(path: &Path, read_only: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only);
    match options.clone().custom_flags(OFlags::NOATIME.bits() as i32).open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => options.open(path),
        result => result,
    }
}

/// Transfers of one direction that do not wait.
#[derive(Debug, Default)]
struct Now {
    /// The file system cannot say what would have to wait.
    unknown: bool,
}

impl Now {
    /// Whether the transfer was made, and all `want` bytes of it.
    fn was_made(
        &mut self,
        want: usize,
        transfer: impl FnOnce(ReadWriteFlags) -> Result<usize, Errno>,
    ) -> io::Result<bool> {
        if self.unknown {
            return Ok(false);
        }
        match transfer(ReadWriteFlags::NOWAIT) {
            Ok(moved) => Ok(moved == want),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.unknown = true;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Storage for File {
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buf, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn step(&self, step: Step) -> io::Result<()> {
        let Step::Zero { offset, len, how } = step else { return self.sync_data() };
        let flags = match how {
            Zeroing::Kept => FallocateFlags::ZERO_RANGE,
            Zeroing::Deallocated | Zeroing::Discarded => FallocateFlags::PUNCH_HOLE,
        };
        match fallocate(self, flags | FallocateFlags::KEEP_SIZE, offset, len) {
            // Not all storage can, nor any part of its own blocks; all of it can be written to. That
            // takes as long as it takes, and is not done for what nobody needs to be zeros.
            Err(Errno::OPNOTSUPP | Errno::INVAL) => match how {
                Zeroing::Discarded => Ok(()),
                Zeroing::Kept | Zeroing::Deallocated => write_zeros(self, offset, len),
            },
            result => result.map_err(io::Error::from),
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

    fn read_now(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        let want = buf.len();
        if !self.background.lets_pass(offset..offset + want as u64, false) {
            return Ok(false);
        }
        let mut parts = [IoSliceMut::new(buf)];
        self.reads.was_made(want, |flags| preadv2(&self.file, &mut parts, offset, flags))
    }

    fn write_now(&mut self, offset: u64, data: &[u8]) -> io::Result<bool> {
        if !self.background.lets_pass(offset..offset + data.len() as u64, true) {
            return Ok(false);
        }
        let parts = [IoSlice::new(data)];
        self.writes.was_made(data.len(), |flags| pwritev2(&self.file, &parts, offset, flags))
    }

    fn start(&mut self, id: u64, op: ImageOp) -> Result<(), Full> {
        self.background.start(id, op)
    }

    fn finished(&mut self) -> Option<Ended> {
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

    fn left(&self, id: u64) -> u64 {
        self.background.left(id)
    }

    fn take_loss(&mut self) -> bool {
        self.background.take_loss()
    }

    fn failed_flushes(&self) -> u64 {
        self.background.failed_flushes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(image: &mut FileImage) -> Ended {
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
        let data = b"hello".to_vec();
        image.start(7, ImageOp::Write { offset: 4096, data }).unwrap();
        assert!(matches!(wait(&mut image), (7, Ok(_))));
        for (id, how) in [(1, Zeroing::Deallocated), (2, Zeroing::Kept)] {
            let op = ImageOp::zero(8192 * id..8192 * (id + 1), how, true);
            image.start(id, op).unwrap();
            assert!(matches!(wait(&mut image), (i, Ok(_)) if i == id));
        }
        image.start(3, ImageOp::Flush).unwrap();
        assert!(matches!(wait(&mut image), (3, Ok(_))));
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 1 << 16);
        assert_eq!(&bytes[4096..4102], b"hello\x07");
        assert!(bytes[8192..8192 * 3].iter().all(|&byte| byte == 0));
        assert_eq!(bytes[8192 * 3], 7);
        let mut data = [0; 6];
        // It is in the page cache, but not every file system can tell.
        if image.read_now(4096, &mut data).unwrap() {
            assert_eq!(&data, b"hello\x07");
        }
        image.start(4, ImageOp::Read { offset: 4096, len: 6 }).unwrap();
        assert!(matches!(wait(&mut image), (4, Ok(read)) if read == b"hello\x07"));
        assert!(!image.read_now((1 << 16) - 1, &mut [0; 2]).unwrap());
        image.start(5, ImageOp::Read { offset: (1 << 16) - 1, len: 2 }).unwrap();
        assert!(matches!(wait(&mut image), (5, Err(_))), "beyond the end");
    }

    /// Whatever the file system can do at once, a write is there when it says so.
    #[test]
    fn what_is_written_at_once_is_read_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, vec![7; 1 << 16]).unwrap();
        let mut image = FileImage::open(&path, false).unwrap();
        if !image.write_now(512, &[1; 512]).unwrap() {
            image.start(1, ImageOp::Write { offset: 512, data: vec![1; 512] }).unwrap();
            assert!(matches!(wait(&mut image), (1, Ok(_))));
        }
        assert_eq!(std::fs::read(&path).unwrap()[511..1025], [&[7][..], &[1; 512], &[7]].concat());
        let mut data = [0; 513];
        if image.read_now(512, &mut data).unwrap() {
            assert_eq!((data[511], data[512]), (1, 7));
        }
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
