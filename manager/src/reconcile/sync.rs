//! Reads a proxy's tables, compares them with the records and repairs what differs.

use super::diff::StraySlot;
use super::{compare, diff, sound};
use crate::control::{RequestError, Session};
use crate::manager::Manager;
use crate::types::{EventKind, EventRecord, FunctionEpoch, NodeName, Role, SlotAddress, Timestamp};
use proxy_core::control::{InventoryEntry, MappingEntry, Removal, Reply, Request, SlotEntry};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// After this time a device that a box had, and which is away, may have been carried elsewhere.
const LONG_AWAY: Duration = Duration::from_secs(60);

/// Compares when the proxy has connected, whenever it is asked for, and now and then. Returns when
/// the tables cannot be read.
pub async fn run(manager: &Arc<Manager>, session: &Arc<Session>) {
    loop {
        let synced = match session.identity().role {
            Role::Box => sync_box(manager, session).await,
            Role::Host => sync_host(manager, session).await,
        };
        if let Err(error) = synced {
            tracing::warn!("{}: its tables cannot be read: {error}", session.name());
            return;
        }
        if session.set_ready() {
            connected(manager, session).await;
        }
        tokio::select! {
            biased;
            () = session.sync.notified() => {}
            () = tokio::time::sleep(manager.settings.reconcile_interval) => {}
        }
    }
}

async fn connected(manager: &Arc<Manager>, session: &Session) {
    let identity = session.identity();
    let detail = format!(
        "{} {} is connected from {} (node {}, incarnation {})",
        identity.role, identity.name, identity.remote, identity.node, identity.incarnation
    );
    let event = EventRecord::new(EventKind::NodeConnected, detail);
    manager.connection_event(event.node(&identity.name)).await;
    let tables = manager.records.snapshot();
    manager.records.touch(tables.bindings_at(&identity.name).map(|binding| binding.id));
}

/// The whole mapping table of a host.
///
/// # Errors
///
/// As [`Session::request`].
pub async fn read_mapping(
    manager: &Manager,
    session: &Session,
) -> Result<Vec<MappingEntry>, RequestError> {
    let page = |reply: Box<Reply>| match *reply {
        Reply::Mapping { entries, next, .. } => Some((entries.into_iter().collect(), next)),
        _ => None,
    };
    let ask = |from| Request::ReadTable { from };
    session.read_all(ask, page, manager.settings.request_bound).await
}

/// The whole slot table of a box.
///
/// # Errors
///
/// As [`Session::request`].
pub async fn read_slots(
    manager: &Manager,
    session: &Session,
) -> Result<Vec<SlotEntry>, RequestError> {
    let page = |reply: Box<Reply>| match *reply {
        Reply::Slots { entries, next } => Some((entries.into_iter().collect(), next)),
        _ => None,
    };
    let ask = |from| Request::ReadTable { from };
    session.read_all(ask, page, manager.settings.request_bound).await
}

/// What a box has in its slots.
///
/// # Errors
///
/// As [`Session::request`].
pub async fn read_inventory(
    manager: &Manager,
    session: &Session,
) -> Result<Vec<InventoryEntry>, RequestError> {
    let page = |reply: Box<Reply>| match *reply {
        Reply::Inventory { entries, next } => Some((entries.into_iter().collect(), next)),
        _ => None,
    };
    let ask = |from| Request::ReadInventory { from };
    session.read_all(ask, page, manager.settings.request_bound).await
}

