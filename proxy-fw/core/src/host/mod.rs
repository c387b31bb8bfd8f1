//! The host role: what a proxy beside a host does.
//!
//! Towards the host's root complex it is a PCIe switch ([`crate::switch`]); each downstream port
//! that is bound leads over a link to a function in a box. A request of the host becomes an entry
//! of the port's outstanding table and a record; what comes back is matched by index and
//! generation alone and gets the requester's identity back. A request of a device passes the
//! switch's checks, takes a tag of the port's own towards the root complex or another device, and
//! its completions go back with the box's index and generation.

mod bars;
mod control;
mod downstream;
mod hold;
mod peers;
mod pending;
mod ports;
mod upstream;

use crate::bits::ones;
use crate::control::{
    ControlError, Event, FromProxy, LogLevel, OperationId, PathAddress, Request, Term,
};
use crate::counters::{CounterList, counters};
use crate::limits::{
    HOST_OUTSTANDING, LONGEST_HOLD, MAX_FUNCTIONS, MAX_PEERS, RECORDER_RING, ROOT_OUTSTANDING,
    SYNTHESISED_COMPLETION, TLP_BUFFER,
};
use crate::link::LinkConfig;
use crate::node::Node;
use crate::outstanding::{AfterExpiry, RequestInfo, Table};
use crate::queue::TlpQueue;
use crate::role::{InHand, Outgoing, Role};
use crate::switch::{ResetKind, SwitchConfig, SwitchConfigError, VirtualSwitch};
use crate::time::{Earliest, Instant};
use alloc::boxed::Box;
use bars::Bar;
use core::time::Duration;
use downstream::Refused;
use hold::Hold;
use peers::Held;
use pending::{Pending, Wanted};
use ports::Port;
use tlp_codec::ids::{Bdf, BindingKey, NodeId, OutstandingRef, PortId};
use tlp_codec::tlp::{CplStatus, Packet, TlpType};

/// TLPs that the switch itself sends to the root complex and that wait to be taken. When there is
/// no room, TLPs of the root complex wait (backpressure).
const TO_ROOT: usize = 128;

/// Room that handling one TLP may need in the queue to the root complex.
const ROOT_RESERVE: usize = 4;

/// How a host role is made.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Number of this life, other than that of every life before.
    pub incarnation: u32,
    /// The virtual switch.
    pub switch: SwitchConfig,
    /// The links.
    pub link: LinkConfig,
    /// Boxes this host may have a link to at a time, 1 to [`MAX_PEERS`].
    pub peers: usize,
    /// After how long an outstanding request is completed with Unsupported Request.
    pub completion_bound: Duration,
    /// How long a device may have no room for what is next for it, behind which everybody else's
    /// waits: it is given up then, and so is all that follows until the device takes something again.
    pub longest_hold: Duration,
    /// Bytes that the flight recorder keeps; 0: there is none.
    pub recorder: usize,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            incarnation: 1,
            switch: SwitchConfig::default(),
            link: LinkConfig::default(),
            peers: 8,
            completion_bound: SYNTHESISED_COMPLETION,
            longest_hold: LONGEST_HOLD,
            recorder: RECORDER_RING,
        }
    }
}

/// A request of the host that a device has not answered yet.
#[derive(Clone, Copy, Debug)]
struct HostRequest {
    info: RequestInfo,
    completer: Bdf,
    /// The port of the device that asked; `None`: the root complex.
    asker: Option<PortId>,
    watched: Option<Watched>,
}

/// What a device's answer to a configuration request tells.
#[derive(Clone, Copy, Debug)]
enum Watched {
    /// That its Command register was written.
    Command(CommandWrite),
    /// What is in one of its base address registers, or that it was written.
    Bar(Bar),
}

impl Watched {
    fn of(packet: &Packet<&mut [u8]>) -> Option<Self> {
        CommandWrite::of(packet).map(Self::Command).or_else(|| Bar::of(packet).map(Self::Bar))
    }
}

/// A write of the root complex to the Command register of a device's function.
#[derive(Clone, Copy, Debug)]
struct CommandWrite {
    function: u8,
    value: u16,
    /// Which bytes of the register's doubleword.
    enables: u8,
}

