//! Memory that the driver knows of: its devices', and the host's that it pinned.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;

use crate::status::Status;

/// Allocations of this size and more are the system's pages, which cost nothing until they are
/// touched.
const LARGE: usize = 1 << 20;

/// What allocations of a device are aligned to, in bytes.
const ALIGNMENT: usize = 512;

/// What memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A device's.
    Device(usize),
    /// Moves between the host and a device; counted as the device's.
    Managed(usize),
    /// The host's, allocated by the driver.
    Pinned,
    /// The host's, allocated by the program and pinned.
    Registered,
}

/// A range of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) base: u64,
    pub(crate) size: usize,
    pub(crate) kind: Kind,
}

/// All memory that the driver knows of.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    ranges: BTreeMap<u64, Range>,
    /// Bytes of each device that are in use.
    used: BTreeMap<usize, u64>,
}

impl Memory {
    /// Bytes of a device that are in use.
    pub(crate) fn used(&self, device: usize) -> u64 {
        self.used.get(&device).copied().unwrap_or(0)
    }

    /// Allocates, all zero.
    pub(crate) fn allocate(&mut self, size: usize, kind: Kind, limit: u64) -> Result<u64, Status> {
        if size == 0 {
            return Err(Status::INVALID_VALUE);
        }
        if let Kind::Device(device) | Kind::Managed(device) = kind {
            let used = self.used(device).saturating_add(size as u64);
            if used > limit {
                return Err(Status::OUT_OF_MEMORY);
            }
            self.used.insert(device, used);
        }
        let base = take(size).ok_or(Status::OUT_OF_MEMORY)?;
        self.ranges.insert(base, Range { base, size, kind });
        Ok(base)
    }

    /// Frees what begins at an address, if it is of a wanted kind.
    pub(crate) fn free(
        &mut self,
        base: u64,
        wanted: impl Fn(Kind) -> bool,
    ) -> Result<Range, Status> {
        let range = *self.ranges.get(&base).ok_or(Status::INVALID_VALUE)?;
        if !wanted(range.kind) {
            return Err(Status::INVALID_VALUE);
        }
        self.ranges.remove(&base);
        if let Kind::Device(device) | Kind::Managed(device) = range.kind {
            *self.used.entry(device).or_default() -= range.size as u64;
        }
        if range.kind != Kind::Registered {
            give_back(range);
        }
        Ok(range)
    }

    /// Pins memory of the program's.
    pub(crate) fn register(&mut self, base: u64, size: usize) -> Result<(), Status> {
        if base == 0 || size == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let end = base.checked_add(size as u64).ok_or(Status::INVALID_VALUE)?;
        let before = self.ranges.range(..end).next_back();
        if before.is_some_and(|(_, range)| range.base + range.size as u64 > base) {
            return Err(Status::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.ranges.insert(base, Range { base, size, kind: Kind::Registered });
        Ok(())
    }

    /// The range that an address is in.
    pub(crate) fn find(&self, address: u64) -> Option<Range> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        (address - range.base < range.size as u64).then_some(*range)
    }

    /// The device that an address is of; none for the host's.
    pub(crate) fn device(&self, address: u64) -> Option<usize> {
        match self.find(address)?.kind {
            Kind::Device(device) | Kind::Managed(device) => Some(device),
            Kind::Pinned | Kind::Registered => None,
        }
    }

    /// Whether `bytes` from an address on are in one range of a device.
    pub(crate) fn is_of_device(&self, address: u64, bytes: u64) -> bool {
        self.device(address).is_some() && self.reaches(address, bytes)
    }

    /// Whether `bytes` from an address on are in one range, or in none.
    pub(crate) fn reaches(&self, address: u64, bytes: u64) -> bool {
        self.find(address).is_none_or(|range| {
            address.checked_add(bytes).is_some_and(|end| end <= range.base + range.size as u64)
        })
    }

    /// Frees all of a device.
    pub(crate) fn clear(&mut self, device: usize) {
        let of_device = |kind| matches!(kind, Kind::Device(d) | Kind::Managed(d) if d == device);
        let ours: Vec<u64> =
            self.ranges.values().filter(|range| of_device(range.kind)).map(|r| r.base).collect();
        for base in ours {
            self.free(base, of_device).expect("it is there");
        }
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, ALIGNMENT).expect("less than a large allocation")
}

fn take(size: usize) -> Option<u64> {
    if size < LARGE {
        // SAFETY: the size is not 0.
        let memory = unsafe { alloc_zeroed(layout(size)) };
        return (!memory.is_null()).then_some(memory as u64);
    }
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: new pages, where nothing was.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0) };
    (memory != libc::MAP_FAILED).then_some(memory as u64)
}

fn give_back(range: Range) {
    let memory = range.base as *mut u8;
    if range.size < LARGE {
        // SAFETY: `take` gave it with this layout, and it is in no list any more.
        unsafe { dealloc(memory, layout(range.size)) };
    } else {
        // SAFETY: `take` mapped as many bytes there, and they are in no list any more.
        unsafe { libc::munmap(memory.cast(), range.size) };
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    const ALL: fn(Kind) -> bool = |_| true;

    #[test]
    fn memory_is_found_counted_and_freed() {
        let mut memory = Memory::default();
        for size in [1, LARGE] {
            let base = memory.allocate(size, Kind::Device(0), LARGE as u64).unwrap();
            assert_eq!(memory.used(0), size as u64);
            assert_eq!(memory.find(base + size as u64 - 1).unwrap().base, base);
            assert!(memory.find(base + size as u64).is_none());
            assert!(memory.is_of_device(base, size as u64));
            assert!(!memory.is_of_device(base, size as u64 + 1));
            assert!(memory.free(base, |kind| kind == Kind::Pinned).is_err());
            memory.free(base, ALL).unwrap();
            assert!(memory.free(base, ALL).is_err());
            assert_eq!(memory.used(0), 0);
        }
    }

    #[test]
    fn a_device_has_only_so_much() {
        let mut memory = Memory::default();
        memory.allocate(600, Kind::Device(1), 1000).unwrap();
        assert_eq!(memory.allocate(600, Kind::Device(1), 1000), Err(Status::OUT_OF_MEMORY));
        memory.allocate(600, Kind::Pinned, 1000).unwrap();
        memory.clear(1);
        memory.allocate(600, Kind::Device(1), 1000).unwrap();
        assert_eq!(memory.allocate(0, Kind::Pinned, 1000), Err(Status::INVALID_VALUE));
    }

    #[test]
    fn memory_is_registered_once() {
        let mut memory = Memory::default();
        memory.register(0x1000, 0x1000).unwrap();
        for base in [0x0F00, 0x1000, 0x1FFF] {
            let again = memory.register(base, 0x200);
            assert_eq!(again, Err(Status::HOST_MEMORY_ALREADY_REGISTERED), "{base:x}");
        }
        memory.register(0x2000, 0x10).unwrap();
        assert!(memory.register(u64::MAX, 2).is_err());
        memory.free(0x1000, |kind| kind == Kind::Registered).unwrap();
    }
}