async fn sync_box(manager: &Arc<Manager>, session: &Arc<Session>) -> Result<(), RequestError> {
    let (name, told) = (session.name(), session.told());
    let inventory = read_inventory(manager, session).await?;
    let (inventory, complaints) = sound::inventory(name, session.identity().size, inventory);
    for complaint in session.new_complaints(complaints) {
        tracing::warn!("{complaint}; that is left out");
        let event = EventRecord::new(EventKind::ReportRefused, complaint);
        manager.event_soon(event.node(name));
    }
    let before = manager.records.snapshot();
    let table = read_slots(manager, session).await?;
    let incarnation = session.identity().incarnation;
    let changed = manager.records.apply(|txn| {
        let rules = &manager.settings.erase;
        let diff = compare::box_tables(txn, &before, name, incarnation, &inventory, &table, rules);
        compare::take_moved(txn, name, |other| is_long_away(manager, other));
        diff
    });
    let Ok(diff) = changed.await else { return Ok(()) };
    session.set_read(told);
    // Before they are taken out: nobody gets a slot meanwhile, and nothing is forgotten by a crash.
    erase_orphans(manager, name, &diff.stray).await;
    for stray in diff.stray {
        // The host first: it must not use what the box is about to reset.
        if let Some(host) = stray.host.and_then(|node| host_session(manager, node)) {
            let _ = sync_host(manager, &host).await;
        }
        let bound = manager.settings.unbind_bound;
        match session.request(Request::UnbindSlot(stray.key), bound).await {
            Ok(_) => {
                let detail = format!("{name} had {} without a record", stray.key);
                let event = EventRecord::new(EventKind::OrphanRemoved, detail);
                manager.event_soon(event.node(name));
                session.sync.notify_one();
            }
            Err(RequestError::Refused(error)) => {
                tracing::warn!("{name} keeps {}, which no record has: {error}", stray.key);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a box has been away for so long that what it had may be elsewhere. One that was not here
/// since the manager started has its time, too.
fn is_long_away(manager: &Manager, name: &NodeName) -> bool {
    let bound = LONG_AWAY.as_millis() as u64;
    let left = manager.registry.left(name);
    manager.registry.get(name).is_none()
        && manager.started().elapsed() >= LONG_AWAY
        && left.is_none_or(|left| {
            Timestamp::now().as_millis().saturating_sub(left.as_millis()) >= bound
        })
}

/// What nobody knows to have been lent has data of somebody, too.
async fn erase_orphans(manager: &Arc<Manager>, name: &NodeName, strays: &[StraySlot]) {
    let mut slots: BTreeMap<SlotAddress, Vec<FunctionEpoch>> = BTreeMap::new();
    for StraySlot { key, .. } in strays {
        let Ok(slot) = SlotAddress::new(name.clone(), key.slot) else { continue };
        let function = FunctionEpoch { function: key.function, epoch: key.epoch };
        slots.entry(slot).or_default().push(function);
    }
    if slots.is_empty() || manager.settings.erase.is_empty() {
        return;
    }
    let begun = manager.records.apply(|txn| {
        for (slot, functions) in &slots {
            if txn.binding_at_slot(slot).is_none() && txn.erasure_at(slot).is_none() {
                crate::erasure::begin(txn, &manager.settings.erase, slot, functions, None);
            }
        }
    });
    if let Err(problem) = begun.await {
        tracing::error!("what {name} had without a record is not erased: {problem}");
    }
}

fn host_session(manager: &Manager, node: tlp_codec::ids::NodeId) -> Option<Arc<Session>> {
    let tables = manager.records.snapshot();
    manager.registry.get(&tables.node_by_number(node)?.name)
}

async fn sync_host(manager: &Arc<Manager>, session: &Arc<Session>) -> Result<(), RequestError> {
    let name = session.name();
    let before = manager.records.snapshot();
    let table = read_mapping(manager, session).await?;
    let incarnation = session.identity().incarnation;
    let changed =
        manager.records.apply(|txn| compare::host_table(txn, &before, name, incarnation, &table));
    let Ok(diff) = changed.await else { return Ok(()) };
    session.set_stray_ports(diff.stray_ports);
    for stray in diff.stray {
        let diff::StrayPort { port, box_node, slot, epoch } = stray;
        let mode = Removal::Force;
        let body = Request::UnbindPort { port, box_node, slot, epoch, mode };
        match session.request(body, manager.settings.unbind_bound).await {
            Ok(_) => {
                let detail = format!("{name} had epoch {epoch} at port {port} without a record");
                let event = EventRecord::new(EventKind::OrphanRemoved, detail);
                manager.event_soon(event.node(name));
                session.sync.notify_one();
            }
            Err(RequestError::Refused(error)) => {
                tracing::warn!("{name} keeps a binding at port {port} without a record: {error}");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
