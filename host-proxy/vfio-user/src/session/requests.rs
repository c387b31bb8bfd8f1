//! What each request does.

use super::in_hand::{InHand, Multi};
use super::{Gone, Session, State, Step};
use crate::channel::{Channel, Message};
use crate::device::{Device, IRQS, Irq, REGIONS, Region};
use crate::limits::MAX_DATA_XFER;
use crate::version::{Refused, negotiate};
use crate::wire::{
    Command, DeviceInfo, DmaMap, DmaUnmap, Feature, IrqInfo, IrqSet, Kind, RegionAccess,
    RegionInfo, RegionIoFds, message, multi_entries,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

impl Device {
    /// The region that an access goes to; none for an access of no bytes, which is right and does
    /// nothing.
    ///
    /// E2BIG for more than a message moves, EINVAL for what is not in a region.
    fn access(&self, access: &RegionAccess) -> Result<Option<(u8, &Region)>, Errno> {
        if access.count as usize > MAX_DATA_XFER {
            return Err(Errno::TOOBIG);
        }
        let index = u8::try_from(access.region).map_err(|_| Errno::INVAL)?;
        let region = self.regions.get(usize::from(index)).ok_or(Errno::INVAL)?;
        let end = access.offset.checked_add(u64::from(access.count)).ok_or(Errno::INVAL)?;
        if region.size == 0 || end > region.size {
            return Err(Errno::INVAL);
        }
        Ok((access.count > 0).then_some((index, region)))
    }

    /// EPERM for a region that is not read, and what [`Device::access`] says.
    fn may_read(&self, access: &RegionAccess) -> Result<Option<u8>, Errno> {
        match self.access(access)? {
            Some((_, region)) if !region.access.reads() => Err(Errno::PERM),
            region => Ok(region.map(|(index, _)| index)),
        }
    }

    /// EPERM for a region that is not written, and what [`Device::access`] says.
    pub(super) fn may_write(&self, access: &RegionAccess) -> Result<Option<u8>, Errno> {
        match self.access(access)? {
            Some((_, region)) if !region.access.writes() => Err(Errno::PERM),
            region => Ok(region.map(|(index, _)| index)),
        }
    }
}

impl Session {
    /// Handles a request. What the device takes part in is given to the caller.
    pub(super) fn handle(&mut self, state: &mut State, mut message: Message) -> Option<Step> {
        state.counts.requests += 1;
        let fds = std::mem::take(&mut message.fds);
        if let Err(error) = self.admit(&message, &fds) {
            let stray_fds = !fds.is_empty() || message.fds_lost.is_some();
            state.counts.stray_fds += u64::from(stray_fds);
            self.reply(state, &message, Err(error));
            return None;
        }
        let payload = &message.payload[..];
        let done = match message.header.command {
            Command::Version => {
                self.version(state, &message);
                return None;
            }
            Command::RegionRead => return self.region_read(state, message),
            Command::RegionWrite => return self.region_write(state, message),
            Command::RegionWriteMulti => {
                match multi_entries(payload) {
                    Ok(entries) => self.in_hand = InHand::Multi(Multi::new(message, entries)),
                    Err(error) => self.reply(state, &message, Err(error)),
                }
                return self.next_of_multi(state);
            }
            Command::DeviceReset => {
                self.in_hand = InHand::Reset { message };
                return Some(Step::Reset);
            }
            Command::DmaMap => self.dma_map(state, payload, fds),
            Command::DmaUnmap => DmaUnmap::parse(payload)
                .and_then(|unmap| state.memory.unmap(unmap))
                .map(|()| payload[..DmaUnmap::LEN].to_vec()),
            Command::DeviceGetInfo => device_info(payload),
            Command::DeviceGetRegionInfo => region_info(&state.device, payload),
            Command::DeviceGetRegionIoFds => region_io_fds(&state.device, payload),
            Command::DeviceGetIrqInfo => irq_info(&state.device, payload),
            Command::DeviceSetIrqs => IrqSet::parse(payload)
                .and_then(|set| state.irqs.set(&set, fds))
                .map(|()| Vec::new()),
            Command::DeviceFeature => Err(Feature::refusal(payload)),
            // There is no migration, and DMA messages go the other way.
            Command::MigDataRead
            | Command::MigDataWrite
            | Command::DmaRead
            | Command::DmaWrite
            | Command::Unknown(_) => Err(Errno::OPNOTSUPP),
        };
        match done {
            Ok(payload) => self.reply(state, &message, Ok((&payload, &[]))),
            Err(error) => self.reply(state, &message, Err(error)),
        }
        None
    }

    /// Whether a request may be looked at: it is a command, after the version was agreed on, and
    /// has file descriptors only where they belong.
    fn admit(&self, message: &Message, fds: &[OwnedFd]) -> Result<(), Errno> {
        let command = message.header.command;
        let takes_fds = matches!(command, Command::DmaMap | Command::DeviceSetIrqs);
        if let Some(error) = message.fds_lost {
            return Err(error);
        }
        let is_command = matches!(message.header.kind, Kind::Command { .. });
        let in_turn = (command == Command::Version) == self.negotiated.is_none();
        if !is_command || !in_turn || (!fds.is_empty() && !takes_fds) {
            return Err(Errno::INVAL);
        }
        Ok(())
    }

    fn version(&mut self, state: &mut State, request: &Message) {
        let (agreed, payload) = match negotiate(&request.payload) {
            Ok(agreed) => agreed,
            Err(refused) => {
                self.reply(state, request, Err(Errno::INVAL));
                if refused == Refused::Major {
                    self.gone.get_or_insert(Gone::Version);
                }
                return;
            }
        };
        if matches!(request.header.kind, Kind::Command { no_reply: true }) {
            // Nothing takes the other end of a twin socket to the client.
            self.negotiated = Some(agreed);
            return;
        }
        let pair = if agreed.twin { twin().map(Some) } else { Ok(None) };
        let (ours, theirs) = match pair {
            Ok(pair) => pair.unzip(),
            Err(error) => return self.reply(state, request, Err(error)),
        };
        self.negotiated = Some(agreed);
        self.twin_open = ours.is_some();
        self.twin = ours.map(Channel::new);
        let (id, kind) = (request.header.id, Kind::Reply { error: None });
        let bytes = message(id, Command::Version, kind, &[&payload]);
        let sent = self.main.send(bytes, theirs.map(OwnedFd::from));
        self.look_at(sent);
    }

    fn region_read(&mut self, state: &mut State, message: Message) -> Option<Step> {
        // What follows the head is not looked at.
        let asked = RegionAccess::parse(&message.payload).map(|(access, _)| access);
        let may = asked.and_then(|access| Ok((access, state.device.may_read(&access)?)));
        match may {
            Ok((access, Some(region))) => {
                self.in_hand = InHand::Read { message, access };
                Some(Step::Read { region, offset: access.offset, len: access.count as usize })
            }
            other => {
                self.reply_without_device(state, &message, other.map(|(access, _)| access));
                None
            }
        }
    }

    /// Replies to an access that never comes to the device: an empty or a wrong one.
    fn reply_without_device(
        &mut self,
        state: &mut State,
        message: &Message,
        access: Result<RegionAccess, Errno>,
    ) {
        let head = access.map(|access| access.emit());
        self.reply(state, message, head.as_ref().map(|h| (&h[..], &[][..])).map_err(|e| *e));
    }

    fn region_write(&mut self, state: &mut State, message: Message) -> Option<Step> {
        let asked = RegionAccess::parse(&message.payload).and_then(|(access, data)| {
            if data.len() == access.count as usize { Ok(access) } else { Err(Errno::INVAL) }
        });
        let may = asked.and_then(|access| Ok((access, state.device.may_write(&access)?)));
        match may {
            Ok((access, Some(region))) => {
                let data = RegionAccess::LEN..message.payload.len();
                self.in_hand = InHand::Write { message, access };
                Some(Step::Write { region, offset: access.offset, data })
            }
            other => {
                self.reply_without_device(state, &message, other.map(|(access, _)| access));
                None
            }
        }
    }

    fn dma_map(
        &mut self,
        state: &mut State,
        payload: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<Vec<u8>, Errno> {
        let max_maps = self.negotiated.map_or(0, |negotiated| negotiated.dma_maps);
        state.memory.map(&DmaMap::parse(payload)?, fds, max_maps)?;
        Ok(Vec::new())
    }
}

/// A pair of sockets for messages to the client; the first is the server's and does not block.
fn twin() -> Result<(UnixStream, UnixStream), Errno> {
    let io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let (ours, theirs) = UnixStream::pair().map_err(io)?;
    ours.set_nonblocking(true).map_err(io)?;
    Ok((ours, theirs))
}

fn device_info(payload: &[u8]) -> Result<Vec<u8>, Errno> {
    DeviceInfo::parse(payload)?;
    Ok(DeviceInfo { regions: REGIONS as u32, irqs: IRQS as u32 }.emit())
}

fn region(device: &Device, index: u32) -> Result<&Region, Errno> {
    let index = usize::try_from(index).map_err(|_| Errno::INVAL)?;
    device.regions.get(index).ok_or(Errno::INVAL)
}

fn region_info(device: &Device, payload: &[u8]) -> Result<Vec<u8>, Errno> {
    let index = RegionInfo::parse(payload)?;
    let Region { size, access } = *region(device, index)?;
    let there = size > 0;
    let (reads, writes) = (there && access.reads(), there && access.writes());
    Ok(RegionInfo { index, reads, writes, size }.emit())
}

fn region_io_fds(device: &Device, payload: &[u8]) -> Result<Vec<u8>, Errno> {
    let asked = RegionIoFds::parse(payload)?;
    if region(device, asked.index)?.size == 0 {
        return Err(Errno::INVAL);
    }
    Ok(asked.emit())
}

fn irq_info(device: &Device, payload: &[u8]) -> Result<Vec<u8>, Errno> {
    let index = IrqInfo::parse(payload)?;
    let irq = Irq::from_index(index).ok_or(Errno::INVAL)?;
    let count = device.irqs[irq.index()];
    let (maskable, masks_itself) = (irq.is_maskable(), irq.masks_itself());
    Ok(IrqInfo { index, maskable, masks_itself, count }.emit())
}
