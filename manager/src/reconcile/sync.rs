//! Reads a proxy's tables, compares them with the records and repairs what differs.

use super::diff::StraySlot;
use super::{compare, diff, sound};
use crate::control::{RequestError, Session, events};
use crate::manager::Manager;
use crate::types::{EventKind, EventRecord, FunctionEpoch, NodeName, Role, SlotAddress};
use proxy_core::control::{InventoryEntry, MappingEntry, Removal, Reply, Request, SlotEntry};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// After this time a device that a box had, and which is away, may have been carried elsewhere.
const LONG_AWAY: Duration = Duration::from_secs(60);

/// After something was taken out, or may have to be, the tables are read again at once, and if it is
/// still there, each time after a wait that is twice as long, from this one on.
const AGAIN: Duration = Duration::from_millis(100);

/// When a proxy's tables have to be looked at again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// Something was taken out, or may have to be: it was somebody's when the table began to be read.
    Soon,
    /// What was read could not be written: the records do not know yet what the proxy has.
    Unwritten,
    /// Now and then.
    Later,
}

impl Again {
    const fn of(unsure: bool) -> Self {
        if unsure { Self::Soon } else { Self::Later }
    }
}

/// Compares when the proxy has connected, whenever it is asked for, and now and then. Returns when
/// the tables cannot be read.
pub async fn run(manager: &Arc<Manager>, session: &Arc<Session>) {
    let mut in_a_row = 0_u32;
    loop {
        let synced = match session.identity().role {
            Role::Box => sync_box(manager, session).await,
            Role::Host => sync_host(manager, session).await,
        };
        let again = match synced {
            Ok(again) => again,
            Err(error) => {
                tracing::warn!("{}: its tables cannot be read: {error}", session.name());
                return;
            }
        };
        // It is given nothing before the records know what it has.
        if again != Again::Unwritten && session.set_ready() {
            connected(manager, session).await;
        }
        tokio::select! {
            biased;
            () = session.sync.notified() => {}
            () = tokio::time::sleep(look_again(&mut in_a_row, again, manager.settings.reconcile_interval)) => {}
        }
    }
}

/// When to look again, at the latest. A proxy that says that it has taken something out and has it
/// still is not asked without a pause.
fn look_again(in_a_row: &mut u32, again: Again, interval: Duration) -> Duration {
    if again == Again::Later {
        *in_a_row = 0;
        return interval;
    }
    let wait = match *in_a_row {
        0 if again == Again::Soon => Duration::ZERO,
        times => AGAIN.saturating_mul(1 << times.saturating_sub(1).min(16)),
    };
    *in_a_row += 1;
    wait.min(interval)
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

async fn sync_box(manager: &Arc<Manager>, session: &Arc<Session>) -> Result<Again, RequestError> {
    let (name, told) = (session.name(), session.told());
    let inventory = read_inventory(manager, session).await?;
    let size = session.identity().size;
    let (inventory, mut complaints) = sound::inventory(name, size, inventory);
    let before = manager.records.snapshot();
    let (table, others) = sound::slots(name, size, read_slots(manager, session).await?);
    // What is wrong with both is said once.
    let others: Vec<String> = others.into_iter().filter(|o| !complaints.contains(o)).collect();
    complaints.extend(others);
    complain(manager, session, complaints);
    let incarnation = session.identity().incarnation;
    let changed = manager.records.apply(|txn| {
        let rules = &manager.settings.erase;
        let diff = compare::box_tables(txn, &before, name, incarnation, &inventory, &table, rules);
        compare::take_moved(txn, name, |other| is_long_away(manager, other));
        diff
    });
    let Ok(diff) = changed.await else { return Ok(Again::Unwritten) };
    session.set_read(told);
    let mut again = Again::of(diff.unsure);
    // Before they are taken out: nobody gets a slot meanwhile, and nothing is forgotten by a crash.
    erase_orphans(manager, name, &diff.stray).await;
    for stray in diff.stray {
        // The host first: it must not use what the box is about to reset.
        if let Some(host) = stray.host.and_then(|node| host_session(manager, node))
            && let Ok(Again::Soon) = sync_host(manager, &host).await
        {
            host.sync.notify_one();
        }
        let bound = manager.settings.unbind_bound;
        match session.request(Request::UnbindSlot(stray.key), bound).await {
            Ok(_) => {
                let detail = format!("{name} had {} without a record", stray.key);
                let event = EventRecord::new(EventKind::OrphanRemoved, detail);
                manager.event_soon(event.node(name));
                again = Again::Soon;
            }
            Err(RequestError::Refused(error)) => {
                tracing::warn!("{name} keeps {}, which no record has: {error}", stray.key);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(again)
}

/// Says what of a proxy's report cannot be, unless that was so the last time.
fn complain(manager: &Manager, session: &Session, complaints: Vec<String>) {
    for complaint in session.new_complaints(complaints) {
        tracing::warn!("{complaint}; that is left out");
        let event = EventRecord::new(EventKind::ReportRefused, complaint);
        manager.event_soon(event.node(session.name()));
    }
}

/// Whether a box has been away for so long that what it had may be elsewhere. One that was not here
/// since the manager started has its time, too.
fn is_long_away(manager: &Manager, name: &NodeName) -> bool {
    let registry = &manager.registry;
    registry.get(name).is_none()
        && manager.started().elapsed() >= LONG_AWAY
        && registry.left_ago(name).is_none_or(|ago| ago >= LONG_AWAY)
}

/// What nobody knows to have been lent has data of somebody, too: after a restore also of another
/// tenant than the one who has the slot by the records, and who is not given it.
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
            if txn.erasure_at(slot).is_none() {
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

async fn sync_host(manager: &Arc<Manager>, session: &Arc<Session>) -> Result<Again, RequestError> {
    let name = session.name();
    let before = manager.records.snapshot();
    let table = read_mapping(manager, session).await?;
    let (table, complaints) = sound::ports(name, session.identity().size, table);
    complain(manager, session, complaints);
    let incarnation = session.identity().incarnation;
    let changed = events::record(manager, session, |txn| {
        compare::host_table(txn, &before, name, incarnation, &table)
    });
    let Ok(diff) = changed.await else { return Ok(Again::Unwritten) };
    session.set_stray_ports(diff.stray_ports);
    let mut again = Again::of(diff.unsure);
    for stray in diff.stray {
        let diff::StrayPort { port, box_node, slot, epoch } = stray;
        let mode = Removal::Force;
        let body = Request::UnbindPort { port, box_node, slot, epoch, mode };
        match session.request(body, manager.settings.unbind_bound).await {
            Ok(_) => {
                let detail = format!("{name} had epoch {epoch} at port {port}, which is nobody's");
                let event = EventRecord::new(EventKind::OrphanRemoved, detail);
                manager.event_soon(event.node(name));
                again = Again::Soon;
            }
            Err(RequestError::Refused(error)) => {
                tracing::warn!("{name} keeps a binding at port {port} without a record: {error}");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(again)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_keeps_what_it_says_that_it_took_out_is_asked_less_and_less() {
        let (mut in_a_row, interval) = (0, Duration::from_secs(1));
        let mut looks = |again| look_again(&mut in_a_row, again, interval).as_millis();
        assert_eq!([0; 6].map(|_| looks(Again::Soon)), [0, 100, 200, 400, 800, 1000]);
        assert_eq!((looks(Again::Later), looks(Again::Soon)), (1000, 0));
    }
}
