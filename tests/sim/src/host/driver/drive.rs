//! The driver of an NVMe drive. Nothing in it waits: it goes on when a register was read, an
//! interrupt came or an alarm rang. Commands, registers and structures are those of the project's
//! own NVMe driver, which waits.

use super::pages::{Buffer, Page, Pool};
use super::queue::Pair;
use super::{Burst, Failure, Question};
use crate::egress::Egress;
use crate::host::layout::Layout;
use crate::host::memory::{self, Memory};
use crate::host::{Asker, HOST_ID, Purpose};
use crate::oracle::blocks::{Drives, Snapshot};
use crate::oracle::completion::Completed;
use crate::oracle::{Verdict, Violation};
use crate::profile::Work;
use crate::random::{Drawer, Random};
use nvme_driver::identify::IDENTIFY_BYTES;
use nvme_driver::regs::{self, Capabilities};
use nvme_driver::{Command, IdentifyController, IdentifyNamespace, Opcode};
use proxy_core::time::Instant;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;
use tlp_codec::ids::Tag;
use tlp_codec::tlp::{ByteEnables, CplStatus, Kind, Repr};

/// Interrupt vectors: one for each queue pair.
const VECTORS: usize = 3;
/// Entries of the queues, submission and completion. Small ones wrap often; a completion queue
/// that is the smaller one makes the drive wait.
const SIZES: [(u16, u16); VECTORS] = [(4, 4), (9, 5), (6, 16)];
/// Pages for the queues, and one for what Identify says.
const OWN_PAGES: usize = 2 * VECTORS + 1;
/// Between two looks whether the controller is ready.
const LOOK: Duration = Duration::from_micros(100);
/// After an answer that makes no sense.
const RETRY: Duration = Duration::from_millis(100);
/// A command that takes longer is lost: the controller is reset. Longer than a request may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);
/// The MSI-X table in the register BAR.
const VECTOR_TABLE: u64 = device_models::nvme::regs::MSIX_TABLE;
/// Number of Queues (NVM Express 1.4 section 5.21.1.7).
const NUMBER_OF_QUEUES: u32 = 7;

/// A register that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    Capabilities,
    /// CSTS, after the controller was disabled.
    Stopped,
    /// CSTS, after it was enabled.
    Started,
    /// CSTS, after it was told to shut down.
    ShutDown,
}

/// Where the controller stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A register is asked for when its time has come; for the first time, or once more.
    Ask {
        register: Register,
        at: Instant,
        first: bool,
    },
    /// It was asked for.
    Asked,
    /// An admin command of the bring-up is under way.
    Setup(usize),
    Live,
    /// What is under way ends; then the controller is shut down.
    Stopping,
    /// It may go.
    Off,
}

impl Phase {
    fn first(register: Register, at: Instant) -> Self {
        Self::Ask { register, at, first: true }
    }
}

/// What a command is for.
pub(super) enum Job {
    Setup(usize),
    Write { blocks: Range<u64>, version: u32, buffer: Option<Buffer> },
    Read { blocks: Range<u64>, snapshot: Snapshot, buffer: Buffer },
    Flush,
}

/// The driver.
pub(crate) struct DriveDriver {
    port: usize,
    layout: Layout,
    /// Tells its questions from those of the driver before it.
    pub(super) life: u32,
    pub(super) phase: Phase,
    pub(super) drives: Drives,
    /// Which drive it is, as whose owner.
    pub(super) drive: usize,
    pub(super) owner: u64,
    stride: u64,
    pub(super) pairs: Vec<Pair<Job>>,
    pub(super) pool: Pool,
    pub(super) bursts: VecDeque<Burst>,
    /// What was written before it came, to be read first.
    pub(super) again: VecDeque<Range<u64>>,
    /// What it looks at again is drawn from this.
    pub(super) random: Random,
    /// ID-based ordering of its requests.
    attributes: Random,
    /// Commands that were begun.
    pub(super) submitted: u64,
    failure: Option<Failure>,
    /// When the controller was reset last.
    reset_at: Instant,
    /// Commands that ended well.
    pub(super) done: u64,
}

