//! How jobs advance: a piece of each running job by turns.

use super::Accelerator;
use super::job::{Failure, Operation};
use super::memory::pattern;
use super::regs;
use crate::endpoint::{Port, READ_JOBS, ReadDone, Refused, Traffic};
use std::time::Duration;

/// Bytes of a job that are one DMA.
const PIECE: u64 = 4096;
/// Bytes of a job that are filled or checked at a time.
const COMPUTE_PIECE: u64 = 64 * 1024;
/// Pieces that one call may start: what keeps the proxy's loop going.
const PIECES_A_CALL: usize = 64;
/// Bytes of writes that wait in front of the link. More would only make register reads, which
/// must not pass them, slow.
const WRITE_BACKLOG: usize = 16 * 1024;

/// What a DMA read of ours is called: whose job and which bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The job's number, 22 bits: an earlier job in the same slot has another one.
    pub(super) generation: u32,
    slot: usize,
    /// Offset in the job, below 2^40.
    offset: u64,
}

const GENERATION_BITS: u32 = 22;
const _: () = assert!(regs::SLOTS <= 4 && regs::MAX_LENGTH <= 1 << 40);

impl Token {
    pub(super) fn from_bits(bits: u64) -> Self {
        Self {
            generation: (bits >> 42) as u32,
            slot: (bits >> 40 & 3) as usize,
            offset: bits & ((1 << 40) - 1),
        }
    }

    /// The number of the job after that of number `generation`.
    pub(super) fn next_generation(generation: u32) -> u32 {
        (generation + 1) & ((1 << GENERATION_BITS) - 1)
    }

    fn bits(self) -> u64 {
        u64::from(self.generation) << 42 | (self.slot as u64) << 40 | self.offset
    }
}

/// Length of the piece at a host address: it ends where a 4 KB page does, so that no request is
/// cut shorter than the page wants.
fn piece(address: u64, left: u64) -> u64 {
    left.min(PIECE - address % PIECE)
}

/// What came of trying to advance a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A piece was started or finished.
    Moved,
    /// Nothing to do until something comes or leaves.
    Waits,
}

impl Accelerator {
    /// Starts pieces of running jobs, by turns, until all wait or the bound is reached.
    pub(super) fn advance(&mut self, port: &mut Port, now: Duration) {
        self.check_bus(port, now);
        let mut waiting = 0;
        let mut pieces = 0;
        while waiting < regs::SLOTS && pieces < PIECES_A_CALL {
            let index = self.turn;
            self.turn = (self.turn + 1) % regs::SLOTS;
            match self.step(port, now, index) {
                Step::Waits => waiting += 1,
                Step::Moved => waiting = 0,
            }
            // Computing is the slow part.
            pieces += if self.computes() { PIECES_A_CALL / 4 } else { 1 };
        }
    }

    /// Without the bus every job that writes fails, and with them what they had handed over: when the
    /// bus is back, host memory may be somebody else's.
    pub(super) fn check_bus(&mut self, port: &mut Port, now: Duration) {
        if port.bus_master() {
            return;
        }
        for index in 0..regs::SLOTS {
            if self.slots[index].run().is_some_and(|run| run.operation == Operation::Write) {
                self.fail(port, now, index, Failure(regs::ERROR_BUS_MASTER_OFF));
            }
        }
        port.drop_held_writes();
    }

    /// Whether a job runs that needs nothing from outside.
    pub(super) fn computes(&self) -> bool {
        self.slots.iter().any(|slot| {
            slot.run().is_some_and(|r| matches!(r.operation, Operation::Fill | Operation::Check))
        })
    }

    fn step(&mut self, port: &mut Port, now: Duration, index: usize) -> Step {
        let Some(run) = self.slots[index].run() else { return Step::Waits };
        let result = match run.operation {
            Operation::Read => self.step_read(port, index),
            Operation::Write => self.step_write(port, index),
            Operation::Fill | Operation::Check => Ok(self.step_compute(index)),
        };
        let slot = &self.slots[index];
        match (result, slot.run()) {
            (Err(failure), _) => {
                self.fail(port, now, index, failure);
                Step::Moved
            }
            (Ok(Step::Waits), Some(run)) if slot.transferred == slot.length => {
                if run.mark.is_none_or(|mark| port.has_left(mark)) {
                    self.end(port, now, index, Ok(()));
                }
                Step::Waits
            }
            (Ok(step), _) => step,
        }
    }

    fn fail(&mut self, port: &mut Port, now: Duration, index: usize, failure: Failure) {
        if let Some(run) = self.slots[index].run() {
            let generation = run.generation;
            port.cancel_reads(|token| Token::from_bits(token).generation == generation);
        }
        self.end(port, now, index, Err(failure));
    }

