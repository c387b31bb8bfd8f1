//! What the API shows, made of the records. What it looks like is in [`manager_client::views`].

use crate::control::Session;
use crate::control::session::RootComplex;
use crate::manager::Manager;
use crate::operations::lease;
use crate::records::Tables;
use crate::types::{AllocationRecord, BindingRecord, DeviceRecord, NodeRecord, SlotAddress};
use manager_client::views::{
    AllocationView, BindingView, BoundFunction, Connection, FactsView, FunctionView, LeaseView,
    NodeView, RootComplexView, SlotView,
};
use proxy_core::control::{PathAddress, PathSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Of a connected proxy; nothing of a box, or of a host that has not said so yet.
pub(super) fn root_complex(
    manager: &Manager,
    tables: &Tables,
    session: &Session,
) -> Option<RootComplexView> {
    let RootComplex::Away { since, .. } = session.root_complex()? else {
        return Some(RootComplexView { present: true, away_ms: None, taken_back_in_ms: None });
    };
    let left = manager
        .settings
        .host_grace
        .and_then(|grace| manager.countdowns.left(session.name(), since, grace, tables));
    let ms = |time: Duration| time.as_millis().try_into().unwrap_or(u64::MAX);
    let away_ms = Some(ms(since.elapsed()));
    Some(RootComplexView { present: false, away_ms, taken_back_in_ms: left.map(ms) })
}

/// A path's end as a person writes it.
pub(super) fn path_text(path: &PathAddress) -> String {
    match path {
        PathAddress::Ethernet { mac, vlan } => {
            let mac: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
            let vlan = vlan.map(|vlan| format!(" vlan {vlan}")).unwrap_or_default();
            format!("ethernet {}{vlan}", mac.join(":"))
        }
        PathAddress::Udp4 { ip, port } => format!("udp {}:{port}", Ipv4Addr::from(*ip)),
        PathAddress::Udp6 { ip, port } => format!("udp [{}]:{port}", Ipv6Addr::from(*ip)),
    }
}

/// From the records and the connection.
pub(super) fn node(manager: &Manager, tables: &Tables, record: &NodeRecord) -> NodeView {
    let session = manager.registry.get(&record.name);
    let root_complex = session.as_ref().and_then(|s| root_complex(manager, tables, s));
    let connection = session.map(|session| {
        let identity = session.identity();
        Connection {
            remote: identity.remote.to_string(),
            since: identity.since,
            incarnation: identity.incarnation,
            mtu: identity.mtu,
            paths: identity.paths.iter().map(path_text).collect(),
            ready: session.is_ready(),
        }
    });
    NodeView {
        name: record.name.clone(),
        node: record.node.get(),
        role: record.role,
        size: record.size,
        connection,
        root_complex,
        first_seen: record.first_seen,
        last_connected: record.last_connected,
    }
}

/// A function of a device in a slot, from the records.
pub(super) fn function(tables: &Tables, device: &DeviceRecord) -> FunctionView {
    FunctionView {
        function: device.address.function.get(),
        state: device.state,
        model: device.model.clone(),
        pci: device.pci,
        serial: (device.serial != 0).then(|| format!("{:016x}", device.serial)),
        bars: device.bars.to_vec(),
        highest_epoch: tables.highest_epoch(&device.address).map(|epoch| epoch.to_string()),
    }
}

/// From the planner's view of it and the records.
pub(super) fn slot(tables: &Tables, view: &crate::planner::SlotView, connected: bool) -> SlotView {
    let functions = tables.functions(&view.address);
    SlotView {
        slot: view.address.clone(),
        status: view.status,
        connected,
        model: view.model.clone(),
        facts: facts(tables, &view.address),
        functions: functions.map(|device| function(tables, device)).collect(),
        owner: view.owner.clone(),
        binding: tables.binding_at_slot(&view.address).map(|binding| binding.id),
    }
}

/// What is known of a slot's device and its place.
pub(super) fn facts(tables: &Tables, address: &SlotAddress) -> FactsView {
    let Some(entry) = tables.pool_box(address.box_name()) else { return FactsView::default() };
    let Some(slot) = entry.slot(address.slot()) else { return FactsView::default() };
    let profile = slot.profile.map(|id| tables.pool().profile(id));
    FactsView {
        memory: profile.and_then(|profile| profile.memory),
        firmware: profile.and_then(|profile| profile.firmware.clone()),
        serial: (slot.serial != 0).then(|| format!("{:016x}", slot.serial)),
        kind: entry.shape().kind,
        rack: entry.rack.clone(),
        site: entry.site.clone(),
        island: slot.island,
        attributes: profile.map(|profile| profile.attributes.clone()).unwrap_or_default(),
        warnings: tables.contradictions(address),
    }
}

/// The numbers of the paths in a set.
pub(super) fn paths(set: PathSet) -> Vec<u8> {
    (0..8).filter(|path| set.0 >> path & 1 != 0).collect()
}

/// From the records.
pub(super) fn binding(tables: &Tables, binding: &BindingRecord) -> BindingView {
    let functions = binding
        .functions
        .iter()
        .map(|f| BoundFunction { function: f.function.get(), epoch: f.epoch.to_string() });
    let reported = || tables.model_in(&binding.slot).to_owned();
    BindingView {
        id: binding.id,
        allocation: binding.allocation,
        slot: binding.slot.clone(),
        model: Some(binding.model.clone()).filter(|m| !m.is_empty()).unwrap_or_else(reported),
        host: binding.host.clone(),
        port: binding.port.get(),
        paths: binding.path_set.map(paths).unwrap_or_default(),
        functions: functions.collect(),
        phase: binding.phase,
        desired: binding.desired,
        trouble: binding.trouble.clone(),
        operation: binding.operation,
        since: binding.since,
        changed: binding.changed,
    }
}

/// From the records.
pub(super) fn allocation(
    manager: &Manager,
    tables: &Tables,
    allocation: &AllocationRecord,
) -> AllocationView {
    let bindings = tables.bindings_of(allocation.id);
    let lease = allocation.lease.as_ref().map(|lease| {
        let left_ms = lease::left(manager, allocation.id, lease).as_millis() as u64;
        LeaseView { until: lease.until, left_ms }
    });
    AllocationView {
        id: allocation.id,
        host: allocation.host.clone(),
        reason: allocation.reason.clone(),
        tenant: allocation.tenant.clone(),
        wishes: allocation.wishes.clone(),
        since: allocation.since,
        link: allocation.link.clone(),
        lease,
        bindings: bindings.map(|record| binding(tables, record)).collect(),
    }
}
