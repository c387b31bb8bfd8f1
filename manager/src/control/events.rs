//! What a proxy reports, turned into records. Handled in the order in which it was sent, before
//! any later message of the same proxy is read: a report about a binding that ended cannot be
//! taken for its successor's.

use super::Session;
use crate::manager::Manager;
use crate::operations::progress;
use crate::records::{Tables, Txn};
use crate::types::text::plain;
use crate::types::{
    BindingId, BindingRecord, DeviceState, EventKind, EventRecord, FunctionAddress, NodeName,
    Problem, Role, SlotAddress,
};
use proxy_core::control::{
    BindingFailure, Event, LinkDownReason, PortState, ResetReport, SlotState,
};
use std::sync::Arc;
use std::time::Duration;
use tlp_codec::ids::{BindingKey, NodeId, PortId, SlotFunction, SlotId};

/// Takes in one event.
pub async fn handle(manager: &Arc<Manager>, session: &Arc<Session>, event: Event) {
    let name = session.name();
    match event {
        Event::LinkUp { peer } => {
            link_up(manager, session, peer);
            let detail = format!("{name}: link to {} is up", called(manager, peer));
            manager.event_soon(EventRecord::new(EventKind::LinkUp, detail).node(name));
        }
        Event::PathLost { peer, path } => {
            if !path_seen(manager, name, peer, path.get(), false) {
                return;
            }
            let detail = format!(
                "{name}: what it sends to {} by path {path} does not arrive; the other paths carry it",
                called(manager, peer)
            );
            manager.event_soon(EventRecord::new(EventKind::PathLost, detail).node(name));
        }
        Event::PathFound { peer, path } => {
            if !path_seen(manager, name, peer, path.get(), true) {
                return;
            }
            let detail = format!("{name}: path {path} to {} carries frames", called(manager, peer));
            manager.event_soon(EventRecord::new(EventKind::PathFound, detail).node(name));
        }
        Event::LinkDown { peer, reason } => link_down(manager, session, peer, reason),
        Event::BindingFailed { peer, key, reason } => {
            binding_failed(manager, session, peer, key, reason).await;
        }
        Event::Port { port, state } => port_changed(manager, session, port, state).await,
        Event::DeviceConfigured { port } => configured(manager, session, port).await,
        Event::Slot { slot, function, state } => {
            let key = (slot, function);
            slot_changed(manager, session, key, state).await;
        }
        Event::RootComplex { present } => root_complex(manager, session, present),
    }
}

/// Takes in why a card's life began.
pub fn card_reset(manager: &Manager, session: &Session, report: &ResetReport) {
    let name = session.name();
    let ResetReport { cause, boots, lived_ms, place, text } = report;
    let mut detail = format!("{name} was reset: {cause}");
    if *lived_ms > 0 {
        let lived = Duration::from_millis(*lived_ms);
        detail += &format!(", {} after its start", humantime::format_duration(lived));
    }
    if *place > 0 {
        detail += &format!(", at {place:#010x}");
    }
    if !text.is_empty() {
        detail += &format!(": {}", plain(text));
    }
    detail += &format!(" (start {boots} since power came on)");
    if cause.is_failure() {
        tracing::warn!("{detail}");
    }
    manager.event_soon(EventRecord::new(EventKind::CardReset, detail).node(name));
}

/// Takes in whether a host has a root complex, which both an event and its table say.
pub fn root_complex(manager: &Manager, session: &Session, present: bool) {
    let identity = session.identity();
    if identity.role != Role::Host || !session.set_root_complex(present) {
        return;
    }
    let name = &identity.name;
    let (kind, detail) = match (present, manager.settings.host_grace) {
        (true, _) => (EventKind::RootComplexFound, format!("{name} has a root complex")),
        (false, Some(grace)) => {
            let bound = grace.as_secs();
            let what = format!("{name} has no root complex");
            let what = format!("{what}; what it has is taken back if none comes within {bound} s");
            (EventKind::RootComplexLost, what)
        }
        (false, None) => (EventKind::RootComplexLost, format!("{name} has no root complex")),
    };
    manager.event_soon(EventRecord::new(kind, detail).node(name));
}

fn link_up(manager: &Manager, session: &Session, peer: NodeId) {
    let tables = manager.records.snapshot();
    let Some(to) = tables.node_by_number(peer) else { return };
    // As many as both have; of one that is away it is not known.
    if let Some(peer) = manager.registry.get(&to.name) {
        manager.observed.link_up(session.name(), &to.name, session.common_paths(&peer));
    }
}

