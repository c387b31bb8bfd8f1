//! The commands of a drive's driver: what they are, and what has to be true when they have ended.

use super::drive::{DriveDriver, Job, Phase};
use super::pages::Buffer;
use super::{Burst, Task};
use crate::egress::Egress;
use crate::host::Purpose;
use crate::host::memory::Memory;
use crate::oracle::{Verdict, Violation};
use crate::profile::Work;
use crate::random::Random;
use nvme_driver::{Command, Opcode, Status};
use proxy_core::time::Instant;
use std::ops::Range;

/// Most bytes of a command.
const MOST: u64 = 40 * 1024;
/// Half of all commands are for so many blocks at the drive's beginning, so that they meet.
const HOT: u64 = 48;
/// Forced Unit Access, of writes; Deallocate, of Write Zeroes.
const DURABLE: u32 = 1 << 30;
const DEALLOCATE: u32 = 1 << 25;
/// TLPs that wait before no more commands are begun.
const BACKLOG: usize = 48;

impl DriveDriver {
    /// Goes on with its work as far as there is room.
    pub(super) fn submit_all(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        out: &Egress<Purpose>,
        work: &Work,
    ) -> Verdict {
        while let Some(blocks) = self.again.front().cloned() {
            let mut random = self.random.clone();
            if !self.read(now, memory, &mut random, blocks)? {
                return Ok(());
            }
            self.random = random;
            self.again.pop_front();
        }
        for _ in 0..self.bursts.len() {
            let Some(mut burst) = self.bursts.pop_front() else { break };
            while burst.left > 0
                && out.len() < BACKLOG
                && self.act(now, &mut burst, memory, work)?
            {
                burst.left -= 1;
            }
            if burst.left > 0 {
                self.bursts.push_back(burst);
            }
        }
        Ok(())
    }

    /// One command. Whether there was room for it.
    fn act(
        &mut self,
        now: Instant,
        burst: &mut Burst,
        memory: &mut Memory,
        work: &Work,
    ) -> Verdict<bool> {
        if self.room().is_none() {
            return Ok(false);
        }
        let random = &mut burst.random;
        let (block, all) = {
            let ledger = self.drives.get(self.drive);
            (ledger.block as u64, ledger.blocks())
        };
        let count = random.between(work.blocks[0], work.blocks[1]).min(MOST / block);
        let among = if random.chance(500_000) { HOT } else { all };
        let first = random.below(among.max(count) - count + 1);
        let blocks = first..first + count;
        match burst.task {
            Task::BlockWrites => self.write_blocks(now, memory, random, blocks),
            Task::BlockReads => self.read(now, memory, random, blocks),
            Task::BlockZeroes => {
                let flags = if random.chance(500_000) { DEALLOCATE } else { 0 };
                let version = self.drives.get(self.drive).begin(self.owner, blocks.clone(), true);
                let command = of_blocks(Opcode::WRITE_ZEROES, &blocks, flags);
                let job = Job::Write { blocks, version, buffer: None };
                Ok(self.submit(now, memory, command, [0; 2], job))
            }
            Task::Flushes => {
                let command = Command::new(Opcode::FLUSH, 1);
                Ok(self.submit(now, memory, command, [0; 2], Job::Flush))
            }
            // It has none of that.
            _ => Ok(true),
        }
    }

    fn write_blocks(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        random: &mut Random,
        blocks: Range<u64>,
    ) -> Verdict<bool> {
        let mut ledger = self.drives.get(self.drive);
        let mut data = vec![0; (blocks.end - blocks.start) as usize * ledger.block];
        let buffer = Buffer::new(&mut self.pool, memory, random, data.len())?;
        let Some(buffer) = buffer else { return Ok(false) };
        let version = ledger.begin(self.owner, blocks.clone(), false);
        for (block, bytes) in blocks.clone().zip(data.chunks_exact_mut(ledger.block)) {
            ledger.fill(block, version, bytes);
        }
        drop(ledger);
        buffer.write(memory, &data);
        let flags = if random.chance(200_000) { DURABLE } else { 0 };
        let (command, prp) = (of_blocks(Opcode::WRITE, &blocks, flags), buffer.prp);
        let job = Job::Write { blocks, version, buffer: Some(buffer) };
        Ok(self.submit(now, memory, command, prp, job))
    }

