//! What becomes of one device: operations that lend it and take it back, its erasure, and hands
//! that pull it out and put it back, in its slot or in another one.
//!
//! The binding's way between the proxies is the other model's ([`crate::Protocol`]); here each step
//! of it is one thing that happens or fails. What has ended does not count in a state, so that the
//! states are finite without bounds.

use crate::records::{box_name, host_name, node};
use manager::control::Registry;
use manager::erasure::owed::{self, Seen};
use manager::erasure::{self, request};
use manager::operations::{self, ReleaseMode, ReleaseTarget, Terms, asking, overdue, progress};
use manager::planner::{Everybody, PlanRequest};
use manager::reconcile::action::{self, Action, Ends};
use manager::reconcile::compare;
use manager::records::{Tables, Txn};
use manager::types::{
    BindingId, BindingRecord, DeviceRecord, DeviceState, EraseMeans, EraseRule, ErasureRecord,
    ErasureState, NodeRecord, OperationRecord, OperationState, Problem, ProblemCode, Role,
    SlotAddress, SlotStatus,
};
use proxy_core::control::{InventoryEntry, Name, PathSet, SlotEntry, SlotState};
use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tlp_codec::ids::{Epoch, SlotFunction, SlotId};

/// The device's serial number.
const SERIAL: u64 = 7;

/// Slots of the box.
const SLOTS: [u8; 2] = [1, 2];

/// The life of both proxies.
const LIFE: u32 = 1;

/// A mistake that is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgetful {
    /// A device that is pulled before it is erased is taken as it is.
    WaivesWhatIsPulled,
    /// What erases goes by the records, not by what the box reports.
    ErasesByTheRecords,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// Somebody wants the device.
    Allocate,
    /// It is to be taken back, by force or not.
    Release(bool),
    /// The running operation that began first, or last, is called back.
    Cancel(bool),
    /// Its time is over.
    Expire(bool),
    /// The operating system does not enable the device in time.
    NotEnumerated,
    /// What is next for the binding is done.
    Goes,
    /// The operating system is about to be asked to let go.
    Asking,
    /// What is next for the binding is refused for good.
    Refused,
    /// The binding fails.
    Fails,
    /// The operating system enables the device.
    Configured,
    /// The device fails its reset when it is taken back.
    Quarantined,
    /// The quarantined device is good again.
    Recovered,
    /// The device is erased, or cannot be.
    Erased(bool),
    /// Somebody wants it erased now.
    EraseNow,
    /// Somebody takes it as it is.
    Waive,
    /// Somebody pulls it.
    Pull,
    /// Somebody puts it into a slot.
    Insert(u8),
    /// The box's connection ends while nothing is lent.
    Leave,
    /// The box is connected again.
    Return,
}

/// From which state to which, by their texts, and how often.
pub type Made = BTreeMap<(String, String), u64>;

/// The model.
#[derive(Debug, Default)]
pub struct Lifecycle {
    /// A mistake that is planted.
    pub mistake: Option<Forgetful>,
    /// What operations did.
    pub operations: Mutex<Made>,
    /// What erasures did.
    pub erasures: Mutex<Made>,
}

/// Everything at one moment.
#[derive(Clone)]
pub struct Moment {
    tables: Arc<Tables>,
    /// In which slot the device is.
    place: Option<u8>,
    /// Whether the box is away: nobody sees what is done to its slots.
    away: bool,
    /// Whose data is on it: of the binding that had it last.
    data_of: Option<BindingId>,
    digest: String,
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Moment {}

impl Hash for Moment {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.digest)
    }
}

fn rules() -> [EraseRule; 1] {
    let means = EraseMeans::ALL.to_vec();
    [EraseRule { class: None, model: None, means, hook: None, within_s: 1, required: true }]
}

fn address(slot: u8) -> SlotAddress {
    let slot = SlotId::new(slot).expect("any number is a slot");
    SlotAddress::new(box_name(), slot).expect("boxes have it")
}

fn lent(tables: &Tables) -> Option<BindingRecord> {
    tables.bindings().values().next().cloned()
}

/// The running operation that began first or last.
fn running(tables: &Tables, last: bool) -> Option<OperationRecord> {
    let mut all = tables.running().cloned();
    if last { all.last() } else { all.next() }
}

fn open(tables: &Tables) -> Option<ErasureRecord> {
    tables.unerased().next().map(|erasure| ErasureRecord::clone(erasure))
}

impl Moment {
    fn first() -> Self {
        let mut txn = Txn::new(Tables::default());
        for (index, name, role, size) in
            [(0, box_name(), Role::Box, SLOTS.len() as u8), (1, host_name(0), Role::Host, 1)]
        {
            let (node, now) = (node(index), txn.now());
            txn.put_node(NodeRecord::new(name, node, role, size, now));
        }
        look(&mut txn, Some(SLOTS[0]));
        Self::of(txn.into_tables(), Some(SLOTS[0]), false, None)
    }

