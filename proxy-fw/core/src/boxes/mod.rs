//! The box role: what a proxy beside devices does.
//!
//! Each slot is a private hierarchy with a device at its end; towards the device the proxy is the
//! port above it. A function of a slot is lent to one host at a time, under an epoch. Requests of
//! the host take a device-side tag of the slot's own; requests of the device pass its DMA windows
//! and become entries of the function's outstanding table. The proxy looks at a new device by
//! itself (inventory), and takes a released one through reset and readiness test before it is
//! lent again; what fails is quarantined.

mod config;
mod control;
mod erase;
mod from_device;
mod hidden;
mod nvme;
mod probe;
mod release;
mod renewal;
mod sideband;
mod slot;
mod to_device;
pub mod windows;

use crate::control::{
    BindingFailure, ControlError, Event, FromProxy, LogLevel, Name, OperationId, PathAddress,
    Request, SlotState, Term,
};
use crate::counters::{CounterList, counters};
use crate::limits::{
    COMPLETION_TIMEOUT, MAX_PEERS, MAX_SLOTS, RECORDER_RING, SYNTHESISED_COMPLETION, TLP_BUFFER,
};
use crate::link::{LinkConfig, LinkEvent};
use crate::node::{Node, Target};
use crate::role::{InHand, Outgoing, Role};
use crate::switch::errors::Severity;
use crate::time::{Earliest, Instant};
use alloc::boxed::Box;
pub use config::ANSWER_BOUND;
use core::fmt::Write as _;
use core::time::Duration;
use slot::Slot;
use tlp_codec::ids::{NodeId, SlotId};

/// How a box role is made.
#[derive(Clone, Debug)]
pub struct BoxConfig {
    /// Number of this life, other than that of every life before.
    pub incarnation: u32,
    /// Slots, 1 to [`MAX_SLOTS`], numbered from 1.
    pub slots: usize,
    /// The links.
    pub link: LinkConfig,
    /// Hosts this box may have a link to at a time, 1 to [`MAX_PEERS`].
    pub peers: usize,
    /// After how long an outstanding request is completed with Unsupported Request.
    pub completion_bound: Duration,
    /// Bytes that the flight recorder keeps; 0: there is none.
    pub recorder: usize,
    /// Smallest completion timeout that a device is set to.
    pub completion_timeout: Duration,
    /// How long a device may take to answer after reset.
    pub readiness_bound: Duration,
    /// How long a function-level or hot reset takes before the device is asked again (PCIe 5.0
    /// section 6.6: 100 ms).
    pub reset_time: Duration,
}

impl Default for BoxConfig {
    fn default() -> Self {
        Self {
            incarnation: 1,
            slots: 4,
            link: LinkConfig::default(),
            peers: 8,
            completion_bound: SYNTHESISED_COMPLETION,
            recorder: RECORDER_RING,
            completion_timeout: COMPLETION_TIMEOUT,
            readiness_bound: Duration::from_millis(1500),
            reset_time: Duration::from_millis(100),
        }
    }
}

/// What the proxy does to a device beside sending TLPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotSignal {
    /// A hot reset through the link, held as long as PCIe asks for.
    HotReset,
    /// The PERST# wire goes low (asserted) or high.
    Perst {
        /// Whether it is asserted.
        asserted: bool,
    },
}

