//! Does what [`super::action`] decides, for each binding by itself.
//!
//! A binding is looked at whenever its record changed or one of its proxies connected. One task at
//! a time works on a binding; it goes on until there is nothing to do or something has to change
//! first, and waits longer after each failure.

use super::action::{self, Action, Ends};
use super::sync;
use crate::control::{RequestError, Session};
use crate::manager::Manager;
use crate::operations::{asking, forget, progress};
use crate::records::Topic;
use crate::types::{BindingId, BindingRecord, Desired, DeviceState, Phase, Problem, ProblemCode};
use proxy_core::control::{
    ControlError, MappingEntry, PortBinding, Removal, Reply, Request, SlotBinding, Window,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tlp_codec::ids::{NodeId, SlotFunction};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The first wait after a failure; each further one is twice as long, up to [`MAX_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait after a failure.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// A binding that stood for so long and then fails begins with the first wait again.
const STEADY: Duration = Duration::from_secs(30);
/// A host that has not said within this time that a device is in use may have said so before: it
/// says it once, and a binding can be written twice. Its table says it, too.
const UNTOLD: Duration = Duration::from_millis(500);

/// Works until the manager stops.
pub async fn run(manager: Arc<Manager>) {
    let mut working: HashMap<BindingId, Arc<Notify>> = HashMap::new();
    let mut tasks: JoinSet<BindingId> = JoinSet::new();
    loop {
        tokio::select! {
            // In this order, so that the same happens each time that the same has happened.
            biased;
            touched = manager.records.touched() => for id in touched {
                let signal = working.entry(id).or_insert_with(|| {
                    let signal = Arc::new(Notify::new());
                    tasks.spawn(work(manager.clone(), id, signal.clone()));
                    signal
                });
                signal.notify_one();
            },
            Some(ended) = tasks.join_next() => match ended {
                Ok(id) => drop(working.remove(&id)),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            () = manager.stopping() => return,
        }
    }
}

/// Works on one binding until it is gone.
async fn work(manager: Arc<Manager>, id: BindingId, signal: Arc<Notify>) -> BindingId {
    let mut failures = 0_u32;
    let mut looked_at = None;
    let mut introduced = None;
    let mut last_failure = tokio::time::Instant::now();
    loop {
        let Some(binding) = manager.records.snapshot().bindings().get(&id).cloned() else {
            return id;
        };
        match step(&manager, &binding, &mut introduced).await {
            Step::Went => {}
            Step::Nothing
                if binding.phase == Phase::Bound && looked_at != Some(binding.port_epoch()) =>
            {
                if tokio::time::timeout(UNTOLD, signal.notified()).await.is_err() {
                    looked_at = Some(binding.port_epoch());
                    if let Some(at_host) = manager.registry.ready(&binding.host) {
                        at_host.sync.notify_one();
                    }
                }
            }
            Step::Nothing => signal.notified().await,
            Step::Failed => {
                if last_failure.elapsed() > STEADY {
                    failures = 0;
                }
                last_failure = tokio::time::Instant::now();
                let wait = FIRST_WAIT.saturating_mul(1 << failures.min(16)).min(MAX_WAIT);
                failures += 1;
                sleep_unless_other(&manager, &binding, &signal, wait).await;
            }
        }
    }
}

/// Sleeps, but not on when something else is wanted of the binding meanwhile.
async fn sleep_unless_other(
    manager: &Manager,
    binding: &BindingRecord,
    signal: &Notify,
    wait: Duration,
) {
    let other = async {
        loop {
            signal.notified().await;
            let tables = manager.records.snapshot();
            match tables.bindings().get(&binding.id) {
                Some(now) if now.desired == binding.desired => {}
                _ => return,
            }
        }
    };
    let _ = tokio::time::timeout(wait, other).await;
}

enum Step {
    /// Something was done; look again.
    Went,
    /// Nothing to do until something changes.
    Nothing,
    /// It could not be done; try again later.
    Failed,
}

/// A request that went wrong, and where.
struct Failure {
    session: Arc<Session>,
    error: RequestError,
}

/// Two proxies that the step before told of each other, the box first. While the binding is there
/// nobody lets them forget it.
type Introduced = Option<(Arc<Session>, Arc<Session>)>;

async fn step(
    manager: &Arc<Manager>,
    binding: &BindingRecord,
    introduced: &mut Introduced,
) -> Step {
    let before = introduced.take();
    let at_box = manager.registry.ready(binding.slot.box_name());
    let at_host = manager.registry.ready(&binding.host);
    let ends = Ends {
        at_box: at_box.as_ref().map(|s| s.identity().incarnation),
        at_host: at_host.as_ref().map(|s| s.identity().incarnation),
    };
    let action = action::next(binding, ends);
    let done = match (action, at_box, at_host) {
        (Action::Wait, ..) if forget::is_lost(&manager.records.snapshot(), binding) => {
            record(manager, |txn| forget::lost(txn, binding)).await
        }
        (Action::Wait, ..) => return Step::Nothing,
        (Action::Fail(why), ..) => {
            record(manager, |txn| progress::failed(txn, binding.id, why)).await
        }
        (Action::SkipPort, ..) => {
            let how = "it is not connected; what it still has of it is taken out when it is back";
            record(manager, |txn| progress::withdrawn(txn, binding, how)).await
        }
        (Action::BindSlot, Some(at_box), Some(at_host)) => {
            let bound = bind_slot(manager, binding, &at_box, &at_host).await;
            *introduced = matches!(bound, Ok(true)).then_some((at_box, at_host));
            bound
        }
        (Action::BindPort, Some(at_box), Some(at_host)) => {
            let known = before.is_some_and(|(one, other)| {
                Arc::ptr_eq(&one, &at_box) && Arc::ptr_eq(&other, &at_host)
            });
            bind_port(manager, binding, &at_box, at_host, known).await
        }
        (Action::UnbindPort(mode), _, Some(at_host)) => {
            unbind_port(manager, binding, at_host, mode).await
        }
        (Action::UnbindSlot, Some(at_box), _) => unbind_slot(manager, binding, at_box).await,
        (action, ..) => unreachable!("{action:?} needs a proxy that is not there"),
    };
    match done {
        Ok(true) => Step::Went,
        Ok(false) => Step::Failed,
        Err(failure) => answer(manager, binding, failure).await,
    }
}

/// Writes what came of a step. Whether it could be written.
async fn record(
    manager: &Manager,
    change: impl FnOnce(&mut crate::records::Txn),
) -> Result<bool, Failure> {
    let recorded = manager.records.apply(|txn| {
        change(txn);
    });
    Ok(recorded.await.is_ok())
}

fn ask(
    session: &Arc<Session>,
    body: Request,
    bound: Duration,
) -> impl Future<Output = Result<Box<Reply>, Failure>> + use<'_> {
    let asked = session.request(body, bound);
    async move { asked.await.map_err(|error| Failure { session: session.clone(), error }) }
}

async fn introduce(session: &Arc<Session>, peer: &Session, bound: Duration) -> Result<(), Failure> {
    let set = session.set_peer(peer.identity(), bound).await;
    set.map_err(|error| Failure { session: session.clone(), error })
}

async fn bind_slot(
    manager: &Manager,
    binding: &BindingRecord,
    at_box: &Arc<Session>,
    at_host: &Arc<Session>,
) -> Result<bool, Failure> {
    let bound = manager.settings.request_bound;
    // Another device may have come into the slot since it was chosen.
    if let Some(owed) = manager.records.snapshot().erasure_at(&binding.slot) {
        let detail = format!(
            "slot {} has a device now that another tenant had and that is not erased ({}, since {})",
            binding.slot, owed.id, owed.since
        );
        let problem = Problem::new(ProblemCode::SlotBusy, detail);
        record(manager, |txn| progress::trouble(txn, binding, &problem, true)).await?;
        return Ok(false);
    }
    let _peering = at_box.peering.read().await;
    let host = at_host.identity().node;
    let (tables, common) = (manager.records.snapshot(), at_box.common_paths(at_host));
    let link = tables.link_use(binding);
    // It goes with the epochs: what was written under them is written again as it was.
    let path_set =
        binding.path_set.unwrap_or_else(|| link.path_set_without(common, tables.held_for(binding)));
    let bind = async {
        for key in binding.keys() {
            let everything = Window::everything(host, path_set, key.epoch);
            let windows = [everything].into_iter().collect();
            let body = SlotBinding { key, host, path_set, share: link.share(), windows };
            done(at_box, ask(at_box, Request::BindSlot(body), bound).await?)?;
        }
        Ok(())
    };
    // A proxy does what it is asked in the order in which it is asked, so the box knows the host
    // before it binds a function to it.
    tokio::try_join!(
        biased;
        introduce(at_box, at_host, bound),
        introduce(at_host, at_box, bound),
        bind
    )?;
    let incarnation = at_box.identity().incarnation;
    record(manager, |txn| progress::slot_bound(txn, binding, incarnation, path_set, common)).await
}

async fn bind_port(
    manager: &Manager,
    binding: &BindingRecord,
    at_box: &Arc<Session>,
    at_host: Arc<Session>,
    known: bool,
) -> Result<bool, Failure> {
    let bound = manager.settings.request_bound;
    let _peering = at_box.peering.read().await;
    if !known {
        // The host may have restarted since the slot was bound: what the box has for its earlier
        // life fails, and the binding is made again.
        tokio::try_join!(introduce(&at_host, at_box, bound), introduce(at_box, &at_host, bound))?;
    }
    let tables = manager.records.snapshot();
    let link = tables.link_use(binding);
    let common = at_box.common_paths(&at_host);
    let chosen = || link.path_set_without(common, tables.held_for(binding));
    let body = PortBinding {
        port: binding.port,
        box_node: at_box.identity().node,
        slot: binding.slot.slot(),
        functions: binding.functions.iter().map(|f| (f.function, f.epoch)).collect(),
        // The box's; only an earlier manager's record of it may be without.
        path_set: binding.path_set.unwrap_or_else(chosen),
        share: link.share(),
    };
    done(&at_host, ask(&at_host, Request::BindPort(body), bound).await?)?;
    let incarnation = at_host.identity().incarnation;
    record(manager, |txn| progress::port_bound(txn, binding, incarnation)).await
}

async fn unbind_port(
    manager: &Manager,
    binding: &BindingRecord,
    at_host: Arc<Session>,
    mode: Removal,
) -> Result<bool, Failure> {
    let mut bound = manager.settings.unbind_bound;
    if let Removal::Orderly { within_ms } = mode {
        bound += Duration::from_millis(within_ms.into());
    }
    let is_begun = || asking::is_begun(&manager.records.snapshot(), binding);
    if matches!(mode, Removal::Orderly { .. }) && !is_begun() {
        let asking = manager.records.apply(|txn| asking::begin(txn, binding)).await;
        match asking {
            Ok(true) => {}
            // Something else is wanted by now.
            Ok(false) => return Ok(true),
            Err(_) => return Ok(false),
        }
    }
    let (port, slot, epoch) = (binding.port, binding.slot.slot(), binding.port_epoch());
    let tables = manager.records.snapshot();
    let box_node = match tables.nodes().get(binding.slot.box_name()) {
        Some(node) => Some(node.node),
        None => node_of_forgotten(manager, &at_host, binding).await?,
    };
    let Some(box_node) = box_node else {
        return record(manager, |txn| progress::withdrawn(txn, binding, "it was not there")).await;
    };
    let body = |mode| Request::UnbindPort { port, box_node, slot, epoch, mode };
    let asked = tokio::select! {
        biased;
        asked = ask(&at_host, body(mode), bound) => asked,
        // The proxy answers whoever asked last.
        () = forced(manager, binding) => {
            ask(&at_host, body(Removal::Force), manager.settings.unbind_bound).await
        }
    };
    // A host proxy of a later life never had it: that it is empty is no one's doing.
    let restarted =
        binding.host_incarnation.is_some_and(|had| had != at_host.identity().incarnation);
    let how = match *asked? {
        Reply::Removed { .. } if restarted => {
            "it was not there any more, because the host proxy restarted"
        }
        Reply::Removed { orderly: true } => "the operating system let it go",
        Reply::Removed { orderly: false } => "taken by force",
        Reply::Done => "it was not there",
        _ => return Err(Failure { error: at_host.nonsense(), session: at_host }),
    };
    record(manager, |txn| progress::withdrawn(txn, binding, how)).await
}

/// The number of a box that was forgotten, as a host has it in the entry of a binding; nothing if the
/// host has no such entry.
async fn node_of_forgotten(
    manager: &Manager,
    at_host: &Arc<Session>,
    binding: &BindingRecord,
) -> Result<Option<NodeId>, Failure> {
    let table = sync::read_mapping(manager, at_host).await;
    let table = table.map_err(|error| Failure { session: at_host.clone(), error })?;
    let own = |entry: &&MappingEntry| {
        let functions = binding.functions.iter().map(|f| (f.function, f.epoch));
        entry.used
            && entry.port == binding.port
            && entry.slot == binding.slot.slot().get()
            && functions.eq(entry.functions.iter().copied())
    };
    Ok(table.iter().find(own).and_then(|entry| NodeId::new(entry.box_node).ok()))
}

/// Waits until force is wanted of a binding of which it was not.
async fn forced(manager: &Manager, binding: &BindingRecord) {
    if binding.desired == Desired::Forced {
        return std::future::pending().await;
    }
    let mut changes = manager.records.watch(Topic::Binding(binding.id));
    loop {
        changes.mark_unchanged();
        let tables = manager.records.snapshot();
        if tables.bindings().get(&binding.id).is_some_and(|b| b.desired == Desired::Forced) {
            return;
        }
        changes.changed().await;
    }
}

async fn unbind_slot(
    manager: &Manager,
    binding: &BindingRecord,
    at_box: Arc<Session>,
) -> Result<bool, Failure> {
    let mut states: Vec<(SlotFunction, DeviceState)> = Vec::new();
    let mut told_free = true;
    for key in binding.keys() {
        let body = Request::UnbindSlot(key);
        let state = match ask(&at_box, body, manager.settings.unbind_bound).await {
            Ok(reply) => match *reply {
                Reply::Slot(state) => state.into(),
                Reply::Done => {
                    told_free = false;
                    DeviceState::Free
                }
                _ => return Err(Failure { error: at_box.nonsense(), session: at_box }),
            },
            // The slot is gone or broken, and so is the binding in it.
            Err(Failure { error: RequestError::Refused(ControlError::Quarantined(_)), .. }) => {
                DeviceState::Quarantined
            }
            Err(Failure {
                error:
                    RequestError::Refused(ControlError::NoSuchSlot(_) | ControlError::SlotEmpty(_)),
                ..
            }) if binding.desired != Desired::Bound => DeviceState::Empty,
            Err(failure) => return Err(failure),
        };
        told_free &= state == DeviceState::Free;
        states.push((key.function, state));
    }
    let rules = &manager.settings.erase;
    let freed = record(manager, |txn| progress::freed(txn, rules, binding, &states)).await?;
    // What was free at once is known. Anything else goes on, or is not what was expected.
    if !told_free {
        at_box.sync.notify_one();
    }
    part(manager, binding).await;
    let quarantined = states.iter().any(|(_, state)| *state == DeviceState::Quarantined);
    Ok(freed && !(quarantined && binding.desired == Desired::Bound))
}

/// Lets two proxies forget each other once no binding joins them.
async fn part(manager: &Manager, binding: &BindingRecord) {
    let at_box = manager.registry.ready(binding.slot.box_name());
    let at_host = manager.registry.ready(&binding.host);
    let (Some(at_box), Some(at_host)) = (at_box, at_host) else { return };
    // A binding that is recorded from here on introduces the two again, after this.
    let _peering = at_box.peering.write().await;
    let tables = manager.records.snapshot();
    let mut shared = tables.bindings_at(&binding.host);
    if shared.any(|b| b.slot.box_name() == binding.slot.box_name()) {
        return;
    }
    tokio::join!(forget_peer(manager, &at_host, &at_box), forget_peer(manager, &at_box, &at_host));
}

async fn forget_peer(manager: &Manager, session: &Session, peer: &Session) {
    let node = peer.identity().node;
    let asked = session.request(Request::RemovePeer(node), manager.settings.request_bound);
    match asked.await {
        Ok(_) => manager.observed.parted(session.name(), peer.name()),
        Err(error) => tracing::debug!("{} keeps peer {node}: {error}", session.name()),
    }
}

fn done(session: &Arc<Session>, reply: Box<Reply>) -> Result<(), Failure> {
    match *reply {
        Reply::Done => Ok(()),
        _ => Err(Failure { error: session.nonsense(), session: session.clone() }),
    }
}

/// What a refusal or failure means for the binding.
async fn answer(manager: &Manager, binding: &BindingRecord, failure: Failure) -> Step {
    let Failure { session, error } = failure;
    let name = session.name();
    let problem = error.problem(name);
    let RequestError::Refused(refusal) = &error else {
        // The connection is gone; the next one brings us back.
        let _ = record(manager, |txn| progress::trouble(txn, binding, &problem, false)).await;
        return Step::Nothing;
    };
    let lasting = match refusal {
        ControlError::StaleEpoch(highest) => {
            let _ = record(manager, |txn| progress::outdated(txn, binding, *highest)).await;
            return Step::Failed;
        }
        // It is there and cannot be used: a port whose link went down keeps its dead binding.
        ControlError::InUse(epoch) if binding.functions.iter().any(|f| f.epoch == *epoch) => {
            let why = format!("{name} has it, but dead");
            let _ = record(manager, |txn| progress::failed(txn, binding.id, &why)).await;
            return Step::Failed;
        }
        // Something that the records do not have is there: comparing the tables takes it out.
        ControlError::InUse(_) => {
            session.sync.notify_one();
            false
        }
        ControlError::NoSuchPort(_) if binding.desired != Desired::Bound => {
            let how = "the host has no such port any more";
            let _ = record(manager, |txn| progress::withdrawn(txn, binding, how)).await;
            return Step::Failed;
        }
        // Trying again introduces the peer again, which makes a link anew that went down.
        ControlError::UnknownPeer(_) | ControlError::LinkDown(_) => false,
        ControlError::Busy | ControlError::StaleTerm(_) => false,
        _ => true,
    };
    let problem = match refusal {
        ControlError::Quarantined(_) => Problem { code: ProblemCode::SlotQuarantined, ..problem },
        ControlError::SlotEmpty(_) => Problem { code: ProblemCode::SlotEmpty, ..problem },
        _ => problem,
    };
    let _ = record(manager, |txn| progress::trouble(txn, binding, &problem, lasting)).await;
    Step::Failed
}
