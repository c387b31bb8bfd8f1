//! `VFIO_USER_DMA_MAP`, `VFIO_USER_DMA_UNMAP` and the memory that they give.

use crate::bench::{Bench, Said};
use crate::client::*;
use crate::errno::*;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use std::os::fd::{AsFd, OwnedFd};
use vfio_user_server::MemoryError::{ByMessage, Io, Protected, Unmapped};
use vfio_user_server::{Errno, Memory};

const PAGE: u64 = 0x1000;
const READ: u32 = 1;
const WRITE: u32 = 2;
const BOTH: u32 = 3;

impl Bench {
    fn map(&mut self, flags: u32, address: u64, size: u64, fd: Option<&OwnedFd>) -> i32 {
        self.map_at(flags, 0, address, size, fd)
    }

    fn map_at(
        &mut self,
        flags: u32,
        at: u64,
        address: u64,
        size: u64,
        fd: Option<&OwnedFd>,
    ) -> i32 {
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        self.errno(DMA_MAP, &dma_map(flags, at, address, size), &fds)
    }

    fn unmap(&mut self, flags: u32, address: u64, size: u64) -> i32 {
        self.errno(DMA_UNMAP, &dma_unmap(flags, address, size), &[])
    }

    fn memory(&self) -> &Memory {
        self.server.memory()
    }
}

/// Bytes of a file.
fn peek(fd: &OwnedFd, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(rustix::io::pread(fd, &mut bytes[..], at).unwrap(), len);
    bytes
}

#[test]
fn ranges_that_are_none() {
    let mut bench = Bench::new();
    for (address, size) in [
        (0, 0),
        (1, PAGE),
        (0x800, PAGE),
        (PAGE, 1),
        (PAGE, PAGE - 1),
        (PAGE, PAGE + 1),
        (u64::MAX - PAGE + 1, 2 * PAGE),
        (2 * PAGE, u64::MAX - PAGE + 1),
        (u64::MAX, u64::MAX),
    ] {
        assert_eq!(bench.map(BOTH, address, size, None), EINVAL, "{address:#x} {size:#x}");
    }
    for flags in [0, 4, 7, 0x8000_0003] {
        assert_eq!(bench.map(flags, 0, PAGE, None), EINVAL, "{flags:#x}");
    }
    assert_eq!(bench.memory().maps(), 0);
    // The last page, and nearly everything.
    assert_eq!(bench.map(BOTH, u64::MAX - PAGE + 1, PAGE, None), 0);
    assert_eq!(bench.memory().read(u64::MAX, &mut [0]), Err(ByMessage));
    assert_eq!(bench.memory().read(u64::MAX, &mut [0; 2]), Err(Unmapped));
    assert_eq!(bench.unmap(0, u64::MAX - PAGE + 1, PAGE), 0);
    assert_eq!(bench.map(BOTH, 0, u64::MAX - PAGE + 1, None), 0);
    assert_eq!(bench.map(BOTH, 0, u64::MAX - PAGE + 1, None), EEXIST);
}

#[test]
fn nothing_is_mapped_twice() {
    let mut bench = Bench::new();
    let ram = sealed_memfd(16 * PAGE);
    assert_eq!(bench.map(BOTH, 4 * PAGE, 4 * PAGE, Some(&ram)), 0);
    for (first, pages) in [(4, 4), (4, 1), (7, 1), (3, 2), (7, 2), (3, 6), (0, 16), (5, 2)] {
        let errno = bench.map(BOTH, first * PAGE, pages * PAGE, Some(&ram));
        assert_eq!(errno, EEXIST, "{first} {pages}");
    }
    assert_eq!(bench.memory().maps(), 1);
    // What only touches it does not overlap.
    assert_eq!(bench.map(BOTH, 0, 4 * PAGE, Some(&ram)), 0);
    assert_eq!(bench.map(BOTH, 8 * PAGE, PAGE, Some(&ram)), 0);
}