    fn read(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        random: &mut Random,
        blocks: Range<u64>,
    ) -> Verdict<bool> {
        if self.room().is_none() {
            return Ok(false);
        }
        let ledger = self.drives.get(self.drive);
        let length = (blocks.end - blocks.start) as usize * ledger.block;
        let Some(buffer) = Buffer::new(&mut self.pool, memory, random, length)? else {
            return Ok(false);
        };
        let snapshot = ledger.look(blocks.clone());
        drop(ledger);
        let (command, prp) = (of_blocks(Opcode::READ, &blocks, 0), buffer.prp);
        let job = Job::Read { blocks, snapshot, buffer };
        Ok(self.submit(now, memory, command, prp, job))
    }

    /// The pair for the next command: those with room by turns.
    fn room(&self) -> Option<usize> {
        let io = self.pairs.len() - 1;
        let turn = self.submitted as usize;
        (0..io).map(|n| 1 + (turn + n) % io).find(|number| self.pairs[*number].has_room())
    }

    /// `true`: the caller looked for room before.
    fn submit(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        command: Command,
        prp: [u64; 2],
        job: Job,
    ) -> bool {
        let number = self.room().expect("looked at before");
        self.submitted += 1;
        self.pairs[number].submit(now, memory, job, |id| command.to_bytes(id, prp));
        true
    }

    /// An interrupt of a queue pair came.
    pub(super) fn interrupt(
        &mut self,
        vector: usize,
        message: u32,
        memory: &mut Memory,
    ) -> Verdict {
        if vector >= self.pairs.len() || message != vector as u32 {
            let what = format!("a drive's interrupt {vector} says {message:#x}");
            return Err(Violation::new(1, what));
        }
        if !matches!(self.phase, Phase::Setup(_) | Phase::Live | Phase::Stopping) {
            return Ok(());
        }
        self.pairs[vector].interrupted();
        while let Some((job, since, status)) = self.pairs[vector].complete(memory)? {
            self.ended(job, since, status, memory)?;
        }
        self.pairs[vector].check_interrupts()
    }

    /// A command ended.
    fn ended(&mut self, job: Job, since: Instant, status: Status, memory: &mut Memory) -> Verdict {
        let good = status.is_success();
        if good {
            self.done += 1;
        } else {
            self.fail(since, format!("a drive's command failed: {status}"));
        }
        match job {
            Job::Setup(step) if good => self.was_set_up(step, memory),
            // The same once more.
            Job::Setup(_) | Job::Flush => Ok(()),
            Job::Write { blocks, version, buffer } => {
                self.drives.get(self.drive).end(self.owner, blocks, version, good);
                if let Some(buffer) = buffer {
                    buffer.free(&mut self.pool, memory);
                }
                Ok(())
            }
            Job::Read { blocks, snapshot, buffer } => {
                let data = buffer.read(memory)?;
                buffer.free(&mut self.pool, memory);
                let mut ledger = self.drives.get(self.drive);
                match ledger.found(self.owner, blocks.start, &data, &snapshot) {
                    Err(what) if good => Err(Violation::new(3, what)),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// A command of the namespace's blocks.
fn of_blocks(opcode: Opcode, blocks: &Range<u64>, flags: u32) -> Command {
    let count = (blocks.end - blocks.start - 1) as u32;
    Command::new(opcode, 1)
        .dword(10, blocks.start as u32)
        .dword(11, (blocks.start >> 32) as u32)
        .dword(12, count | flags)
}
