//! Queue pairs: a submission queue and its completion queue (NVMe 1.4 section 4.1).
//!
//! A pair holds its rings' memory and its place at the doorbells, nothing of the controller: who
//! created it with an admin command need not be who uses it.

use crate::command::{COMPLETION_ENTRY, Command, Opcode, SUBMISSION_ENTRY};
use crate::error::Error;
use crate::function::{DmaBuffer, FunctionError, PAGE, PciFunction};
use crate::regs::submission_doorbell;
use crate::status::Status;
use std::time::{Duration, Instant};

/// The most bytes of one command: what one page of PRP entries describes wherever the data
/// starts in its first page.
pub const MAX_TRANSFER: usize = (PAGE / 8) * PAGE;

/// Where a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLayout {
    /// Queue identifier, the same for both queues; 0 is the admin queue.
    pub id: u16,
    /// Entries of each queue, 2 to 65535. One entry stays empty.
    pub depth: u16,
    /// Bytes between doorbells.
    pub doorbell_stride: u64,
    /// Interrupt vector of the completion queue, or `None` to poll.
    pub vector: Option<u16>,
}

/// The number of a command in its queue while it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandId(u16);

impl CommandId {
    /// The command identifier as the Abort command wants it.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The command.
    pub opcode: Opcode,
    /// Its status.
    pub status: Status,
    /// Doubleword 0, which some commands use.
    pub result: u32,
}

impl Completion {
    /// The result, or the status as an error.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] unless the command succeeded.
    pub fn ok(self) -> Result<u32, Error> {
        if self.status.is_success() {
            Ok(self.result)
        } else {
            Err(Error::Command { opcode: self.opcode, status: self.status })
        }
    }
}

/// The data of a command: a part of a buffer. `offset` is a multiple of 4.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// The memory.
    pub buffer: &'a DmaBuffer,
    /// First byte.
    pub offset: usize,
    /// Bytes, 1 to [`MAX_TRANSFER`].
    pub len: usize,
}

#[derive(Debug)]
enum Entry {
    Free,
    InFlight {
        opcode: Opcode,
        since: Instant,
    },
    /// Its waiter gave up; the entry is free when the completion comes after all.
    Abandoned,
    Done(Completion),
}

#[derive(Debug)]
struct Slot {
    entry: Entry,
    prp_list: Option<DmaBuffer>,
}

/// A submission queue and its completion queue.
#[derive(Debug)]
pub struct QueuePair {
    layout: QueueLayout,
    submission: DmaBuffer,
    completion: DmaBuffer,
    slots: Vec<Slot>,
    free: Vec<u16>,
    sq_tail: u16,
    rung_tail: u16,
    cq_head: u16,
    phase: bool,
    unexpected: u64,
}

impl QueuePair {
    /// Allocates the rings. The controller does not know of them yet.
    ///
    /// # Errors
    ///
    /// When the depth is below 2, or there is no memory.
    pub fn allocate<F: PciFunction>(f: &mut F, layout: QueueLayout) -> Result<Self, Error> {
        if layout.depth < 2 {
            return Err(Error::Invalid(format!(
                "a queue needs at least 2 entries, not {}",
                layout.depth
            )));
        }
        let depth = usize::from(layout.depth);
        let submission = f.dma_alloc(depth * SUBMISSION_ENTRY)?;
        let completion = match f.dma_alloc(depth * COMPLETION_ENTRY) {
            Ok(buffer) => buffer,
            Err(error) => {
                f.dma_free(submission);
                return Err(error.into());
            }
        };
        let slots = (1..depth).map(|_| Slot { entry: Entry::Free, prp_list: None }).collect();
        Ok(Self {
            layout,
            submission,
            completion,
            slots,
            free: (0..layout.depth - 1).rev().collect(),
            sq_tail: 0,
            rung_tail: 0,
            cq_head: 0,
            phase: true,
            unexpected: 0,
        })
    }

    /// Gives the memory back. The controller has forgotten the queues (they were deleted, or it
    /// was reset).
    pub fn free<F: PciFunction>(self, f: &mut F) {
        f.dma_free(self.submission);
        f.dma_free(self.completion);
        for list in self.slots.into_iter().filter_map(|slot| slot.prp_list) {
            f.dma_free(list);
        }
    }

    /// Where it is.
    pub const fn layout(&self) -> &QueueLayout {
        &self.layout
    }

    /// Bus address of the submission queue.
    pub const fn submission_address(&self) -> u64 {
        self.submission.address()
    }

    /// Bus address of the completion queue.
    pub const fn completion_address(&self) -> u64 {
        self.completion.address()
    }

