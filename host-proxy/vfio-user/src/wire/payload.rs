//! What comes after the header. A payload that is shorter than its structure is EINVAL; what is
//! longer than it was not meant for us, and is not looked at, except where the length says
//! something. Fields that a request has to leave at zero are not looked at either.

use super::{u32_at, u64_at};
use rustix::io::Errno;

/// The payload, where it has `len` bytes at least and room for a reply of `reply` bytes is
/// promised in its first field.
fn with_argsz(payload: &[u8], len: usize, reply: usize) -> Result<&[u8], Errno> {
    let payload = payload.get(..len).ok_or(Errno::INVAL)?;
    let argsz = usize::try_from(u32_at(payload, 0)).map_err(|_| Errno::INVAL)?;
    if argsz < reply { Err(Errno::INVAL) } else { Ok(payload) }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `VFIO_USER_DMA_MAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DmaMap {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) size: u64,
}

impl DmaMap {
    pub(crate) const LEN: usize = 32;

    pub(crate) fn parse(payload: &[u8]) -> Result<Self, Errno> {
        let payload = with_argsz(payload, Self::LEN, Self::LEN)?;
        let flags = u32_at(payload, 4);
        if flags & !0b11 != 0 {
            return Err(Errno::INVAL);
        }
        Ok(Self {
            readable: flags & 1 != 0,
            writable: flags & 2 != 0,
            offset: u64_at(payload, 8),
            address: u64_at(payload, 16),
            size: u64_at(payload, 24),
        })
    }
}

/// `VFIO_USER_DMA_UNMAP`, with the flags of `<linux/vfio.h>`: of the two that drafts of the
/// specification had, unmap-all is QEMU's, and there are no dirty pages without migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DmaUnmap {
    One { address: u64, size: u64 },
    All,
}

impl DmaUnmap {
    pub(crate) const LEN: usize = 24;

    pub(crate) fn parse(payload: &[u8]) -> Result<Self, Errno> {
        const GET_DIRTY_BITMAP: u32 = 1;
        const ALL: u32 = 2;
        let payload = with_argsz(payload, Self::LEN, Self::LEN)?;
        let (address, size) = (u64_at(payload, 8), u64_at(payload, 16));
        match u32_at(payload, 4) {
            0 => Ok(Self::One { address, size }),
            ALL if address == 0 && size == 0 => Ok(Self::All),
            GET_DIRTY_BITMAP => Err(Errno::OPNOTSUPP),
            _ => Err(Errno::INVAL),
        }
    }
}

/// `VFIO_USER_DEVICE_GET_INFO`.
pub(crate) struct DeviceInfo {
    pub(crate) regions: u32,
    pub(crate) irqs: u32,
}

impl DeviceInfo {
    pub(crate) const LEN: usize = 16;

    pub(crate) fn parse(payload: &[u8]) -> Result<(), Errno> {
        with_argsz(payload, Self::LEN, Self::LEN).map(drop)
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        const RESET: u32 = 1;
        const PCI: u32 = 2;
        words(&[Self::LEN as u32, RESET | PCI, self.regions, self.irqs])
    }
}

/// `VFIO_USER_DEVICE_GET_REGION_INFO`.
pub(crate) struct RegionInfo {
    pub(crate) index: u32,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) size: u64,
}

impl RegionInfo {
    pub(crate) const LEN: usize = 32;

    /// The region that is asked for.
    pub(crate) fn parse(payload: &[u8]) -> Result<u32, Errno> {
        with_argsz(payload, Self::LEN, Self::LEN).map(|payload| u32_at(payload, 8))
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let flags = u32::from(self.reads) | u32::from(self.writes) << 1;
        let mut bytes = words(&[Self::LEN as u32, flags, self.index, 0]);
        bytes.extend(self.size.to_ne_bytes());
        // The offset for mmap, which no region has.
        bytes.extend(0_u64.to_ne_bytes());
        bytes
    }
}

/// `VFIO_USER_DEVICE_GET_REGION_IO_FDS`.
pub(crate) struct RegionIoFds {
    pub(crate) index: u32,
}

impl RegionIoFds {
    pub(crate) const LEN: usize = 16;

    pub(crate) fn parse(payload: &[u8]) -> Result<Self, Errno> {
        let payload = with_argsz(payload, Self::LEN, Self::LEN)?;
        if u32_at(payload, 4) != 0 || u32_at(payload, 12) != 0 {
            return Err(Errno::INVAL);
        }
        Ok(Self { index: u32_at(payload, 8) })
    }

    /// No sub-regions.
    pub(crate) fn emit(&self) -> Vec<u8> {
        words(&[Self::LEN as u32, 0, self.index, 0])
    }
}

/// `VFIO_USER_DEVICE_GET_IRQ_INFO`.
pub(crate) struct IrqInfo {
    pub(crate) index: u32,
    pub(crate) maskable: bool,
    pub(crate) masks_itself: bool,
    pub(crate) count: u32,
}

impl IrqInfo {
    pub(crate) const LEN: usize = 16;

    /// The kind that is asked for.
    pub(crate) fn parse(payload: &[u8]) -> Result<u32, Errno> {
        with_argsz(payload, Self::LEN, Self::LEN).map(|payload| u32_at(payload, 8))
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        const EVENTFD: u32 = 1;
        let flags = EVENTFD | u32::from(self.maskable) << 1 | u32::from(self.masks_itself) << 2;
        words(&[Self::LEN as u32, flags, self.index, self.count])
    }
}

/// What `VFIO_USER_DEVICE_SET_IRQS` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Mask,
    Unmask,
    Trigger,
}

/// To which vectors it does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    /// All of the range; all of the kind where the range is empty.
    All,
    /// Those whose byte is not 0.
    Chosen(&'a [u8]),
    /// The file descriptors that came along are for them.
    Eventfds,
}

/// `VFIO_USER_DEVICE_SET_IRQS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IrqSet<'a> {
    pub(crate) action: Action,
    pub(crate) which: Which<'a>,
    pub(crate) index: u32,
    pub(crate) start: u32,
    pub(crate) count: u32,
}