#[test]
fn only_exactly_what_was_mapped_is_unmapped() {
    let mut bench = Bench::new();
    assert_eq!(bench.map(BOTH, 4 * PAGE, 4 * PAGE, None), 0);
    for (address, size) in [
        (4 * PAGE, 3 * PAGE),
        (4 * PAGE, 5 * PAGE),
        (4 * PAGE, 0),
        (5 * PAGE, 3 * PAGE),
        (0, 16 * PAGE),
        (0, 0),
        (0, u64::MAX),
        (u64::MAX, 1),
    ] {
        assert_eq!(bench.unmap(0, address, size), ENOENT, "{address:#x} {size:#x}");
    }
    // Dirty pages, a flag that nobody has, all but not quite.
    assert_eq!(bench.unmap(1, 4 * PAGE, 4 * PAGE), EOPNOTSUPP);
    assert_eq!(bench.unmap(4, 4 * PAGE, 4 * PAGE), EINVAL);
    assert_eq!(bench.unmap(3, 0, 0), EINVAL);
    assert_eq!(bench.unmap(2, 4 * PAGE, 4 * PAGE), EINVAL);
    assert_eq!(bench.memory().maps(), 1);

    let asked = dma_unmap(0, 4 * PAGE, 4 * PAGE);
    let got = bench.call(DMA_UNMAP, &asked, &[]);
    assert_eq!((got.error, got.payload), (0, asked), "the entry comes back");
    assert_eq!(bench.unmap(0, 4 * PAGE, 4 * PAGE), ENOENT);
    assert_eq!(bench.memory().read(4 * PAGE, &mut [0]), Err(Unmapped));
}

#[test]
fn everything_is_unmapped_at_once() {
    let mut bench = Bench::new();
    let ram = sealed_memfd(PAGE);
    for page in 0..5 {
        assert_eq!(bench.map(BOTH, 2 * page * PAGE, PAGE, Some(&ram)), 0);
    }
    assert_eq!(bench.unmap(2, 0, 0), 0);
    assert_eq!(bench.memory().maps(), 0);
    assert_eq!(bench.unmap(2, 0, 0), 0, "also when there is nothing");
    assert_eq!(bench.map(BOTH, 0, PAGE, Some(&ram)), 0);
}

#[test]
fn an_access_goes_over_maps_that_touch() {
    let mut bench = Bench::new();
    let (sealed, plain) = (sealed_memfd(4 * PAGE), memfd(4 * PAGE));
    assert_eq!(bench.map_at(BOTH, 2 * PAGE, PAGE, PAGE, Some(&sealed)), 0);
    assert_eq!(bench.map_at(BOTH, PAGE, 2 * PAGE, PAGE, Some(&plain)), 0);
    assert_eq!(bench.map_at(BOTH, 0, 3 * PAGE, PAGE, Some(&sealed)), 0);
    let data: Vec<u8> = (0..0x1805).map(|n| (n / 7) as u8).collect();
    bench.memory().write(PAGE + 0x7ff, &data).unwrap();
    let mut back = vec![0; data.len()];
    bench.memory().read(PAGE + 0x7ff, &mut back).unwrap();
    assert!(back == data);
    assert_eq!(peek(&sealed, 2 * PAGE + 0x7ff, 0x801), data[..0x801]);
    assert_eq!(peek(&plain, PAGE, 0x1000), data[0x801..0x1801]);
    assert_eq!(peek(&sealed, 0, 4), data[0x1801..]);
    // Into the gap behind: nothing is written.
    assert_eq!(bench.memory().write(4 * PAGE - 1, &[9, 9]), Err(Unmapped));
    assert_eq!(peek(&sealed, PAGE - 1, 1), [0]);
    assert_eq!(bench.memory().write(PAGE - 1, &[9, 9]), Err(Unmapped));
    assert_eq!(bench.memory().read(0x5000, &mut [0]), Err(Unmapped));
    bench.memory().read(0x5000, &mut []).unwrap();
    bench.memory().write(u64::MAX, &[]).unwrap();
}

#[test]
fn directions_are_kept() {
    let mut bench = Bench::new();
    let mut back = [0; 4];
    for ram in [sealed_memfd(4 * PAGE), memfd(4 * PAGE)] {
        assert_eq!(bench.map_at(READ, 0, 0, PAGE, Some(&ram)), 0);
        assert_eq!(bench.map_at(WRITE, PAGE, PAGE, PAGE, Some(&ram)), 0);
        bench.memory().write(PAGE, &[1, 2, 3, 4]).unwrap();
        assert_eq!(peek(&ram, PAGE, 4), [1, 2, 3, 4]);
        assert_eq!(bench.memory().write(0, &[1]), Err(Protected));
        assert_eq!(bench.memory().write(PAGE - 1, &[1, 2]), Err(Protected));
        bench.memory().read(0, &mut back).unwrap();
        assert_eq!(bench.memory().read(PAGE, &mut back), Err(Protected));
        assert_eq!(bench.memory().read(PAGE - 1, &mut back), Err(Protected));
        assert_eq!(bench.unmap(2, 0, 0), 0);
    }
    // Without a file it is the same.
    assert_eq!(bench.map(READ, 0, PAGE, None), 0);
    assert_eq!(bench.memory().write(0, &[1]), Err(Protected));
    assert_eq!(bench.memory().read(0, &mut back), Err(ByMessage));
}

