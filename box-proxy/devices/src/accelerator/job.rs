//! A job slot: its registers, and a job on its way.

use super::regs;
use crate::endpoint::{DmaError, ReadTiming};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Write,
    Fill,
    Check,
}

/// Why a job failed, as the status register has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure(pub(super) u8);

impl From<DmaError> for Failure {
    fn from(error: DmaError) -> Self {
        Self(match error {
            DmaError::UnsupportedRequest => regs::ERROR_UNSUPPORTED_REQUEST,
            DmaError::CompleterAbort => regs::ERROR_COMPLETER_ABORT,
            DmaError::Timeout => regs::ERROR_TIMEOUT,
            DmaError::Poisoned => regs::ERROR_POISONED,
            DmaError::Malformed => regs::ERROR_MALFORMED,
            DmaError::BusMasterOff => regs::ERROR_BUS_MASTER_OFF,
            DmaError::NoTags => regs::ERROR_NO_TAGS,
        })
    }
}

/// State of a slot.
pub(super) enum State {
    Idle,
    Running(Box<Run>),
    Done,
    Failed(Failure),
}

/// A job on its way.
pub(super) struct Run {
    pub(super) operation: Operation,
    /// Tells this job's DMA from that of an earlier one in the same slot.
    pub(super) generation: u32,
    /// Bytes asked for or handed over.
    pub(super) issued: u64,
    pub(super) crc: crc32fast::Hasher,
    /// Pieces that came before the ones in front of them, by offset in the job.
    pub(super) early: BTreeMap<u64, Vec<u8>>,
    /// Pieces asked for that have not come or wait in `early`.
    pub(super) pieces: usize,
    /// Set once the last write was handed over: the job is done when it has left.
    pub(super) mark: Option<u64>,
}

