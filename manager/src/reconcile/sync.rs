//! Reads a proxy's tables, compares them with the records and repairs what differs.

use super::diff;
use crate::control::{RequestError, Session};
use crate::manager::Manager;
use crate::operations::progress;
use crate::records::Txn;
use crate::types::{
    BindingId, BindingRecord, DeviceRecord, EventKind, EventRecord, FunctionAddress, FunctionEpoch,
    NodeName, Phase, Role, SlotAddress,
};
use proxy_core::control::{InventoryEntry, MappingEntry, Removal, Reply, Request, SlotEntry};
use std::collections::BTreeSet;
use std::sync::Arc;
use tlp_codec::ids::{BindingKey, Epoch};

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
    manager.event_now(event.node(&identity.name)).await;
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
    let page = |reply| match reply {
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
    let page = |reply| match reply {
        Reply::Slots { entries, next } => Some((entries.into_iter().collect(), next)),
        _ => None,
    };
    let ask = |from| Request::ReadTable { from };
    session.read_all(ask, page, manager.settings.request_bound).await
}

async fn read_inventory(
    manager: &Manager,
    session: &Session,
) -> Result<Vec<InventoryEntry>, RequestError> {
    let page = |reply| match reply {
        Reply::Inventory { entries, next } => Some((entries.into_iter().collect(), next)),
        _ => None,
    };
    let ask = |from| Request::ReadInventory { from };
    session.read_all(ask, page, manager.settings.request_bound).await
}

async fn sync_box(manager: &Arc<Manager>, session: &Arc<Session>) -> Result<(), RequestError> {
    let name = session.name();
    let inventory = read_inventory(manager, session).await?;
    let before = manager.records.snapshot();
    let table = read_slots(manager, session).await?;
    let changed = manager.records.change(|txn| {
        take_inventory(txn, name, &inventory);
        learn_epochs(txn, name, &table);
        fail_lost(txn, session);
        let diff = diff::of_box(name, &table, &before, txn);
        for id in &diff.missing {
            progress::missing(txn, *id, Phase::Reserved, name.as_str());
        }
        Ok(diff)
    });
    let Ok(diff) = changed.await else { return Ok(()) };
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
                erase_orphan(manager, name, stray.key).await;
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

/// What nobody knows to have been lent has data of somebody, too.
async fn erase_orphan(manager: &Arc<Manager>, name: &NodeName, key: BindingKey) {
    let Ok(slot) = SlotAddress::new(name.clone(), key.slot) else { return };
    let functions = [FunctionEpoch { function: key.function, epoch: key.epoch }];
    let begun = manager.records.apply(|txn| {
        if txn.binding_at_slot(&slot).is_none() && txn.erasure_at(&slot).is_none() {
            crate::erasure::begin(txn, &manager.settings.erase, &slot, &functions, None);
        }
    });
    if let Err(problem) = begun.await {
        tracing::error!("{slot} is not erased: {problem}");
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
    let changed = manager.records.change(|txn| {
        fail_lost(txn, session);
        let diff = diff::of_host(name, &table, &before, txn);
        for id in &diff.missing {
            progress::missing(txn, *id, Phase::SlotBound, name.as_str());
        }
        for id in &diff.failed {
            progress::failed(txn, *id, "the host's port shows its link down");
        }
        for id in &diff.configured {
            progress::configured(txn, *id, session.identity().incarnation);
        }
        Ok(diff)
    });
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

/// Fails what a proxy was given in an earlier life: it has lost it, and the other end may have
/// records of that life on their way.
fn fail_lost(txn: &mut Txn, session: &Session) {
    let identity = session.identity();
    let lost = |binding: &&BindingRecord| match identity.role {
        Role::Box => {
            binding.phase.at_box() && binding.box_incarnation != Some(identity.incarnation)
        }
        Role::Host => {
            binding.phase.at_host() && binding.host_incarnation != Some(identity.incarnation)
        }
    };
    let lost: Vec<BindingId> =
        txn.bindings_at(&identity.name).filter(lost).map(|binding| binding.id).collect();
    for id in lost {
        progress::failed(txn, id, &format!("{} restarted", identity.name));
    }
}

/// Enters what a box reported, and what it no longer reports.
fn take_inventory(txn: &mut Txn, name: &NodeName, inventory: &[InventoryEntry]) {
    let mut reported = BTreeSet::new();
    for entry in inventory {
        let Ok(slot) = SlotAddress::new(name.clone(), entry.slot) else {
            tracing::warn!("{name} reports a slot 0, which no box has");
            continue;
        };
        let device = DeviceRecord::from_inventory(slot, entry, txn.now());
        reported.insert(device.address.clone());
        if let Ok(highest) = Epoch::from_bits(entry.highest_epoch) {
            txn.learn_epoch(&device.address, highest);
        }
        let known = txn.devices().get(&device.address).cloned();
        if known.as_ref().is_some_and(|known| known.same_as(&device)) {
            continue;
        }
        let what = |d: &DeviceRecord| (d.model.clone(), d.pci, d.serial);
        if known.as_ref().map(&what) != Some(what(&device)) {
            let id = format!("{:04x}:{:04x}", device.pci.vendor, device.pci.device);
            let detail = format!("{}: {} {} ({id})", device.address, device.state, device.model);
            let event = EventRecord::new(EventKind::DeviceChanged, detail);
            txn.event(event.node(name).slot(&device.address.slot));
            let slot = device.address.slot.clone();
            txn.put_device(device);
            for warning in txn.contradictions(&slot) {
                let event = EventRecord::new(EventKind::InventoryContradicted, warning);
                txn.event(event.node(name).slot(&slot));
            }
            continue;
        }
        txn.put_device(device);
    }
    let gone: Vec<FunctionAddress> = txn
        .devices_of(name)
        .map(|device| device.address.clone())
        .filter(|address| !reported.contains(address))
        .collect();
    for address in gone {
        txn.remove_device(&address);
        let event = EventRecord::new(EventKind::DeviceChanged, format!("{address}: gone"));
        txn.event(event.node(name).slot(&address.slot));
    }
}

fn learn_epochs(txn: &mut Txn, name: &NodeName, table: &[SlotEntry]) {
    for entry in table {
        if let Ok(slot) = SlotAddress::new(name.clone(), entry.slot)
            && let Ok(epoch) = Epoch::from_bits(entry.epoch)
        {
            txn.learn_epoch(&FunctionAddress { slot, function: entry.function }, epoch);
        }
    }
}
