//! Erasing an NVMe controller through its admin queue (NVM Express base specification 1.4).
//!
//! Nothing is stored of what the controller delivers but the few bytes that decide: its queues and
//! its data are addresses which the proxy answers by itself.

use super::config::{Got, Want};
use crate::control::{EraseFailure, EraseMethod, EraseMethods};
use crate::outstanding::RequestInfo;
use crate::time::Instant;
use core::time::Duration;

/// Where the controller's registers are meanwhile, and what it reaches by DMA: all below 4 GB, in
/// the slot's own hierarchy.
const REGISTERS: u32 = 0x8000_0000;
const SUBMISSION: u64 = 0x4000_0000;
const COMPLETION: u64 = SUBMISSION + 0x1000;
const DATA: u64 = SUBMISSION + 0x2000;
const PAGE: u64 = 0x1000;

/// Entries of each queue: the fewest that there can be. One command is outstanding at a time.
const ENTRIES: u16 = 2;
const SUBMISSION_ENTRY: usize = 64;
const COMPLETION_ENTRY: u64 = 16;

/// Longest answer to a read of the controller: the whole submission queue.
pub(super) const MAX_READ: usize = ENTRIES as usize * SUBMISSION_ENTRY;

/// Registers (section 3.1).
const CAP: u32 = 0x00;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;
const DOORBELLS: u32 = 0x1000;

/// Command register: Memory Space, Bus Master, no INTx.
const COMMAND: u32 = 0x0406;
/// CC: enabled, entries of 64 and 16 bytes.
const ENABLED: u32 = 1 | 6 << 16 | 4 << 20;

/// Written before the controller is enabled: sizes and addresses of the admin queues.
const QUEUES: [(u32, u32); 5] = [
    (0x24, (ENTRIES as u32 - 1) << 16 | (ENTRIES as u32 - 1)),
    (0x28, SUBMISSION as u32),
    (0x2c, 0),
    (0x30, COMPLETION as u32),
    (0x34, 0),
];

/// How often is looked whether the controller is ready, a command has ended, or how far a sanitize
/// operation is.
const READY_PAUSE: Duration = Duration::from_millis(5);
const COMMAND_PAUSE: Duration = Duration::from_millis(50);
const SANITIZE_PAUSE: Duration = Duration::from_millis(250);

/// The unit of CAP.TO.
const READY_UNIT: Duration = Duration::from_millis(500);

/// Status codes of a sanitize operation that failed, and of a command that is not taken while one
/// goes on, which a reset or a power cycle does not end.
const SANITIZE_FAILED: u16 = 0x1c;
const SANITIZE_IN_PROGRESS: u16 = 0x1d;

/// Sanitize Action in doubleword 10 of Sanitize.
const ACTION: u32 = 0b111;

/// Where it has got to. Each state names what is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Setup(u8),
    CapabilitiesLow,
    CapabilitiesHigh,
    Disabled,
    Stopping,
    Queues(u8),
    Enabled,
    Starting,
    Doorbell,
    Command,
    Acknowledge(u16),
    Sanitizing,
}

/// A command, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Controller,
    /// The first active namespace above this one.
    Next(u32),
    Namespace(u32),
    Format(u32, u32),
    Sanitize,
    Log,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Do(Want),
    End(Result<EraseMethod, EraseFailure>),
}

/// One erasure.
#[derive(Debug)]
pub(super) struct Eraser {
    function: u8,
    state: State,
    command: Command,
    /// Wanted ones, best first, and the one that was chosen.
    methods: EraseMethods,
    method: Option<EraseMethod>,
    until: Instant,
    ready_until: Instant,
    /// CAP.DSTRD and CAP.TO.
    stride: u8,
    timeout: u8,
    /// Commands so far.
    commands: u16,
    /// Status of the command, once it has ended.
    status: Option<u16>,
    /// The bytes of the command's data that decide: see [`Command::wanted`].
    picked: [u8; 8],
    permille: u16,
    /// The command that a sanitize operation of before has to end for.
    behind: Option<Command>,
    /// A read of the controller that is not answered yet, and where in the submission queue.
    pub(super) read: Option<(RequestInfo, u8)>,
}

