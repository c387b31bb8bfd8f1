//! What is behind a DMA map.

use super::mapping::Mapping;
use crate::wire::DmaMap;
use rustix::fs::{FileType, OFlags, SealFlags, fcntl_get_seals, fcntl_getfl, fstat, fstatfs};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// How the memory is reached.
#[derive(Debug)]
pub(super) enum Backing {
    /// It is mapped into this process.
    Mapped(Mapping),
    /// With pread and pwrite.
    File { file: OwnedFd, offset: u64 },
    /// With messages to the client.
    Message,
}

/// File systems by their magic numbers (`statfs(2)`).
const TMPFS: u32 = 0x0102_1994;

/// Those whose files are read and written without asking anybody: not FUSE, not the network's,
/// where a hostile client decides when, and whether, a read comes back. Not hugetlbfs either: its
/// files can be mapped only, and a page that the client punched out of one is a SIGBUS when the
/// machine has no other left.
const LOCAL: [u32; 4] =
    [TMPFS, 0xef53 /* ext2, 3, 4 */, 0x5846_5342 /* XFS */, 0x9123_683e /* Btrfs */];

impl Backing {
    /// Of the file of a map whose range was looked at.
    ///
    /// It is mapped where nothing that the client does with its file later can hurt: a memfd that
    /// never shrinks, as QEMU's `memory-backend-memfd` has it by default. Other regular files of a
    /// local file system are read and written. With yet others the client has to move the data.
    ///
    /// EACCES for what is no regular file or not open for what is wanted, EINVAL for a range that
    /// the file does not have, ENOMEM where more than `room` bytes would be mapped, and what mmap
    /// says.
    pub(super) fn new(file: OwnedFd, map: &DmaMap, room: u64) -> Result<Self, Errno> {
        let status = fstat(&file)?;
        let flags = fcntl_getfl(&file)?;
        let may = access(flags);
        let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
        if !is_file || (map.readable && !may.0) || (map.writable && !may.1) {
            return Err(Errno::ACCESS);
        }
        let end = map.offset.checked_add(map.size).ok_or(Errno::INVAL)?;
        if u64::try_from(status.st_size).map_or(true, |size| size < end) {
            return Err(Errno::INVAL);
        }
        // Magic numbers have 32 bits, whatever the field's type is.
        let system = fstatfs(&file)?.f_type as u32;
        let keeps_size = fcntl_get_seals(&file).is_ok_and(|s| s.contains(SealFlags::SHRINK));
        if system == TMPFS && keeps_size && Mapping::fits(map.offset) {
            if map.size > room {
                return Err(Errno::NOMEM);
            }
            return Mapping::new(&file, map).map(Self::Mapped);
        }
        if LOCAL.contains(&system) && map.offset.is_multiple_of(crate::limits::PAGE) {
            return Ok(Self::File { file, offset: map.offset });
        }
        Ok(Self::Message)
    }

    pub(super) fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Errno> {
        match self {
            Self::Mapped(mapping) => {
                mapping.read(at, buf);
                Ok(())
            }
            Self::File { file, offset } => read_exact(file, offset + at, buf),
            Self::Message => unreachable!("looked at before"),
        }
    }

    pub(super) fn write(&self, at: u64, data: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Mapped(mapping) => {
                mapping.write(at, data);
                Ok(())
            }
            Self::File { file, offset } => write_all(file, offset + at, data),
            Self::Message => unreachable!("looked at before"),
        }
    }
}

/// Whether a file can be read and written. One that is open as a path only can do neither. Where
/// each write goes to the end of the file, or wants aligned buffers, it is no memory.
fn access(flags: OFlags) -> (bool, bool) {
    if flags.intersects(OFlags::PATH | OFlags::APPEND | OFlags::DIRECT) {
        return (false, false);
    }
    match flags & OFlags::ACCMODE {
        OFlags::RDONLY => (true, false),
        OFlags::WRONLY => (false, true),
        _ => (true, true),
    }
}

fn read_exact(file: &OwnedFd, mut offset: u64, mut buf: &mut [u8]) -> Result<(), Errno> {
    while !buf.is_empty() {
        match rustix::io::pread(file, &mut *buf, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(got) => {
                buf = &mut buf[got..];
                offset += got as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_all(file: &OwnedFd, mut offset: u64, mut data: &[u8]) -> Result<(), Errno> {
    // A file that was cut off is not made longer again.
    let size = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
    if size < offset + data.len() as u64 {
        return Err(Errno::IO);
    }
    while !data.is_empty() {
        match rustix::io::pwrite(file, data, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(sent) => {
                data = &data[sent..];
                offset += sent as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