counters! {
    struct BoxCounters {
        malformed_from_device = "box: malformed TLPs from devices",
        malformed_from_host = "box: malformed TLPs from hosts",
        unexpected_from_device = "box: unexpected completions from devices",
        late_from_device = "box: late completions from devices",
        mismatched_from_device = "box: completions from devices that do not fit their request",
        unexpected_from_host = "box: unexpected completions from hosts",
        synthesised_for_device = "box: completions synthesised for devices",
        device_silent = "box: requests that a device did not answer",
        no_tag_left = "box: requests refused: a silent device has all tags",
        unbound_posted = "box: posted TLPs of functions that are not lent",
        unbound_non_posted = "box: non-posted requests of functions that are not lent",
        window_posted = "box: writes outside every DMA window",
        window_non_posted = "box: reads outside every DMA window",
        translated = "box: requests with a translated address",
        tag_reused = "box: requests with a tag that is in use",
        not_a_devices = "box: requests that no device may make",
        backpressure = "box: TLPs that had to wait for room",
        quarantined = "box: functions quarantined",
        config_writes_owned = "box: configuration writes to fields that the proxy owns",
        before_reset = "box: TLPs from devices that are to be reset",
        resets_refused = "box: resets of a device that several hosts share",
        sideband_ignored = "box: sideband records that mean nothing here",
    }
}

/// The box role of a proxy.
pub struct BoxRole {
    node: Node,
    slots: Box<[Slot]>,
    config: BoxConfig,
    counters: BoxCounters,
    /// Where a TLP is changed that its owner keeps.
    scratch: Box<[u8; TLP_BUFFER]>,
}

impl BoxRole {
    /// Makes the role with everything it will ever need. All slots are empty.
    ///
    /// # Panics
    ///
    /// When the configuration has more slots or peers than [`crate::limits`] allows.
    pub fn new(config: &BoxConfig) -> Self {
        assert!((1..=MAX_SLOTS).contains(&config.slots), "a box has 1 to {MAX_SLOTS} slots");
        assert!(config.peers <= MAX_PEERS);
        let slot = |number: u8| Slot::new(SlotId::new(number).expect("any number is a slot"));
        Self {
            node: Node::new(config.incarnation, false, config.peers, config.link, config.recorder),
            slots: (1..=config.slots as u8).map(slot).collect(),
            config: config.clone(),
            counters: BoxCounters::default(),
            scratch: Box::new([0; TLP_BUFFER]),
        }
    }

    /// The slots' numbers.
    pub fn slots(&self) -> impl Iterator<Item = SlotId> + use<> {
        (1..=self.slots.len() as u8).map(|n| SlotId::new(n).expect("any number is a slot"))
    }

    fn slot_index(&self, slot: SlotId) -> Option<usize> {
        let index = (slot.get() as usize).checked_sub(1)?;
        (index < self.slots.len()).then_some(index)
    }

    /// A device is in the slot from now on, under a model name of the box's configuration. It is
    /// reset and looked at before it is lent.
    ///
    /// # Panics
    ///
    /// When there is no such slot.
    pub fn device_inserted(&mut self, now: Instant, slot: SlotId, model: Name) {
        let index = self.slot_index(slot).expect("a slot of this box");
        self.slots[index].insert(model);
        self.start_probe(now, index);
    }

    /// The device is gone from the slot, without a word. Its bindings fail.
    ///
    /// # Panics
    ///
    /// When there is no such slot.
    pub fn device_removed(&mut self, now: Instant, slot: SlotId) {
        let index = self.slot_index(slot).expect("a slot of this box");
        for function in 0..self.slots[index].functions.len() {
            // Their hosts hear that the bindings are over.
            self.fail_function(now, index, function, BindingFailure::DeviceGone);
        }
        self.abandon_work(index);
        self.slots[index].remove();
        self.report_slot(index);
    }

    /// What the proxy does to the device in a slot beside TLPs. To be done in order with
    /// [`BoxRole::poll_tlp`]'s TLPs: signals first.
    pub fn poll_signal(&mut self, slot: SlotId) -> Option<SlotSignal> {
        let index = self.slot_index(slot)?;
        self.slots[index].signals.pop_front()
    }