impl Command {
    /// Opcode, namespace, doublewords 10 and 11.
    fn entry(self, method: Option<EraseMethod>) -> (u8, u32, u32) {
        match self {
            Self::Controller => (0x06, 0, 1),
            Self::Next(after) => (0x06, after, 2),
            Self::Namespace(id) => (0x06, id, 0),
            Self::Format(id, options) => (0x80, id, options),
            Self::Sanitize => {
                let action = match method {
                    Some(EraseMethod::SanitizeBlock) => 2,
                    Some(EraseMethod::SanitizeOverwrite) => 3 | 1 << 4,
                    _ => 4,
                };
                (0x84, 0, action)
            }
            // Sanitize Status, 8 doublewords of it.
            Self::Log => (0x02, u32::MAX, 0x81 | 7 << 16),
        }
    }

    /// Which bytes of its data decide: where they are, how many, and where they are kept.
    fn wanted(self) -> &'static [(usize, usize, usize)] {
        match self {
            // OACS, SANICAP, FNA (figure 247).
            Self::Controller => &[(256, 2, 0), (328, 1, 2), (524, 1, 3)],
            Self::Next(_) => &[(0, 4, 0)],
            // SPROG, SSTAT, and doubleword 10 of the command that began it.
            Self::Log => &[(0, 4, 0), (4, 4, 4)],
            // FLBAS, DPS (figure 245).
            Self::Namespace(_) => &[(26, 1, 0), (29, 1, 1)],
            Self::Format(..) | Self::Sanitize => &[],
        }
    }
}

impl Eraser {
    /// The first of these ways that the controller offers, at its function `function`, until then.
    pub(super) fn new(function: u8, methods: EraseMethods, until: Instant) -> Self {
        Self {
            function,
            state: State::Setup(0),
            command: Command::Controller,
            methods,
            method: None,
            until,
            ready_until: until,
            stride: 0,
            timeout: 0,
            commands: 0,
            status: None,
            picked: [0; 8],
            permille: 0,
            behind: None,
            read: None,
        }
    }

    /// The first thing to do.
    pub(super) fn first(&self) -> Want {
        self.setup(0).expect("there is one")
    }

    /// How far it is, in thousandths.
    pub(super) fn permille(&self) -> u16 {
        self.permille
    }

    /// Configuration writes that give the registers their place and let the controller work.
    fn setup(&self, index: u8) -> Option<Want> {
        let (register, value, enables) = match index {
            0 => (0x10, REGISTERS, 0xf),
            1 => (0x14, 0, 0xf),
            2 => (0x04, COMMAND, 0b0011),
            _ => return None,
        };
        Some(Want::Write { function: self.function, register, value, enables })
    }

    fn read(&mut self, state: State, register: u32) -> Step {
        self.state = state;
        Step::Do(Want::ReadMemory(REGISTERS + register))
    }

    fn write(&mut self, state: State, register: u32, value: u32) -> Step {
        self.state = state;
        Step::Do(Want::WriteMemory(REGISTERS + register, value))
    }

    /// Goes on with what came of the last thing.
    pub(super) fn next(&mut self, now: Instant, got: Got) -> Step {
        let value = match got {
            _ if now >= self.until => return Step::End(Err(EraseFailure::TooLong)),
            Got::Value(value) => value,
            Got::Written | Got::Paused => 0,
            Got::Nothing | Got::Failed => return Step::End(Err(EraseFailure::Broken)),
        };
        match self.state {
            State::Setup(index) => match self.setup(index + 1) {
                Some(want) => {
                    self.state = State::Setup(index + 1);
                    Step::Do(want)
                }
                None => self.read(State::CapabilitiesLow, CAP),
            },
            State::CapabilitiesLow => {
                self.timeout = (value >> 24) as u8;
                self.read(State::CapabilitiesHigh, CAP + 4)
            }
            // Pages of 4 KB are those of the two queues and the data.
            State::CapabilitiesHigh if value >> 16 & 0xf != 0 => {
                Step::End(Err(EraseFailure::NotOffered))
            }
            State::CapabilitiesHigh => {
                self.stride = (value & 0xf) as u8;
                self.ready_until = now + READY_UNIT * u32::from(self.timeout.max(2));
                self.write(State::Disabled, CC, 0)
            }
            State::Disabled | State::Stopping => self.await_ready(now, got, value, false),
            State::Queues(index) => self.queues(index + 1),
            State::Enabled | State::Starting => self.await_ready(now, got, value, true),
            State::Doorbell => self.pause(State::Command, COMMAND_PAUSE),
            State::Command => match self.status {
                None => self.pause(State::Command, COMMAND_PAUSE),
                Some(status) => {
                    let head = u32::from(self.commands % ENTRIES);
                    self.write(State::Acknowledge(status), DOORBELLS + (4 << self.stride), head)
                }
            },
            State::Acknowledge(0) => self.ended(),
            State::Acknowledge(SANITIZE_IN_PROGRESS)
                if matches!(self.command, Command::Sanitize | Command::Format(..)) =>
            {
                self.behind = Some(self.command);
                self.pause(State::Sanitizing, SANITIZE_PAUSE)
            }
            State::Acknowledge(status) => Step::End(Err(EraseFailure::Status(status))),
            State::Sanitizing => self.submit(Command::Log),
        }
    }

