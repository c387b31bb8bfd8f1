//! The driver of a model device.

mod dma;

use super::kinds::Kinds;
use super::peers::Peers;
use super::unsure::Unsure;
use super::wide::Wide;
use super::{Burst, Failure, Others, Question, Task};
use crate::device::{self, Command, Job};
use crate::dress::Dresser;
use crate::egress::Egress;
use crate::host::layout::Layout;
use crate::host::memory::{self, Memory};
use crate::host::{Asker, HOST_ID, Purpose};
use crate::oracle::completion::Completed;
use crate::oracle::{Verdict, Violation};
use crate::profile::{Dress, Work};
use crate::random::{Drawer, Random};
use proxy_core::time::Instant;
use std::collections::VecDeque;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{AtomicOp, ByteEnables, CplStatus, Kind, Repr, TlpType};

/// Registers that are written and read.
pub(super) const CELLS: usize = 16;
/// Requests of one driver that wait for their answers.
pub(crate) const OUTSTANDING: usize = 24;

#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) command: Command,
    /// Counts up.
    pub(super) number: u64,
    /// Some of it may be lost: nothing of it has to be there.
    pub(super) void: bool,
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
    pub(super) layout: Layout,
    /// Its registers are above 4 GB.
    high: bool,
    pub(super) versions: [u32; CELLS],
    pub(super) rung: u64,
    /// What all answers counted together, at least and at most.
    collected: [u64; 2],
    collecting: bool,
    /// An answer with a count was lost with what it had counted; the next one takes what is there.
    miscounted: bool,
    /// Which values of the atomic counter came back; and how many additions were asked for.
    added: Vec<bool>,
    adds: u64,
    pub(super) transfers: [Option<Transfer>; memory::BUFFERS as usize],
    /// Additions to its counter failed, or not: nobody knows what it holds.
    pub(super) unknown: [bool; memory::BUFFERS as usize],
    pub(super) failure: Option<Failure>,
    /// The time of its present turn.
    pub(super) now: Instant,
    /// ID-based ordering of its requests.
    random: Random,
    pub(super) dresser: Dresser,
    /// The traffic class of what it asks.
    pub(super) class: u8,
    /// The counter in host memory of each buffer.
    sums: [u64; memory::BUFFERS as usize],
    /// What its device does with others, by their ports.
    pub(super) peers: Peers,
    /// What it asks beside registers.
    pub(super) wide: Wide,
    pub(super) kinds: Kinds,
    pub(super) unsure: Unsure,
    /// Bytes that it may write at a time.
    pub(super) payload: usize,
    pub(super) outstanding: usize,
    bursts: VecDeque<Burst>,
    /// Operations that ended well.
    pub(super) done: u64,
}

