//! Transfers of the device's DMA engine: where they go, and what has to be there after them.

use super::super::Failure;
use super::{ModelDriver, Task, Transfer};
use crate::device::{self, Command, Job};
use crate::egress::Egress;
use crate::host::Purpose;
use crate::host::memory::{self, Memory};
use crate::oracle::{Verdict, Violation};
use crate::pattern;
use crate::profile::Work;
use crate::random::Random;
use tlp_codec::tlp::AtomicOp;

/// Bytes before and after a buffer's contents that have to stay as they are.
const GUARD: usize = 16;
const GUARD_BYTE: u8 = 0xa5;

impl ModelDriver {
    pub(super) fn transfer(
        &mut self,
        task: Task,
        random: &mut Random,
        memory: &mut Memory,
        out: &mut Egress<Purpose>,
        work: &Work,
    ) -> bool {
        let job = match task {
            Task::DmaWrites | Task::DmaFlushes => Job::Write,
            Task::DmaReads => Job::Read,
            _ => Job::Add,
        };
        if job == Job::Add && self.unknown.iter().all(|unknown| *unknown) {
            // Of no counter it knows any more what it holds.
            return true;
        }
        let known = |n: usize| job != Job::Add || !self.unknown[n];
        let free = |n: &usize| self.transfers[*n].is_none() && known(*n);
        let Some(buffer) = (0..self.transfers.len()).find(free) else { return false };
        let high = random.chance(500_000);
        let length = random.between(work.bytes[0], work.bytes[1]);
        // Anywhere in the page that it fits; now and then across its end.
        let from = GUARD as u64 + random.below(4096 - length + 1) + random.below(2) * 2048;
        let at = (buffer as u64 * memory::STRIDE + from.min(memory::STRIDE - 64 - length)) as usize;
        let address = Memory::address(self.port, high, at as u64);
        let interrupt = memory::interrupt(self.port, buffer as u64);
        let seed = random.next();
        let mut command = Command {
            job,
            relaxed: random.chance(400_000),
            by_id: random.chance(400_000),
            flushes: task == Task::DmaFlushes,
            op: AtomicOp::FetchAdd,
            narrow: false,
            address,
            length: length as u32,
            seed,
            interrupt: (interrupt, buffer as u32),
        };
        let since = self.now;
        let (number, void) = self.unsure.begin_transfer();
        let mut transfer = Transfer { command, number, void, since, high, at };
        match job {
            Job::Write => self.guard(&transfer, memory),
            Job::Read => {
                pattern::fill(seed, 0, memory.bytes(self.port, high, at, length as usize));
            }
            Job::Add => {
                let at = memory::COUNTERS + buffer as u64 * 8;
                command.address = Memory::address(self.port, false, at);
                command.length = random.between(1, 8) as u32;
                command.seed = self.sums[buffer];
                if task == Task::DmaSwaps {
                    command.narrow = random.chance(500_000);
                    let ops = [AtomicOp::Swap, AtomicOp::Cas, AtomicOp::FetchAdd];
                    let kinds = if command.narrow { 3 } else { 2 };
                    command.op = ops[random.below(kinds) as usize];
                }
                transfer = Transfer { command, high: false, at: at as usize, ..transfer };
            }
        }
        self.transfers[buffer] = Some(transfer);
        self.write(out, device::COMMANDS, &command.emit());
        true
    }

    /// Overwrites what is there with something else, and puts guards around it.
    fn guard(&self, transfer: &Transfer, memory: &mut Memory) {
        let length = transfer.command.length as usize;
        let bytes = memory.bytes(self.port, transfer.high, transfer.at - GUARD, length + 2 * GUARD);
        bytes[..GUARD].fill(GUARD_BYTE);
        bytes[GUARD + length..].fill(GUARD_BYTE);
        pattern::fill(!transfer.command.seed, 0, &mut bytes[GUARD..GUARD + length]);
    }

    /// The interrupt of a transfer came: everything that it says is done has to be there.
    pub(crate) fn interrupt(
        &mut self,
        buffer: usize,
        message: u32,
        memory: &mut Memory,
    ) -> Verdict {
        if let Some(target) = buffer.checked_sub(memory::BUFFERS as usize) {
            return self.peer_interrupt(target, message);
        }
        let transfer = self.transfers.get_mut(buffer).and_then(Option::take);
        let failed = message & device::FAILED != 0;
        let message = message & !device::FAILED;
        let Some(Transfer { command, void, since, high, at, .. }) =
            transfer.filter(|_| message == buffer as u32)
        else {
            return Err(Violation::new(
                1,
                format!("an interrupt of buffer {buffer} that nobody waits for"),
            ));
        };
        if void {
            self.unknown[buffer] |= command.job == Job::Add;
            return Ok(());
        }
        if failed {
            self.unknown[buffer] |= command.job == Job::Add;
            let what = format!("a device's transfer failed: {:?}", command.job);
            self.failure.get_or_insert(Failure { since, what });
            return Ok(());
        }
        self.done += 1;
        match command.job {
            Job::Write => {
                let length = command.length as usize;
                let bytes = memory.bytes(self.port, high, at - GUARD, length + 2 * GUARD);
                let (before, rest) = bytes.split_at(GUARD);
                let (data, after) = rest.split_at(length);
                if let Some(wrong) = pattern::differs(command.seed, 0, data) {
                    let what = format!(
                        "the interrupt came before its data: byte {wrong} of {length} at {:#x} is wrong",
                        command.address
                    );
                    return Err(Violation::new(1, what));
                }
                if before.iter().chain(after).any(|byte| *byte != GUARD_BYTE) {
                    let what =
                        format!("bytes beside {length} at {:#x} were written", command.address);
                    return Err(Violation::new(1, what));
                }
            }
            Job::Read => {}
            Job::Add => {
                let bytes = memory.bytes(self.port, false, at, 8);
                let sum = u64::from_le_bytes((&*bytes).try_into().expect("eight"));
                self.sums[buffer] += u64::from(command.length);
                if sum != self.sums[buffer] {
                    let what = format!("a counter is {sum} after {} additions", self.sums[buffer]);
                    return Err(Violation::new(1, what));
                }
            }
        }
        Ok(())
    }
}
