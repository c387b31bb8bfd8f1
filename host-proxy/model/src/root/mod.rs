//! The root complex: a root port's requests, completions, and what devices ask of the host.

mod inbound;
mod requests;
mod tags;

pub use requests::FIRST_BUS;

use crate::counters::Counters;
use crate::interrupts::Interrupts;
use crate::memory::HostMemory;
use crate::port::{PortError, TlpPort};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use tags::TagTable;
use tlp_codec::ids::Bdf;
use tlp_codec::tlp::{Kind, MAX_TLP, MsgCode, Repr};

/// The root port's and the processors' own ID.
pub const HOST_ID: Bdf = Bdf::from_bits(0);

/// Messages that are kept; the oldest is dropped for a new one, and counted.
pub const MESSAGE_LOG: usize = 256;

/// How the root complex behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootConfig {
    /// Read Completion Boundary: 64 or 128 bytes (Link Control of the root port).
    pub read_completion_boundary: u16,
    /// Whether completions are cut at every such boundary, as some root complexes do, instead of
    /// being as long as the payload size allows.
    pub split_at_boundary: bool,
    /// Largest payload of the root port, 128 to 4096 bytes. A function gets no more than its own.
    pub max_payload: u16,
    /// Largest read request that the host makes of a device, 64 to 4096 bytes.
    pub max_read_request: u16,
    /// Read requests that one large read has outstanding at a time.
    pub reads_outstanding: usize,
    /// How long a request waits for its completions.
    pub completion_timeout: Duration,
    /// How long a configuration request is repeated while the device answers with retry status.
    pub retry_timeout: Duration,
}

impl Default for RootConfig {
    fn default() -> Self {
        Self {
            read_completion_boundary: 64,
            split_at_boundary: false,
            max_payload: 512,
            max_read_request: 512,
            reads_outstanding: 16,
            completion_timeout: Duration::from_secs(6),
            retry_timeout: Duration::from_secs(60),
        }
    }
}

/// A message that came from below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who sent it.
    pub requester: Bdf,
    /// What it says.
    pub code: MsgCode,
    /// Header bytes 8 to 15, whose meaning the code decides.
    pub fields: [u8; 8],
    /// When it came.
    pub at: Instant,
}

/// TLPs that are taken behind one that was waited for, before whoever waits looks around.
const PUMPED: usize = 31;

/// A root complex with one root port over a [`TlpPort`].
pub struct RootComplex<P> {
    port: P,
    config: RootConfig,
    memory: HostMemory,
    interrupts: Interrupts,
    counters: Counters,
    messages: VecDeque<Message>,
    tags: TagTable,
    /// Largest payload of each function that has been set up; others get the smallest.
    payloads: BTreeMap<u16, u16>,
    rx: Vec<u8>,
    tx: Vec<u8>,
}

impl<P: TlpPort> RootComplex<P> {
    /// A root complex with nothing known below.
    pub fn new(port: P, config: RootConfig, memory: HostMemory) -> Self {
        Self {
            port,
            config,
            memory,
            interrupts: Interrupts::default(),
            counters: Counters::default(),
            messages: VecDeque::new(),
            tags: TagTable::new(),
            payloads: BTreeMap::new(),
            rx: vec![0; MAX_TLP],
            tx: vec![0; MAX_TLP],
        }
    }

    /// The port below.
    pub const fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// How it behaves.
    pub const fn config(&self) -> &RootConfig {
        &self.config
    }

    /// Host memory.
    pub const fn memory(&self) -> &HostMemory {
        &self.memory
    }

    /// Host memory, to be changed.
    pub const fn memory_mut(&mut self) -> &mut HostMemory {
        &mut self.memory
    }

    /// Interrupt vectors.
    pub const fn interrupts(&mut self) -> &mut Interrupts {
        &mut self.interrupts
    }

    /// What was counted.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The oldest message that was not taken yet.
    pub fn poll_message(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }

