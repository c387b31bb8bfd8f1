//! The adapter: accesses of the machine in, answers and TLPs out.

use crate::access::{Access, Completed, Part, Stage, request};
use crate::counters::Counters;
use crate::endpoint::{Endpoint, OWN_PAGES};
use crate::guest::{Guest, Token};
use crate::inbound::Reads;
use crate::posted::Posted;
use crate::settings::{Region, VmdConfig, VmdConfigError};
use proxy_core::config_space::ResetKind;
use proxy_core::limits::{MAX_PAYLOAD_OFFERED, MAX_PORTS, ROOT_OUTSTANDING, TLP_BUFFER};
use proxy_core::outstanding::RequestInfo;
use proxy_core::queue::TlpQueue;
use proxy_core::root_port::{Effect, RootPort, RootPortConfig};
use proxy_core::switch::PortError;
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{Kind, Packet, Repr};

/// Requests of devices that may be owed completions at a time. An adapter that owes so many takes
/// no TLP, unless the machine waits for one.
pub const READS: usize = 256;

/// The same while the machine waits for an answer, which may be behind them: as many as all ports
/// let through.
const READS_BEHIND: usize = MAX_PORTS * ROOT_OUTSTANDING;

/// TLPs from one device for another that may wait. An adapter with none left takes no TLP.
const TURNED: usize = 64;

/// Tags of the root complex. It has one request out at a time; each tag rests while the others
/// have their turn.
const TAGS: u16 = 256;

/// Register 0, whose reader may be told that a device is not ready.
const VENDOR_ID: u16 = 0;
/// What it reads then: a vendor ID that nobody has (PCIe 5.0 section 2.3.2).
const NOT_READY: [u8; 4] = [0x01, 0x00, 0xff, 0xff];

/// An access that is done: the data of a read, nothing for a write.
pub type Answer<'a> = &'a [u8];

/// The adapter.
pub struct Adapter {
    settings: VmdConfig,
    pub(crate) endpoint: Endpoint,
    pub(crate) root: RootPort,
    access: Option<Access>,
    /// The bytes of the access in hand.
    data: Vec<u8>,
    tag: u16,
    /// What the switch has to be told.
    reset: Option<ResetKind>,
    pub(crate) reads: Reads,
    pub(crate) posted: Posted,
    pub(crate) turned: TlpQueue<TLP_BUFFER>,
    /// The last message that was forgotten with its answer on the way.
    forgotten: Option<Token>,
    pub(crate) counters: Counters,
}

impl Adapter {
    /// An adapter after power-on.
    ///
    /// # Errors
    ///
    /// When the configuration is not possible.
    pub fn new(settings: &VmdConfig) -> Result<Self, VmdConfigError> {
        settings.check()?;
        let root = RootPortConfig {
            vendor_id: 0x1234,
            device_id: 0xd0b2,
            subsystem: (0x1234, 0xd0b2),
            max_payload: MAX_PAYLOAD_OFFERED,
            payload: settings.payload,
            serial: 0,
        };
        let root = RootPort::new(&root, Bdf::default()).expect("identity and payload are possible");
        Ok(Self {
            settings: settings.clone(),
            endpoint: Endpoint::new(settings),
            root,
            access: None,
            data: Vec::new(),
            tag: 0,
            reset: None,
            reads: Reads::default(),
            posted: Posted::default(),
            turned: TlpQueue::new(TURNED),
            forgotten: None,
            counters: Counters::default(),
        })
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        let writes_dropped = self.counters.writes_dropped + self.posted.dropped();
        Counters { writes_dropped, ..self.counters }
    }

    /// Whether an access is in hand: the next one waits.
    pub fn is_busy(&self) -> bool {
        self.access.is_some()
    }

    /// When the first request of the access in hand was made that has an answer.
    pub fn asks_since(&self) -> Option<Instant> {
        self.access.as_ref()?.began()
    }

    /// The machine reads. The answer comes out of [`poll_answer`](Self::poll_answer).
    ///
    /// # Panics
    ///
    /// When an access is in hand.
    pub fn handle_read(&mut self, region: Region, offset: u64, len: usize) {
        assert!(self.access.is_none(), "one access at a time");
        self.data.clear();
        self.data.resize(len, 0xff);
        self.begin(region, offset, false);
    }