impl CommandWrite {
    fn of(packet: &Packet<&mut [u8]>) -> Option<Self> {
        const COMMAND: u16 = 0x04;
        let enables = packet.byte_enables().first & 0b11;
        let is_one = packet.tlp_type() == TlpType::CfgWr0
            && !packet.is_poisoned()
            && packet.register() == COMMAND
            && enables != 0
            && packet.payload_len() == 4;
        is_one.then(|| Self {
            function: packet.destination().function().get(),
            value: u16::from_le_bytes([packet.payload()[0], packet.payload()[1]]),
            enables,
        })
    }

    /// Whether it sets Memory Space Enable or Bus Master Enable: the operating system has
    /// enumerated the device and makes use of it.
    fn enables_device(self) -> bool {
        self.enables & 1 != 0 && self.value & 0b110 != 0
    }
}

/// A request of a device that the root complex, or another device, has not answered yet.
#[derive(Clone, Copy, Debug)]
struct DeviceRequest {
    info: RequestInfo,
    /// The binding that asked: a later one never gets its answer.
    key: BindingKey,
    outstanding: OutstandingRef,
    function: usize,
    sampled: bool,
    /// Room on the link that is kept for its completions.
    reserved: u16,
}

counters! {
    struct HostCounters {
        malformed_from_root = "host: malformed TLPs from the root complex",
        malformed_from_device = "host: malformed TLPs from devices",
        unexpected_from_root = "host: unexpected completions from the root complex",
        late_from_root = "host: late completions from the root complex",
        unexpected_from_device = "host: unexpected completions from devices",
        stale_from_device = "host: TLPs from devices from before their reset",
        mismatched_from_device = "host: completions from devices that do not fit their request",
        synthesised = "host: completions synthesised",
        device_requests_timed_out = "host: device requests timed out at the root complex",
        backpressure = "host: TLPs that had to wait for room",
        given_up = "host: TLPs given up for a device that takes nothing",
        function_not_lent = "host: requests to a function that is not lent",
        peer_requests = "host: non-posted requests between devices",
        peer_requester = "host: requests between devices whose requester is not behind its port",
        peer_gone = "host: TLPs between devices whose target went away",
        too_long_for_box = "host: writes of a payload that the device's box does not store",
        broadcasts_lost = "host: broadcast messages lost to a device without room",
        sideband_ignored = "host: sideband records that mean nothing here",
    }
}

/// The host role of a proxy.
pub struct HostRole {
    node: Node,
    switch: VirtualSwitch,
    /// Whether a root complex is there.
    root_complex: bool,
    ports: Box<[Port]>,
    /// The ports, by bit, that are bound, or that were and have something left.
    awake: u32,
    to_root: TlpQueue,
    bounce: TlpQueue,
    scratch: Option<Box<[u8; TLP_BUFFER]>>,
    /// The request of the root complex that was refused last, while its way is the same.
    refused: Option<Refused>,
    turn: usize,
    /// When every request that had waited too long was last completed; nothing if some may have
    /// come since.
    synthesised_at: Option<Instant>,
    /// The ports whose box has still to be told something, by bit.
    with_pending: u32,
    completion_bound: Duration,
    longest_hold: Duration,
    counters: HostCounters,
}

impl HostRole {
    /// Makes the role with everything it will ever need.
    ///
    /// # Errors
    ///
    /// When the switch cannot be made so.
    ///
    /// # Panics
    ///
    /// When the configuration has more peers than [`crate::limits`] allows.
    pub fn new(config: &HostConfig) -> Result<Self, SwitchConfigError> {
        let switch = VirtualSwitch::new(&config.switch)?;
        let ports = config.switch.ports as usize;
        assert!(config.peers <= MAX_PEERS);
        let port = || Port {
            binding: None,
            removal: None,
            failed: false,
            requests: Table::new(HOST_OUTSTANDING),
            upstream: Table::new(ROOT_OUTSTANDING),
            held: Held::new(),
            hold: Hold::default(),
            last: [0; MAX_FUNCTIONS],
            turn: 0,
            pending: Pending::new(),
            flushed: 0,
        };
        Ok(Self {
            node: Node::new(config.incarnation, true, config.peers, config.link, config.recorder),
            switch,
            root_complex: false,
            ports: core::iter::repeat_with(port).take(ports).collect(),
            awake: 0,
            to_root: TlpQueue::new(TO_ROOT),
            bounce: TlpQueue::new(ROOT_RESERVE),
            scratch: Some(Box::new([0; TLP_BUFFER])),
            refused: None,
            turn: 0,
            synthesised_at: None,
            with_pending: 0,
            completion_bound: config.completion_bound,
            longest_hold: config.longest_hold,
            counters: HostCounters::default(),
        })
    }