    /// Asks for the next piece.
    fn step_read(&mut self, port: &mut Port, index: usize) -> Result<Step, Failure> {
        let readers = self.slots.iter().filter_map(|s| s.run());
        let readers = readers.filter(|r| r.operation == Operation::Read).count().max(1);
        // Twice what the tags can carry, so that they never wait for this loop.
        let most = 2 * usize::from(self.tags) * port.max_read_request() / PIECE as usize;
        let most = (most.clamp(2, READ_JOBS) / readers).max(1);
        let slot = &mut self.slots[index];
        let length = slot.length;
        let Some(run) = slot.run() else { return Ok(Step::Waits) };
        let (offset, generation) = (run.issued, run.generation);
        if offset == length || run.pieces >= most {
            return Ok(Step::Waits);
        }
        let (address, straight) = slot.host_at(offset);
        let len = piece(address, straight.min(length - offset));
        let token = Token { generation, slot: index, offset };
        match port.dma_read(address, len as usize, token.bits(), Traffic::Data) {
            Ok(()) => {}
            Err(Refused::Full) => return Ok(Step::Waits),
            Err(Refused::BusMasterOff) => return Err(Failure(regs::ERROR_BUS_MASTER_OFF)),
        }
        if let Some(run) = slot.run_mut() {
            run.issued += len;
            run.pieces += 1;
        }
        Ok(Step::Moved)
    }

    /// A piece of a read job came, or failed.
    pub(super) fn piece_came(&mut self, port: &mut Port, now: Duration, done: ReadDone) {
        let token = Token::from_bits(done.token);
        let slot = &mut self.slots[token.slot];
        if slot.run().is_none_or(|run| run.generation != token.generation) {
            return;
        }
        slot.add_timing(&done.timing);
        let data = match done.result {
            Ok(data) => data,
            Err(error) => return self.fail(port, now, token.slot, error.into()),
        };
        let (device, mut at) = (slot.device, slot.transferred);
        let Some(run) = slot.run_mut() else { return };
        run.early.insert(token.offset, data);
        while let Some(data) = run.early.remove(&at) {
            run.crc.update(&data);
            run.pieces -= 1;
            self.memory.put(device.wrapping_add(at), &data);
            at += data.len() as u64;
        }
        self.stats.bytes_read += at - slot.transferred;
        slot.transferred = at;
        if at == slot.length {
            self.end(port, now, token.slot, Ok(()));
        }
    }

    /// Hands over the next piece.
    fn step_write(&mut self, port: &mut Port, index: usize) -> Result<Step, Failure> {
        let slot = &mut self.slots[index];
        let offset = slot.transferred;
        if !port.bus_master() {
            return Err(Failure(regs::ERROR_BUS_MASTER_OFF));
        }
        if offset == slot.length || port.write_backlog() >= WRITE_BACKLOG {
            return Ok(Step::Waits);
        }
        let (address, straight) = slot.host_at(offset);
        let len = piece(address, straight.min(slot.length - offset));
        let data = self.memory.run(slot.device.wrapping_add(offset), len);
        let requests = port.write_tlps(address, data.len());
        match port.dma_write(address, data, Traffic::Data) {
            Ok(()) => {}
            Err(Refused::Full) => return Ok(Step::Waits),
            Err(Refused::BusMasterOff) => return Err(Failure(regs::ERROR_BUS_MASTER_OFF)),
        }
        slot.transferred += data.len() as u64;
        slot.requests += requests;
        self.stats.bytes_written += data.len() as u64;
        if let Some(run) = slot.run_mut() {
            run.crc.update(data);
            run.mark = Some(port.write_mark());
        }
        Ok(Step::Moved)
    }

    /// Fills or checks the next piece.
    fn step_compute(&mut self, index: usize) -> Step {
        let slot = &mut self.slots[index];
        let at = slot.transferred;
        let len = COMPUTE_PIECE.min(slot.length - at);
        if len == 0 {
            return Step::Waits;
        }
        let place = slot.device.wrapping_add(at);
        let (seed, operation) = (slot.host, slot.operation());
        let Some(run) = slot.run_mut() else { return Step::Waits };
        let done = if operation == Operation::Fill {
            let data = pattern(seed, at, len as usize);
            run.crc.update(&data);
            self.memory.put(place, &data);
            len
        } else {
            let data = self.memory.run(place, len);
            run.crc.update(data);
            data.len() as u64
        };
        slot.transferred += done;
        Step::Moved
    }
}