#[test]
fn memory_without_a_file_is_reached_by_messages() {
    let mut bench = Bench::new();
    let ram = sealed_memfd(PAGE);
    assert_eq!(bench.map(BOTH, 0, PAGE, Some(&ram)), 0);
    // QEMU leaves the offset 0; it says nothing here.
    assert_eq!(bench.map_at(BOTH, 77, PAGE, PAGE, None), 0);
    assert_eq!(bench.memory().write(PAGE - 2, &[1, 2, 3, 4]), Err(ByMessage));
    assert_eq!(peek(&ram, PAGE - 2, 2), [0, 0], "no half of it is written");
    assert_eq!(bench.memory().read(PAGE, &mut [0]), Err(ByMessage));
}

#[test]
fn a_file_has_to_be_one_and_to_be_open_for_it() {
    let mut bench = Bench::new();
    let (pipe, _write) = rustix::pipe::pipe().unwrap();
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let open =
        |path, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(PAGE).unwrap();
    let named = |flags| open(file.path().to_str().unwrap(), flags);
    for (what, fd, flags, errno) in [
        ("a pipe", pipe, READ, EACCES),
        ("a socket", socket.into(), READ, EACCES),
        ("an eventfd", eventfd(), BOTH, EACCES),
        ("a directory", open("/tmp", OFlags::DIRECTORY), READ, EACCES),
        ("a device", open("/dev/zero", OFlags::RDWR), BOTH, EACCES),
        ("a path", named(OFlags::PATH), READ, EACCES),
        ("to be read only", named(OFlags::RDONLY), BOTH, EACCES),
        ("to be written only", named(OFlags::WRONLY), READ, EACCES),
        ("to be appended to", named(OFlags::RDWR | OFlags::APPEND), BOTH, EACCES),
        ("a file", named(OFlags::RDWR), BOTH, 0),
    ] {
        assert_eq!(bench.map(flags, 0, PAGE, Some(&fd)), errno, "{what}");
    }
    // Whatever /tmp is: it is memory, or the client has to move the data.
    let written = bench.memory().write(8, &[1, 2, 3]);
    assert!(matches!(written, Ok(()) | Err(ByMessage)), "{written:?}");

    let mut two = Bench::new();
    let fds = [sealed_memfd(PAGE), sealed_memfd(PAGE)];
    let payload = dma_map(BOTH, 0, 0, PAGE);
    assert_eq!(two.errno(DMA_MAP, &payload, &borrowed(&fds)), EINVAL, "two files");
}

#[test]
fn a_range_that_the_file_does_not_have() {
    let mut bench = Bench::new();
    for ram in [sealed_memfd(2 * PAGE), memfd(2 * PAGE)] {
        for (at, size) in [
            (0, 3 * PAGE),
            (PAGE, 2 * PAGE),
            (2 * PAGE, PAGE),
            (u64::MAX - PAGE + 1, PAGE),
            (1 << 63, PAGE),
            (0, 1 << 62),
            (1, PAGE),
            (0x800, PAGE),
        ] {
            assert_eq!(bench.map_at(BOTH, at, 0, size, Some(&ram)), EINVAL, "{at:#x} {size:#x}");
        }
    }
    assert_eq!(bench.memory().maps(), 0);
}

/// A memfd that can shrink is never mapped: when it does, an access is an error and no signal.
#[test]
fn a_file_that_is_cut_off() {
    let mut bench = Bench::new();
    let ram = memfd(4 * PAGE);
    assert_eq!(bench.map(BOTH, 0, 4 * PAGE, Some(&ram)), 0);
    bench.memory().write(2 * PAGE, &[1, 2, 3]).unwrap();
    rustix::fs::ftruncate(&ram, PAGE + 2).unwrap();
    let mut back = [0; 4];
    assert_eq!(bench.memory().read(2 * PAGE, &mut back), Err(Io(Errno::IO)));
    assert_eq!(bench.memory().read(PAGE, &mut back), Err(Io(Errno::IO)));
    assert_eq!(bench.memory().write(PAGE, &[1, 2, 3]), Err(Io(Errno::IO)));
    assert_eq!(rustix::fs::fstat(&ram).unwrap().st_size, 0x1002, "and is not made longer again");
    bench.memory().read(PAGE - 2, &mut back).unwrap();
    // Sealed afterwards, it is what it was.
    rustix::fs::fcntl_add_seals(&ram, SealFlags::SHRINK).unwrap();
    assert_eq!(bench.memory().read(PAGE, &mut back), Err(Io(Errno::IO)));
}