    /// Downstream ports.
    pub fn port_count(&self) -> u8 {
        self.ports.len() as u8
    }

    /// A root complex came, or went; none is there at first. The manager hears of it and takes the
    /// devices of a host without one back after a while. One that went is also to be told as a
    /// [`ResetKind::Fundamental`] of [`handle_reset`](HostRole::handle_reset), so that the next one
    /// finds the switch as after power-on.
    pub fn set_root_complex(&mut self, present: bool) {
        if core::mem::replace(&mut self.root_complex, present) != present {
            self.node.event(Event::RootComplex { present });
        }
    }

    /// Whether a root complex is there, as far as the role was told.
    pub fn has_root_complex(&self) -> bool {
        self.root_complex
    }

    /// Hot reset or PERST# from the root complex: the switch forgets what was programmed, and
    /// everything below is reset, too.
    pub fn handle_reset(&mut self, now: Instant, kind: ResetKind) {
        self.switch.handle_reset(kind);
        let wanted = match kind {
            ResetKind::Hot => Wanted::HotReset,
            ResetKind::Fundamental => Wanted::Perst,
        };
        for index in 0..self.ports.len() {
            if kind == ResetKind::Fundamental {
                self.ports[index].asks_anew(now);
            }
            // Nobody waits for these any more; devices that asked each other are told.
            let requests = &mut self.ports[index].requests;
            while requests.pop_where(AfterExpiry::Free, |r| r.asker.is_none()).is_some() {}
            let port = PortId::new(index as u8).expect("at most 32 ports");
            self.tell_box(now, port, wanted);
        }
        self.process_switch_events(now);
        self.to_root.clear();
        // The devices learn of it by the records that were just sent, and answer for themselves.
        for port in self.switch.port_ids() {
            self.switch.set_ready(port, true);
        }
        // A root complex that was reset, or is another one, answers nothing it was asked before.
        for index in 0..self.ports.len() {
            self.give_up_on_all(index);
            self.ports[index].upstream.release_quarantine();
            self.ports[index].held.clear();
        }
    }

    /// How many TLPs were given up for a device that takes nothing ([`HostConfig::longest_hold`]).
    pub fn given_up(&self) -> u64 {
        self.counters.given_up
    }

    /// The virtual switch, to look at.
    pub fn switch(&self) -> &VirtualSwitch {
        &self.switch
    }