fn pairs(port: usize, memory: &mut Memory) -> Vec<Pair<Job>> {
    (0..VECTORS).map(|n| Pair::new(port, n as u16, SIZES[n], memory)).collect()
}

impl DriveDriver {
    pub(crate) fn new(
        (port, layout): (usize, Layout),
        life: u32,
        drives: Drives,
        memory: &mut Memory,
    ) -> Self {
        Self {
            port,
            layout,
            life,
            phase: Phase::first(Register::Capabilities, Instant::ZERO),
            drives,
            drive: 0,
            owner: 0,
            stride: 4,
            pairs: pairs(port, memory),
            pool: Pool::new(port, OWN_PAGES, memory),
            bursts: VecDeque::new(),
            again: VecDeque::new(),
            random: Random::stream(life.into(), Drawer::Burst, port as u64),
            attributes: Random::stream(life.into(), Drawer::Attributes, port as u64),
            submitted: 0,
            failure: None,
            reset_at: Instant::ZERO,
            done: 0,
        }
    }

    pub(super) fn begin(&mut self, burst: Burst) {
        self.bursts.push_back(burst);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Live
            && self.again.is_empty()
            && self.bursts.is_empty()
            && !self.has_commands()
    }

    fn has_commands(&self) -> bool {
        self.pairs.iter().any(|pair| !pair.waiting().is_empty())
    }

    /// Nothing more is begun, and the controller is shut down.
    pub(super) fn stop(&mut self) {
        self.bursts.clear();
        self.again.clear();
        self.phase = if self.phase == Phase::Live { Phase::Stopping } else { Phase::Off };
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.phase == Phase::Off
    }

    pub(super) fn leftover(&self) -> String {
        let waiting: Vec<usize> = self.pairs.iter().map(|pair| pair.waiting().len()).collect();
        let (phase, bursts) = (self.phase, self.bursts.len());
        format!("drive {phase:?}, {waiting:?} commands, {bursts} bursts")
    }

    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Since when the oldest command waits.
    fn oldest(&self) -> Option<Instant> {
        self.pairs.iter().flat_map(Pair::waiting).map(|waiting| waiting.since).min()
    }

