//! A slot, the functions in it, and what is outstanding at them.

use super::config::Access;
use super::erase::{Erase, Erased};
use super::hidden::Hidden;
use super::release::Release;
use super::renewal::Renewal;
use super::{SlotSignal, probe::Probe};
use crate::control::{InventoryEntry, Name, OperationId, SlotBinding, SlotState};
use crate::limits::{
    DEVICE_OUTSTANDING, DEVICE_TAGS, MAX_PAYLOAD_OFFERED, SLOT_FUNCTIONS, TEN_BIT_TAGS,
};
use crate::link::ChannelId;
use crate::node::Target;
use crate::outstanding::{AfterExpiry, RequestInfo, Table};
use crate::queue::TlpQueue;
use crate::role::InHand;
use crate::time::{Earliest, Instant};
use heapless::{Deque, Vec};
use tlp_codec::ids::{Bdf, BindingKey, OutstandingRef, SlotFunction, SlotId};

/// TLPs of the proxy's own that wait for a slot's device. A TLP that makes the proxy answer waits
/// in front of it when there is no room.
pub(super) const EGRESS: usize = DEVICE_OUTSTANDING + 8;

/// Non-posted requests of the proxy itself that a device did not take yet. Further ones wait for room.
const ASKS: usize = 2;

/// Words of a bit for each tag that a function may use.
const TAG_WORDS: usize = if TEN_BIT_TAGS { 1024 / 64 } else { 256 / 64 };

/// Signals that wait to be done to a device. Each operation adds two at most.
const SIGNALS: usize = 8;

/// One slot.
pub(super) struct Slot {
    pub(super) id: SlotId,
    pub(super) model: Name,
    pub(super) present: bool,
    pub(super) functions: Vec<Function, SLOT_FUNCTIONS>,
    /// The highest epoch of functions that were here before: epochs of a slot only grow, whatever
    /// is in it.
    past_epoch: u32,
    /// What the proxy itself sends to the device, but for its requests that are non-posted.
    pub(super) egress: TlpQueue,
    /// Those. The others do not wait behind one for which the device has no room.
    pub(super) asks: TlpQueue,
    pub(super) signals: Deque<SlotSignal, SIGNALS>,
    /// Whether PERST# is held.
    pub(super) perst: bool,
    /// Requests to the device; the index is the device-side tag.
    pub(super) tags: Table<ToDevice>,
    pub(super) work: Work,
    pub(super) access: Access,
    /// Whether a function waits for a tag, or for room, to be given what is the proxy's.
    pub(super) renewal_waits: bool,
    /// Outstanding tables for the functions found by a probe.
    tables: Vec<Table<FromDevice>, SLOT_FUNCTIONS>,
    pub(super) turn: usize,
    /// Error messages of the device that is in it, in the order of
    /// [`Severity::ALL`](crate::switch::errors::Severity::ALL).
    pub(super) errors: [u64; 3],
}

/// What the proxy is doing with a slot's device on its own account, one thing at a time, and beside it
/// only what is in [`Renewal`].
pub(super) enum Work {
    Idle,
    Probe(Probe),
    Release(Release),
    /// A device erases itself.
    Erase(Erase),
}

/// One function of a slot's device.
pub(super) struct Function {
    pub(super) number: SlotFunction,
    pub(super) state: SlotState,
    pub(super) facts: Facts,
    pub(super) highest_epoch: u32,
    /// The ID that its host last wrote to it under.
    pub(super) id: Option<Bdf>,
    pub(super) binding: Option<Binding>,
    /// Requests of the device; the index goes on the wire.
    pub(super) requests: Table<FromDevice>,
    /// Device tags in use, by number.
    tags_in_use: [u64; TAG_WORDS],
    /// The release that waits for its turn or goes on, and who wants to know.
    pub(super) release: Pending,
    pub(super) release_operation: Option<OperationId>,
    pub(super) renewal: Renewal,
    /// Its host put it into D3hot.
    pub(super) asleep: bool,
    /// What its host has written to its Device Control 2 since the last reset.
    pub(super) control_2: HostControl2,
    /// Its last erasure, until it is lent again.
    pub(super) erased: Option<Erased>,
}

