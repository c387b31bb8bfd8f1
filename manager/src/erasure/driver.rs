//! Has done what the records say is to be erased.

use super::owed::{self, Seen};
use super::{end, hook};
use crate::control::{RequestError, Session};
use crate::manager::Manager;
use crate::reconcile::{sound, sync};
use crate::records::{Tables, Topic, Watch};
use crate::types::{
    DeviceRecord, EraseMeans, ErasedFunction, ErasureId, ErasureRecord, ErasureState,
    FunctionEpoch, NodeName, Timestamp,
};
use proxy_core::control::{ControlError, EraseMethod, EraseRequest, Erasure, Reply, Request};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tlp_codec::ids::{BindingKey, Epoch};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often a box is asked how far it is: so long first, and twice as long each time up to the
/// bound.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const MAX_LOOK: Duration = Duration::from_secs(2);

/// How long is waited for what has to change by itself: a box that is away, a slot that is busy.
const PAUSE: Duration = Duration::from_millis(500);

/// How long a box may refuse because the slot is quarantined, or does not have what is to be erased.
/// What it only has to look at once more after a restart is not by then; a device that failed its reset
/// is until somebody recovers it.
const REFUSAL_BOUND: Duration = Duration::from_secs(30);

/// Programs that erase at a time. Further ones wait for their turn.
const MAX_HOOKS: usize = 8;