    fn pause(&mut self, state: State, time: Duration) -> Step {
        self.state = state;
        Step::Do(Want::Pause(time))
    }

    fn queues(&mut self, index: u8) -> Step {
        match QUEUES.get(usize::from(index)) {
            Some(&(register, value)) => self.write(State::Queues(index), register, value),
            None => self.write(State::Enabled, CC, ENABLED),
        }
    }

    /// Reads CSTS until RDY is as it is wanted, with pauses between.
    fn await_ready(&mut self, now: Instant, got: Got, status: u32, wanted: bool) -> Step {
        let looking = if wanted { State::Starting } else { State::Stopping };
        match got {
            Got::Value(_) if status & 0b10 != 0 => Step::End(Err(EraseFailure::Broken)),
            Got::Value(_) if (status & 1 != 0) == wanted => {
                if wanted {
                    self.submit(Command::Controller)
                } else {
                    self.queues(0)
                }
            }
            Got::Value(_) if now >= self.ready_until => Step::End(Err(EraseFailure::Broken)),
            Got::Value(_) => self.pause(looking, READY_PAUSE),
            _ => self.read(looking, CSTS),
        }
    }

    fn submit(&mut self, command: Command) -> Step {
        self.command = command;
        self.status = None;
        self.picked = [0; 8];
        self.commands = self.commands.wrapping_add(1);
        self.write(State::Doorbell, DOORBELLS, u32::from(self.commands % ENTRIES))
    }

    /// The command ended well.
    fn ended(&mut self) -> Step {
        let [a, b, c, d, began @ ..] = self.picked;
        match self.command {
            Command::Controller => self.choose(u16::from_le_bytes([a, b]), c, d),
            Command::Next(after) => match u32::from_le_bytes([a, b, c, d]) {
                0 => self.done(),
                // The list goes up, or it has no end.
                id if id <= after => Step::End(Err(EraseFailure::Broken)),
                id => self.submit(Command::Namespace(id)),
            },
            Command::Namespace(id) => self.submit(Command::Format(id, self.format(a, b))),
            Command::Format(id, _) => self.submit(Command::Next(id)),
            Command::Sanitize => self.pause(State::Sanitizing, SANITIZE_PAUSE),
            Command::Log => {
                let progress = u16::from_le_bytes([a, b]);
                self.sanitized(progress, c & 0b111, u32::from_le_bytes(began))
            }
        }
    }

    /// How far a sanitize operation is, its state, and doubleword 10 of what began it.
    fn sanitized(&mut self, progress: u16, state: u8, began: u32) -> Step {
        if state == 2 {
            self.permille = ((u32::from(progress) * 1000) >> 16) as u16;
            return self.pause(State::Sanitizing, SANITIZE_PAUSE);
        }
        let ended_well = matches!(state, 1 | 4);
        if let Some(command) = self.behind.take() {
            let (_, _, wanted) = Command::Sanitize.entry(self.method);
            let same = command == Command::Sanitize && began & ACTION == wanted & ACTION;
            // One that was begun before this proxy was, in the way that is wanted, is as good.
            return if ended_well && same { self.done() } else { self.submit(command) };
        }
        match state {
            _ if ended_well => self.done(),
            3 => Step::End(Err(EraseFailure::Status(SANITIZE_FAILED))),
            _ => Step::End(Err(EraseFailure::Broken)),
        }
    }

