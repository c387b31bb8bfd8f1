//! Commands of the NVM set (NVMe 1.4 section 6).

use crate::command::{Command, Opcode};
use crate::error::Error;
use crate::function::{PAGE, PciFunction};
use crate::identify::IdentifyNamespace;
use crate::queue::{CommandId, Data, QueuePair};
use serde::Serialize;
use std::time::Duration;

/// The most blocks of one Read, Write or Write Zeroes (NLB is zero-based, 16 bits).
const MAX_BLOCKS: u64 = 0x1_0000;

/// The most ranges of one Dataset Management command.
pub const MAX_RANGES: usize = 256;

/// A namespace: which it is and its geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Namespace {
    id: u32,
    blocks: u64,
    block_size: u32,
    max_transfer: usize,
}

/// Logical blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The first.
    pub lba: u64,
    /// How many.
    pub count: u64,
}

impl Namespace {
    pub(crate) fn new(id: u32, identify: &IdentifyNamespace, max_transfer: usize) -> Self {
        let block_size = identify.block_size;
        // At least one block, whatever the controller says.
        let max_transfer = max_transfer.max(block_size as usize);
        Self { id, blocks: identify.blocks, block_size, max_transfer }
    }

    /// Its number.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Logical blocks.
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes of a block.
    pub const fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Bytes in all.
    pub const fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_size as u64)
    }

    /// The most bytes of one Read or Write, whole blocks.
    pub fn max_transfer(&self) -> usize {
        let block = self.block_size as usize;
        (self.max_transfer / block).min(MAX_BLOCKS as usize) * block
    }

    fn check(&self, blocks: Blocks) -> Result<(), Error> {
        if blocks.count == 0 || blocks.count > MAX_BLOCKS {
            return Err(Error::Invalid(format!(
                "one command has 1 to {MAX_BLOCKS} blocks, not {}",
                blocks.count
            )));
        }
        if blocks.lba.checked_add(blocks.count).is_none_or(|end| end > self.blocks) {
            return Err(Error::Invalid(format!(
                "{} blocks from block {} on are outside namespace {}, which has {} blocks",
                blocks.count, blocks.lba, self.id, self.blocks
            )));
        }
        Ok(())
    }

    fn ranged(&self, opcode: Opcode, blocks: Blocks) -> Command {
        Command::new(opcode, self.id)
            .dword(10, blocks.lba as u32)
            .dword(11, (blocks.lba >> 32) as u32)
            .dword(12, (blocks.count - 1) as u32)
    }

    fn data_command(&self, opcode: Opcode, blocks: Blocks, len: usize) -> Result<Command, Error> {
        self.check(blocks)?;
        let need = blocks.count as usize * self.block_size as usize;
        if need != len || need > self.max_transfer() {
            return Err(Error::Invalid(format!(
                "{} blocks are {need} bytes (at most {} in one command), the buffer has {len}",
                blocks.count,
                self.max_transfer()
            )));
        }
        Ok(self.ranged(opcode, blocks))
    }

    /// Submits a Read into `data`, which is as long as the blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for blocks outside the namespace, and those of [`QueuePair::submit`].
    pub fn submit_read<F: PciFunction>(
        &self,
        f: &mut F,
        queue: &mut QueuePair,
        blocks: Blocks,
        data: Data<'_>,
    ) -> Result<CommandId, Error> {
        let command = self.data_command(Opcode::READ, blocks, data.len)?;
        queue.submit(f, &command, Some(data))
    }

    /// Submits a Write of `data`, which is as long as the blocks.
    ///
    /// # Errors
    ///
    /// As [`Namespace::submit_read`].
    pub fn submit_write<F: PciFunction>(
        &self,
        f: &mut F,
        queue: &mut QueuePair,
        blocks: Blocks,
        data: Data<'_>,
    ) -> Result<CommandId, Error> {
        let command = self.data_command(Opcode::WRITE, blocks, data.len)?;
        queue.submit(f, &command, Some(data))
    }

    /// Submits a Flush: what was written before is on the medium when it completes.
    ///
    /// # Errors
    ///
    /// Those of [`QueuePair::submit`].
    pub fn submit_flush<F: PciFunction>(
        &self,
        f: &mut F,
        queue: &mut QueuePair,
    ) -> Result<CommandId, Error> {
        queue.submit(f, &Command::new(Opcode::FLUSH, self.id), None)
    }

    /// Flushes and waits.
    ///
    /// # Errors
    ///
    /// The command's.
    pub fn flush<F: PciFunction>(
        &self,
        f: &mut F,
        queue: &mut QueuePair,
        timeout: Duration,
    ) -> Result<(), Error> {
        queue.execute(f, &Command::new(Opcode::FLUSH, self.id), None, timeout).map(drop)
    }

    /// Writes zeroes and waits.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for blocks outside the namespace, and the command's.
    pub fn write_zeroes<F: PciFunction>(
        &self,
        f: &mut F,
        queue: &mut QueuePair,
        blocks: Blocks,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.check(blocks)?;
        let command = self.ranged(Opcode::WRITE_ZEROES, blocks);
        queue.execute(f, &command, None, timeout).map(drop)
    }

    /// Tells the controller that blocks are not needed any more (Dataset Management, Deallocate)
    /// and waits.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for no range, more than [`MAX_RANGES`] or one outside the namespace,
    /// and the command's.
    pub fn deallocate<F: PciFunction>(
        &self,
        f: &mut F,
        queue: &mut QueuePair,
        ranges: &[Blocks],
        timeout: Duration,
    ) -> Result<(), Error> {
        if ranges.is_empty() || ranges.len() > MAX_RANGES {
            return Err(Error::Invalid(format!(
                "one command deallocates 1 to {MAX_RANGES} ranges, not {}",
                ranges.len()
            )));
        }
        let mut bytes = Vec::with_capacity(ranges.len() * 16);
        for range in ranges {
            let end = range.lba.checked_add(range.count);
            let (Ok(count), true) =
                (u32::try_from(range.count), end.is_some_and(|end| end <= self.blocks))
            else {
                return Err(Error::Invalid(format!(
                    "{} blocks from block {} on are not a range of namespace {}",
                    range.count, range.lba, self.id
                )));
            };
            bytes.extend_from_slice(&0_u32.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&range.lba.to_le_bytes());
        }
        let buffer = f.dma_alloc(PAGE)?;
        let command = Command::new(Opcode::DATASET_MANAGEMENT, self.id)
            .dword(10, ranges.len() as u32 - 1)
            .dword(11, 1 << 2);
        let data = Data { buffer: &buffer, offset: 0, len: bytes.len() };
        let result = match f.dma_write(&buffer, 0, &bytes) {
            Ok(()) => queue.execute(f, &command, Some(data), timeout).map(drop),
            Err(error) => Err(error.into()),
        };
        crate::admin::release(f, buffer, &result);
        result
    }
}