    fn of(tables: Tables, place: Option<u8>, away: bool, data_of: Option<BindingId>) -> Self {
        let binding = lent(&tables);
        let own = data_of.is_some() && data_of == binding.as_ref().map(|b| b.id);
        let operations: Vec<_> = tables
            .running()
            .map(|o| {
                let steps: Vec<_> =
                    o.steps.iter().map(|s| (s.name, s.state, s.asked.is_some())).collect();
                let undoes = o.error.as_ref().map(|problem| problem.code);
                (std::mem::discriminant(&o.what), o.state, steps, undoes)
            })
            .collect();
        let of_binding =
            binding.as_ref().map(|b| (&b.slot, b.phase, b.desired, b.operation.is_some()));
        let devices: Vec<_> =
            tables.devices().values().map(|d| (&d.address, d.state, d.serial)).collect();
        let erasures: Vec<_> = tables
            .unerased()
            .map(|e| {
                let own = e.binding.is_some() && e.binding == binding.as_ref().map(|b| b.id);
                (e.state, &e.slot, e.operation.is_some(), own)
            })
            .collect();
        let data = (data_of.is_some(), own);
        let digest = format!(
            "{place:?} {away} {data:?} {of_binding:?} {operations:?} {devices:?} {erasures:?}"
        );
        Self { tables: Arc::new(tables), place, away, data_of, digest }
    }

    /// Whether the device has somebody's data and somebody else could get it.
    fn is_exposed(&self) -> bool {
        let (Some(place), Some(of)) = (self.place, self.data_of) else { return false };
        let slot = address(place);
        match self.tables.binding_at_slot(&slot) {
            Some(binding) => binding.phase.at_box() && binding.id != of,
            None => self.tables.slot_status(&slot) == SlotStatus::Free,
        }
    }

    /// Whether what ended has something left to do, or what is lent belongs to what ended.
    fn has_loose_ends(&self) -> bool {
        let ended = |o: &OperationRecord| o.state.is_final();
        let pending = |o: &OperationRecord| {
            o.steps.iter().any(|s| s.state == manager::types::StepState::Pending)
        };
        self.tables.operations().values().any(|o| ended(o) && pending(o))
            || self.tables.bindings().values().any(|b| {
                let of = b.operation.and_then(|id| self.tables.operations().get(&id));
                of.is_some_and(&ended)
            })
    }
}

/// Has the box report what is in its slots.
fn look(txn: &mut Txn, place: Option<u8>) {
    let before = Tables::clone(txn);
    let binding = lent(txn).filter(|binding| binding.phase.at_box());
    let own = |slot: u8| binding.as_ref().filter(|b| b.slot == address(slot));
    let state = |slot: u8| match (place == Some(slot), own(slot)) {
        (false, _) => SlotState::Empty,
        (true, Some(_)) => SlotState::Bound,
        (true, None) => SlotState::Free,
    };
    let highest = |slot: u8| {
        let function = SlotFunction::ZERO;
        let address = manager::types::FunctionAddress { slot: address(slot), function };
        before.highest_epoch(&address).map_or(0, Epoch::bits)
    };
    let there = |slot: u8| u16::from(place == Some(slot));
    let inventory = SLOTS.map(|slot| InventoryEntry {
        slot: address(slot).slot(),
        function: SlotFunction::ZERO,
        state: state(slot),
        model: Name::try_from("device").expect("it is short"),
        id: (there(slot), there(slot)),
        subsystem: (0, 0),
        class: 0x01_0802,
        revision: 0,
        serial: SERIAL * u64::from(there(slot)),
        bars: [0; 6],
        highest_epoch: highest(slot),
    });
    let table = SLOTS.map(|slot| SlotEntry {
        entry: u16::from(slot) - 1,
        valid: place == Some(slot),
        used: own(slot).is_some(),
        state: state(slot),
        slot: address(slot).slot(),
        function: SlotFunction::ZERO,
        host_node: own(slot).map_or(0, |_| node(1).get()),
        path_set: PathSet::FIRST,
        epoch: own(slot).map_or(highest(slot), |b| b.port_epoch().bits()),
        windows: Default::default(),
    });
    compare::box_tables(txn, &before, &box_name(), LIFE, &inventory, &table, &rules());
}

/// What the box reports of a slot; nothing if it is away. That a device is quarantined only the
/// records say.
fn reported(tables: &Tables, moment: &Moment, slot: &SlotAddress) -> Option<Vec<DeviceRecord>> {
    if moment.away {
        return None;
    }
    let here = moment.place.map(address).as_ref() == Some(slot);
    let free = |d: &&DeviceRecord| here && d.state == DeviceState::Free;
    Some(tables.functions(slot).filter(free).cloned().collect())
}