    /// The most commands in flight.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Commands in flight, or completed and not yet taken.
    pub fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Completions that belonged to no command in flight.
    pub const fn unexpected_completions(&self) -> u64 {
        self.unexpected
    }

    /// Puts a command into the submission queue; [`QueuePair::ring`] tells the controller.
    ///
    /// # Errors
    ///
    /// [`Error::QueueFull`], [`Error::Invalid`] for a data range that PRPs cannot describe, or
    /// the machine's.
    pub fn submit<F: PciFunction>(
        &mut self,
        f: &mut F,
        command: &Command,
        data: Option<Data<'_>>,
    ) -> Result<CommandId, Error> {
        let id = *self.free.last().ok_or(Error::QueueFull(self.layout.id))?;
        let prp = match data {
            Some(data) => self.describe(f, id, data)?,
            None => [0; 2],
        };
        let at = usize::from(self.sq_tail) * SUBMISSION_ENTRY;
        f.dma_write(&self.submission, at, &command.to_bytes(id, prp))?;
        self.free.pop();
        self.slots[usize::from(id)].entry =
            Entry::InFlight { opcode: command.opcode, since: f.now() };
        self.sq_tail = (self.sq_tail + 1) % self.layout.depth;
        Ok(CommandId(id))
    }

    /// Tells the controller of all commands submitted since the last time.
    ///
    /// # Errors
    ///
    /// The machine's.
    pub fn ring<F: PciFunction>(&mut self, f: &mut F) -> Result<(), Error> {
        if self.rung_tail != self.sq_tail {
            let doorbell = submission_doorbell(self.layout.id, self.layout.doorbell_stride);
            f.bar_write32(0, doorbell, self.sq_tail.into())?;
            self.rung_tail = self.sq_tail;
        }
        Ok(())
    }

    /// Takes what the controller has completed since the last time and says how many that were.
    ///
    /// # Errors
    ///
    /// The machine's.
    pub fn poll<F: PciFunction>(&mut self, f: &mut F) -> Result<usize, Error> {
        let mut taken = 0;
        // One round at most: a controller that breaks the phase rule must not keep us here.
        while taken < usize::from(self.layout.depth) && self.take_one(f)? {
            taken += 1;
        }
        if taken > 0 {
            let stride = self.layout.doorbell_stride;
            let doorbell = submission_doorbell(self.layout.id, stride) + stride;
            f.bar_write32(0, doorbell, self.cq_head.into())?;
        }
        Ok(taken)
    }

    fn take_one<F: PciFunction>(&mut self, f: &mut F) -> Result<bool, Error> {
        let at = usize::from(self.cq_head) * COMPLETION_ENTRY;
        // The phase bit is read before the rest: the device writes it last, or all at once.
        let mut last = [0; 4];
        f.dma_read(&self.completion, at + 12, &mut last)?;
        let status = u16::from_le_bytes([last[2], last[3]]);
        if (status & 1 != 0) != self.phase {
            return Ok(false);
        }
        let mut result = [0; 4];
        f.dma_read(&self.completion, at, &mut result)?;
        let id = u16::from_le_bytes([last[0], last[1]]);
        self.finish(id, Status::from_bits(status >> 1), u32::from_le_bytes(result));
        self.cq_head += 1;
        if self.cq_head == self.layout.depth {
            self.cq_head = 0;
            self.phase = !self.phase;
        }
        Ok(true)
    }

    fn finish(&mut self, id: u16, status: Status, result: u32) {
        match self.slots.get_mut(usize::from(id)).map(|slot| &mut slot.entry) {
            Some(entry @ Entry::InFlight { .. }) => {
                let Entry::InFlight { opcode, .. } = *entry else { unreachable!() };
                *entry = Entry::Done(Completion { opcode, status, result });
            }
            Some(entry @ Entry::Abandoned) => {
                *entry = Entry::Free;
                self.free.push(id);
            }
            Some(Entry::Free | Entry::Done(_)) | None => {
                self.unexpected += 1;
                tracing::warn!(queue = self.layout.id, id, "completion of no command in flight");
            }
        }
    }

    /// The completion of a command if [`QueuePair::poll`] has seen it; its place is free then.
    pub fn take(&mut self, id: CommandId) -> Option<Completion> {
        let slot = self.slots.get_mut(usize::from(id.0))?;
        let Entry::Done(completion) = slot.entry else { return None };
        slot.entry = Entry::Free;
        self.free.push(id.0);
        Some(completion)
    }

