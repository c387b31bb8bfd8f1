//! The client's memory, as it maps it for DMA.

mod backing;
mod leaving;
mod mapping;

use crate::limits::{MAX_DMA_FILES, MAX_DMA_MAPS, MAX_MAPPED, PAGE};
use crate::wire::{DmaMap, DmaUnmap};
use backing::Backing;
use leaving::Leaving;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// Why memory was not read or written. Nothing was, except where a file failed halfway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// Some of it is not mapped, or it goes beyond the end of the address space.
    #[error("not mapped for DMA")]
    Unmapped,
    /// Some of it is mapped for the other direction only.
    #[error("not mapped for this direction of DMA")]
    Protected,
    /// Some of it can be reached by messages only: it was mapped without a file descriptor, or
    /// with one that is not safe to touch.
    #[error("reached by DMA messages only")]
    ByMessage,
    /// The file behind it failed; EIO also for one that became shorter than what was mapped.
    #[error("file behind the memory: {0}")]
    Io(Errno),
}

/// The DMA maps. They do not overlap; an access may go over several that touch.
#[derive(Debug, Default)]
pub struct Memory {
    /// By their first address.
    maps: BTreeMap<u64, Map>,
    /// Maps that hold a file.
    files: usize,
    /// Bytes of address space that the maps take.
    mapped: u64,
    leaving: Leaving,
}

#[derive(Debug)]
struct Map {
    /// The last address: the first after it may be 2⁶⁴.
    last: u64,
    readable: bool,
    writable: bool,
    backing: Backing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

impl Memory {
    /// Reads memory, in increasing order of addresses.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        let mut rest = buf;
        for piece in self.pieces(address, rest.len(), Direction::Read)? {
            let (map, at, len) = piece;
            let (this, others) = rest.split_at_mut(len);
            map.backing.read(at, this).map_err(MemoryError::Io)?;
            rest = others;
        }
        Ok(())
    }