fn refusal() -> Problem {
    Problem::new(ProblemCode::ProxyRefused, "it is refused".to_owned())
}

impl Lifecycle {
    /// With a mistake, or none.
    pub fn new(mistake: Option<Forgetful>) -> Self {
        Self { mistake, ..Self::default() }
    }

    fn note(&self, before: &Tables, after: &Tables) {
        let mut made = self.operations.lock().expect("no one panics while holding it");
        for old in before.running() {
            if let Some(new) = after.operations().get(&old.id).filter(|new| new.state != old.state)
            {
                *made.entry((old.state.to_string(), new.state.to_string())).or_default() += 1;
            }
        }
        let mut made = self.erasures.lock().expect("no one panics while holding it");
        for old in before.unerased() {
            if let Some(new) = after.erasures().get(&old.id).filter(|new| new.state != old.state) {
                *made.entry((old.state.to_string(), new.state.to_string())).or_default() += 1;
            }
        }
    }

    /// What is next for the binding is done. `state` is the device's when it is freed.
    fn goes(&self, txn: &mut Txn, moment: &mut Moment, free: DeviceState) -> Option<()> {
        let binding = lent(txn).filter(|_| !moment.away)?;
        let ends = Ends { at_box: Some(LIFE), at_host: Some(LIFE) };
        match action::next(&binding, ends) {
            Action::BindSlot => {
                let here = moment.place == Some(binding.slot.slot().get());
                let unerased = txn.erasure_at(&binding.slot).is_some();
                // As the driver of bindings does.
                if unerased || !here {
                    progress::trouble(txn, &binding, &refusal(), true);
                } else {
                    progress::slot_bound(txn, &binding, LIFE, PathSet::FIRST, 1);
                    moment.data_of.get_or_insert(binding.id);
                }
            }
            Action::BindPort => progress::port_bound(txn, &binding, LIFE),
            Action::UnbindPort(_) => progress::withdrawn(txn, &binding, "taken out"),
            Action::UnbindSlot => {
                let here = moment.place == Some(binding.slot.slot().get());
                let state = if here { free } else { DeviceState::Empty };
                progress::freed(txn, &rules(), &binding, &[(SlotFunction::ZERO, state)]);
            }
            _ => return None,
        }
        Some(())
    }

    fn turn(&self, txn: &mut Txn, moment: &mut Moment, turn: Turn) -> Option<()> {
        match turn {
            Turn::Allocate => {
                let request = PlanRequest::for_host(host_name(0));
                let terms = Terms::default();
                operations::allocate(txn, &Everybody, &request, terms, None).ok()?;
            }
            Turn::Release(force) => {
                let target = ReleaseTarget::Binding(lent(txn)?.id);
                let orderly = ReleaseMode::Orderly { within_ms: 1 };
                let mode = if force { ReleaseMode::Force } else { orderly };
                operations::release(txn, target, mode, None).ok()?;
            }
            Turn::Cancel(last) => drop(operations::cancel(txn, running(txn, last)?.id).ok()?),
            Turn::Expire(last) => {
                let operation = running(txn, last)?;
                if overdue::only_erasure_is_left(&operation) {
                    return None;
                }
                overdue::expire(txn, &Registry::new(None), &operation);
            }
            Turn::NotEnumerated => {
                let waits = |o: &OperationRecord| overdue::only_enumeration_is_left(o);
                let operation = running(txn, false).filter(waits)?;
                overdue::not_enumerated(txn, &operation, Duration::from_secs(1));
            }
            Turn::Goes => self.goes(txn, moment, DeviceState::Free)?,
            Turn::Quarantined => {
                let binding = lent(txn)?;
                (binding.phase == manager::types::Phase::Withdrawn).then_some(())?;
                self.goes(txn, moment, DeviceState::Quarantined)?;
            }
            Turn::Asking => drop(asking::begin(txn, &lent(txn)?)),
            Turn::Refused => progress::trouble(txn, &lent(txn)?, &refusal(), true),
            Turn::Fails => progress::failed(txn, lent(txn)?.id, "it failed"),
            Turn::Configured => progress::configured(txn, lent(txn)?.id, LIFE),
            Turn::Recovered => {
                let is_it = |d: &DeviceRecord| d.state == DeviceState::Quarantined;
                let device = txn.devices().values().find(|d| is_it(d)).cloned()?;
                txn.put_device(DeviceRecord { state: DeviceState::Free, ..device });
            }
            Turn::Erased(well) => self.erased(txn, moment, well)?,
            Turn::EraseNow => {
                request::erase(txn, &rules(), &address(moment.place?)).ok()?;
            }
            Turn::Waive => {
                let id = open(txn)?.id;
                request::waive_one(txn, id, "as it is").ok()?;
                moment.data_of = None;
            }
            Turn::Pull => {
                let slot = address(moment.place.take()?);
                if moment.away {
                    return Some(());
                }
                let binding = lent(txn).filter(|b| b.slot == slot && b.phase.at_box());
                if let Some(binding) = binding {
                    progress::failed(txn, binding.id, "it was pulled");
                }
                look(txn, None);
                if self.mistake == Some(Forgetful::WaivesWhatIsPulled)
                    && let Some(erasure) = open(txn)
                {
                    request::waive_one(txn, erasure.id, "it was pulled").ok()?;
                }
            }
            Turn::Insert(slot) => {
                moment.place.is_none().then_some(())?;
                moment.place = Some(slot);
                if !moment.away {
                    look(txn, moment.place);
                }
            }
            Turn::Leave => {
                (!moment.away && lent(txn).is_none()).then_some(())?;
                moment.away = true;
            }
            Turn::Return => {
                moment.away.then_some(())?;
                moment.away = false;
                look(txn, moment.place);
            }
        }
        Some(())
    }