/// Whether that is news.
fn path_seen(manager: &Manager, from: &NodeName, peer: NodeId, path: u8, arrives: bool) -> bool {
    let tables = manager.records.snapshot();
    let to = tables.node_by_number(peer);
    to.is_some_and(|to| manager.observed.path(from, &to.name, path, arrives))
}

fn called(manager: &Manager, node: NodeId) -> String {
    let tables = manager.records.snapshot();
    let name = tables.node_by_number(node).map(|n| n.name.to_string());
    name.unwrap_or_else(|| format!("node {node}"))
}

/// The bindings between a proxy and a peer of it that a condition holds for.
fn between(
    tables: &Tables,
    session: &Session,
    peer: NodeId,
    condition: impl Fn(&BindingRecord) -> bool,
) -> Vec<BindingId> {
    let Some(peer) = tables.node_by_number(peer) else { return Vec::new() };
    tables
        .bindings_at(session.name())
        .filter(|b| b.host == peer.name || *b.slot.box_name() == peer.name)
        .filter(|b| condition(b))
        .map(|b| b.id)
        .collect()
}

/// Changes the records for a proxy. What its operating system let go of while the store could not be
/// written goes before: what failed by that is not to be made again.
pub async fn record<R>(
    manager: &Manager,
    session: &Session,
    change: impl FnOnce(&mut Txn) -> R,
) -> Result<R, Problem> {
    let kept = session.let_go();
    let changed = manager.records.apply(|txn| {
        for (peer, key) in &kept {
            let_go(txn, session, *peer, *key);
        }
        change(txn)
    });
    let result = changed.await?;
    session.let_go_recorded(&kept);
    Ok(result)
}

/// Whether that is of any binding.
fn let_go(txn: &mut Txn, session: &Session, peer: NodeId, key: BindingKey) -> bool {
    let which = between(txn, session, peer, |b| b.has_key(key));
    for id in &which {
        progress::let_go(txn, *id);
    }
    !which.is_empty()
}

async fn fail(
    manager: &Manager,
    session: &Session,
    why: &str,
    which: impl FnOnce(&Tables) -> Vec<BindingId>,
) {
    let changed = record(manager, session, |txn| {
        for id in which(txn) {
            progress::failed(txn, id, why);
        }
    });
    if let Err(problem) = changed.await {
        tracing::error!("a failed binding cannot be recorded: {problem}");
    }
}

fn link_down(manager: &Manager, session: &Session, peer: NodeId, reason: LinkDownReason) {
    let name = session.name();
    let why = match reason {
        LinkDownReason::GaveUp => "nothing was acknowledged within its bound",
        LinkDownReason::PeerRestarted => "the peer restarted",
        LinkDownReason::PeerClosed => "the peer's end went down",
        LinkDownReason::Removed => "the peer was removed",
        LinkDownReason::Protocol => "the peer broke the protocol",
    };
    let detail = format!("{name}: link to {} is down: {why}", called(manager, peer));
    manager.event_soon(EventRecord::new(EventKind::LinkDown, detail).node(name));
    // What was bound over it fails by its own reports, which say its epochs: this one may come behind
    // the answers to what was bound over the next link.
    look_again(manager, session, peer);
}

/// Has the tables of both ends read: what was just being bound may be dead without a record that
/// it was alive.
fn look_again(manager: &Manager, session: &Session, peer: NodeId) {
    session.sync.notify_one();
    let tables = manager.records.snapshot();
    let peer = tables.node_by_number(peer).and_then(|node| manager.registry.get(&node.name));
    if let Some(peer) = peer {
        peer.sync.notify_one();
    }
}

async fn binding_failed(
    manager: &Arc<Manager>,
    session: &Arc<Session>,
    peer: NodeId,
    key: BindingKey,
    reason: BindingFailure,
) {
    if reason == BindingFailure::HostLetGo {
        // A proxy may say anything: what is of no binding is not kept.
        let mut is_of_any = false;
        let changed =
            manager.records.apply(|txn| is_of_any = let_go(txn, session, peer, key)).await;
        if let Err(problem) = changed {
            tracing::error!("that a host let go cannot be recorded: {problem}");
            // It is told again on the next connection alone, and the table shows only that the port failed.
            if is_of_any {
                session.keep_let_go(peer, key);
            }
        }
        return;
    }
    let which = |tables: &Tables| between(tables, session, peer, |b| b.has_key(key));
    if matches!(reason, BindingFailure::TlpCrc | BindingFailure::DeviceGone) {
        let tables = manager.records.snapshot();
        for id in which(&tables) {
            let binding = &tables.bindings()[&id];
            manager.observed.error(&tables, binding, &manager.settings.health);
        }
    }
    let why = format!("{} says: {}", session.name(), failure(reason));
    fail(manager, session, &why, which).await;
    look_again(manager, session, peer);
}