#[test]
fn a_file_that_does_not_shrink_can_be_emptied() {
    let mut bench = Bench::new();
    let ram = sealed_memfd(4 * PAGE);
    assert_eq!(bench.map(BOTH, 0, 4 * PAGE, Some(&ram)), 0);
    assert!(rustix::fs::ftruncate(&ram, 0).is_err());
    bench.memory().write(0, &[5; 16]).unwrap();
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&ram, hole, 0, 4 * PAGE).unwrap();
    let mut back = [1; 16];
    bench.memory().read(0, &mut back).unwrap();
    assert_eq!(back, [0; 16]);
}

#[test]
fn a_file_that_may_not_be_written() {
    let mut bench = Bench::new();
    let ram = memfd(PAGE);
    rustix::fs::fcntl_add_seals(&ram, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
    assert_eq!(bench.map(BOTH, 0, PAGE, Some(&ram)), EPERM);
    assert_eq!(bench.map(READ, 0, PAGE, Some(&ram)), 0);
    bench.memory().read(0, &mut [0; 8]).unwrap();
}

/// Its pages can be taken out and then there may be no other: it is never mapped.
#[test]
fn huge_pages_are_reached_by_messages() {
    let mut bench = Bench::new();
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let Ok(ram) = rustix::fs::memfd_create("huge", flags) else {
        return; // A kernel without huge pages.
    };
    rustix::fs::ftruncate(&ram, 2 << 20).unwrap();
    rustix::fs::fcntl_add_seals(&ram, SealFlags::SHRINK).unwrap();
    assert_eq!(bench.map(BOTH, 0, 2 << 20, Some(&ram)), 0);
    assert_eq!(bench.memory().read(0, &mut [0]), Err(ByMessage));
}

#[test]
fn maps_are_limited() {
    let mut bench = Bench::new();
    for page in 0..1024 {
        assert_eq!(bench.map(BOTH, 2 * page * PAGE, PAGE, None), 0);
    }
    assert_eq!(bench.map(BOTH, 0x1_0000_0000, PAGE, None), ENOSPC);
    assert_eq!(bench.unmap(0, 4 * PAGE, PAGE), 0);
    assert_eq!(bench.map(BOTH, 0x1_0000_0000, PAGE, None), 0);

    // As the client itself proposed.
    let mut few = Bench::with(r#"{"capabilities":{"max_dma_maps":2}}"#);
    assert_eq!(few.map(BOTH, 0, PAGE, None), 0);
    assert_eq!(few.map(BOTH, PAGE, PAGE, None), 0);
    assert_eq!(few.map(BOTH, 2 * PAGE, PAGE, None), ENOSPC);
}

#[test]
fn files_and_address_space_are_limited() {
    let mut bench = Bench::new();
    let ram = memfd(PAGE);
    for page in 0..64 {
        assert_eq!(bench.map(BOTH, page * PAGE, PAGE, Some(&ram)), 0);
    }
    assert_eq!(bench.map(BOTH, 64 * PAGE, PAGE, Some(&ram)), ENOSPC);
    assert_eq!(bench.unmap(0, 0, PAGE), 0);
    assert_eq!(bench.map(BOTH, 64 * PAGE, PAGE, Some(&ram)), 0);
    assert_eq!(bench.unmap(2, 0, 0), 0);

    // 16 TiB; nothing of it is touched.
    let vast = sealed_memfd(1 << 45);
    assert_eq!(bench.map(BOTH, 0, 1 << 43, Some(&vast)), 0);
    assert_eq!(bench.map(BOTH, 1 << 45, 1 << 43, Some(&vast)), 0);
    assert_eq!(bench.map(BOTH, 1 << 46, PAGE, Some(&vast)), ENOMEM);
    assert_eq!(bench.unmap(0, 0, 1 << 43), 0);
    assert_eq!(bench.map(BOTH, 1 << 46, PAGE, Some(&vast)), 0);
    bench.memory().write(1 << 46, &[1]).unwrap();
}

#[test]
fn what_was_mapped_goes_with_the_client() {
    let mut bench = Bench::new();
    let ram = sealed_memfd(PAGE);
    assert_eq!(bench.map(BOTH, 0, PAGE, Some(&ram)), 0);
    bench.reconnect();
    assert_eq!(bench.memory().maps(), 0);
    assert_eq!(bench.memory().read(0, &mut [0]), Err(Unmapped));
    bench.greet(QEMU_CAPABILITIES);
    assert_eq!(bench.map(BOTH, 0, PAGE, Some(&ram)), 0);
    assert_eq!(bench.poll(), None::<Said>);
}
