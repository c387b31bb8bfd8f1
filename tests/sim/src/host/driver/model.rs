//! The driver of a model device.

use super::peers::Peers;
use super::{Burst, Failure, Others, Question, Task};
use crate::device::{self, Command, Job};
use crate::egress::Egress;
use crate::host::memory::{self, Memory};
use crate::host::{Asker, HOST_ID, Purpose, window};
use crate::oracle::completion::Completed;
use crate::oracle::{Verdict, Violation};
use crate::pattern;
use crate::profile::Work;
use crate::random::{Drawer, Random};
use proxy_core::time::Instant;
use std::collections::VecDeque;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{AtomicOp, ByteEnables, CplStatus, Kind, Repr};

/// Registers that are written and read.
const CELLS: usize = 16;
/// Requests of one driver that wait for their answers.
pub(crate) const OUTSTANDING: usize = 24;
/// Bytes before and after a buffer's contents that have to stay as they are.
const GUARD: usize = 16;
const GUARD_BYTE: u8 = 0xa5;

#[derive(Clone, Copy, Debug)]
struct Transfer {
    command: Command,
    /// When it was asked for.
    since: Instant,
    high: bool,
    /// Where in the region its contents begin.
    at: usize,
}

/// The driver.
pub(crate) struct ModelDriver {
    pub(super) port: usize,
    pub(super) life: u32,
    id: Bdf,
    versions: [u32; CELLS],
    rung: u64,
    collected: u64,
    collecting: bool,
    /// An answer with a count was lost with what it had counted.
    miscounted: bool,
    /// Which values of the atomic counter came back; and how many additions were asked for.
    added: Vec<bool>,
    adds: u64,
    transfers: [Option<Transfer>; memory::BUFFERS as usize],
    /// Additions to its counter failed, or not: nobody knows what it holds.
    unknown: [bool; memory::BUFFERS as usize],
    pub(super) failure: Option<Failure>,
    /// The time of its present turn.
    pub(super) now: Instant,
    /// ID-based ordering of its requests.
    random: Random,
    /// The counter in host memory of each buffer.
    sums: [u64; memory::BUFFERS as usize],
    /// What its device does with others, by their ports.
    pub(super) peers: Peers,
    outstanding: usize,
    bursts: VecDeque<Burst>,
    /// Operations that ended well.
    pub(crate) done: u64,
}

impl ModelDriver {
    pub(crate) fn new(port: usize, life: u32, id: Bdf, memory: &mut Memory) -> Self {
        memory.bytes(port, false, memory::COUNTERS as usize, 8 * memory::BUFFERS as usize).fill(0);
        Self {
            port,
            life,
            id,
            versions: [0; CELLS],
            rung: 0,
            collected: 0,
            collecting: false,
            miscounted: false,
            added: Vec::new(),
            adds: 0,
            transfers: [None; memory::BUFFERS as usize],
            unknown: [false; memory::BUFFERS as usize],
            failure: None,
            now: Instant::ZERO,
            random: Random::stream(life.into(), Drawer::Attributes, port as u64),
            sums: [0; memory::BUFFERS as usize],
            peers: Peers::default(),
            outstanding: 0,
            bursts: VecDeque::new(),
            done: 0,
        }
    }

    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    pub(crate) fn begin(&mut self, burst: Burst) {
        self.bursts.push_back(burst);
    }

    /// Whether everything that was begun is done.
    pub(crate) fn is_idle(&self) -> bool {
        self.bursts.is_empty()
            && self.outstanding == 0
            && self.transfers.iter().all(Option::is_none)
            && self.peers.is_idle()
    }

    /// What is not done, for a person.
    pub(crate) fn leftover(&self) -> String {
        let transfers: Vec<_> = self.transfers.iter().flatten().map(|t| t.command).collect();
        format!(
            "{} requests, transfers {transfers:x?}, {} bursts",
            self.outstanding,
            self.bursts.len()
        )
    }

    /// Goes on with its work as far as there is room.
    pub(crate) fn work(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        out: &mut Egress<Purpose>,
        work: &Work,
        others: &Others,
    ) -> Verdict {
        self.now = now;
        self.look_at_peers(out, others)?;
        for _ in 0..self.bursts.len() {
            let Some(mut burst) = self.bursts.pop_front() else { break };
            while burst.left > 0
                && out.len() < 48
                && self.act(&mut burst, memory, out, work, others)
            {
                burst.left -= 1;
            }
            if burst.left > 0 {
                self.bursts.push_back(burst);
            }
        }
        Ok(())
    }