    /// The machine writes. It is answered, too: with nothing, when the write is done or, to
    /// memory, on its way.
    ///
    /// # Panics
    ///
    /// When an access is in hand.
    pub fn handle_write(&mut self, region: Region, offset: u64, data: &[u8]) {
        assert!(self.access.is_none(), "one access at a time");
        self.data.clear();
        self.data.extend_from_slice(data);
        self.begin(region, offset, true);
    }

    fn begin(&mut self, region: Region, offset: u64, write: bool) {
        let len = self.data.len();
        let at = match region {
            Region::Own => {
                self.access_own(offset, write);
                // It is done: an access without parts.
                self.access = Some(Access::new(region, 0, 0, write));
                return;
            }
            Region::Configuration => offset,
            Region::Memory | Region::Prefetchable => {
                self.endpoint.base(region).wrapping_add(offset)
            }
        };
        let own = region == Region::Prefetchable && offset < OWN_PAGES;
        if own {
            // The MSI-X table is kept by whoever passes the adapter on; no vector is ever pending.
            if !write {
                self.data.fill(0);
            }
            self.access = Some(Access::new(region, 0, 0, write));
            return;
        }
        self.access = Some(Access::new(region, at, len, write));
    }

    fn access_own(&mut self, offset: u64, write: bool) {
        for index in 0..self.data.len() {
            let at = (offset as usize + index) & 0xfff;
            let (register, lane) = (at as u16 & !3, at & 3);
            if write {
                let value = u32::from(self.data[index]) << (8 * lane);
                self.endpoint.write(register, value, 1 << lane);
            } else {
                self.data[index] = self.endpoint.read(register).to_le_bytes()[lane];
            }
        }
    }