    /// Every counter with its name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let mut list = CounterList::default();
        list.add_all(&self.counters);
        self.switch.list_counters(&mut list);
        self.node.list_counters(&mut list);
        list.into_iter()
    }

    /// What it has in hand, of all ports and what goes to the root complex.
    pub fn in_hand(&self) -> InHand {
        let waiting =
            [&self.to_root, &self.bounce].iter().filter(|queue| !queue.is_empty()).count();
        let own = InHand { queues: waiting, ..InHand::default() };
        self.ports.iter().fold(own, |sum, port| sum + port.in_hand())
    }

    /// Completes with Unsupported Request what has waited too long or has nobody left to answer
    /// it, as far as there is room towards the root complex.
    fn synthesise(&mut self, now: Instant) {
        if self.synthesised_at == Some(now) {
            return;
        }
        for index in ones(self.awake) {
            while self.to_root.room() > 0 {
                let requests = &mut self.ports[index].requests;
                let Some((_, request)) = requests.pop_expired(now, AfterExpiry::Free) else {
                    break;
                };
                self.refuse(now, &request);
                self.counters.synthesised += 1;
            }
            while let Some((_, request)) =
                self.ports[index].upstream.pop_expired(now, AfterExpiry::Quarantine)
            {
                self.counters.device_requests_timed_out += 1;
                self.keep_room(index, &request, 0);
            }
            if self.ports[index].is_asleep() {
                self.awake &= !(1 << index);
            }
        }
        self.synthesised_at = (self.to_root.room() > 0).then_some(now);
    }

    /// Completes a request with Unsupported Request. There is room towards the root complex.
    fn refuse(&mut self, now: Instant, request: &HostRequest) {
        let status = CplStatus::UnsupportedRequest;
        let mut refusal = request.info.completion(request.completer, status);
        let Some(asker) = request.asker else {
            let pushed = self.to_root.push(&refusal);
            assert!(pushed, "the caller saw room");
            return;
        };
        let packet = Packet::known(&mut refusal[..]);
        if self.send_completion(now, asker, packet).is_err() {
            // Its box answers the device when its own time is over; nothing comes from here.
            let upstream = &mut self.ports[asker.get() as usize].upstream;
            if let Some((reference, &given_up)) = upstream.at_index(request.info.tag.get()) {
                upstream.remove(reference);
                self.keep_room(asker.get() as usize, &given_up, 0);
            }
        }
    }
}

impl Role for HostRole {
    fn set_node(&mut self, node: NodeId) {
        self.node.set_id(node);
    }

    fn handle_frame(&mut self, now: Instant, frame: &[u8]) {
        self.node.handle_frame(now, frame, false);
        self.process_link_events(now);
    }

    fn handle_marked_frame(&mut self, now: Instant, frame: &[u8]) {
        self.node.handle_frame(now, frame, true);
        self.process_link_events(now);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Outgoing> {
        self.send_all_pending(now);
        self.node.poll_transmit(now, buf)
    }

    fn handle_control(&mut self, now: Instant, id: OperationId, term: Term, request: &Request) {
        if self.node.admit(id, term) {
            self.control(now, id, request);
        }
    }

    fn obey(&mut self, term: Term) -> Result<(), ControlError> {
        self.node.obey(term)
    }

    fn control_reconnected(&mut self) {
        self.node.forget_conversation();
        for port in &mut self.ports {
            port.forget_operation();
        }
        self.tell_let_go();
    }

    fn poll_control(&mut self) -> Option<FromProxy> {
        self.outbound()
    }

    fn peer_paths(&self, peer: NodeId) -> &[PathAddress] {
        self.node.peer_paths(peer)
    }

    fn close_links(&mut self, now: Instant) {
        self.node.close_links(now);
    }

    fn is_asked_for_counters(&self) -> bool {
        self.node.is_asked_for_counters()
    }

    fn set_surroundings(&mut self, counters: &[(&'static str, u64)]) {
        self.node.set_surroundings(counters);
    }

    fn poll_log_level(&mut self) -> Option<LogLevel> {
        self.node.poll_log_level()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let mut first = Earliest::NONE;
        // What cannot be said for lack of room waits for room, not for the clock.
        let room = self.to_root.room() > 0;
        for port in ones(self.awake).map(|index| &self.ports[index]) {
            if room {
                first.or(port.requests.earliest_deadline());
            }
            first.or(port.upstream.earliest_deadline());
            first.or(port.removal_deadline());
            first.or(port.settles());
        }
        first.or(self.node.poll_timeout());
        if self.to_root.room() >= ROOT_RESERVE {
            first.or(self.switch.poll_timeout());
        }
        first.get()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
        self.process_link_events(now);
        if self.to_root.room() >= ROOT_RESERVE {
            self.switch.handle_timeout(now, &mut self.to_root);
        }
        self.process_switch_events(now);
        self.continue_removals(now);
        self.settle(now);
        self.synthesise(now);
    }

    fn packet_pool(&self) -> usize {
        self.node.packet_pool()
    }

    fn wants_mark(&self) -> bool {
        self.node.stamps.wants_mark()
    }

    fn mark(&mut self, now: Instant) {
        self.node.stamps.mark(now);
    }
}