    /// One operation. Whether there was room for it.
    fn act(
        &mut self,
        burst: &mut Burst,
        memory: &mut Memory,
        out: &mut Egress<Purpose>,
        work: &Work,
        others: &Others,
    ) -> bool {
        let random = &mut burst.random;
        match burst.task {
            Task::Registers if random.chance(500_000) => {
                let cell = random.below(CELLS as u64) as usize;
                self.versions[cell] += 1;
                let value = value(cell, self.versions[cell]).to_le_bytes();
                self.write(out, cell as u64 * 4, &value);
                self.done += 1;
                true
            }
            Task::Doorbells if random.chance(750_000) => {
                self.rung += 1;
                self.write(out, device::DOORBELL, &1_u32.to_le_bytes());
                self.done += 1;
                true
            }
            Task::DmaWrites => self.transfer(Job::Write, random, memory, out, work),
            Task::DmaReads => self.transfer(Job::Read, random, memory, out, work),
            Task::DmaAtomics => self.transfer(Job::Add, random, memory, out, work),
            Task::PeerWrites => self.with_peer(Job::Write, random, out, others),
            Task::PeerReads => self.with_peer(Job::Read, random, out, others),
            Task::PeerAtomics => self.with_peer(Job::Add, random, out, others),
            _ if self.outstanding >= OUTSTANDING => false,
            Task::Registers => {
                let cell = random.below(CELLS as u64) as usize;
                let question = Question::Cell { cell, version: self.versions[cell] };
                self.read(out, cell as u64 * 4, 1, question);
                true
            }
            // Two such reads at a time would not know which of them counts what.
            Task::Doorbells if self.collecting => true,
            Task::Doorbells => {
                self.collecting = true;
                self.read(out, device::RUNG, 1, Question::Rung { rung: self.rung });
                true
            }
            Task::Atomics => {
                self.adds += 1;
                self.ask(out, Question::Add, |requester, tag| Kind::Atomic {
                    op: AtomicOp::FetchAdd,
                    requester,
                    tag,
                    address: 0,
                    hint: None,
                    data: &[1, 0, 0, 0, 0, 0, 0, 0],
                });
                true
            }
            Task::Configuration => {
                let destination = self.id;
                self.ask(out, Question::Id, |requester, tag| Kind::ConfigRead {
                    type1: true,
                    requester,
                    tag,
                    destination,
                    register: 0,
                    first_be: 0xf,
                });
                true
            }
            // It has no blocks.
            Task::BlockWrites | Task::BlockReads | Task::BlockZeroes | Task::Flushes => true,
        }
    }

    fn write(&mut self, out: &mut Egress<Purpose>, at: u64, data: &[u8]) {
        let by_id = self.random.chance(400_000);
        self.write_to(out, (self.port, at), data, by_id);
    }

    /// To a port's device.
    pub(super) fn write_to(
        &mut self,
        out: &mut Egress<Purpose>,
        (port, at): (usize, u64),
        data: &[u8],
        by_id: bool,
    ) {
        let kind = Kind::MemWrite {
            requester: HOST_ID,
            tag: Tag::new(0).expect("a tag"),
            address: window(port) + at,
            enables: ByteEnables::all((data.len() / 4) as u16),
            hint: None,
            data,
        };
        let mut repr = Repr::new(kind);
        repr.attributes.id_based_ordering = by_id;
        out.push(&repr, Purpose::Posted { port });
    }

    fn read(&mut self, out: &mut Egress<Purpose>, at: u64, length_dw: u16, question: Question) {
        let address = window(self.port) + at;
        let enables = ByteEnables::all(length_dw);
        self.ask(out, question, |requester, tag| Kind::MemRead {
            requester,
            tag,
            address,
            length_dw,
            enables,
            hint: None,
            locked: false,
        });
    }