/// What a host has written to a function's Device Control 2 since the function was reset, without the
/// proxy's fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostControl2(u16);

impl HostControl2 {
    /// Completion timeout, and 10-Bit Tag Requester Enable: the proxy's.
    pub(super) const OWNED: u16 = 0x101f;

    /// The host writes the bytes of the register that are enabled.
    pub(super) fn note(&mut self, enables: u8, bytes: [u8; 2]) {
        let mask = u16::from_le_bytes([0, 1].map(|n| 0xff * (enables >> n & 1)));
        self.0 = self.0 & !mask | u16::from_le_bytes(bytes) & mask;
    }

    /// The register with what is the proxy's set so.
    pub(super) fn with(self, owned: u16) -> u16 {
        self.0 & !Self::OWNED | owned
    }
}

/// What a function's release waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Nothing: there is none, or it goes on.
    Nothing,
    /// Its turn.
    Turn,
    /// A reset of the whole device, which cannot be done while another function is lent.
    Reset,
    /// Its turn; the device was reset meanwhile, and what is left is to see whether it is ready.
    Readiness,
}

/// How much a BAR maps: a power of two, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BarSize {
    /// The power, plus one; 0 is nothing.
    power: u8,
}

impl BarSize {
    /// What a BAR maps in which the bits of `mask` can be written (PCIe 5.0 section 7.5.1.2.1): as many
    /// bytes as the lowest of them says.
    pub(super) fn of(mask: u64) -> Self {
        Self { power: if mask == 0 { 0 } else { mask.trailing_zeros() as u8 + 1 } }
    }

    pub(super) fn bytes(self) -> u64 {
        self.power.checked_sub(1).map_or(0, |power| 1 << power)
    }
}

/// What configuration space says of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) id: (u16, u16),
    pub(super) subsystem: (u16, u16),
    pub(super) class: u32,
    pub(super) revision: u8,
    pub(super) serial: u64,
    pub(super) bars: [BarSize; 6],
    pub(super) pcie_capability: u16,
    pub(super) function_level_reset: bool,
    /// Where its power state is, if it resets itself when it leaves D3hot (no No_Soft_Reset); else 0.
    pub(super) power_control: u8,
    /// Device Capabilities 2, bits 4:0: completion timeout ranges and disable.
    pub(super) timeout_support: u8,
    /// Device Capabilities 2, bit 17: it can use 10-bit tags.
    pub(super) ten_bit_tags: bool,
    /// Capabilities that hosts do not see.
    pub(super) hidden: Hidden,
}

impl Facts {
    /// Whether it uses 10-bit tags.
    pub(super) fn uses_ten_bit_tags(&self) -> bool {
        TEN_BIT_TAGS && self.ten_bit_tags
    }

    /// What a host sees where the function says `value`: no capability that is hidden, and no
    /// larger payload than its box stores.
    pub(super) fn shown(&self, register: u16, value: u32) -> u32 {
        /// Max_Payload_Size Supported, of Device Capabilities (PCIe 5.0 section 7.5.3.3).
        const PAYLOAD: u32 = 0b111;
        const MOST: u32 = MAX_PAYLOAD_OFFERED.trailing_zeros() - 7;
        if self.pcie_capability != 0 && register == self.pcie_capability + 0x04 {
            return value & !PAYLOAD | (value & PAYLOAD).min(MOST);
        }
        self.hidden.shown(register, value)
    }
}

/// A binding of a function.
pub(super) struct Binding {
    pub(super) request: SlotBinding,
    pub(super) peer: usize,
    pub(super) channel: ChannelId,
}

/// A request on its way to the device.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToDevice {
    /// Of the host that a function is lent to.
    Host {
        function: usize,
        key: BindingKey,
        outstanding: OutstandingRef,
        info: RequestInfo,
        /// The register that a configuration read is for.
        register: Option<u16>,
        sampled: bool,
        /// The function was reset since, and will not answer it.
        void: bool,
    },
    /// Of the proxy itself, to a function, if there is one of that number.
    Own(Option<usize>),
    /// As that, and the proxy does not wait for it any more: a device that was only slow still answers it.
    Abandoned(Option<usize>),
}