    /// Waits for one command. The others that complete meanwhile are kept for their own waiters.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when it did not complete: its data stays the device's until then.
    pub fn wait<F: PciFunction>(
        &mut self,
        f: &mut F,
        id: CommandId,
        timeout: Duration,
    ) -> Result<Completion, Error> {
        let deadline = f.now() + timeout;
        self.wait_until(f, id, deadline)
    }

    fn wait_until<F: PciFunction>(
        &mut self,
        f: &mut F,
        id: CommandId,
        deadline: Instant,
    ) -> Result<Completion, Error> {
        loop {
            self.poll(f)?;
            if let Some(completion) = self.take(id) {
                return Ok(completion);
            }
            if f.now() >= deadline {
                return Err(self.abandon(id, f.now()));
            }
            f.wait(self.layout.vector, deadline)?;
        }
    }

    fn abandon(&mut self, id: CommandId, now: Instant) -> Error {
        let entry = &mut self.slots[usize::from(id.0)].entry;
        let Entry::InFlight { opcode, since } = *entry else {
            return Error::Invalid(format!("command {} is not in flight", id.0));
        };
        *entry = Entry::Abandoned;
        Error::Timeout { opcode, waited: now.saturating_duration_since(since) }
    }

    /// Waits until no command is in flight; completions are thrown away. All of them together have that
    /// time: where one is lost, the others mostly are, too.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] for the first command that did not complete.
    pub fn drain<F: PciFunction>(&mut self, f: &mut F, timeout: Duration) -> Result<(), Error> {
        let deadline = f.now() + timeout;
        let mut first_error = None;
        for id in 0..self.slots.len() as u16 {
            if matches!(self.slots[usize::from(id)].entry, Entry::InFlight { .. } | Entry::Done(_))
                && let Err(error) = self.wait_until(f, CommandId(id), deadline)
            {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Submits one command, rings and waits for it.
    ///
    /// # Errors
    ///
    /// Those of submission and waiting, and [`Error::Command`] when the command failed.
    pub fn execute<F: PciFunction>(
        &mut self,
        f: &mut F,
        command: &Command,
        data: Option<Data<'_>>,
        timeout: Duration,
    ) -> Result<u32, Error> {
        let id = self.submit(f, command, data)?;
        self.ring(f)?;
        self.wait(f, id, timeout)?.ok()
    }

    /// The two PRP entries for a data range, with a list in this command's page where more than
    /// two pages are touched (NVMe 1.4 section 4.3).
    fn describe<F: PciFunction>(
        &mut self,
        f: &mut F,
        id: u16,
        data: Data<'_>,
    ) -> Result<[u64; 2], Error> {
        let Data { buffer, offset, len } = data;
        if offset.checked_add(len).is_none_or(|end| end > buffer.len()) {
            return Err(FunctionError::OutsideBuffer { offset, len, size: buffer.len() }.into());
        }
        if len == 0 || len > MAX_TRANSFER || offset % 4 != 0 {
            return Err(Error::Invalid(format!(
                "one command moves 1 to {MAX_TRANSFER} bytes from an offset that 4 divides, not \
                 {len} bytes from {offset:#x}"
            )));
        }
        let pages = prp_pages(buffer.address() + offset as u64, len);
        let [first, rest @ ..] = pages.as_slice() else { unreachable!("len is not 0") };
        let second = match rest {
            [] => 0,
            [one] => *one,
            many => {
                let slot = &mut self.slots[usize::from(id)];
                let list = match &mut slot.prp_list {
                    Some(list) => list,
                    none => none.insert(f.dma_alloc(PAGE)?),
                };
                let bytes: Vec<u8> = many.iter().flat_map(|page| page.to_le_bytes()).collect();
                f.dma_write(list, 0, &bytes)?;
                list.address()
            }
        };
        Ok([*first, second])
    }
}

/// The address in the first page and the start of every further page that a range touches.
fn prp_pages(address: u64, len: usize) -> Vec<u64> {
    let page = PAGE as u64;
    let next = (address / page + 1) * page;
    let end = address + len as u64;
    std::iter::once(address).chain((next..end).step_by(PAGE)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prps_cover_the_range_exactly(start in 0_u64..0x1_0000, len in 1..=MAX_TRANSFER) {
            let start = 0x10_0000 + start * 4;
            let pages = prp_pages(start, len);
            prop_assert!(pages.len() - 1 <= PAGE / 8);
            let mut at = start;
            for page in &pages {
                prop_assert_eq!(*page, at);
                at = (at / PAGE as u64 + 1) * PAGE as u64;
            }
            let end = start + len as u64;
            prop_assert!(end <= at && end > *pages.last().unwrap());
        }
    }
}