    fn ask<'a>(
        &mut self,
        out: &mut Egress<Purpose>,
        question: Question,
        kind: impl FnOnce(Bdf, Tag) -> Kind<'a>,
    ) {
        let by_id = self.random.chance(400_000);
        self.ask_of(out, (self.port, by_id), question, kind);
    }

    /// Of a port's device, with ID-based ordering or without.
    pub(super) fn ask_of<'a>(
        &mut self,
        out: &mut Egress<Purpose>,
        (to, by_id): (usize, bool),
        question: Question,
        kind: impl FnOnce(Bdf, Tag) -> Kind<'a>,
    ) {
        self.outstanding += 1;
        let mut kind = kind(HOST_ID, Tag::new(0).expect("a tag"));
        if let Kind::Atomic { address, .. } = &mut kind {
            *address = window(self.port) + device::COUNTER;
        }
        let mut repr = Repr::new(kind);
        repr.attributes.id_based_ordering = by_id;
        out.push(&repr, Purpose::Driver { port: self.port, life: self.life, to, question });
    }

    fn transfer(
        &mut self,
        job: Job,
        random: &mut Random,
        memory: &mut Memory,
        out: &mut Egress<Purpose>,
        work: &Work,
    ) -> bool {
        let free = |n: &usize| self.transfers[*n].is_none() && !self.unknown[*n];
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
            address,
            length: length as u32,
            seed,
            interrupt: (interrupt, buffer as u32),
        };
        let since = self.now;
        let mut transfer = Transfer { command, since, high, at };
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
                transfer = Transfer { command, since, high: false, at: at as usize };
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
        let Some(Transfer { command, since, high, at }) =
            transfer.filter(|_| message == buffer as u32)
        else {
            return Err(Violation::new(
                1,
                format!("an interrupt of buffer {buffer} that nobody waits for"),
            ));
        };
        if failed {
            self.unknown[buffer] = command.job == Job::Add;
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

    /// A question was answered.
    pub(crate) fn answered(
        &mut self,
        question: Question,
        done: &Completed<Asker>,
        payload: &[u8],
        others: &Others,
    ) -> Verdict {
        // A lower address that is wrong can make a part of it: the rest has its time.
        if !done.last {
            return Ok(());
        }
        self.outstanding -= 1;
        if matches!(question, Question::Rung { .. }) {
            self.collecting = false;
        }
        if let Question::Left { target } = question {
            return self.left(target, done, payload, others);
        }
        if done.status != CplStatus::Success {
            self.miscounted |= matches!(question, Question::Rung { .. });
            return Ok(());
        }
        self.done += 1;
        if done.doubtful {
            // What it had counted may have gone to another request.
            self.miscounted |= matches!(question, Question::Rung { .. });
            return Ok(());
        }
        let wrong = |what: String| Err(Violation::new(3, what));
        let word = || u32::from_le_bytes(payload[..4].try_into().expect("a doubleword"));
        match question {
            Question::Cell { cell, version } => {
                let (got, now) = (word(), self.versions[cell]);
                // What is written after a read was sent may be there before it.
                if !(version..=now).any(|version| value(cell, version) == got) {
                    return wrong(format!(
                        "register {cell} read {got:#x}; it may be version {version} to {now} of it"
                    ));
                }
            }
            Question::Rung { rung } => {
                self.collected += u64::from(word());
                let least = if self.miscounted { 0 } else { rung };
                if !(least..=self.rung).contains(&self.collected) {
                    return wrong(format!(
                        "the doorbell counted {} in all; it was rung {rung} to {} times",
                        self.collected, self.rung
                    ));
                }
            }
            Question::Add => {
                let old = u64::from_le_bytes(payload.try_into().expect("eight bytes")) as usize;
                self.added.resize(self.added.len().max(self.adds as usize), false);
                if self.added.get(old).copied() != Some(false) {
                    return wrong(format!(
                        "FetchAdd found {old}, which another found, or too many"
                    ));
                }
                self.added[old] = true;
            }
            Question::Id => {
                if word() != device::ID {
                    return wrong(format!("vendor and device ID read {:#x}", word()));
                }
            }
            Question::Left { .. } | Question::Drive { .. } => {
                unreachable!("looked at above, or of drives")
            }
        }
        Ok(())
    }
}

/// What a register holds in a version; 0 at first, as after a reset.
fn value(cell: usize, version: u32) -> u32 {
    if version == 0 { 0 } else { version << 8 | cell as u32 }
}