    fn done(&self) -> Step {
        Step::End(self.method.ok_or(EraseFailure::Broken))
    }

    /// Takes the first method that the controller offers. Format NVM reaches the namespaces that
    /// are attached only: where there may be others, it is no way to erase.
    fn choose(&mut self, commands: u16, sanitize: u8, formats: u8) -> Step {
        let format = commands & 0b1010 == 0b0010;
        let offered = |method: &EraseMethod| match method {
            EraseMethod::SanitizeCrypto => sanitize & 1 != 0,
            EraseMethod::SanitizeBlock => sanitize & 2 != 0,
            EraseMethod::SanitizeOverwrite => sanitize & 4 != 0,
            EraseMethod::FormatCrypto => format && formats & 4 != 0,
            EraseMethod::FormatUser => format,
        };
        self.method = self.methods.iter().find(offered);
        match self.method {
            None => Step::End(Err(EraseFailure::NotOffered)),
            Some(EraseMethod::FormatCrypto | EraseMethod::FormatUser) => {
                self.submit(Command::Next(0))
            }
            Some(_) => self.submit(Command::Sanitize),
        }
    }

    /// Doubleword 10 of Format NVM that leaves a namespace's format as it is (section 5.23).
    fn format(&self, formatted: u8, protection: u8) -> u32 {
        let (formatted, protection) = (u32::from(formatted), u32::from(protection));
        let erase = if self.method == Some(EraseMethod::FormatCrypto) { 2 } else { 1 };
        formatted & 0x1f
            | (protection & 7) << 5
            | (protection >> 3 & 1) << 8
            | erase << 9
            | (formatted >> 5 & 3) << 12
    }

    /// What a read of the controller gets, as an offset into its submission queue; nothing where
    /// it may not read.
    pub(super) fn readable(address: u64, bytes: usize) -> Option<u8> {
        let offset = usize::try_from(address.checked_sub(SUBMISSION)?).ok()?;
        (bytes > 0 && offset.checked_add(bytes)? <= MAX_READ).then_some(offset as u8)
    }

    /// The submission queue from an offset on.
    pub(super) fn submission(&self, offset: u8, into: &mut [u8]) {
        let (opcode, namespace, ten) = self.command.entry(self.method);
        let mut entry = [0; SUBMISSION_ENTRY];
        let words = [
            (0, u32::from(opcode) | u32::from(self.commands) << 16),
            (1, namespace),
            (6, DATA as u32),
            (10, ten),
        ];
        for (at, word) in words {
            entry[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let current = usize::from(self.commands.wrapping_sub(1) % ENTRIES);
        for (at, byte) in into.iter_mut().enumerate() {
            let at = usize::from(offset) + at;
            let is_current = at / SUBMISSION_ENTRY == current;
            *byte = if is_current { entry[at % SUBMISSION_ENTRY] } else { 0 };
        }
    }

    /// Takes what the controller writes. Whether the command has ended with it.
    pub(super) fn written(&mut self, address: u64, bytes: &[u8]) -> bool {
        if let Some(offset) = address.checked_sub(DATA).filter(|offset| *offset < PAGE) {
            self.pick(offset as usize, bytes);
            return false;
        }
        // Of a completion entry the last doubleword says everything (section 4.6).
        let before = self.commands.wrapping_sub(1);
        let place = COMPLETION + COMPLETION_ENTRY * u64::from(before % ENTRIES) + 12;
        let Some(at) = place.checked_sub(address).and_then(|at| usize::try_from(at).ok()) else {
            return false;
        };
        let Some(&[a, b, c, d]) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else {
            return false;
        };
        let phase = (before / ENTRIES).is_multiple_of(2);
        let ours = u16::from_le_bytes([a, b]) == self.commands && (c & 1 != 0) == phase;
        if ours && self.status.is_none() && matches!(self.state, State::Doorbell | State::Command) {
            self.status = Some(u16::from_le_bytes([c, d]) >> 1 & 0x7ff);
            return true;
        }
        false
    }

    fn pick(&mut self, offset: usize, bytes: &[u8]) {
        for &(from, count, to) in self.command.wanted() {
            for n in 0..count {
                if let Some(byte) = (from + n).checked_sub(offset).and_then(|at| bytes.get(at)) {
                    self.picked[to + n] = *byte;
                }
            }
        }
    }
}
