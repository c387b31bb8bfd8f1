//! A split virtqueue (virtio 1.2, section 2.7) in the card's memory, from the device's end.

use super::super::virt::RAM_BASE;

/// Descriptors of the largest queue.
pub(super) const LARGEST: u16 = 1024;

/// Flags of a descriptor: another one is behind it; the device writes there.
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// Flag of the available ring: the driver wants no interrupts.
const NO_INTERRUPT: u16 = 1;

/// What the driver says of the queue makes no sense.
#[derive(Debug)]
pub(super) struct Broken;

#[derive(Debug, Default)]
pub(super) struct Queue {
    size: u16,
    ready: bool,
    /// Where the descriptors are, what is available, and what was used.
    descriptors: u64,
    available: u64,
    used: u64,
    /// Each end says behind which index it wants to hear of the other.
    by_index: bool,
    /// Chains that were taken, and those that were given back, so far.
    taken: u16,
    given: u16,
}

/// One buffer of a chain.
struct Buffer {
    at: u64,
    length: u32,
    flags: u16,
    next: u16,
}

impl Queue {
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// A register of the queue is written.
    pub(super) fn set(&mut self, register: u32, value: u32, by_index: bool) {
        let low = |address: u64| address & !0xffff_ffff | u64::from(value);
        let high = |address: u64| address & 0xffff_ffff | u64::from(value) << 32;
        match register {
            0x038 => self.size = u16::try_from(value).unwrap_or(0),
            0x044 => {
                // Memory ends below 4 GB; sums of such addresses do not overflow.
                let places = [self.descriptors, self.available, self.used];
                self.ready = value & 1 != 0
                    && self.size.is_power_of_two()
                    && self.size <= LARGEST
                    && places.iter().all(|place| u32::try_from(*place).is_ok());
                (self.by_index, self.taken, self.given) = (by_index, 0, 0);
            }
            0x080 => self.descriptors = low(self.descriptors),
            0x084 => self.descriptors = high(self.descriptors),
            0x090 => self.available = low(self.available),
            0x094 => self.available = high(self.available),
            0x0a0 => self.used = low(self.used),
            0x0a4 => self.used = high(self.used),
            _ => {}
        }
    }

    /// The next chain that the driver made available, by its first descriptor. The driver is asked to tell
    /// of the one behind it, or of the first one, as QEMU's devices ask.
    pub(super) fn next(&mut self, ram: &mut [u8]) -> Result<Option<u16>, Broken> {
        if !self.ready {
            return Ok(None);
        }
        let slot = self.available + 4 + 2 * u64::from(self.taken % self.size);
        let is_there = half(ram, self.available + 2)? != self.taken;
        self.taken = self.taken.wrapping_add(is_there.into());
        if self.by_index {
            put_half(ram, self.used + 4 + 8 * u64::from(self.size), self.taken)?;
        }
        Ok(if is_there { Some(half(ram, slot)?) } else { None })
    }

    /// The buffers of a chain, which is no longer than the queue.
    fn buffers(&self, ram: &[u8], chain: u16) -> Result<Vec<Buffer>, Broken> {
        let (mut buffers, mut at) = (Vec::new(), chain);
        loop {
            if at >= self.size || buffers.len() == usize::from(self.size) {
                return Err(Broken);
            }
            let from = self.descriptors + 16 * u64::from(at);
            let [a, b, length] = [0, 4, 8].map(|offset| word(ram, from + offset));
            let [flags, next] = [12, 14].map(|offset| half(ram, from + offset));
            let buffer = Buffer {
                at: u64::from(a?) | u64::from(b?) << 32,
                length: length?,
                flags: flags?,
                next: next?,
            };
            at = buffer.next;
            let more = buffer.flags & NEXT != 0;
            buffers.push(buffer);
            if !more {
                return Ok(buffers);
            }
        }
    }

    /// What is in a chain of the driver's.
    pub(super) fn get(&self, ram: &[u8], chain: u16) -> Result<Vec<u8>, Broken> {
        let mut bytes = Vec::new();
        for buffer in self.buffers(ram, chain)? {
            if buffer.flags & WRITE == 0 {
                bytes.extend_from_slice(&ram[place(ram, buffer.at, buffer.length as usize)?]);
            }
        }
        Ok(bytes)
    }

    /// Writes to a chain. False: it has not so much room.
    pub(super) fn put(&self, ram: &mut [u8], chain: u16, bytes: &[u8]) -> Result<bool, Broken> {
        let mut left = bytes;
        for buffer in self.buffers(ram, chain)? {
            if buffer.flags & WRITE != 0 {
                let (now, later) = left.split_at(left.len().min(buffer.length as usize));
                let into = place(ram, buffer.at, now.len())?;
                ram[into].copy_from_slice(now);
                left = later;
            }
        }
        Ok(left.is_empty())
    }

    /// Gives a chain back, of which so many bytes were written. Whether the driver wants to hear of it.
    pub(super) fn give_back(
        &mut self,
        ram: &mut [u8],
        chain: u16,
        written: usize,
    ) -> Result<bool, Broken> {
        let slot = self.used + 4 + 8 * u64::from(self.given % self.size);
        put_word(ram, slot, chain.into())?;
        put_word(ram, slot + 4, written as u32)?;
        let wanted = if self.by_index {
            half(ram, self.available + 4 + 2 * u64::from(self.size))? == self.given
        } else {
            half(ram, self.available)? & NO_INTERRUPT == 0
        };
        self.given = self.given.wrapping_add(1);
        put_half(ram, self.used + 2, self.given)?;
        Ok(wanted)
    }
}

/// Where so many bytes are in the card's memory.
fn place(ram: &[u8], at: u64, length: usize) -> Result<std::ops::Range<usize>, Broken> {
    let start = at.checked_sub(RAM_BASE.into()).and_then(|start| usize::try_from(start).ok());
    let start = start.ok_or(Broken)?;
    let end = start.checked_add(length).filter(|end| *end <= ram.len()).ok_or(Broken)?;
    Ok(start..end)
}

fn word(ram: &[u8], at: u64) -> Result<u32, Broken> {
    let bytes = ram[place(ram, at, 4)?].try_into().map_err(|_| Broken)?;
    Ok(u32::from_le_bytes(bytes))
}

fn half(ram: &[u8], at: u64) -> Result<u16, Broken> {
    let bytes = ram[place(ram, at, 2)?].try_into().map_err(|_| Broken)?;
    Ok(u16::from_le_bytes(bytes))
}

fn put_word(ram: &mut [u8], at: u64, value: u32) -> Result<(), Broken> {
    let into = place(ram, at, 4)?;
    ram[into].copy_from_slice(&value.to_le_bytes());
    Ok(())
}

fn put_half(ram: &mut [u8], at: u64, value: u16) -> Result<(), Broken> {
    let into = place(ram, at, 2)?;
    ram[into].copy_from_slice(&value.to_le_bytes());
    Ok(())
}