impl ModelDriver {
    pub(crate) fn new(
        (port, high): (usize, bool),
        life: u32,
        layout: Layout,
        memory: &mut Memory,
        (dress, payload): (Dress, usize),
    ) -> Self {
        let mut dresser = Dresser::new(dress, life.into(), (1 << 32) + port as u64);
        memory.bytes(port, false, memory::COUNTERS as usize, 8 * memory::BUFFERS as usize).fill(0);
        Self {
            port,
            life,
            layout,
            high,
            versions: [0; CELLS],
            rung: 0,
            collected: [0; 2],
            collecting: false,
            miscounted: false,
            added: Vec::new(),
            adds: 0,
            transfers: [None; memory::BUFFERS as usize],
            unknown: [false; memory::BUFFERS as usize],
            failure: None,
            now: Instant::ZERO,
            random: Random::stream(life.into(), Drawer::Attributes, port as u64),
            class: dresser.class(),
            dresser,
            sums: [0; memory::BUFFERS as usize],
            peers: Peers::default(),
            wide: Wide::default(),
            kinds: Kinds::default(),
            unsure: Unsure::default(),
            payload,
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
        self.look_for_lost(out);
        if self.unsure.is_paused() {
            return Ok(());
        }
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
                self.unsure.wrote(cell, self.versions[cell]);
                if random.chance(500_000) && self.unsure.is_heard() {
                    // Some of its bytes again, and nothing of the others.
                    let enables = random.below(16) as u8;
                    let byte = |n: usize| if enables >> n & 1 != 0 { value[n] } else { !value[n] };
                    let enables = ByteEnables { first: enables, last: 0 };
                    let (at, value) = (cell as u64 * 4, [0, 1, 2, 3].map(byte));
                    self.write_some(out, (self.port, at), (&value, enables), false);
                }
                self.done += 1;
                true
            }
            Task::Doorbells if random.chance(750_000) => {
                self.rung += 1;
                self.unsure.rang();
                self.write(out, device::DOORBELL, &1_u32.to_le_bytes());
                self.done += 1;
                true
            }
            Task::DmaWrites
            | Task::DmaReads
            | Task::DmaAtomics
            | Task::DmaFlushes
            | Task::DmaSwaps => self.transfer(burst.task, random, memory, out, work),
            Task::Messages => {
                self.have_it_say(out, random);
                true
            }
            Task::HostMessages => {
                self.send_message(out, random);
                true
            }
            Task::Wide if work.has_peers() => true,
            Task::PeerWrites => self.with_peer(Job::Write, random, out, others),
            Task::PeerReads => self.with_peer(Job::Read, random, out, others),
            Task::PeerAtomics => self.with_peer(Job::Add, random, out, others),
            _ if self.outstanding >= OUTSTANDING => false,
            Task::Wide => {
                self.write_wide(out, random);
                true
            }
            Task::EmptyReads => {
                self.ask_for_nothing(out, random);
                true
            }
            Task::Registers
                if random.chance(400_000) && (self.unsure.is_heard() || self.wide.has_block()) =>
            {
                self.ask_for_block(out, random);
                true
            }
            Task::Registers => {
                let cell = random.below(CELLS as u64) as usize;
                let version = self.unsure.version(cell);
                let question = Question::Cell { cell, version };
                self.read(out, cell as u64 * 4, 1, question);
                true
            }
            // Two such reads at a time would not know which of them counts what.
            Task::Doorbells if self.collecting => true,
            Task::Doorbells => {
                self.collecting = true;
                let rung = self.unsure.rung();
                self.read(out, device::RUNG, 1, Question::Rung { rung });
                true
            }
            Task::Atomics if random.chance(600_000) => {
                self.ask_for_atomic(out, random);
                true
            }
            Task::Atomics => {
                self.adds += 1;
                let address = self.registers(self.port) + device::COUNTER;
                self.ask(out, Question::Add, |requester, tag| Kind::Atomic {
                    op: AtomicOp::FetchAdd,
                    requester,
                    tag,
                    address,
                    hint: None,
                    data: &[1, 0, 0, 0, 0, 0, 0, 0],
                });
                true
            }
            Task::Configuration => {
                let destination = self.layout.device_id(self.port);
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

    pub(super) fn write(&mut self, out: &mut Egress<Purpose>, at: u64, data: &[u8]) {
        let by_id = self.random.chance(400_000);
        self.write_to(out, (self.port, at), data, by_id);
    }

    /// To a port's device.
    pub(super) fn write_to(
        &mut self,
        out: &mut Egress<Purpose>,
        to: (usize, u64),
        data: &[u8],
        by_id: bool,
    ) {
        let enables = ByteEnables::all((data.len() / 4) as u16);
        self.write_some(out, to, (data, enables), by_id);
    }

    pub(super) fn write_some(
        &mut self,
        out: &mut Egress<Purpose>,
        (port, at): (usize, u64),
        (data, enables): (&[u8], ByteEnables),
        by_id: bool,
    ) {
        let kind = Kind::MemWrite {
            requester: HOST_ID,
            tag: Tag::new(0).expect("a tag"),
            address: self.registers(port) + at,
            enables,
            hint: None,
            data,
        };
        let mut repr = Repr::new(kind);
        repr.attributes.id_based_ordering = by_id;
        self.dresser.request(&mut repr, self.class);
        out.push(&repr, Purpose::Posted { port });
    }

    /// Where the registers of a port's device are; others' are below 4 GB.
    pub(super) fn registers(&self, port: usize) -> u64 {
        let own = port == self.port;
        let slid = if own { self.unsure.slid } else { 0 };
        self.layout.registers(port, own && self.high) + slid
    }

    pub(super) fn read(
        &mut self,
        out: &mut Egress<Purpose>,
        at: u64,
        length_dw: u16,
        question: Question,
    ) {
        let address = self.registers(self.port) + at;
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

    pub(super) fn ask<'a>(
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
        let kind = kind(HOST_ID, Tag::new(0).expect("a tag"));
        let mut repr = Repr::new(kind);
        repr.attributes.id_based_ordering = by_id;
        match repr.tlp_type() {
            // Of traffic class 0 and without attributes.
            TlpType::CfgRd1 => self.dresser.plain(&mut repr, 0),
            _ => self.dresser.request(&mut repr, self.class),
        }
        out.push(&repr, Purpose::Driver { port: self.port, life: self.life, to, question });
    }

    /// A question was answered.
    pub(crate) fn answered(
        &mut self,
        question: Question,
        done: &Completed<Asker>,
        payload: &[u8],
        others: &Others,
    ) -> Verdict {
        if let Question::Block { from } = question {
            self.part_of_block(from, done, payload)?;
        }
        if let Question::Wide { from } = question {
            self.part_of_wide(from, done, payload)?;
        }
        // Of other questions a lower address that is wrong can make a part: the rest has its time.
        if !done.last {
            return Ok(());
        }
        self.outstanding -= 1;
        if matches!(question, Question::Rung { .. }) {
            self.collecting = false;
        }
        if let Question::Going { upto } = question {
            self.looked_for_lost(upto, done, payload);
            return Ok(());
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
                let counted = self.collected.map(|before| before + u64::from(word()));
                let miscounted = std::mem::take(&mut self.miscounted);
                let least = if miscounted { 0 } else { rung };
                if counted[0] > self.rung || counted[1] < least {
                    return wrong(format!(
                        "the doorbell counted {counted:?} in all; it was rung {rung} to {} times",
                        self.rung
                    ));
                }
                // What was rung before this read has been counted, by this answer or one that is lost.
                self.collected = if miscounted {
                    [rung, self.rung]
                } else {
                    [counted[0].max(rung), counted[1].min(self.rung)]
                };
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
            Question::Narrow | Question::Swap | Question::Cas { .. } => {
                return self.atomic(question, payload);
            }
            Question::Block { .. } | Question::Wide { .. } | Question::Nothing => {}
            Question::Id => {
                if word() != device::ID {
                    return wrong(format!("vendor and device ID read {:#x}", word()));
                }
            }
            Question::Going { .. } | Question::Left { .. } | Question::Drive { .. } => {
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