    /// Every counter with its name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let mut list = CounterList::default();
        list.add_all(&self.counters);
        self.node.list_counters(&mut list);
        list.into_iter()
    }

    /// What it has in hand, of all slots.
    pub fn in_hand(&self) -> InHand {
        self.slots.iter().fold(InHand::default(), |sum, slot| sum + slot.in_hand())
    }

    /// Error messages of the devices in the slots (PCI Express Base Specification 4.0, section
    /// 2.2.8.3), with their names: places for all that there may be, and those that there were.
    pub(crate) fn device_errors(&self) -> impl Iterator<Item = Option<(Name, u64)>> {
        self.slots.iter().flat_map(|slot| {
            Severity::ALL.into_iter().zip(slot.errors).map(|(severity, count)| {
                let mut name = Name::new();
                write!(name, "slot {}: {} errors", slot.id, severity.name()).expect("it is short");
                (count > 0).then_some((name, count))
            })
        })
    }

    fn report_slot(&mut self, index: usize) {
        let slot = self.slots[index].id;
        for function in 0..self.slots[index].functions.len().max(1) {
            let (number, state) = self.slots[index].function_state(function);
            self.node.event(Event::Slot { slot, function: number, state });
        }
    }

    fn process_link_events(&mut self, now: Instant) {
        while let Some((peer, event)) = self.node.poll_link_event() {
            let node = self.node.peer_node(peer);
            match event {
                LinkEvent::Up => self.node.event_for(node, |peer| Event::LinkUp { peer }),
                LinkEvent::Down(reason) => {
                    self.node.event_for(node, |peer| Event::LinkDown { peer, reason });
                    self.fail_where(now, BindingFailure::LinkDown, |t| t.peer == peer);
                }
                LinkEvent::PathLost(path) => {
                    self.node.event_for(node, |peer| Event::PathLost { peer, path });
                }
                LinkEvent::PathFound(path) => {
                    self.node.event_for(node, |peer| Event::PathFound { peer, path });
                }
                LinkEvent::ChannelFailed { key, reason, .. } => {
                    self.fail_where(now, reason, |t| t.peer == peer && t.key == key);
                }
            }
        }
        for peer in self.node.known() {
            while let Some(taken) = self.node.link(peer).poll_sideband() {
                self.handle_sideband(now, peer, taken);
            }
        }
    }

    fn find(&self, which: impl Fn(&Target) -> bool) -> Option<(usize, usize)> {
        (0..self.slots.len()).find_map(|s| {
            let slot = &self.slots[s];
            let wanted = |f: &usize| slot.target(*f).is_some_and(|t| which(&t));
            (0..slot.functions.len()).find(wanted).map(|f| (s, f))
        })
    }

    fn fail_where(
        &mut self,
        now: Instant,
        reason: BindingFailure,
        which: impl Fn(&Target) -> bool,
    ) {
        while let Some((slot, function)) = self.find(&which) {
            self.fail_function(now, slot, function, reason);
        }
    }

    /// A binding is dead: its channel is closed at once, so that nothing of it reaches anybody,
    /// and the function goes through release before it is lent again.
    fn fail_function(
        &mut self,
        now: Instant,
        slot: usize,
        function: usize,
        reason: BindingFailure,
    ) {
        let Some(target) = self.slots[slot].target(function) else { return };
        self.node.event(Event::BindingFailed { peer: target.node, key: target.key, reason });
        self.unlink(now, slot, function);
        self.set_state(slot, function, SlotState::Releasing);
        self.start_release(now, slot, function, None);
    }

    fn set_state(&mut self, slot: usize, function: usize, state: SlotState) {
        let number = {
            let entry = &mut self.slots[slot].functions[function];
            entry.state = state;
            entry.number
        };
        if state == SlotState::Quarantined {
            self.counters.quarantined += 1;
        }
        let slot = self.slots[slot].id;
        self.node.event(Event::Slot { slot, function: number, state });
    }
}

impl Role for BoxRole {
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
        for slot in &mut self.slots {
            slot.forget_operations();
        }
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
        self.slots.iter().for_each(|slot| slot.poll_timeout(&mut first));
        first.or(self.node.poll_timeout());
        first.get()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
        self.process_link_events(now);
        for slot in 0..self.slots.len() {
            self.expire(now, slot);
            self.continue_renewal(now, slot);
            self.continue_work(now, slot);
        }
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