    /// Sets the largest payload that a function takes and sends.
    pub fn set_payload(&mut self, function: Bdf, max_payload: u16) {
        self.payloads.insert(function.bits(), max_payload);
    }

    /// Forgets a function's payload size.
    pub fn forget_payload(&mut self, function: Bdf) {
        self.payloads.remove(&function.bits());
    }

    /// The largest payload for TLPs to a function: what was set, or the 128 bytes that every
    /// function takes.
    pub fn payload(&self, function: Bdf) -> usize {
        let known = self.payloads.get(&function.bits()).copied();
        usize::from(known.unwrap_or(128).min(self.config.max_payload))
    }

    /// Takes one TLP from below, if one comes until `deadline`, and does what it asks for. Behind a
    /// request of a device, what is at hand is taken with it: devices ask for much at a time.
    ///
    /// # Errors
    ///
    /// The port's.
    pub fn pump(&mut self, deadline: Instant) -> Result<bool, PortError> {
        let mut rx = std::mem::take(&mut self.rx);
        let result = self.pump_into(&mut rx, deadline);
        self.rx = rx;
        result
    }

    fn pump_into(&mut self, rx: &mut [u8], deadline: Instant) -> Result<bool, PortError> {
        let Some(len) = self.port.recv(rx, deadline)? else { return Ok(false) };
        let mut asked = self.take(&rx[..len])?;
        for _ in 0..PUMPED {
            if !asked {
                break;
            }
            let Some(len) = self.port.at_hand(rx) else { break };
            asked = self.take(&rx[..len])?;
        }
        Ok(true)
    }

    /// Lets time pass until `until`, serving what comes from below.
    ///
    /// # Errors
    ///
    /// The port's.
    pub fn idle(&mut self, until: Instant) -> Result<(), PortError> {
        while Instant::now() < until {
            self.pump(until)?;
        }
        Ok(())
    }

    /// Whether it was a request.
    fn take(&mut self, tlp: &[u8]) -> Result<bool, PortError> {
        match Repr::from_bytes(tlp) {
            Ok(repr) if matches!(repr.kind, Kind::Completion { .. }) => {
                self.take_completion(&repr);
                Ok(false)
            }
            Ok(repr) => self.take_request(&repr).map(|()| true),
            Err(error) => {
                self.counters.malformed += 1;
                tracing::warn!(%error, "malformed TLP dropped");
                Ok(false)
            }
        }
    }

    fn take_completion(&mut self, repr: &Repr<'_>) {
        let Kind::Completion { requester, .. } = repr.kind else { return };
        let matched = if requester == HOST_ID {
            self.tags.complete(&repr.kind, repr.poisoned)
        } else {
            tags::Matched::Unexpected
        };
        match matched {
            tags::Matched::Yes => self.counters.completions += 1,
            tags::Matched::Late => self.counters.late_completions += 1,
            tags::Matched::Unexpected => {
                self.counters.unexpected_completions += 1;
                tracing::warn!(kind = ?repr.kind, "unexpected completion dropped");
            }
        }
    }

    fn keep_message(&mut self, message: Message) {
        if self.messages.len() == MESSAGE_LOG {
            self.messages.pop_front();
            self.counters.messages_lost += 1;
        }
        self.messages.push_back(message);
        self.counters.messages += 1;
    }

    /// Writes a TLP and hands it down.
    fn send(&mut self, repr: &Repr<'_>) -> Result<(), PortError> {
        send_on(&mut self.port, &mut self.tx, repr)
    }
}

/// As [`RootComplex::send`], for a TLP whose data lies in another part of the root complex.
fn send_on<P: TlpPort>(port: &mut P, tx: &mut [u8], repr: &Repr<'_>) -> Result<(), PortError> {
    let len = repr.emit(tx).expect("the host makes only TLPs that can be written");
    port.send(&tx[..len])
}