impl ToDevice {
    /// Whether the host that a function is lent to asked for it.
    pub(super) fn is_of(&self, function: usize) -> bool {
        matches!(self, Self::Host { function: asked, .. } if *asked == function)
    }

    /// Whether it is for a function, whoever asked.
    pub(super) fn is_for(&self, function: usize) -> bool {
        match self {
            Self::Host { function: asked, .. } => *asked == function,
            Self::Own(asked) => *asked == Some(function),
            Self::Abandoned(_) => false,
        }
    }

    /// Whether it was for a function before its reset, and the host asked for it.
    pub(super) fn is_void(&self, function: usize) -> bool {
        matches!(self, Self::Host { function: asked, void: true, .. } if *asked == function)
    }

    /// Under whose ID the device is asked: the proxy's own is 00:00.0.
    pub(super) fn requester(&self) -> Bdf {
        match self {
            Self::Host { info, .. } => info.requester,
            Self::Own(_) | Self::Abandoned(_) => Bdf::default(),
        }
    }
}

/// A request of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct FromDevice {
    pub(super) info: RequestInfo,
}

impl Slot {
    pub(super) fn new(id: SlotId) -> Self {
        let mut tables = Vec::new();
        for _ in 0..SLOT_FUNCTIONS {
            let _ = tables.push(Table::new(DEVICE_OUTSTANDING));
        }
        Self {
            id,
            model: Name::new(),
            present: false,
            functions: Vec::new(),
            past_epoch: 0,
            egress: TlpQueue::new(EGRESS),
            asks: TlpQueue::new(ASKS),
            signals: Deque::new(),
            perst: false,
            tags: Table::new(DEVICE_TAGS),
            work: Work::Idle,
            access: Access::default(),
            renewal_waits: false,
            tables,
            turn: 0,
            errors: [0; 3],
        }
    }

    pub(super) fn insert(&mut self, model: Name) {
        self.remove();
        self.model = model;
        self.present = true;
    }

    pub(super) fn remove(&mut self) {
        self.forget_functions();
        self.present = false;
        self.model = Name::new();
        self.egress.clear();
        self.asks.clear();
        self.signals.clear();
        self.perst = false;
        self.tags.clear();
        self.work = Work::Idle;
        self.access = Access::default();
        self.errors = [0; 3];
    }

    /// What was found in it is not there any more, or was not all of it. The next ones have the tables.
    pub(super) fn forget_functions(&mut self) {
        while let Some(mut function) = self.functions.pop() {
            function.requests.clear();
            self.past_epoch = self.past_epoch.max(function.highest_epoch);
            let _ = self.tables.push(function.requests);
        }
    }

    /// Adds a function that a probe found: nobody is lent it before the probe is over, which has more
    /// to write to it. `false` when there is no room for it.
    pub(super) fn add_function(&mut self, number: SlotFunction, facts: Facts) -> bool {
        let Some(requests) = self.tables.pop() else { return false };
        let function = Function {
            number,
            state: SlotState::Probing,
            facts,
            highest_epoch: self.past_epoch,
            id: None,
            binding: None,
            requests,
            tags_in_use: [0; TAG_WORDS],
            release: Pending::Nothing,
            release_operation: None,
            renewal: Renewal::default(),
            asleep: false,
            control_2: HostControl2::default(),
            erased: None,
        };
        self.functions.push(function).is_ok()
    }

    /// What it has in hand.
    pub(super) fn in_hand(&self) -> InHand {
        let spare = self.tables.iter().map(Table::live);
        let of = |function: &Function| {
            let tags: u32 = function.tags_in_use.iter().map(|word| word.count_ones()).sum();
            function.requests.live().max(tags as usize)
        };
        InHand {
            to_devices: self.tags.live(),
            from_devices: self.functions.iter().map(of).chain(spare).sum(),
            set_aside: 0,
            queues: [&self.egress, &self.asks].iter().filter(|queue| !queue.is_empty()).count(),
        }
    }

