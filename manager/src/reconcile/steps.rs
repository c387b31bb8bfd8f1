//! What the driver asks proxies for, step by step, and what it records of their answers.

use super::sync;
use crate::control::{RequestError, Session};
use crate::manager::Manager;
use crate::operations::{asking, progress};
use crate::records::{Topic, Txn, Unwritten};
use crate::types::{BindingRecord, Desired, DeviceState, Phase, Problem, ProblemCode};
use proxy_core::control::{
    ControlError, MappingEntry, PortBinding, Removal, Reply, Request, SlotBinding, Window,
};
use proxy_core::limits::MAX_FUNCTIONS;
use std::sync::Arc;
use std::time::Duration;
use tlp_codec::ids::{NodeId, SlotFunction};

/// What came of a step.
pub(super) enum Done {
    /// There was nothing to do.
    Nothing,
    /// It was done, and is durable.
    Recorded,
    /// It was done, and is not durable yet. The next step is that of the binding as it is now.
    GoesOn(Box<BindingRecord>, Unwritten),
    /// It was not done, or could not be recorded.
    Not,
}

/// A request that went wrong, and where.
pub(super) struct Failure {
    pub(super) session: Arc<Session>,
    pub(super) error: RequestError,
}

/// Two proxies that the step before told of each other, the box first. While the binding is there
/// nobody lets them forget it.
pub(super) type Introduced = Option<(Arc<Session>, Arc<Session>)>;

/// Writes what came of a step.
pub(super) async fn record(
    manager: &Manager,
    change: impl FnOnce(&mut Txn),
) -> Result<Done, Failure> {
    let recorded = manager.records.apply(change).await;
    Ok(if recorded.is_ok() { Done::Recorded } else { Done::Not })
}

/// Writes it, too, but does not wait for the disk: the binding as it is then goes on at once. Were
/// the write lost, the proxies would be asked for the same again and say that it is so.
async fn make(
    manager: &Manager,
    binding: &BindingRecord,
    change: impl FnOnce(&mut Txn),
) -> Result<Done, Failure> {
    let (now, unwritten) = manager
        .records
        .make(|txn| {
            change(txn);
            progress::same_life(txn, binding).cloned().map(Box::new)
        })
        .await;
    match now {
        Some(now) => Ok(Done::GoesOn(now, unwritten)),
        None => Ok(if unwritten.written().await.is_ok() { Done::Recorded } else { Done::Not }),
    }
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

pub(super) async fn bind_slot(
    manager: &Manager,
    binding: &BindingRecord,
    at_box: &Arc<Session>,
    at_host: &Arc<Session>,
) -> Result<Done, Failure> {
    let bound = manager.settings.request_bound;
    // Another device may have come into the slot since it was chosen. That one came is told at once,
    // and which one only when the tables are read.
    if !at_box.is_read(bound).await {
        return Ok(Done::Not);
    }
    if let Some(owed) = manager.records.snapshot().erasure_at(&binding.slot) {
        let detail = format!(
            "slot {} has a device now that another tenant had and that is not erased ({}, since {})",
            binding.slot, owed.id, owed.since
        );
        let problem = Problem::new(ProblemCode::SlotBusy, detail);
        record(manager, |txn| progress::trouble(txn, binding, &problem, true)).await?;
        return Ok(Done::Not);
    }
    let peering = at_box.peering(at_host.name());
    let _peering = peering.read().await;
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
    make(manager, binding, |txn| {
        progress::slot_bound(txn, binding, incarnation, path_set, common);
    })
    .await
}

pub(super) async fn bind_port(
    manager: &Manager,
    binding: &BindingRecord,
    at_box: &Arc<Session>,
    at_host: Arc<Session>,
    known: bool,
) -> Result<Done, Failure> {
    let bound = manager.settings.request_bound;
    let peering = at_box.peering(at_host.name());
    let _peering = peering.read().await;
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
        // Of more than it has room for an earlier manager may have made a record.
        functions: binding
            .functions
            .iter()
            .map(|f| (f.function, f.epoch))
            .take(MAX_FUNCTIONS)
            .collect(),
        // The box's; only an earlier manager's record of it may be without.
        path_set: binding.path_set.unwrap_or_else(chosen),
        share: link.share(),
    };
    done(&at_host, ask(&at_host, Request::BindPort(body), bound).await?)?;
    let incarnation = at_host.identity().incarnation;
    record(manager, |txn| progress::port_bound(txn, binding, incarnation)).await
}

pub(super) async fn unbind_port(
    manager: &Manager,
    binding: &BindingRecord,
    at_host: Arc<Session>,
    mode: Removal,
) -> Result<Done, Failure> {
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
            Ok(false) => return Ok(Done::Recorded),
            Err(_) => return Ok(Done::Not),
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
    make(manager, binding, |txn| progress::withdrawn(txn, binding, how)).await
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

pub(super) async fn unbind_slot(
    manager: &Manager,
    binding: &BindingRecord,
    at_box: Arc<Session>,
) -> Result<Done, Failure> {
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
    // Quarantined, or without an epoch that is left: what is to be lent stays as it is.
    let tables = manager.records.snapshot();
    let stays = tables.bindings().get(&binding.id).is_some_and(|b| b.phase == Phase::Withdrawn);
    Ok(if stays { Done::Not } else { freed })
}

/// Lets two proxies forget each other once no binding joins them.
async fn part(manager: &Manager, binding: &BindingRecord) {
    let at_box = manager.registry.ready(binding.slot.box_name());
    let at_host = manager.registry.ready(&binding.host);
    let (Some(at_box), Some(at_host)) = (at_box, at_host) else { return };
    // A binding that is recorded from here on introduces the two again, after this.
    let peering = at_box.peering(at_host.name());
    let _peering = peering.write().await;
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
