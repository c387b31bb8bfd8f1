//! NVM commands (NVM Express 1.4 section 6).

use super::command::{Commands, Outcome, Plan};
use super::entry::Sqe;
use super::image::{SlowOp, Zeroing};
use super::status::Status;
use super::{MDTS, Nvme};

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const COMPARE: u8 = 0x05;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;

/// Bytes of a range of Dataset Management.
const RANGE_LEN: usize = 16;
/// Dataset Management: deallocate.
const DEALLOCATE: u32 = 1 << 2;
/// Write Zeroes: deallocate.
const ZEROES_DEALLOCATE: u32 = 1 << 25;

impl Nvme {
    /// What an NVM command needs.
    pub(super) fn plan_io(&mut self, sqe: &Sqe) -> Result<Plan, Status> {
        let opcode = sqe.opcode();
        match opcode {
            FLUSH | WRITE | READ | COMPARE | WRITE_ZEROES | DATASET_MANAGEMENT => {}
            _ => return Err(Status::INVALID_OPCODE),
        }
        self.sanitize.check()?;
        if opcode == FLUSH {
            self.chosen(sqe.nsid())?;
            return Ok(Plan::Nothing);
        }
        let namespace = self.namespace(sqe.nsid())?;
        if namespace.formatting {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        if matches!(opcode, WRITE | WRITE_ZEROES | DATASET_MANAGEMENT) {
            namespace.check_writable()?;
        }
        if opcode == DATASET_MANAGEMENT {
            let ranges = (sqe.dword(10) & 0xff) as usize + 1;
            return Ok(Plan::FromHost(ranges * RANGE_LEN));
        }
        if opcode == WRITE_ZEROES {
            namespace.extent(sqe.slba(), sqe.blocks())?;
            return Ok(Plan::Nothing);
        }
        if sqe.blocks() << namespace.shift() > 4096 << MDTS {
            return Err(Status::INVALID_FIELD);
        }
        let (_, len) = namespace.extent(sqe.slba(), sqe.blocks())?;
        if opcode == READ {
            Ok(Plan::ToHost(len as usize))
        } else {
            Ok(Plan::FromHost(len as usize))
        }
    }

    /// Carries an NVM command out, with the data that came for it. What was checked before is
    /// checked again: the namespace may have been formatted since, or a sanitize have begun, behind which
    /// nothing may be written (NVM Express 1.4 section 8.15).
    pub(super) fn run_io(
        &mut self,
        index: u16,
        sqe: &Sqe,
        planned: usize,
        data: &[u8],
    ) -> Result<Outcome, Status> {
        self.sanitize.check()?;
        match sqe.opcode() {
            FLUSH => {
                self.health.other_commands += 1;
                let chosen = self.chosen(sqe.nsid())?;
                self.start_slow(index, &chosen, &SlowOp::Flush)
            }
            WRITE_ZEROES => {
                self.health.other_commands += 1;
                let (offset, len) = self.extent(sqe, None)?;
                let deallocates = sqe.dword(12) & ZEROES_DEALLOCATE != 0;
                let how = if deallocates { Zeroing::Deallocated } else { Zeroing::Kept };
                let op = SlowOp::zero(offset..offset + len, how, self.is_durable(sqe));
                self.start_slow(index, &[sqe.nsid()], &op)
            }
            DATASET_MANAGEMENT => self.dataset_management(index, sqe, data),
            READ => {
                let (offset, len) = self.extent(sqe, Some(planned))?;
                let data = self.namespace(sqe.nsid())?.read(offset, len);
                self.health.reads += 1;
                self.health.bytes_read += len;
                self.health.media_errors += u64::from(data.is_err());
                data.map(Outcome::Data)
            }
            WRITE => {
                let (offset, len) = self.extent(sqe, Some(planned))?;
                let written = self.namespace(sqe.nsid())?.write(offset, data);
                self.health.writes += 1;
                self.health.bytes_written += len;
                self.health.media_errors += u64::from(written.is_err());
                written?;
                if self.is_durable(sqe) {
                    self.start_slow(index, &[sqe.nsid()], &SlowOp::Flush)
                } else {
                    Ok(Outcome::Done(0))
                }
            }
            _ => {
                let (offset, len) = self.extent(sqe, Some(planned))?;
                self.health.reads += 1;
                self.health.bytes_read += len;
                let stored = self.namespace(sqe.nsid())?.read(offset, len)?;
                if stored == data { Ok(Outcome::Done(0)) } else { Err(Status::COMPARE_FAILURE) }
            }
        }
    }

    /// Byte offset and length of the command's blocks. If it has data, they have to be as long as
    /// when its place was looked up.
    fn extent(&mut self, sqe: &Sqe, planned: Option<usize>) -> Result<(u64, u64), Status> {
        let namespace = self.namespace(sqe.nsid())?;
        let (offset, len) = namespace.extent(sqe.slba(), sqe.blocks())?;
        if namespace.formatting || planned.is_some_and(|planned| planned as u64 != len) {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        Ok((offset, len))
    }

    /// Starts an operation of a command in the images of some namespaces, one in each.
    pub(super) fn start_slow(
        &mut self,
        index: u16,
        chosen: &[u32],
        op: &SlowOp,
    ) -> Result<Outcome, Status> {
        let serial = self.commands.get(index).map_or(0, |command| command.serial);
        let id = Commands::slow_id(index, serial);
        for (started, &nsid) in chosen.iter().enumerate() {
            let Err(status) = self.namespace(nsid)?.start(id, op.clone()) else { continue };
            if started == 0 {
                return Err(status);
            }
            // It fails when those that were started have ended.
            self.cancel_slow(index, status);
            return Ok(Outcome::Slow(started as u16));
        }
        Ok(Outcome::Slow(chosen.len() as u16))
    }

    /// Takes a command's operations back. It ends with that status when they have.
    pub(super) fn cancel_slow(&mut self, index: u16, status: Status) {
        let Some(command) = self.commands.get(index) else { return };
        command.error = Some(status);
        let id = Commands::slow_id(index, command.serial);
        for namespace in &mut self.namespaces {
            namespace.image.cancel(id);
        }
    }

    /// Whether what the command writes is to be durable when it completes.
    fn is_durable(&self, sqe: &Sqe) -> bool {
        sqe.fua() || !self.features.write_cache()
    }

    fn dataset_management(
        &mut self,
        index: u16,
        sqe: &Sqe,
        data: &[u8],
    ) -> Result<Outcome, Status> {
        self.health.other_commands += 1;
        if sqe.dword(11) & DEALLOCATE == 0 {
            // Hints about access, of which an image makes nothing.
            return Ok(Outcome::Done(0));
        }
        let namespace = self.namespace(sqe.nsid())?;
        if namespace.formatting {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        let mut extents = Vec::new();
        for range in data.chunks_exact(RANGE_LEN) {
            let range = Range::new(range);
            let (offset, len) = namespace.extent(range.slba, range.blocks)?;
            extents.push(offset..offset + len);
        }
        extents.retain(|extent| !extent.is_empty());
        if extents.is_empty() {
            return Ok(Outcome::Done(0));
        }
        let op = SlowOp::Zero { extents, how: Zeroing::Discarded, flush: false };
        self.start_slow(index, &[sqe.nsid()], &op)
    }
}

/// A range of Dataset Management: 4 bytes of attributes, length, first block.
struct Range {
    blocks: u64,
    slba: u64,
}

impl Range {
    fn new(bytes: &[u8]) -> Self {
        let mut slba = [0; 8];
        slba.copy_from_slice(&bytes[8..16]);
        let blocks = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Self { blocks: blocks.into(), slba: u64::from_le_bytes(slba) }
    }
}