    fn erased(&self, txn: &mut Txn, moment: &mut Moment, well: bool) -> Option<()> {
        let erasure = open(txn).filter(|e| e.state == ErasureState::Running)?;
        let reported = reported(txn, moment, &erasure.slot);
        match self.mistake {
            Some(Forgetful::ErasesByTheRecords) => {
                let known: Vec<_> = txn.functions(&erasure.slot).cloned().collect();
                (owed::seen(&erasure, &known) == Seen::Here).then_some(())?;
            }
            // A box erases nothing else, and nothing that is quarantined.
            _ => (owed::seen(&erasure, &reported?) == Seen::Here).then_some(())?,
        }
        let here = moment.place.map(address).as_ref() == Some(&erasure.slot);
        let state = if well { ErasureState::Done } else { ErasureState::Failed };
        erasure::end(txn, erasure.id, state, "so it is".into());
        if well && here {
            moment.data_of = None;
        }
        Some(())
    }
}

impl Model for Lifecycle {
    type State = Moment;
    type Action = Turn;

    fn init_states(&self) -> Vec<Moment> {
        vec![Moment::first()]
    }

    fn actions(&self, _: &Moment, turns: &mut Vec<Turn>) {
        turns.extend([Turn::Allocate, Turn::Goes, Turn::Asking, Turn::Refused, Turn::Fails]);
        turns.extend([Turn::Configured, Turn::Quarantined, Turn::Recovered, Turn::NotEnumerated]);
        turns.extend([Turn::EraseNow, Turn::Waive, Turn::Pull, Turn::Leave, Turn::Return]);
        turns.extend(SLOTS.map(Turn::Insert));
        for either in [false, true] {
            turns.extend([Turn::Release(either), Turn::Cancel(either)]);
            turns.extend([Turn::Expire(either), Turn::Erased(either)]);
        }
    }

    fn next_state(&self, before: &Moment, turn: Turn) -> Option<Moment> {
        let mut txn = Txn::new(Tables::clone(&before.tables));
        let mut after = before.clone();
        self.turn(&mut txn, &mut after, turn)?;
        let tables = txn.into_tables();
        self.note(&before.tables, &tables);
        let after = Moment::of(tables, after.place, after.away, after.data_of);
        (after != *before).then_some(after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nobody gets another's data", |_, moment: &Moment| {
                !moment.is_exposed()
            }),
            Property::always("what ended has nothing left to do", |_, moment: &Moment| {
                !moment.has_loose_ends()
            }),
            // What has ended does not count in a state, so this is looked for before its end.
            Property::sometimes("a device is erased where it was carried", |_, now: &Moment| {
                let goes_on = |e: &ErasureRecord| e.state == ErasureState::Running;
                let mut open = now.tables.unerased();
                open.any(|e| goes_on(e) && e.binding.is_some() && e.slot == address(SLOTS[1]))
            }),
        ]
    }
}

/// All pairs that a table allows, by their texts.
fn pairs<T: Copy + fmt::Display>(
    all: &[T],
    may: impl Fn(T, T) -> bool,
) -> BTreeSet<(String, String)> {
    let pairs = all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to)));
    pairs
        .filter(|(from, to)| may(*from, *to))
        .map(|(a, b)| (a.to_string(), b.to_string()))
        .collect()
}

/// The transitions of operations that the code's table allows.
pub fn operation_table() -> BTreeSet<(String, String)> {
    pairs(&OperationState::ALL, OperationState::may_become)
}

/// The transitions of erasures that the code's table allows.
pub fn erasure_table() -> BTreeSet<(String, String)> {
    pairs(&ErasureState::ALL, ErasureState::may_become)
}