    /// Writes memory, in increasing order of addresses. Where the memory is mapped into this
    /// process, in naturally aligned words of up to eight bytes: who polls the last word of an
    /// entry does not see it before the rest.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        let mut rest = data;
        for piece in self.pieces(address, rest.len(), Direction::Write)? {
            let (map, at, len) = piece;
            let (this, others) = rest.split_at(len);
            map.backing.write(at, this).map_err(MemoryError::Io)?;
            rest = others;
        }
        Ok(())
    }

    /// Whether all of it is mapped to be read, whichever way it is reached.
    pub fn is_readable(&self, address: u64, len: usize) -> bool {
        self.is_mapped(address, len, Direction::Read)
    }

    /// Whether all of it is mapped to be written, whichever way it is reached.
    pub fn is_writable(&self, address: u64, len: usize) -> bool {
        self.is_mapped(address, len, Direction::Write)
    }

    fn is_mapped(&self, address: u64, len: usize, direction: Direction) -> bool {
        matches!(self.pieces(address, len, direction), Ok(_) | Err(MemoryError::ByMessage))
    }

    /// How many maps there are.
    pub fn maps(&self) -> usize {
        self.maps.len()
    }

    /// The maps that an access touches, with where in them it begins and how long it is there. All
    /// of them can be reached.
    fn pieces(
        &self,
        address: u64,
        len: usize,
        direction: Direction,
    ) -> Result<impl Iterator<Item = (&Map, u64, usize)>, MemoryError> {
        let len64 = u64::try_from(len).map_err(|_| MemoryError::Unmapped)?;
        let mut by_message = false;
        let mut done = 0;
        while done < len64 {
            let at = address.checked_add(done).ok_or(MemoryError::Unmapped)?;
            let (_, map) = self.map_at(at).ok_or(MemoryError::Unmapped)?;
            let allowed = match direction {
                Direction::Read => map.readable,
                Direction::Write => map.writable,
            };
            if !allowed {
                return Err(MemoryError::Protected);
            }
            by_message |= matches!(map.backing, Backing::Message);
            // One less than what the map still has, which may be 2⁶⁴.
            done += (map.last - at).min(len64 - done - 1) + 1;
        }
        if by_message {
            return Err(MemoryError::ByMessage);
        }
        let mut done = 0;
        Ok(std::iter::from_fn(move || {
            if done == len64 {
                return None;
            }
            let at = address + done;
            let (first, map) = self.map_at(at).expect("it was looked at");
            let here = (map.last - at).min(len64 - done - 1) + 1;
            done += here;
            // No more than `len`.
            Some((map, at - first, here as usize))
        }))
    }

    fn map_at(&self, address: u64) -> Option<(u64, &Map)> {
        let (first, map) = self.maps.range(..=address).next_back()?;
        (address <= map.last).then_some((*first, map))
    }

    /// `VFIO_USER_DMA_MAP`.
    ///
    /// EINVAL for a range that is empty, not of whole pages or not in the address space, for more
    /// than one file descriptor and for no direction; EEXIST where something is mapped; ENOSPC
    /// beyond `max_maps`; what [`Backing::new`] says of the file.
    pub(crate) fn map(
        &mut self,
        map: &DmaMap,
        fds: Vec<OwnedFd>,
        max_maps: usize,
    ) -> Result<(), Errno> {
        let whole_pages = map.address.is_multiple_of(PAGE) && map.size.is_multiple_of(PAGE);
        if map.size == 0 || !whole_pages || !(map.readable || map.writable) {
            return Err(Errno::INVAL);
        }
        let last = map.address.checked_add(map.size - 1).ok_or(Errno::INVAL)?;
        let mut fds = fds.into_iter();
        let (fd, surplus) = (fds.next(), fds.next());
        if surplus.is_some() {
            return Err(Errno::INVAL);
        }
        if self
            .maps
            .range(..=last)
            .next_back()
            .is_some_and(|(_, before)| before.last >= map.address)
        {
            return Err(Errno::EXIST);
        }
        if self.maps.len() >= max_maps.min(MAX_DMA_MAPS) {
            return Err(Errno::NOSPC);
        }
        let backing = match fd {
            None => Backing::Message,
            Some(fd) => Backing::new(fd, map, MAX_MAPPED - self.mapped)?,
        };
        match backing {
            Backing::File { .. } if self.files == MAX_DMA_FILES => return Err(Errno::NOSPC),
            Backing::File { .. } => self.files += 1,
            Backing::Mapped(_) => self.mapped += map.size,
            Backing::Message => {}
        }
        let (readable, writable) = (map.readable, map.writable);
        self.maps.insert(map.address, Map { last, readable, writable, backing });
        Ok(())
    }

    /// `VFIO_USER_DMA_UNMAP`. ENOENT for what is not exactly a map.
    pub(crate) fn unmap(&mut self, unmap: DmaUnmap) -> Result<(), Errno> {
        let DmaUnmap::One { address, size } = unmap else {
            self.clear();
            return Ok(());
        };
        let map = self.maps.get(&address).ok_or(Errno::NOENT)?;
        if map.last - address != size.wrapping_sub(1) {
            return Err(Errno::NOENT);
        }
        let backing = self.maps.remove(&address).expect("it was found").backing;
        match backing {
            Backing::File { .. } => self.files -= 1,
            Backing::Mapped(_) => self.mapped -= size,
            Backing::Message => {}
        }
        if !matches!(backing, Backing::Message) {
            self.leaving.let_go(vec![backing], size);
        }
        Ok(())
    }

    /// Unmaps everything.
    pub(crate) fn clear(&mut self) {
        (self.files, self.mapped) = (0, 0);
        let (mut gone, mut bytes) = (Vec::new(), 0_u64);
        for (first, map) in std::mem::take(&mut self.maps) {
            if !matches!(map.backing, Backing::Message) {
                bytes = bytes.saturating_add(map.last - first);
                gone.push(map.backing);
            }
        }
        self.leaving.let_go(gone, bytes);
    }
}

#[cfg(test)]
mod tests;
