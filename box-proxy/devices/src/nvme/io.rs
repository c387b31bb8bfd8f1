//! NVM commands (NVM Express 1.4 section 6).

use super::command::{Outcome, Plan};
use super::entry::Sqe;
use super::image::{ImageOp, Zeroing};
use super::status::Status;
use super::{MDTS, Nvme};
use std::io;

pub(super) const FLUSH: u8 = 0x00;
pub(super) const WRITE: u8 = 0x01;
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
        data: Vec<u8>,
    ) -> Result<Outcome, Status> {
        self.sanitize.check()?;
        match sqe.opcode() {
            FLUSH => {
                self.health.other_commands += 1;
                let chosen = self.chosen(sqe.nsid())?;
                self.start_slow(index, &chosen, &ImageOp::Flush)
            }
            WRITE_ZEROES => {
                self.health.other_commands += 1;
                let (offset, len) = self.extent(sqe, None)?;
                let deallocates = sqe.dword(12) & ZEROES_DEALLOCATE != 0;
                let how = if deallocates { Zeroing::Deallocated } else { Zeroing::Kept };
                let op = ImageOp::zero(offset..offset + len, how, self.is_durable(sqe));
                self.start_slow(index, &[sqe.nsid()], &op)
            }
            DATASET_MANAGEMENT => self.dataset_management(index, sqe, &data),
            WRITE => {
                let (offset, len) = self.extent(sqe, Some(planned))?;
                self.health.writes += 1;
                self.health.bytes_written += len;
                let namespace = self.namespace(sqe.nsid())?;
                let failed_flushes = namespace.image.failed_flushes();
                let written = namespace.write_now(offset, &data);
                if let Some(command) = self.commands.get(index) {
                    command.failed_flushes = failed_flushes;
                }
                if self.is_media(written)? {
                    return self.written(index, sqe);
                }
                self.start_transfer(index, sqe, ImageOp::Write { offset, data }, Vec::new())
            }
            opcode => {
                let (offset, len) = self.extent(sqe, Some(planned))?;
                self.health.reads += 1;
                self.health.bytes_read += len;
                let len = len as usize;
                let read = self.namespace(sqe.nsid())?.read_now(offset, len);
                match self.is_media(read)? {
                    Some(stored) => have_read(opcode, stored, &data),
                    None => self.start_transfer(index, sqe, ImageOp::Read { offset, len }, data),
                }
            }
        }
    }

    /// A result of the image, a failure of which is a media error.
    fn is_media<T>(&mut self, result: Result<T, Status>) -> Result<T, Status> {
        self.health.media_errors += u64::from(result.is_err());
        result
    }

    /// An image has read or written a command's blocks: `stored` is what it has read, `data` what the host
    /// gave for comparison.
    pub(super) fn transferred(
        &mut self,
        index: u16,
        sqe: &Sqe,
        data: &[u8],
        stored: io::Result<Vec<u8>>,
    ) -> Result<Outcome, Status> {
        let writes = sqe.opcode() == WRITE;
        let namespace = self.namespace(sqe.nsid())?;
        let stored = stored.map_err(|error| {
            let offset = sqe.slba() << namespace.shift();
            match writes {
                true => namespace.write_failed(offset, &error),
                false => namespace.read_failed(offset, &error),
            }
        });
        let stored = self.is_media(stored)?;
        if writes {
            return self.written(index, sqe);
        }
        // It may have begun since, and nothing of before is read behind that.
        self.sanitize.check()?;
        have_read(sqe.opcode(), stored, data)
    }

    /// A command's blocks are written.
    fn written(&mut self, index: u16, sqe: &Sqe) -> Result<Outcome, Status> {
        if self.is_durable(sqe) {
            self.start_slow(index, &[sqe.nsid()], &ImageOp::Flush)
        } else {
            Ok(Outcome::Done(0))
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
        let op = ImageOp::Zero { extents, how: Zeroing::Discarded, flush: false };
        self.start_slow(index, &[sqe.nsid()], &op)
    }
}

/// What comes of what a command reads: it is the host's, or is compared with what it gave.
fn have_read(opcode: u8, stored: Vec<u8>, data: &[u8]) -> Result<Outcome, Status> {
    match opcode {
        READ => Ok(Outcome::Data(stored)),
        _ if stored == data => Ok(Outcome::Done(0)),
        _ => Err(Status::COMPARE_FAILURE),
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