impl<'a> IrqSet<'a> {
    pub(crate) const LEN: usize = 20;

    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self, Errno> {
        with_argsz(payload, Self::LEN, Self::LEN)?;
        let (fixed, data) = payload.split_at(Self::LEN);
        let flags = u32_at(fixed, 4);
        let count = u32_at(fixed, 16);
        let action = match flags >> 3 {
            1 => Action::Mask,
            2 => Action::Unmask,
            4 => Action::Trigger,
            _ => return Err(Errno::INVAL),
        };
        let which = match flags & 0b111 {
            1 => Which::All,
            2 if usize::try_from(count) == Ok(data.len()) => Which::Chosen(data),
            4 => Which::Eventfds,
            _ => return Err(Errno::INVAL),
        };
        Ok(Self { action, which, index: u32_at(fixed, 8), start: u32_at(fixed, 12), count })
    }
}

/// The head of `VFIO_USER_REGION_READ` and `VFIO_USER_REGION_WRITE`, and of their replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionAccess {
    pub(crate) offset: u64,
    pub(crate) region: u32,
    pub(crate) count: u32,
}

impl RegionAccess {
    pub(crate) const LEN: usize = 16;

    /// The head and what comes after it.
    pub(crate) fn parse(payload: &[u8]) -> Result<(Self, &[u8]), Errno> {
        let (head, data) = payload.split_at_checked(Self::LEN).ok_or(Errno::INVAL)?;
        let access =
            Self { offset: u64_at(head, 0), region: u32_at(head, 8), count: u32_at(head, 12) };
        Ok((access, data))
    }

    pub(crate) fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..8].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.region.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.count.to_ne_bytes());
        bytes
    }
}

/// One write of `VFIO_USER_REGION_WRITE_MULTI`: a [`RegionAccess`] and eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MultiEntry {
    pub(crate) access: RegionAccess,
    /// Where its data begins in the payload.
    pub(crate) data_at: usize,
}

impl MultiEntry {
    const LEN: usize = RegionAccess::LEN + Self::DATA;
    /// Bytes that one write has at most.
    pub(crate) const DATA: usize = 8;
    const HEAD: usize = 8;

    /// The entry of a number below [`multi_entries`].
    pub(crate) fn parse(payload: &[u8], number: usize) -> Self {
        let at = Self::HEAD + number * Self::LEN;
        let (access, _) =
            RegionAccess::parse(&payload[at..at + Self::LEN]).expect("its length was looked at");
        Self { access, data_at: at + RegionAccess::LEN }
    }
}

/// How many writes a `VFIO_USER_REGION_WRITE_MULTI` has.
pub(crate) fn multi_entries(payload: &[u8]) -> Result<usize, Errno> {
    let (head, entries) = payload.split_at_checked(MultiEntry::HEAD).ok_or(Errno::INVAL)?;
    let count = usize::try_from(u64_at(head, 0)).map_err(|_| Errno::INVAL)?;
    if count.checked_mul(MultiEntry::LEN) == Some(entries.len()) {
        Ok(count)
    } else {
        Err(Errno::INVAL)
    }
}

/// The head of `VFIO_USER_DMA_READ` and `VFIO_USER_DMA_WRITE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DmaAccess {
    pub(crate) address: u64,
    pub(crate) count: u64,
}

impl DmaAccess {
    pub(crate) const LEN: usize = 16;

    pub(crate) fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..8].copy_from_slice(&self.address.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.count.to_ne_bytes());
        bytes
    }

    /// Whether a reply to a read says the same, and has the data.
    pub(crate) fn is_answered_by(&self, payload: &[u8]) -> bool {
        payload.len() == Self::LEN + self.count as usize && payload[..Self::LEN] == self.emit()
    }

    /// Whether a reply to a write says the same. QEMU 11 sends none of it, the specification has a
    /// count of four bytes, and libvfio-user one of eight.
    pub(crate) fn is_acknowledged_by(&self, payload: &[u8]) -> bool {
        match payload.len() {
            0 => true,
            12 => payload[..8] == self.emit()[..8] && u64::from(u32_at(payload, 8)) == self.count,
            Self::LEN => payload == self.emit(),
            _ => false,
        }
    }
}

/// `VFIO_USER_DEVICE_FEATURE`. There are features of migration only, and so none here.
pub(crate) struct Feature;

impl Feature {
    const LEN: usize = 8;

    /// Which error a request gets.
    pub(crate) fn refusal(payload: &[u8]) -> Errno {
        const GET_AND_SET: u32 = 0b11 << 16;
        const PROBE: u32 = 1 << 18;
        const KNOWN: u32 = GET_AND_SET | PROBE | 0xffff;
        let Ok(payload) = with_argsz(payload, Self::LEN, Self::LEN) else {
            return Errno::INVAL;
        };
        let flags = u32_at(payload, 4);
        let actions = flags & GET_AND_SET;
        let probes = flags & PROBE != 0;
        if flags & !KNOWN != 0 || (!probes && (actions == 0 || actions == GET_AND_SET)) {
            Errno::INVAL
        } else {
            Errno::OPNOTSUPP
        }
    }
}