    /// Wants something done to the device beside TLPs: each is or ends a reset, which ends what the
    /// device asked for and what it was asked. What it has not taken of that must not come after it.
    pub(super) fn signal(&mut self, signal: SlotSignal) {
        self.egress.clear();
        self.asks.clear();
        self.free_tags(true);
        self.forget_unbound();
        if self.signals.back() == Some(&signal) {
            // Twice in a row is once.
            return;
        }
        if self.signals.is_full() {
            self.signals.pop_front();
        }
        let _ = self.signals.push_back(signal);
    }

    /// The proxy waits no longer for what it asked under this tag.
    pub(super) fn abandon(&mut self, tag: u16) {
        let found = self.tags.at_index(tag).map(|(reference, _)| reference);
        let request = match found {
            Some(reference) => self.tags.get_mut(reference),
            // A box that stood still has let its time run out first.
            None => self.tags.late_mut(tag),
        };
        if let Some(request) = request
            && let ToDevice::Own(function) = *request
        {
            *request = ToDevice::Abandoned(function);
        }
    }

    /// The reset of a function is over: it does not answer any more what it was asked before.
    pub(super) fn forget_abandoned(&mut self, function: usize) {
        // Before a function was found it has no place yet: of a lone one that was this one.
        let lone = self.functions.len() == 1;
        let is_over = |request: &ToDevice| match request {
            ToDevice::Abandoned(asked) => asked.map_or(lone, |asked| asked == function),
            _ => false,
        };
        self.tags.release_quarantine_where(is_over);
        while self.tags.pop_where(AfterExpiry::Free, is_over).is_some() {}
    }

    /// So much of the answer to a host's request is still to come.
    pub(super) fn owes(&mut self, reference: OutstandingRef, rest: RequestInfo) {
        if let Some(ToDevice::Host { info, .. }) = self.tags.get_mut(reference) {
            *info = rest;
        }
    }

    /// A function is reset by its host: what it was asked before it will not answer.
    pub(super) fn forget_before_reset(&mut self, function: usize) {
        self.tags.for_each(|request| match request {
            ToDevice::Host { function: asked, void, .. } => *void |= *asked == function,
            ToDevice::Own(asked) if *asked == Some(function) => {
                *request = ToDevice::Abandoned(*asked);
            }
            ToDevice::Own(_) | ToDevice::Abandoned(_) => {}
        });
    }

    /// Requests of functions that nobody has end here: the device was reset and waits for nothing.
    pub(super) fn forget_unbound(&mut self) {
        for function in self.functions.iter_mut().filter(|f| f.binding.is_none()) {
            function.forget_requests();
        }
    }

    /// The device is reset before the next TLP comes to it, or was (not `just` now): no late answer can
    /// come under an old tag. Nobody waits for what the proxy asked, or the host of a binding that is
    /// over; the others' end as their bindings do, and the write of a
    /// [`Renewal`] with its answer.
    pub(super) fn free_tags(&mut self, just: bool) {
        let Self { functions, tags, .. } = self;
        let is_own_over = |function: &Option<usize>| {
            let asked = function.and_then(|function| functions.get(function));
            just || !asked.is_some_and(|function| function.renewal.writes())
        };
        // What was given up on was asked after the reset before this one.
        tags.release_quarantine_where(|request| match request {
            ToDevice::Host { .. } => true,
            ToDevice::Own(function) => is_own_over(function),
            ToDevice::Abandoned(_) => just,
        });
        let is_over = |request: &ToDevice| match request {
            ToDevice::Host { function, key, .. } => {
                let binding = &functions[*function].binding;
                binding.as_ref().is_none_or(|binding| binding.request.key != *key)
            }
            ToDevice::Own(function) => is_own_over(function),
            ToDevice::Abandoned(_) => just,
        };
        while tags.pop_where(AfterExpiry::Free, is_over).is_some() {}
    }

    pub(super) fn target(&self, function: usize) -> Option<Target> {
        let binding = self.functions.get(function)?.binding.as_ref()?;
        let (node, key) = (binding.request.host, binding.request.key);
        Some(Target { peer: binding.peer, node, channel: binding.channel, key })
    }