/// A job slot.
pub(super) struct Slot {
    pub(super) host: u64,
    pub(super) host_window: u64,
    pub(super) device: u64,
    pub(super) length: u64,
    pub(super) command: u32,
    pub(super) job_id: u32,
    pub(super) state: State,
    pub(super) crc: u32,
    started: Duration,
    elapsed: Duration,
    pub(super) transferred: u64,
    pub(super) requests: u64,
    rtt_sum: Duration,
    rtt_min: Option<Duration>,
    rtt_max: Duration,
    peak: u16,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            host: 0,
            host_window: 0,
            device: 0,
            length: 0,
            command: 0,
            job_id: 0,
            state: State::Idle,
            crc: 0,
            started: Duration::ZERO,
            elapsed: Duration::ZERO,
            transferred: 0,
            requests: 0,
            rtt_sum: Duration::ZERO,
            rtt_min: None,
            rtt_max: Duration::ZERO,
            peak: 0,
        }
    }

    pub(super) fn run(&self) -> Option<&Run> {
        match &self.state {
            State::Running(run) => Some(run),
            _ => None,
        }
    }

    pub(super) fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.state {
            State::Running(run) => Some(run),
            _ => None,
        }
    }

    pub(super) fn operation(&self) -> Operation {
        match self.command & regs::COMMAND_OPERATION {
            regs::COMMAND_READ => Operation::Read,
            regs::COMMAND_WRITE => Operation::Write,
            regs::COMMAND_FILL => Operation::Fill,
            _ => Operation::Check,
        }
    }

    /// The vector of the interrupt at the end, if one is wanted.
    pub(super) fn vector(&self) -> Option<u16> {
        let wanted = self.command & regs::COMMAND_INTERRUPT != 0;
        wanted.then_some((self.command >> regs::COMMAND_VECTOR_SHIFT & 0xff) as u16)
    }

    /// Whether the registers make a job.
    pub(super) fn check(&self, memory: u64) -> Result<(), Failure> {
        let window = if self.host_window == 0 { self.length } else { self.host_window };
        let last = window.min(self.length).saturating_sub(1);
        let moves = matches!(self.operation(), Operation::Read | Operation::Write);
        let good = (1..=regs::MAX_LENGTH).contains(&self.length)
            && self.device < memory
            && (!moves || self.host.checked_add(last).is_some())
            && self.vector().is_none_or(|v| v < regs::VECTORS);
        if good { Ok(()) } else { Err(Failure(regs::ERROR_PARAMETER)) }
    }

    pub(super) fn start(&mut self, now: Duration, job_id: u32, generation: u32) {
        self.job_id = job_id;
        self.started = now;
        self.elapsed = Duration::ZERO;
        (self.crc, self.transferred, self.requests, self.peak) = (0, 0, 0, 0);
        (self.rtt_sum, self.rtt_min, self.rtt_max) = (Duration::ZERO, None, Duration::ZERO);
        self.state = State::Running(Box::new(Run {
            operation: self.operation(),
            generation,
            issued: 0,
            crc: crc32fast::Hasher::new(),
            early: BTreeMap::new(),
            pieces: 0,
            mark: None,
        }));
    }

    /// Ends the job.
    pub(super) fn end(&mut self, now: Duration, result: Result<(), Failure>) {
        self.elapsed = now.saturating_sub(self.started);
        let state = result.map_or_else(State::Failed, |()| State::Done);
        if let State::Running(run) = std::mem::replace(&mut self.state, state) {
            self.crc = run.crc.finalize();
        }
    }

    /// Where byte `at` of the job is in host memory, and for how many bytes it goes on from
    /// there without a jump.
    pub(super) fn host_at(&self, at: u64) -> (u64, u64) {
        let window = if self.host_window == 0 { u64::MAX } else { self.host_window };
        (self.host.wrapping_add(at % window), window - at % window)
    }

    pub(super) fn add_timing(&mut self, timing: &ReadTiming) {
        self.requests += u64::from(timing.requests);
        self.rtt_sum += timing.sum;
        self.rtt_min = Some(self.rtt_min.map_or(timing.min, |min| min.min(timing.min)));
        self.rtt_max = self.rtt_max.max(timing.max);
        self.peak = self.peak.max(timing.peak);
    }

    /// A doubleword of the slot's registers.
    pub(super) fn read(&self, now: Duration, register: u64) -> u32 {
        let half = |value: u64| if register & 4 == 0 { value as u32 } else { (value >> 32) as u32 };
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let nanos32 = |d: Duration| u32::try_from(d.as_nanos()).unwrap_or(u32::MAX);
        match register {
            regs::SLOT_COMMAND => return self.command,
            regs::SLOT_JOB_ID => return self.job_id,
            regs::SLOT_STATUS => return self.status(),
            regs::SLOT_CRC => return self.crc,
            regs::SLOT_RTT_MIN => return nanos32(self.rtt_min.unwrap_or_default()),
            regs::SLOT_RTT_MAX => return nanos32(self.rtt_max),
            regs::SLOT_PEAK => return self.peak.into(),
            _ => {}
        }
        match register & !4 {
            regs::SLOT_HOST => half(self.host),
            regs::SLOT_HOST_WINDOW => half(self.host_window),
            regs::SLOT_DEVICE => half(self.device),
            regs::SLOT_LENGTH => half(self.length),
            regs::SLOT_ELAPSED => match self.state {
                State::Running(_) => half(nanos(now.saturating_sub(self.started))),
                _ => half(nanos(self.elapsed)),
            },
            regs::SLOT_TRANSFERRED => half(self.transferred),
            regs::SLOT_REQUESTS => half(self.requests),
            regs::SLOT_RTT_SUM => half(nanos(self.rtt_sum)),
            _ => 0,
        }
    }

    fn status(&self) -> u32 {
        let (state, error) = match self.state {
            State::Idle => (regs::STATE_IDLE, 0),
            State::Running(_) => (regs::STATE_RUNNING, 0),
            State::Done => (regs::STATE_DONE, 0),
            State::Failed(Failure(error)) => (regs::STATE_FAILED, error),
        };
        u32::from(error) << 8 | u32::from(state)
    }

    /// Writes a doubleword of the slot's registers. Ignored while it runs.
    pub(super) fn write(&mut self, register: u64, value: u32) {
        if matches!(self.state, State::Running(_)) {
            return;
        }
        let field = match register & !4 {
            regs::SLOT_HOST => &mut self.host,
            regs::SLOT_HOST_WINDOW => &mut self.host_window,
            regs::SLOT_DEVICE => &mut self.device,
            regs::SLOT_LENGTH => &mut self.length,
            _ => {
                if register == regs::SLOT_COMMAND {
                    let bits = regs::COMMAND_OPERATION
                        | regs::COMMAND_INTERRUPT
                        | 0xff << regs::COMMAND_VECTOR_SHIFT;
                    self.command = value & bits;
                }
                return;
            }
        };
        *field = if register & 4 == 0 {
            *field & !0xffff_ffff | u64::from(value)
        } else {
            *field & 0xffff_ffff | u64::from(value) << 32
        };
    }
}
