//! The controller's queues, and the admin commands that make and delete them.

use super::Nvme;
use super::command::{Outcome, Token};
use super::entry::Sqe;
use super::queue::{CompletionQueue, SubmissionQueue};
use super::regs::MAX_QUEUE_ENTRIES;
use super::status::Status;
use crate::endpoint::Port;

/// Queues by their identifier; 0 are the admin queues.
pub(super) struct Queues {
    sqs: Vec<Option<SubmissionQueue>>,
    cqs: Vec<Option<CompletionQueue>>,
    /// Submission queue that is fetched from next.
    turn: usize,
}

impl Queues {
    pub(super) fn new(io_queues: u16) -> Self {
        let count = usize::from(io_queues) + 1;
        Self {
            sqs: (0..count).map(|_| None).collect(),
            cqs: (0..count).map(|_| None).collect(),
            turn: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.sqs.iter_mut().for_each(|q| *q = None);
        self.cqs.iter_mut().for_each(|q| *q = None);
    }

    pub(super) fn sq_mut(&mut self, id: usize) -> Option<&mut SubmissionQueue> {
        self.sqs.get_mut(id)?.as_mut()
    }

    pub(super) fn cq_mut(&mut self, id: usize) -> Option<&mut CompletionQueue> {
        self.cqs.get_mut(id)?.as_mut()
    }

    pub(super) fn set_sq(&mut self, id: usize, queue: SubmissionQueue) {
        self.sqs[id] = Some(queue);
    }

    pub(super) fn set_cq(&mut self, id: usize, queue: CompletionQueue) {
        self.cqs[id] = Some(queue);
    }

    /// Identifiers go up to this one.
    pub(super) fn count(&self) -> usize {
        self.sqs.len()
    }

    /// Whether there is any I/O queue.
    pub(super) fn has_io_queues(&self) -> bool {
        self.sqs[1..].iter().any(Option::is_some) || self.cqs[1..].iter().any(Option::is_some)
    }

    /// The next submission queue, by turns, that has something to be fetched.
    pub(super) fn next_to_fetch(&mut self) -> Option<usize> {
        let count = self.sqs.len();
        let id = (0..count)
            .map(|i| (self.turn + i) % count)
            .find(|&id| self.sqs[id].as_ref().is_some_and(|sq| self.may_fetch(sq)))?;
        self.turn = (id + 1) % count;
        Some(id)
    }

    /// Whether a queue has something to be fetched and its host reads its completions: those that
    /// wait for a free entry stay few.
    fn may_fetch(&self, sq: &SubmissionQueue) -> bool {
        let cq = self.cqs[usize::from(sq.cq)].as_ref();
        sq.wants_fetch() && cq.is_some_and(|cq| cq.waiting.is_empty())
    }

    /// Completion queues with their identifiers.
    pub(super) fn cqs_mut(&mut self) -> impl Iterator<Item = (usize, &mut CompletionQueue)> {
        self.cqs.iter_mut().enumerate().filter_map(|(id, cq)| Some((id, cq.as_mut()?)))
    }
}

impl Nvme {
    /// Identifier and size from the command's doubleword 10.
    fn new_queue(
        &self,
        sqe: &Sqe,
        taken: impl Fn(&Queues, usize) -> bool,
    ) -> Result<(usize, u16), Status> {
        let id = (sqe.dword(10) & 0xffff) as usize;
        let size = sqe.dword(10) >> 16;
        if id == 0 || id > self.features.io_queues().into() || taken(&self.queues, id) {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if size == 0 || size >= MAX_QUEUE_ENTRIES.into() {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        // Queues are contiguous (CAP.CQR); entries have the sizes that CC says.
        if sqe.dword(11) & 1 == 0 || !self.registers.entry_sizes_are_set() {
            return Err(Status::INVALID_FIELD);
        }
        if !sqe.prp1().is_multiple_of(self.registers.page() as u64) {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        Ok((id, size as u16 + 1))
    }

    pub(super) fn create_cq(&mut self, sqe: &Sqe) -> Result<(), Status> {
        let (id, size) = self.new_queue(sqe, |queues, id| queues.cqs[id].is_some())?;
        let vector = (sqe.dword(11) >> 16) as u16;
        if vector > self.config.io_queues {
            return Err(Status::INVALID_INTERRUPT_VECTOR);
        }
        let interrupts = sqe.dword(11) & 2 != 0;
        let queue = CompletionQueue::new(sqe.prp1(), size, interrupts.then_some(vector));
        self.queues.set_cq(id, queue);
        Ok(())
    }

    pub(super) fn create_sq(&mut self, sqe: &Sqe) -> Result<(), Status> {
        let (id, size) = self.new_queue(sqe, |queues, id| queues.sqs[id].is_some())?;
        let cq = (sqe.dword(11) >> 16) as usize;
        if cq == 0 || cq > self.features.io_queues().into() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if self.queues.cqs[cq].is_none() {
            return Err(Status::COMPLETION_QUEUE_INVALID);
        }
        self.queues.set_sq(id, SubmissionQueue::new(sqe.prp1(), size, cq as u16));
        Ok(())
    }

    /// Deletes a submission queue; its commands are completed first, as aborted. What an image
    /// does for one is taken back, and both it and the deletion wait until that has ended: what
    /// is aborted writes nothing afterwards.
    pub(super) fn delete_sq(
        &mut self,
        port: &mut Port,
        index: u16,
        sqe: &Sqe,
    ) -> Result<Outcome, Status> {
        let id = sqe.dword(10) as u16;
        match self.queues.sq_mut(id.into()) {
            Some(sq) if id != 0 && sq.deleted_by.is_none() => sq.deleted_by = Some(index),
            _ => return Err(Status::INVALID_QUEUE_ID),
        }
        for index in self.commands.of_queue(id) {
            if self.commands.get(index).is_some_and(|command| command.state.is_at_image()) {
                self.cancel_slow(index, Status::ABORTED_SQ_DELETION);
            } else {
                self.stop_command(port, index, Status::ABORTED_SQ_DELETION);
            }
        }
        let fetch = Token::Fetch { sq: id };
        port.cancel_reads(|token| Token::from_bits(token) == Some(fetch));
        self.commands.cancel_fetch(id);
        if self.take_deleted(id).is_some() {
            return Ok(Outcome::Done(0));
        }
        Ok(Outcome::Slow(0))
    }

    /// If a queue is being deleted and its last command has ended: it goes, and this command has
    /// deleted it.
    pub(super) fn take_deleted(&mut self, id: u16) -> Option<u16> {
        let by = self.queues.sq_mut(id.into())?.deleted_by?;
        if !self.commands.of_queue(id).is_empty() {
            return None;
        }
        self.queues.sqs[usize::from(id)] = None;
        Some(by)
    }

    pub(super) fn delete_cq(&mut self, sqe: &Sqe) -> Result<(), Status> {
        let id = (sqe.dword(10) & 0xffff) as usize;
        if id == 0 || self.queues.cq_mut(id).is_none() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if self.queues.sqs.iter().flatten().any(|sq| usize::from(sq.cq) == id) {
            return Err(Status::INVALID_QUEUE_DELETION);
        }
        self.queues.cqs[id] = None;
        Ok(())
    }
}