    /// The oldest command may take until then.
    fn deadline(&self) -> Option<Instant> {
        self.oldest().map(|since| since + PATIENCE)
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Ask { at, .. } => Some(at),
            Phase::Asked | Phase::Stopping | Phase::Off => None,
            Phase::Setup(_) | Phase::Live => self.deadline(),
        }
    }

    pub(super) fn work(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        out: &mut Egress<Purpose>,
        work: &Work,
    ) -> Verdict {
        match self.phase {
            Phase::Ask { register, at, first } if at <= now => {
                if first {
                    if register == Register::Stopped {
                        self.reset_at = now;
                    }
                    self.prepare(register, memory, out);
                }
                self.ask(register, out);
            }
            Phase::Ask { .. } | Phase::Asked | Phase::Off => {}
            Phase::Stopping if self.has_commands() => {}
            Phase::Stopping => self.phase = Phase::first(Register::ShutDown, now),
            Phase::Setup(_) | Phase::Live if self.deadline().is_some_and(|at| at <= now) => {
                let since = self.oldest().expect("its time is over");
                self.fail(since, "a command of a drive never ended".into());
                self.restart(now);
            }
            Phase::Setup(step) => self.set_up(now, step, memory),
            Phase::Live => self.submit_all(now, memory, out, work)?,
        }
        self.ring(out);
        Ok(())
    }

    pub(super) fn fail(&mut self, since: Instant, what: String) {
        self.failure.get_or_insert(Failure { since, what });
    }

    /// The controller is reset, a little later.
    fn restart(&mut self, now: Instant) {
        self.phase = Phase::first(Register::Capabilities, now + RETRY);
    }

    /// What is written before a register is asked for.
    fn prepare(&mut self, register: Register, memory: &mut Memory, out: &mut Egress<Purpose>) {
        match register {
            Register::Capabilities => {}
            Register::Stopped => self.write(out, regs::CC, 0),
            Register::ShutDown => {
                let enabled = regs::CC_ENTRY_SIZES | regs::CC_ENABLE;
                self.write(out, regs::CC, enabled | regs::CC_SHUTDOWN_NORMAL);
            }
            Register::Started => {
                // Nothing of before goes on: memory is ours again, and nothing is under way.
                self.pairs = pairs(self.port, memory);
                self.pool = Pool::new(self.port, OWN_PAGES, memory);
                self.start(out);
            }
        }
    }

    /// Interrupts, the admin queues, and the controller enabled.
    fn start(&mut self, out: &mut Egress<Purpose>) {
        for vector in 0..VECTORS as u64 {
            let interrupts = memory::INTERRUPTS + (self.port as u64 + 1) * 4096;
            let words = [(interrupts + vector * 4) as u32, 0, vector as u32, 0];
            for (n, word) in words.into_iter().enumerate() {
                self.write(out, VECTOR_TABLE + vector * 16 + n as u64 * 4, word);
            }
        }
        let (submission, completion) = self.pairs[0].addresses();
        let (entries, completions) = self.pairs[0].sizes;
        self.write(out, regs::AQA, u32::from(completions - 1) << 16 | u32::from(entries - 1));
        for (at, address) in [(regs::ASQ, submission), (regs::ACQ, completion)] {
            self.write(out, at, address as u32);
            self.write(out, at + 4, (address >> 32) as u32);
        }
        self.write(out, regs::CC, regs::CC_ENTRY_SIZES | regs::CC_ENABLE);
    }

    fn ask(&mut self, register: Register, out: &mut Egress<Purpose>) {
        self.phase = Phase::Asked;
        let (at, length_dw) = match register {
            Register::Capabilities => (regs::CAP, 2),
            _ => (regs::CSTS, 1),
        };
        let kind = Kind::MemRead {
            requester: HOST_ID,
            tag: Tag::new(0).expect("a tag"),
            address: self.layout.window(self.port) + at,
            length_dw,
            enables: ByteEnables::all(length_dw),
            hint: None,
            locked: false,
        };
        let question = Question::Drive { register };
        let purpose = Purpose::Driver { port: self.port, life: self.life, to: self.port, question };
        self.push(out, kind, purpose);
    }

    /// With ID-based ordering or without: the requester's own choice.
    fn push(&mut self, out: &mut Egress<Purpose>, kind: Kind<'_>, purpose: Purpose) {
        let mut repr = Repr::new(kind);
        repr.attributes.id_based_ordering = self.attributes.chance(400_000);
        out.push(&repr, purpose);
    }

    fn write(&mut self, out: &mut Egress<Purpose>, at: u64, value: u32) {
        let kind = Kind::MemWrite {
            requester: HOST_ID,
            tag: Tag::new(0).expect("a tag"),
            address: self.layout.window(self.port) + at,
            enables: ByteEnables::all(1),
            hint: None,
            data: &value.to_le_bytes(),
        };
        self.push(out, kind, Purpose::Posted { port: self.port });
    }

    fn ring(&mut self, out: &mut Egress<Purpose>) {
        for number in 0..self.pairs.len() {
            let at = regs::submission_doorbell(number as u16, self.stride);
            let doorbells = self.pairs[number].take_doorbells();
            for (value, at) in doorbells.into_iter().zip([at, at + self.stride]) {
                if let Some(value) = value {
                    self.write(out, at, value);
                }
            }
        }
    }

    /// A register was read.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        question: Question,
        done: &Completed<Asker>,
        payload: &[u8],
    ) {
        let Question::Drive { register } = question else {
            unreachable!("only drivers of model devices ask {question:?}")
        };
        if self.phase != Phase::Asked {
            return;
        }
        let mut bytes = [0xff; 8];
        if done.status == CplStatus::Success {
            bytes[..payload.len()].copy_from_slice(payload);
        }
        let value = u64::from_le_bytes(bytes);
        let csts = value as u32;
        let ready = csts & regs::CSTS_READY != 0;
        let again = Phase::Ask { register, at: now + LOOK, first: false };
        self.phase = match register {
            Register::ShutDown => match csts & regs::CSTS_SHUTDOWN_MASK {
                regs::CSTS_SHUTDOWN_COMPLETE => Phase::Off,
                _ if csts == u32::MAX => Phase::Off,
                _ => again,
            },
            // Nobody is there, or not yet.
            _ if csts == u32::MAX => return self.restart(now),
            Register::Capabilities => {
                self.stride = Capabilities(value).doorbell_stride();
                Phase::first(Register::Stopped, now)
            }
            Register::Stopped if ready => again,
            Register::Stopped => Phase::first(Register::Started, now),
            Register::Started if csts & regs::CSTS_FATAL != 0 => {
                self.fail(self.reset_at, format!("a drive does not start, CSTS {csts:#x}"));
                return self.restart(now);
            }
            Register::Started if ready => Phase::Setup(0),
            Register::Started => again,
        };
    }

    /// The page that Identify writes to.
    fn identity(&self) -> Page {
        Page::low(self.port, OWN_PAGES - 1)
    }

    /// The next admin command of the bring-up, if it is not under way.
    fn set_up(&mut self, now: Instant, step: usize, memory: &mut Memory) {
        if !self.pairs[0].waiting().is_empty() {
            return;
        }
        let identify = |what, nsid| Command::new(Opcode::IDENTIFY, nsid).dword(10, what);
        let page = self.identity().address();
        let (command, prp) = match step {
            0 => (identify(1, 0), page),
            1 => (identify(0, 1), page),
            2 => {
                let pairs = VECTORS as u32 - 2;
                let command = Command::new(Opcode::SET_FEATURES, 0).dword(10, NUMBER_OF_QUEUES);
                (command.dword(11, pairs << 16 | pairs), 0)
            }
            _ => self.create(step - 3),
        };
        self.pairs[0].submit(now, memory, Job::Setup(step), |id| command.to_bytes(id, [prp, 0]));
    }

    /// The queues of each pair, the one for completions first.
    fn create(&self, step: usize) -> (Command, u64) {
        let pair = &self.pairs[1 + step / 2];
        let number = u32::from(pair.number);
        let (submission, completion) = pair.addresses();
        let (entries, completions) = pair.sizes;
        let queue = |opcode, entries: u16| {
            Command::new(opcode, 0).dword(10, u32::from(entries - 1) << 16 | number)
        };
        // Physically contiguous; the one with interrupts enabled, of its vector; the other one with
        // its completion queue.
        if step.is_multiple_of(2) {
            (queue(Opcode::CREATE_CQ, completions).dword(11, number << 16 | 0b11), completion)
        } else {
            (queue(Opcode::CREATE_SQ, entries).dword(11, number << 16 | 1), submission)
        }
    }

    /// An admin command of the bring-up succeeded.
    pub(super) fn was_set_up(&mut self, step: usize, memory: &mut Memory) -> Verdict {
        let page: &[u8; IDENTIFY_BYTES] =
            (&*self.identity().bytes(memory)).try_into().expect("a page");
        match step {
            0 => {
                let name = IdentifyController::parse(page).serial;
                let Some(drive) = self.drives.find(&name) else {
                    let what = format!("a drive says that its serial number is {name:?}");
                    return Err(Violation::new(3, what));
                };
                self.drive = drive;
                self.owner = self.drives.get(drive).take();
            }
            1 => {
                let ledger = self.drives.get(self.drive);
                let (block, blocks) = (ledger.block as u32, ledger.blocks());
                let said = IdentifyNamespace::parse(page).map(|n| (n.block_size, n.blocks));
                if said != Some((block, blocks)) {
                    let what = format!("a drive of {blocks} blocks of {block} bytes has {said:?}");
                    return Err(Violation::new(3, what));
                }
            }
            _ => {}
        }
        self.phase = Phase::Setup(step + 1);
        if step + 1 == 3 + 2 * (VECTORS - 1) {
            self.phase = Phase::Live;
            self.again = self.drives.get(self.drive).recent().into();
        }
        Ok(())
    }
}