/// Works until the manager stops.
pub async fn run(manager: Arc<Manager>) {
    let hooks = Arc::new(Semaphore::new(MAX_HOOKS));
    let mut changes = manager.records.watch(Topic::Erasures);
    let mut working: HashSet<ErasureId> = HashSet::new();
    let mut tasks: JoinSet<ErasureId> = JoinSet::new();
    loop {
        changes.mark_unchanged();
        let tables = manager.records.snapshot();
        for record in tables.unerased().filter(|r| r.state == ErasureState::Running) {
            if working.insert(record.id) {
                tasks.spawn(work(manager.clone(), hooks.clone(), record.id));
            }
        }
        tokio::select! {
            biased;
            () = manager.stopping() => return,
            Some(ended) = tasks.join_next() => match ended {
                Ok(id) => _ = working.remove(&id),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            () = changes.changed() => {}
        }
    }
}

/// What came of asking once.
enum Look {
    /// It goes on, so far.
    Running(u16),
    /// Nothing can be said now; ask again later. What it waits for.
    Waits(String),
    /// The box does not touch the device: why.
    Quarantined(String),
    /// It was done this way.
    Done(String),
    /// It cannot be done, and why.
    Failed(String),
    /// The device is not in its slot.
    Gone,
    /// The box knows a later epoch of the function.
    Outdated(Epoch),
}

/// A box refuses an erasure in the same way again and again.
struct Refused {
    record: Arc<ErasureRecord>,
    is_gone: bool,
    since: Instant,
}

impl Refused {
    /// With what it says now.
    fn goes_on(before: Option<Self>, record: &Arc<ErasureRecord>, looked: &Look) -> Option<Self> {
        let is_gone = match looked {
            Look::Gone => true,
            Look::Quarantined(_) => false,
            _ => return None,
        };
        let same = |before: &Self| {
            let names = |record: &ErasureRecord| (record.slot.clone(), record.functions.clone());
            before.is_gone == is_gone && names(&before.record) == names(record)
        };
        let begins = || Self { record: record.clone(), is_gone, since: Instant::now() };
        Some(before.filter(same).unwrap_or_else(begins))
    }
}

/// Works on one erasure until it is over.
async fn work(manager: Arc<Manager>, hooks: Arc<Semaphore>, id: ErasureId) -> ErasureId {
    let mut pause = FIRST_LOOK;
    let mut refused: Option<Refused> = None;
    loop {
        let Some(record) = running(&manager, id) else { return id };
        let looked = look(&manager, &hooks, &record).await;
        refused = Refused::goes_on(refused, &record, &looked);
        let bound = Duration::from_secs(record.rule.within_s.into()).min(REFUSAL_BOUND);
        let is_over = refused.as_ref().is_some_and(|refused| refused.since.elapsed() >= bound);
        let (state, detail) = match looked {
            Look::Quarantined(why) if is_over => (ErasureState::Failed, why),
            // One that has left is owed by now; this one its box still reports.
            Look::Gone if is_over => {
                let why = "its box reports it and does not find it, or not all of its functions";
                (ErasureState::Failed, why.to_owned())
            }
            Look::Done(how) => (ErasureState::Done, how),
            Look::Failed(why) => (ErasureState::Failed, why),
            Look::Gone => {
                // What its box reports says where it is; it is owed until it is seen again.
                if let Some(session) = manager.registry.get(record.slot.box_name()) {
                    session.sync.notify_one();
                }
                note(&manager, &record, 0, "the device is not in its slot").await;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Look::Running(permille) => {
                note(&manager, &record, permille, "the device erases itself").await;
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_LOOK);
                continue;
            }
            Look::Waits(what) | Look::Quarantined(what) => {
                note(&manager, &record, record.permille, &what).await;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Look::Outdated(highest) => {
                outdated(&manager, &record, highest).await;
                // A box that says so again and again does not keep the disk busy.
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // What was said is about the device where it was then.
        let ended = manager.records.apply(|txn| {
            if unchanged(txn, &record).is_some() {
                end(txn, id, state, detail);
            }
        });
        if let Err(problem) = ended.await {
            tracing::error!("{id} cannot be ended: {problem}");
            tokio::time::sleep(PAUSE).await;
        } else if let Some(session) = manager.registry.get(record.slot.box_name()) {
            session.sync.notify_one();
        }
    }
}

fn running(manager: &Manager, id: ErasureId) -> Option<Arc<ErasureRecord>> {
    let record = manager.records.snapshot().erasures().get(&id).cloned()?;
    (record.state == ErasureState::Running).then_some(record)
}

/// An erasure that goes on as it was begun: in the same slot, by the same names.
fn unchanged(tables: &Tables, record: &ErasureRecord) -> Option<Arc<ErasureRecord>> {
    let now = tables.erasures().get(&record.id)?;
    let same = (&now.slot, &now.functions) == (&record.slot, &record.functions);
    (same && now.state == ErasureState::Running).then(|| now.clone())
}

/// Writes how far it is, if that says something new. No program is at it.
async fn note(manager: &Manager, record: &ErasureRecord, permille: u16, detail: &str) {
    let Some(now) = unchanged(&manager.records.snapshot(), record) else { return };
    // Percents are enough for people and for the disk.
    if now.detail == detail && now.permille / 10 == permille / 10 && !now.program_runs {
        return;
    }
    let (detail, program_runs) = (detail.to_owned(), false);
    let noted = manager.records.apply(|txn| {
        if let Some(now) = unchanged(txn, record) {
            let now = ErasureRecord::clone(&now);
            txn.put_erasure(ErasureRecord { permille, detail, program_runs, ..now });
        }
    });
    if let Err(problem) = noted.await {
        tracing::error!("{}: how far it is cannot be written: {problem}", record.id);
    }
}

/// The box has had a later epoch than the one that the erasure goes by: that names it from now on.
async fn outdated(manager: &Manager, record: &ErasureRecord, highest: Epoch) {
    let (id, slot) = (record.id, record.slot.clone());
    let changed = manager.records.apply(|txn| {
        let Some(record) = txn.erasures().get(&id).filter(|now| now.slot == slot).cloned() else {
            return;
        };
        let functions = record.functions.iter().map(|f| {
            let epoch = f.binding.epoch.max(highest);
            ErasedFunction { binding: FunctionEpoch { epoch, ..f.binding }, ..*f }
        });
        let functions = functions.collect();
        txn.put_erasure(ErasureRecord { functions, ..ErasureRecord::clone(&record) });
    });
    if changed.await.is_err() {
        tokio::time::sleep(PAUSE).await;
    }
}

async fn look(manager: &Manager, hooks: &Semaphore, record: &ErasureRecord) -> Look {
    let Some(program) = &record.rule.hook else { return by_box(manager, record).await };
    if record.program_runs {
        // An earlier manager had it at work, and it went with that. While this one waits for its
        // turn, the device can be taken as it is.
        note(manager, record, 0, "waits for its turn").await;
    }
    let turn = hooks.acquire().await.expect("it is never closed");
    match by_program(manager, record, program, turn).await {
        Ok(done) => done,
        Err(why) => why,
    }
}

fn waits_for_box(name: &NodeName) -> Look {
    Look::Waits(format!("waits for box {name}, which is not connected"))
}

/// Has the program do it: while the box is connected and reports the device, from before the program
/// starts until after it ends. Else it could be at what was put in its place. `turn` is held while
/// the program runs. `Err`: why not now.
async fn by_program(
    manager: &Manager,
    record: &ErasureRecord,
    program: &Path,
    turn: SemaphorePermit<'_>,
) -> Result<Look, Look> {
    let name = record.slot.box_name();
    let session = manager.registry.ready(name).ok_or_else(|| waits_for_box(name))?;
    let busy = format!("waits: box {name} is at work on the device");
    if !is_seen(manager, &session, record).await? {
        return Err(Look::Waits(busy));
    }
    let taken_out = || Look::Waits("the device was taken out".into());
    let mut changes = manager.records.watch(Topic::Erasures);
    starts(manager, record, program).await?;
    let tables = manager.records.snapshot();
    let said = tokio::select! {
        said = hook::run(program, record, &tables) => said,
        () = session.closed() => return Err(waits_for_box(name)),
        () = is_changed(manager, &mut changes, record) => return Err(taken_out()),
    };
    drop(turn);
    let (ended, bound) = (Instant::now(), Duration::from_secs(record.rule.within_s.into()));
    // What is sent before this answer is heard before it: the box has not seen the device go.
    while !is_seen(manager, &session, record).await? {
        if ended.elapsed() >= bound {
            let still = format!("box {name} was still at work on the device {bound:?} after it");
            let why = said.err().unwrap_or_else(|| format!("{}: {still}", program.display()));
            return Ok(Look::Failed(why));
        }
        note(manager, record, 0, &busy).await;
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = is_changed(manager, &mut changes, record) => return Err(taken_out()),
        }
    }
    Ok(match said {
        Ok(said) if said.is_empty() => Look::Done(program.display().to_string()),
        Ok(said) => Look::Done(format!("{}: {said}", program.display())),
        Err(why) => Look::Failed(why),
    })
}

/// Whether the box reports the device now, and is not at work on it. `Err` if it has another one or
/// none, or cannot be asked.
async fn is_seen(
    manager: &Manager,
    session: &Arc<Session>,
    record: &ErasureRecord,
) -> Result<bool, Look> {
    let name = session.name();
    let inventory = sync::read_inventory(manager, session).await;
    let inventory =
        inventory.map_err(|error| Look::Waits(format!("waits for box {name}: {error}")))?;
    let (inventory, _) = sound::inventory(name, session.identity().size, inventory);
    let own = inventory.iter().filter(|entry| entry.slot == record.slot.slot());
    let device = |entry| DeviceRecord::from_inventory(record.slot.clone(), entry, Timestamp::now());
    let reported: Vec<DeviceRecord> = own.map(device).collect();
    match owed::seen(record, &reported) {
        Seen::Here => Ok(true),
        Seen::Busy => Ok(false),
        Seen::Gone => Err(Look::Gone),
    }
}

/// Writes that the program is at it, before it is: from then on nobody takes the device as it is.
async fn starts(manager: &Manager, record: &ErasureRecord, program: &Path) -> Result<(), Look> {
    let (detail, program_runs) = (format!("{} is at it", program.display()), true);
    let noted = manager.records.apply(|txn| {
        let now = unchanged(txn, record)?;
        let now = ErasureRecord::clone(&now);
        txn.put_erasure(ErasureRecord { permille: 0, detail, program_runs, ..now });
        Some(())
    });
    match noted.await {
        Ok(Some(())) => Ok(()),
        Ok(None) => Err(Look::Waits("waits for its turn".into())),
        Err(problem) => Err(Look::Waits(format!("waits: {problem}"))),
    }
}

/// Waits until an erasure does not go on as it was begun.
async fn is_changed(manager: &Manager, changes: &mut Watch, record: &ErasureRecord) {
    while unchanged(&manager.records.snapshot(), record).is_some() {
        changes.changed().await;
    }
}

/// Has the box do it, by the device's own means.
async fn by_box(manager: &Manager, record: &ErasureRecord) -> Look {
    let name = record.slot.box_name();
    let Some(session) = manager.registry.ready(name) else { return waits_for_box(name) };
    let (mut how, mut slowest) = (String::new(), None);
    for function in &record.functions {
        match ask(manager, &session, record, function).await {
            Look::Done(method) => how = method,
            Look::Running(permille) => {
                slowest = Some(slowest.map_or(permille, |least: u16| least.min(permille)));
            }
            other => return other,
        }
    }
    match slowest {
        Some(permille) => Look::Running(permille),
        None => Look::Done(how),
    }
}

/// Asks the box about one function.
async fn ask(
    manager: &Manager,
    session: &Arc<Session>,
    record: &ErasureRecord,
    function: &ErasedFunction,
) -> Look {
    let FunctionEpoch { function: number, epoch } = function.binding;
    let slot = record.slot.slot();
    let body = EraseRequest {
        key: BindingKey { slot, function: number, epoch },
        serial: function.serial,
        methods: record.rule.means.iter().copied().map(EraseMethod::from).collect(),
        within_s: record.rule.within_s,
    };
    let asked = session.request(Request::Erase(body), manager.settings.request_bound);
    let nonsense = || {
        session.nonsense();
        Look::Waits(format!("waits for box {}", session.name()))
    };
    match asked.await {
        Ok(reply) => match *reply {
            Reply::Erasure(code) => match Erasure::try_from(code) {
                Ok(Erasure::Running(permille)) => Look::Running(permille),
                Ok(Erasure::Done(method)) => Look::Done(EraseMeans::from(method).to_string()),
                Ok(Erasure::Failed(failure)) => Look::Failed(failure.to_string()),
                Err(_) => nonsense(),
            },
            _ => nonsense(),
        },
        Err(RequestError::Refused(error)) => match error {
            ControlError::StaleEpoch(highest) => Look::Outdated(highest),
            ControlError::SlotEmpty(_) | ControlError::NoSuchSlot(_) => Look::Gone,
            ControlError::Quarantined(_) => Look::Quarantined(format!(
                "its box keeps it quarantined; `dxpu-manager recover {}` tries to bring it back",
                record.slot
            )),
            other => Look::Waits(format!("waits: {}: {other}", session.name())),
        },
        Err(error) => Look::Waits(format!("waits for box {}: {error}", session.name())),
    }
}

#[cfg(test)]
mod tests;