    pub(super) fn bound_functions(&self) -> usize {
        self.functions.iter().filter(|f| f.binding.is_some()).count()
    }

    pub(super) fn function_index(&self, number: u16) -> Option<usize> {
        self.functions.iter().position(|f| f.number.get() == number)
    }

    /// Number and state of the n-th function, or of function 0 of a slot where none was found.
    pub(super) fn function_state(&self, index: usize) -> (SlotFunction, SlotState) {
        match self.functions.get(index) {
            Some(function) => (function.number, function.state),
            None => {
                let state = match (&self.work, self.present) {
                    (_, false) => SlotState::Empty,
                    (Work::Probe(_), true) => SlotState::Probing,
                    (_, true) => SlotState::Quarantined,
                };
                (SlotFunction::ZERO, state)
            }
        }
    }

    pub(super) fn forget_operations(&mut self) {
        for function in &mut self.functions {
            function.release_operation = None;
        }
    }

    pub(super) fn poll_timeout(&self, first: &mut Earliest) {
        // What cannot be said for lack of room waits for room, not for the clock.
        if self.has_room_to_answer() {
            self.functions.iter().for_each(|f| first.or(f.requests.earliest_deadline()));
        }
        first.or(self.tags.earliest_deadline());
        first.or(self.work_deadline());
        self.renewal_deadline(first);
    }

    fn work_deadline(&self) -> Option<Instant> {
        match self.work {
            Work::Idle => None,
            _ if self.access.is_to_send() && self.tags.has_room() && self.has_room_for_own() => {
                Some(Instant::ZERO)
            }
            _ => self.access.deadline(),
        }
    }

    /// Whether a request of the device that has run out of time can be answered.
    pub(super) fn has_room_to_answer(&self) -> bool {
        self.egress.room() > 1
    }

    /// Whether the proxy's own next request has room, whichever class it is of.
    pub(super) fn has_room_for_own(&self) -> bool {
        self.egress.room() > 0 && self.asks.room() > 0
    }

    pub(super) fn inventory(&self, index: usize) -> Option<InventoryEntry> {
        let (function, state) = self.function_state(index);
        let none = Facts::default();
        let entry = self.functions.get(index);
        if entry.is_none() && index > 0 {
            return None;
        }
        let facts = entry.map_or(&none, |f| &f.facts);
        Some(InventoryEntry {
            slot: self.id,
            function,
            state,
            model: self.model.clone(),
            id: facts.id,
            subsystem: facts.subsystem,
            class: facts.class,
            revision: facts.revision,
            serial: facts.serial,
            bars: facts.bars.map(BarSize::bytes),
            highest_epoch: self.highest_epoch(index),
        })
    }

    /// The highest epoch that the function at a place has had; of an empty slot, that what was in it had.
    pub(super) fn highest_epoch(&self, index: usize) -> u32 {
        self.functions.get(index).map_or(self.past_epoch, |f| f.highest_epoch)
    }
}

impl Function {
    /// Whether the function may give a request this tag.
    pub(super) fn may_use_tag(&self, tag: u16) -> bool {
        let tags = if self.facts.uses_ten_bit_tags() { 1024 } else { 256 };
        tag < tags && !self.tag_in_use(tag)
    }

    fn tag_in_use(&self, tag: u16) -> bool {
        self.tags_in_use[tag as usize / 64] >> (tag % 64) & 1 != 0
    }

    /// The function was reset: nothing waits for what it asked for.
    pub(super) fn forget_requests(&mut self) {
        while self.requests.pop_where(AfterExpiry::Free, |_| true).is_some() {}
        self.forget_tags();
    }

    /// Whatever tag it gives its next request is a new one.
    pub(super) fn forget_tags(&mut self) {
        self.tags_in_use = [0; TAG_WORDS];
    }

    pub(super) fn set_tag(&mut self, tag: u16, in_use: bool) {
        let bit = 1 << (tag % 64);
        let word = &mut self.tags_in_use[tag as usize / 64];
        *word = if in_use { *word | bit } else { *word & !bit };
    }
}
