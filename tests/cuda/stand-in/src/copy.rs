//! Copies and memsets: which bytes go where.

use crate::memory::{Kind, Memory};
use crate::schedule::Need;
use crate::settings::Settings;
use crate::status::{Answer, Status};

/// Between which memories a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToDevice,
    ToHost,
    OnDevice,
    /// To another device.
    Peer,
    /// Neither end is a device's.
    OnHost,
}

impl Direction {
    /// As the timeline has it.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::ToDevice => "htod",
            Self::ToHost => "dtoh",
            Self::OnDevice => "dtod",
            Self::Peer => "peer",
            Self::OnHost => "htoh",
        }
    }

    pub(crate) fn need(self) -> Need {
        match self {
            Self::ToDevice => Need::ToDevice,
            Self::ToHost | Self::OnHost | Self::Peer => Need::ToHost,
            Self::OnDevice => Need::Kernel,
        }
    }

    pub(crate) fn rate(self, settings: &Settings) -> u64 {
        match self {
            Self::ToDevice => settings.htod_rate,
            Self::ToHost | Self::OnHost => settings.dtoh_rate,
            Self::OnDevice => settings.dtod_rate,
            Self::Peer => settings.peer_rate,
        }
    }
}

/// An end of a copy: lines of bytes, and layers of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) address: u64,
    /// Bytes from a line to the next.
    pub(crate) pitch: u64,
    /// Bytes from a layer to the next.
    pub(crate) slice: u64,
}

impl End {
    /// Bytes one behind the other.
    pub(crate) fn flat(address: u64) -> Self {
        Self { address, pitch: 0, slice: 0 }
    }

    fn line(&self, y: u64, z: u64) -> u64 {
        self.address + y * self.pitch + z * self.slice
    }
}

/// How much is copied: bytes of a line, lines of a layer, layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

impl Extent {
    /// Bytes one behind the other.
    pub(crate) fn flat(bytes: u64) -> Self {
        Self { width: bytes, height: 1, depth: 1 }
    }

    /// All bytes. None where no machine has as many.
    fn bytes(&self) -> Option<u64> {
        self.width.checked_mul(self.height)?.checked_mul(self.depth)
    }
}

/// A copy that can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    to: End,
    from: End,
    extent: Extent,
    pub(crate) direction: Direction,
    pub(crate) bytes: u64,
    /// Whether the host's end is memory that a device cannot reach.
    pub(crate) pageable: bool,
}

impl Copy {
    /// A copy between any two memories. Refuses what is null and what leaves an allocation.
    pub(crate) fn new(memory: &Memory, to: End, from: End, extent: Extent) -> Result<Self, Status> {
        let bytes = extent.bytes().ok_or(Status::INVALID_VALUE)?;
        for end in [&to, &from] {
            if bytes > 0 && !reaches(memory, end, &extent) {
                return Err(Status::INVALID_VALUE);
            }
        }
        let direction = match (memory.device(to.address), memory.device(from.address)) {
            (Some(to), Some(from)) if to == from => Direction::OnDevice,
            (Some(_), Some(_)) => Direction::Peer,
            (Some(_), None) => Direction::ToDevice,
            (None, Some(_)) => Direction::ToHost,
            (None, None) => Direction::OnHost,
        };
        let host = match direction {
            Direction::ToDevice => Some(from),
            Direction::ToHost | Direction::OnHost => Some(to),
            Direction::OnDevice | Direction::Peer => None,
        };
        let pageable = host.is_some_and(|end| {
            let pinned = |kind| matches!(kind, Kind::Pinned | Kind::Registered);
            !memory.find(end.address).is_some_and(|range| pinned(range.kind))
        });
        Ok(Self { to, from, extent, direction, bytes, pageable })
    }

    /// Refuses a copy that is of another direction than its function says.
    pub(crate) fn wanted(self, directions: &[Direction]) -> Result<Self, Status> {
        if self.bytes == 0 || directions.contains(&self.direction) {
            return Ok(self);
        }
        Err(Status::INVALID_VALUE)
    }

    /// The host's end, as the timeline has it.
    pub(crate) fn memory(&self) -> &'static str {
        match self.direction {
            Direction::OnDevice | Direction::Peer => "",
            _ if self.pageable => "pageable",
            _ => "pinned",
        }
    }

    /// Source, destination and how much.
    pub(crate) fn parts(&self) -> (End, End, Extent) {
        (self.from, self.to, self.extent)
    }

    /// Copies the bytes. The memory may be gone since the copy was put into a graph.
    pub(crate) fn perform(&self, memory: &Memory) -> Answer {
        if self.bytes == 0 {
            return Ok(());
        }
        if !reaches(memory, &self.to, &self.extent) || !reaches(memory, &self.from, &self.extent) {
            return Err(Status::ILLEGAL_ADDRESS);
        }
        for z in 0..self.extent.depth {
            for y in 0..self.extent.height {
                let (to, from) = (self.to.line(y, z), self.from.line(y, z));
                let width = self.extent.width as usize;
                // SAFETY: the line is in an allocation of ours, which is checked, or in the
                // program's memory, which it promises by the driver's interface to be there.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, width) };
            }
        }
        Ok(())
    }
}

/// Whether all lines of an end are in one allocation, or in none that the driver knows of.
fn reaches(memory: &Memory, end: &End, extent: &Extent) -> bool {
    let lines = extent.height.saturating_sub(1).checked_mul(end.pitch);
    let layers = extent.depth.saturating_sub(1).checked_mul(end.slice);
    let bytes = lines.zip(layers).and_then(|(lines, layers)| lines.checked_add(layers));
    let bytes = bytes.and_then(|bytes| bytes.checked_add(extent.width));
    end.address != 0 && bytes.is_some_and(|bytes| memory.reaches(end.address, bytes))
}

/// A memset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) address: u64,
    /// Bytes from a line to the next.
    pub(crate) pitch: u64,
    pub(crate) value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub(crate) element: u32,
    /// Elements of a line.
    pub(crate) width: u64,
    pub(crate) height: u64,
}

impl Set {
    /// Refuses what is not a device's and what leaves an allocation.
    pub(crate) fn checked(self, memory: &Memory) -> Result<Self, Status> {
        let line = self.width.checked_mul(u64::from(self.element));
        let lines = self.height.saturating_sub(1).checked_mul(self.pitch);
        let all = line.zip(lines).and_then(|(line, lines)| line.checked_add(lines));
        let aligned = matches!(self.element, 1 | 2 | 4)
            && self.address.is_multiple_of(u64::from(self.element));
        let there = all.is_some_and(|all| all == 0 || memory.is_of_device(self.address, all));
        if aligned && there { Ok(self) } else { Err(Status::INVALID_VALUE) }
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.width * u64::from(self.element) * self.height
    }

    /// Sets the bytes. The memory may be gone since the memset was put into a graph.
    pub(crate) fn perform(&self, memory: &Memory) -> Answer {
        if self.clone().checked(memory).is_err() {
            return Err(Status::ILLEGAL_ADDRESS);
        }
        let value = self.value.to_le_bytes();
        let value = &value[..self.element as usize];
        for y in 0..self.height {
            let line = (self.address + y * self.pitch) as *mut u8;
            let bytes = (self.width * u64::from(self.element)) as usize;
            // SAFETY: the line is in an allocation of ours, which is checked.
            let line = unsafe { std::slice::from_raw_parts_mut(line, bytes) };
            for element in line.chunks_exact_mut(value.len()) {
                element.copy_from_slice(value);
            }
        }
        Ok(())
    }
}