    /// The access that is done.
    pub fn poll_answer(&mut self) -> Option<Answer<'_>> {
        if !self.access.as_ref().is_some_and(Access::is_done) {
            return None;
        }
        let access = self.access.take()?;
        Some(if access.is_write() { &[] } else { &self.data })
    }

    /// What has to be told to the switch before it gets a further TLP.
    pub fn poll_reset(&mut self) -> Option<ResetKind> {
        self.reset.take()
    }

    /// The adapter is reset, or the machine went away: everything is as after power-on, nothing
    /// that was on its way is owed to anybody.
    pub fn handle_reset(&mut self) {
        self.endpoint.reset();
        self.root.reset(ResetKind::Fundamental);
        self.access = None;
        self.reset = Some(ResetKind::Fundamental);
        self.forget();
    }

    fn forget(&mut self) {
        if self.posted.is_waiting() {
            // The root port's own interrupt may be among what waits; a reset below leaves that port as it
            // is.
            self.root.repeat_interrupt();
        }
        let (read, write) = (self.reads.clear(), self.posted.clear());
        self.forgotten = self.forgotten.max(read).max(write);
        self.turned.clear();
    }

    /// The next request of the machine for what is below, written into `buf`; its length. It has
    /// to be taken there before the next one is asked for. The machine has `waited` so long since it
    /// had nothing under way, for accesses before this one: it is not made to wait for much longer.
    pub fn poll_request(
        &mut self,
        now: Instant,
        waited: Duration,
        buf: &mut [u8],
    ) -> Option<usize> {
        // What a reset is to end must not be followed by what comes after it.
        while self.reset.is_none() {
            let access = self.access.as_mut()?;
            match access.stage {
                Stage::Pausing { until } if now >= until => access.stage = Stage::Ready,
                Stage::Ready => {}
                _ => return None,
            }
            let part = access.part()?;
            if self.is_below(part) {
                let access = self.access.as_mut()?;
                access.look_at_the_time(now, waited, part);
                if !access.gave_up() {
                    return Some(self.send(now, part, buf));
                }
            }
            self.do_here(part);
        }
        None
    }

    /// Whether a part goes below the root port.
    fn is_below(&self, part: Part) -> bool {
        let (secondary, subordinate) = self.root.buses();
        match part {
            Part::Configuration { function, .. } => {
                let bus = function.bus().get();
                // On the link below is one device (PCIe 5.0 section 7.3.1).
                let there = bus != secondary || function.device().get() == 0;
                let behind = secondary != 0 && (secondary..=subordinate).contains(&bus);
                self.root.is_link_up() && behind && there
            }
            Part::Memory { address, .. } => {
                self.root.is_link_up() && self.root.claims_memory(address)
            }
        }
    }

    /// A part that the root port answers, or nobody.
    fn do_here(&mut self, part: Part) {
        let Some(access) = &mut self.access else { return };
        let bytes = access.done()..access.done() + part.len();
        match part {
            Part::Configuration { function, register, enables, first, len }
                if function == self.root.id() && !access.gave_up() =>
            {
                if access.is_write() {
                    let mut value = [0; 4];
                    value[first..first + len].copy_from_slice(&self.data[bytes]);
                    let value = u32::from_le_bytes(value);
                    if self.root.write(register, value, enables) == Some(Effect::LinkDown) {
                        self.reset = Some(ResetKind::Hot);
                    }
                } else {
                    let value = self.root.read(register).to_le_bytes();
                    self.data[bytes].copy_from_slice(&value[first..first + len]);
                }
            }
            _ => {
                self.counters.nobody += 1;
                if !access.is_write() {
                    self.data[bytes].fill(0xff);
                }
            }
        }
        access.advance(part);
        if self.reset.is_some() {
            self.forget();
        }
    }

    fn send(&mut self, now: Instant, part: Part, buf: &mut [u8]) -> usize {
        let access = self.access.as_mut().expect("a part is of an access");
        let tag = Tag::new(self.tag).expect("eight bits are a tag");
        self.tag = (self.tag + 1) % TAGS;
        let data = access.is_write().then(|| &self.data[access.done()..access.done() + part.len()]);
        let (secondary, _) = self.root.buses();
        let mut block = [0; 64];
        let kind = request(part, self.root.id(), tag, secondary, data, &mut block);
        let length = Repr::new(kind).emit(buf).expect("a request that keeps the rules");
        let packet = Packet::new_checked(&buf[..length]).expect("just built");
        match part {
            Part::Configuration { .. } => self.counters.configurations += 1,
            Part::Memory { .. } => self.counters.memory_requests += 1,
        }
        match RequestInfo::of(&packet) {
            Some(info) => access.wait(now, part, info),
            None => access.advance(part),
        }
        length
    }

    /// The next TLP of a device for another device, written into `buf`; its length.
    pub fn poll_turned(&mut self, buf: &mut [u8]) -> Option<usize> {
        if self.reset.is_some() { None } else { self.turned.pop(buf) }
    }

    /// The next completion for a requester that `takes` one, written into `buf`; its length. One
    /// device that takes none holds up no other.
    pub fn poll_completion(
        &mut self,
        takes: impl Fn(Bdf) -> bool,
        buf: &mut [u8],
    ) -> Option<usize> {
        if self.reset.is_some() {
            return None;
        }
        self.reads.poll(self.root.id(), self.root.max_payload(), takes, buf)
    }

    /// Whether a completion may be had now.
    pub fn may_complete(&self) -> bool {
        !self.turned.is_empty() || self.reads.is_ready()
    }

    /// Whether a TLP from below can be taken. While an access is in hand more is taken than
    /// otherwise: its answer comes behind what devices sent before, and a machine may take no
    /// messages until it has that answer. For that reason the answer waits for no write that goes by
    /// message, and passes it.
    pub fn has_room(&self) -> bool {
        let waits = self.access.is_some();
        let reads = if waits { READS_BEHIND } else { READS };
        self.reads.len() < reads && self.posted.has_room(waits) && self.turned.room() > 0
    }

    /// Takes a TLP from below.
    ///
    /// # Panics
    ///
    /// Without [room](Self::has_room).
    pub fn handle_tlp(&mut self, now: Instant, tlp: &[u8], guest: &mut impl Guest) {
        assert!(self.has_room(), "the caller looks for room");
        let Ok(packet) = Packet::new_checked(tlp) else {
            self.counters.malformed += 1;
            return;
        };
        match Repr::parse(&packet) {
            Ok(Repr { kind: Kind::Completion { requester, .. }, .. }) => {
                self.take_completion(now, requester, &packet);
            }
            Ok(repr) => self.take_request(&packet, &repr, guest),
            Err(_) => {
                self.counters.malformed += 1;
                self.root.report(PortError::Malformed, false, Some(tlp));
            }
        }
        self.handle_guest(guest);
    }

    /// Sends interrupts and writes that are due: to be called when the machine may have room
    /// again, or an access may have enabled an interrupt.
    pub fn handle_guest(&mut self, guest: &mut impl Guest) {
        self.posted.flush(guest);
        self.ask(guest);
        if self.posted.has_room(self.access.is_some())
            && self.endpoint.masters()
            && let Some((address, data)) = self.root.poll_interrupt()
        {
            self.interrupt(address, data, guest);
        }
    }

    /// The machine's answer to a message; [`handle_guest`](Self::handle_guest) goes on with what
    /// waited for it.
    pub fn handle_memory(&mut self, token: Token, result: Result<&[u8], ()>) {
        let known = self.posted.answered(token) || self.reads.answered(token, result);
        if !known && self.forgotten.is_none_or(|last| token > last) {
            self.counters.unexpected += 1;
        }
    }

    fn take_completion(&mut self, now: Instant, requester: Bdf, packet: &Packet<&[u8]>) {
        if requester != self.root.id() {
            let (secondary, subordinate) = self.root.buses();
            if secondary != 0 && (secondary..=subordinate).contains(&requester.bus().get()) {
                self.turn(packet);
            } else {
                self.counters.unexpected += 1;
            }
            return;
        }
        let Some(access) = &mut self.access else {
            self.counters.unexpected += 1;
            return;
        };
        let waiting = access.stage;
        match access.complete(packet, &mut self.data) {
            Completed::Taken => {}
            Completed::Unexpected => {
                self.counters.unexpected += 1;
                self.root.report(PortError::UnexpectedCompletion, true, Some(packet.as_bytes()));
            }
            Completed::Failed { poisoned } => {
                self.counters.refused += 1;
                self.fail(now, waiting);
                if poisoned {
                    self.root.report(PortError::Poisoned, true, Some(packet.as_bytes()));
                }
            }
            Completed::Retry => self.retry(now, waiting),
        }
    }

    /// A request without the wanted answer reads as all ones. A long access whose parts fail
    /// slowly goes no further: it would keep the machine for as long as all of them take.
    fn fail(&mut self, now: Instant, waiting: Stage) {
        let (Some(access), Stage::Waiting { part, .. }) = (&mut self.access, waiting) else {
            return;
        };
        if !access.is_write() {
            self.data[access.done()..access.done() + part.len()].fill(0xff);
        }
        if access.has_time(now) {
            access.advance(part);
        } else {
            access.give_up(part);
        }
    }

    /// A device is not ready: software is told if it wants to know, else the request is repeated
    /// (PCIe 5.0 section 2.3.2).
    fn retry(&mut self, now: Instant, waiting: Stage) {
        let (Some(access), Stage::Waiting { part, .. }) = (&mut self.access, waiting) else {
            return;
        };
        if let Part::Configuration { register: VENDOR_ID, enables, first, len, .. } = part
            && !access.is_write()
            && enables & 0b11 == 0b11
            && self.root.retry_is_visible()
        {
            let bytes = access.done()..access.done() + len;
            self.data[bytes].copy_from_slice(&NOT_READY[first..first + len]);
            access.advance(part);
            return;
        }
        if access.pause(now) {
            self.counters.retries += 1;
        } else {
            self.counters.timed_out += 1;
            self.fail(now, waiting);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.access.as_ref()?.timeout()
    }

    /// A time may be over.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(access) = &mut self.access else { return };
        if let Stage::Waiting { deadline, .. } = access.stage
            && now >= deadline
        {
            self.request_lost();
        }
    }

    /// The last request of [`poll_request`](Self::poll_request) was not taken below: nobody answers
    /// it.
    pub fn request_lost(&mut self) {
        let Some(access) = &mut self.access else { return };
        let Stage::Waiting { part, .. } = access.stage else { return };
        self.counters.timed_out += 1;
        if !access.is_write() {
            self.data[access.done()..access.done() + part.len()].fill(0xff);
        }
        access.give_up(part);
        self.root.report(PortError::CompletionTimeout, false, None);
    }

    /// What the adapter was made to be.
    pub fn settings(&self) -> &VmdConfig {
        &self.settings
    }
}
