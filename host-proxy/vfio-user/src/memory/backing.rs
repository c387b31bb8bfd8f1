//! What is behind a DMA map.

use super::mapping::Mapping;
use crate::limits::PAGE;
use crate::wire::DmaMap;
use rustix::fs::{
    AtFlags, FileType, OFlags, SealFlags, StatxFlags, fcntl_get_seals, fcntl_getfl, fstat, fstatfs,
    statx,
};
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

/// File systems by their magic numbers (`statfs(2)`). Each keeps its files on this machine.
const TMPFS: u32 = 0x0102_1994;
const EXT: u32 = 0xef53;
const XFS: u32 = 0x5846_5342;

/// What a file descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A memfd that never shrinks.
    Memory,
    /// A file that is read and written without asking anybody.
    Local,
    /// Any other regular file.
    Elsewhere,
}

impl Backing {
    /// Of the file of a map whose range was looked at.
    ///
    /// It is mapped where nothing that the client does with its file later can hurt: a memfd that
    /// never shrinks, as QEMU's `memory-backend-memfd` has it by default. Other regular files on
    /// this machine are read and written. With yet others the client has to move the data.
    ///
    /// EACCES for what is no regular file or not open for what is wanted, EINVAL for a range that
    /// the file does not have, ENOMEM where more than `room` bytes would be mapped, and what mmap
    /// says.
    pub(super) fn new(file: OwnedFd, map: &DmaMap, room: u64) -> Result<Self, Errno> {
        let (reads, writes) = access(fcntl_getfl(&file)?);
        if (map.readable && !reads) || (map.writable && !writes) {
            return Err(Errno::ACCESS);
        }
        let (kind, size) = look_at(&file)?;
        let end = map.offset.checked_add(map.size).ok_or(Errno::INVAL)?;
        if size < end || !map.offset.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        match kind {
            Kind::Memory if Mapping::fits(map.offset) => {
                if map.size > room {
                    return Err(Errno::NOMEM);
                }
                Mapping::new(&file, map).map(Self::Mapped)
            }
            Kind::Memory | Kind::Local => Ok(Self::File { file, offset: map.offset }),
            Kind::Elsewhere => Ok(Self::Message),
        }
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

/// What a file descriptor stands for, and how long the file is. EACCES for what is no regular file.
///
/// Nothing here asks whoever keeps the file: on FUSE, and on the network, a hostile client decides
/// when an answer comes, and whether one does.
fn look_at(file: &OwnedFd) -> Result<(Kind, u64), Errno> {
    // Only tmpfs and hugetlbfs have seals, and only memfds can have this one. They are read before
    // the size: what has this one then does not become shorter than it is found.
    let seals = fcntl_get_seals(file);
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let status = statx(file, "", flags, StatxFlags::TYPE | StatxFlags::SIZE)?;
    if FileType::from_raw_mode(status.stx_mode.into()) != FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    // FUSE and the network's file systems are on no block device, unless an administrator put them
    // there.
    let kind = if seals.is_ok() || status.stx_dev_major != 0 {
        // Magic numbers have 32 bits, whatever the field's type is.
        match fstatfs(file)?.f_type as u32 {
            TMPFS if seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) => Kind::Memory,
            TMPFS | EXT | XFS => Kind::Local,
            // Of hugetlbfs, too: a page that the client punches out of such a memfd is a SIGBUS
            // when the machine has no other left.
            _ => Kind::Elsewhere,
        }
    } else {
        Kind::Elsewhere
    };
    Ok((kind, status.stx_size))
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