fn failure(reason: BindingFailure) -> &'static str {
    match reason {
        BindingFailure::TlpCrc => "a TLP was damaged inside a whole frame",
        BindingFailure::PeerUnbound => "the other end does not have the binding",
        BindingFailure::DeviceGone => "the device was pulled or failed",
        BindingFailure::LinkDown => "the link went down",
        BindingFailure::HostLetGo => "the host's operating system let go of it",
    }
}

async fn port_changed(
    manager: &Arc<Manager>,
    session: &Arc<Session>,
    port: PortId,
    state: PortState,
) {
    let name = session.name();
    let what = match state {
        PortState::Empty => "empty",
        PortState::Placeholder => "a placeholder",
        PortState::Linking => "waiting for its link",
        PortState::Present => "present",
        PortState::Removing => "asked to let go",
        PortState::Failed => "failed",
    };
    let detail = format!("{name}: port {port} is {what}");
    manager.event_soon(EventRecord::new(EventKind::PortChanged, detail).node(name));
    if state == PortState::Failed {
        let why = format!("{name}: port {port} lost its link");
        fail(manager, session, &why, |tables| {
            let binding = tables.binding_at_port(name, port).filter(|b| b.phase.at_box());
            binding.map(|b| b.id).into_iter().collect()
        })
        .await;
    }
}

async fn configured(manager: &Arc<Manager>, session: &Arc<Session>, port: PortId) {
    let identity = session.identity();
    let changed = manager.records.apply(|txn| {
        let binding = txn.binding_at_port(&identity.name, port).map(|b| b.id);
        if let Some(id) = binding {
            progress::configured(txn, id, identity.incarnation);
        }
    });
    if let Err(problem) = changed.await {
        tracing::error!("a configured device cannot be recorded: {problem}");
    }
}

async fn slot_changed(
    manager: &Arc<Manager>,
    session: &Arc<Session>,
    (slot, function): (SlotId, SlotFunction),
    state: SlotState,
) {
    let name: &NodeName = session.name();
    if session.identity().role != Role::Box {
        return;
    }
    // What is in the slot may have changed too.
    session.slot_told();
    let Ok(slot) = SlotAddress::new(name.clone(), slot) else { return };
    let changed = manager.records.change(|txn| {
        slot_became(txn, name, &FunctionAddress { slot, function }, state.into());
        Ok(())
    });
    if let Err(problem) = changed.await {
        tracing::error!("a slot's state cannot be recorded: {problem}");
    }
}

/// Enters what a box says a slot's function has become.
fn slot_became(txn: &mut Txn, name: &NodeName, address: &FunctionAddress, state: DeviceState) {
    let Some(before) = txn.devices().get(address).map(|device| device.state) else { return };
    if state == DeviceState::Quarantined && before != state {
        let detail = format!("{} is quarantined", address.slot);
        let event = EventRecord::new(EventKind::SlotQuarantined, detail);
        txn.event(event.node(name).slot(&address.slot));
    }
    // Of an empty slot only the first function is told.
    let same: Vec<_> = match state {
        DeviceState::Empty => txn.functions(&address.slot).map(|d| d.address.clone()).collect(),
        _ => vec![address.clone()],
    };
    for address in &same {
        txn.device_became(address, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::test_device::gpu;
    use crate::types::SlotStatus;

    #[test]
    fn a_device_that_was_put_in_is_lent_only_when_the_inventory_says_what_it_is() {
        let mut txn = Txn::new(Tables::default());
        let slot: SlotAddress = "box1/1".parse().unwrap();
        let name = slot.box_name().clone();
        let [first, second] = [0, 1].map(|n| FunctionAddress {
            slot: slot.clone(),
            function: SlotFunction::new(n).unwrap(),
        });
        for address in [&first, &second] {
            txn.put_device(gpu(&slot, address.function, 7, txn.now()));
        }
        assert_eq!(txn.slot_status(&slot), SlotStatus::Free);
        slot_became(&mut txn, &name, &first, DeviceState::Empty);
        assert_eq!(txn.slot_status(&slot), SlotStatus::Empty, "all of its functions");
        slot_became(&mut txn, &name, &first, DeviceState::Probing);
        slot_became(&mut txn, &name, &first, DeviceState::Free);
        assert_eq!(txn.slot_status(&slot), SlotStatus::Probing, "the second one is not known yet");
        // A reset between two tenants leaves the device what it is.
        txn.device_became(&first, DeviceState::Releasing);
        slot_became(&mut txn, &name, &first, DeviceState::Free);
        assert_eq!(txn.slot_status(&slot), SlotStatus::Free);
    }
}
