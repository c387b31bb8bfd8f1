//! Boxes, slots, hosts, devices.

use super::App;
use super::conditional::shown;
use super::extract::{Segments, parse};
use super::listing::{Listing, Paging};
use super::views;
use crate::manager::Manager;
use crate::planner::{self, Liveness, SlotStatus, SlotView as PlanSlot};
use crate::records::Tables;
use crate::types::{NodeName, NodeRecord, Problem, ProblemCode, Role, SlotAddress};
use axum::Json;
use axum::extract::State;
use manager_client::bodies::ProblemBody;
use manager_client::views::{BoxView, DeviceView, HostView, List, NodeView, SlotView};
use serde::Deserialize;
use std::sync::Arc;
use tlp_codec::ids::SlotId;
use utoipa::IntoParams;

/// One look at the pool. Only what is asked for is put together.
struct Look<'a> {
    manager: &'a Manager,
    tables: Arc<Tables>,
}

impl<'a> Look<'a> {
    fn at(manager: &'a Manager) -> Self {
        Self { manager, tables: manager.records.snapshot() }
    }

    fn is_connected(&self, name: &NodeName) -> bool {
        self.manager.registry.is_ready(name)
    }

    /// The proxies of a role that are connected, or are not, or either, by name.
    fn proxies(&self, role: Role, connected: Option<bool>) -> impl Iterator<Item = &NodeRecord> {
        let wanted = move |node: &&NodeRecord| {
            node.role == role
                && connected.is_none_or(|wanted| wanted == self.is_connected(&node.name))
        };
        self.tables.nodes().values().filter(wanted)
    }

    fn node(&self, record: &NodeRecord) -> NodeView {
        views::node(self.manager, &self.tables, record)
    }

    fn slot(&self, slot: &PlanSlot) -> SlotView {
        let connected = self.is_connected(slot.address.box_name());
        views::slot(&self.tables, slot, connected)
    }

    fn box_view(&self, record: &NodeRecord) -> BoxView {
        let slots = planner::slots(&self.tables, &record.name, record.size);
        BoxView { node: self.node(record), slots: slots.map(|slot| self.slot(&slot)).collect() }
    }

    fn host_view(&self, record: &NodeRecord) -> HostView {
        let name = &record.name;
        let free = planner::free_ports(&self.tables, &self.manager.registry, name);
        let bindings = self.tables.bindings_at(name);
        HostView {
            node: self.node(record),
            free_ports: free.into_iter().map(|port| port.get()).collect(),
            bindings: bindings.map(|binding| views::binding(&self.tables, binding)).collect(),
        }
    }

    /// Every slot that a filter lets through as placement sees it, by address.
    fn all_slots(&self, filter: &Filter) -> impl Iterator<Item = PlanSlot> {
        let boxes = self.proxies(Role::Box, filter.connected);
        let boxes =
            boxes.filter(|node| filter.in_box.as_ref().is_none_or(|name| *name == node.name));
        let slots = boxes.flat_map(|node| planner::slots(&self.tables, &node.name, node.size));
        slots.filter(|slot| filter.lets(slot))
    }
}

/// A proxy of a role, or why not.
pub(super) fn find(tables: &Tables, name: &str, role: Role) -> Result<NodeName, Problem> {
    let name: NodeName = parse("name", name)?;
    match tables.nodes().get(&name) {
        Some(node) if node.role == role => Ok(name),
        Some(node) => {
            Err(Problem::new(ProblemCode::WrongRole, format!("{name} is a {}", node.role)))
        }
        None => {
            let code = match role {
                Role::Host => ProblemCode::NoSuchHost,
                Role::Box => ProblemCode::NoSuchBox,
            };
            let detail =
                format!("there is no {role} proxy with the name {name}, or it was forgotten");
            Err(Problem::new(code, detail))
        }
    }
}

/// A slot of a box, or why not.
pub(super) fn find_slot(
    tables: &Tables,
    box_name: &str,
    slot: &str,
) -> Result<SlotAddress, Problem> {
    let name = find(tables, box_name, Role::Box)?;
    let number: SlotId = slot
        .parse()
        .ok()
        .and_then(|number| SlotId::new(number).ok())
        .ok_or_else(|| Problem::invalid("slot", "a number from 1 to 255"))?;
    let size = tables.nodes()[&name].size;
    match SlotAddress::new(name.clone(), number) {
        Ok(address) if number.get() <= size => Ok(address),
        _ => {
            let detail = format!("box {name} has no slot {number}; its slots are 1 to {size}");
            Err(Problem::new(ProblemCode::NoSuchSlot, detail))
        }
    }
}

/// Which boxes or hosts.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ProxyFilter {
    /// Only those that are connected, or are not.
    connected: Option<bool>,
}

/// All boxes with their slots.
#[utoipa::path(get, path = "/v1/boxes", tag = "pool", params(ProxyFilter, Paging),
    responses((status = 200, description = "By name", body = List<BoxView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn boxes(
    State(manager): State<App>,
    Listing(filter, paging): Listing<ProxyFilter>,
) -> Result<Json<List<BoxView>>, Problem> {
    let look = Look::at(&manager);
    let boxes = look.proxies(Role::Box, filter.connected).map(|node| (node.name.clone(), node));
    paging.page(boxes, |node| Some(look.box_view(node))).map(Json)
}

/// One box with its slots.
#[utoipa::path(get, path = "/v1/boxes/{name}", tag = "pool",
    params(("name" = String, Path, description = "Name of the box")),
    responses((status = 200, description = "The box", body = BoxView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn show_box(
    State(manager): State<App>,
    Segments(name): Segments<String>,
) -> Result<Json<BoxView>, Problem> {
    let look = Look::at(&manager);
    let name = find(&look.tables, &name, Role::Box)?;
    Ok(Json(look.box_view(&look.tables.nodes()[&name])))
}

/// Which slots or devices.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Only with this status.
    status: Option<SlotStatus>,
    /// Only in boxes that are connected, or are not.
    connected: Option<bool>,
    /// Only with this model.
    model: Option<String>,
    /// Only in this box.
    #[serde(rename = "box")]
    in_box: Option<NodeName>,
    /// Only lent to this host.
    host: Option<NodeName>,
}

impl Filter {
    /// Whether it lets through a slot of a box that it lets through.
    fn lets(&self, slot: &PlanSlot) -> bool {
        let host = slot.owner.as_ref().map(|owner| &owner.host);
        self.status.is_none_or(|status| status == slot.status)
            && slot.has_model(self.model.as_deref())
            && self.host.as_ref().is_none_or(|name| Some(name) == host)
    }
}

/// All slots.
#[utoipa::path(get, path = "/v1/slots", tag = "pool", params(Filter, Paging),
    responses((status = 200, description = "By box and number", body = List<SlotView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn slots(
    State(manager): State<App>,
    Listing(filter, paging): Listing<Filter>,
) -> Result<Json<List<SlotView>>, Problem> {
    let look = Look::at(&manager);
    let slots = look.all_slots(&filter).map(|slot| (slot.address.clone(), slot));
    paging.page(slots, |slot| Some(look.slot(&slot))).map(Json)
}

/// One slot.
#[utoipa::path(get, path = "/v1/boxes/{name}/slots/{slot}", tag = "pool",
    params(("name" = String, Path, description = "Name of the box"),
        ("slot" = u8, Path, description = "Number of the slot, from 1")),
    responses((status = 200, description = "The slot", body = SlotView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn show_slot(
    State(manager): State<App>,
    Segments((name, slot)): Segments<(String, String)>,
) -> Result<Json<SlotView>, Problem> {
    slot_view(&manager, &name, &slot).map(Json)
}

/// One slot as it is now.
pub(super) fn slot_view(manager: &Manager, name: &str, slot: &str) -> Result<SlotView, Problem> {
    let look = Look::at(manager);
    let address = find_slot(&look.tables, name, slot)?;
    Ok(look.slot(&PlanSlot::of(&look.tables, address)))
}

/// One slot as the API shows it, if there is one.
pub(super) fn shown_slot(
    manager: &Manager,
    tables: &Tables,
    address: &SlotAddress,
) -> Option<Vec<u8>> {
    let there = tables.nodes().get(address.box_name())?;
    if there.role != Role::Box || address.slot().get() > there.size {
        return None;
    }
    let connected = manager.registry.is_ready(address.box_name());
    Some(shown(&views::slot(tables, &PlanSlot::of(tables, address.clone()), connected)))
}

/// All hosts with what they have.
#[utoipa::path(get, path = "/v1/hosts", tag = "pool", params(ProxyFilter, Paging),
    responses((status = 200, description = "By name", body = List<HostView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn hosts(
    State(manager): State<App>,
    Listing(filter, paging): Listing<ProxyFilter>,
) -> Result<Json<List<HostView>>, Problem> {
    let look = Look::at(&manager);
    let hosts = look.proxies(Role::Host, filter.connected).map(|node| (node.name.clone(), node));
    paging.page(hosts, |node| Some(look.host_view(node))).map(Json)
}

/// One host with what it has.
#[utoipa::path(get, path = "/v1/hosts/{name}", tag = "pool",
    params(("name" = String, Path, description = "Name of the host")),
    responses((status = 200, description = "The host", body = HostView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn show_host(
    State(manager): State<App>,
    Segments(name): Segments<String>,
) -> Result<Json<HostView>, Problem> {
    let look = Look::at(&manager);
    let name = find(&look.tables, &name, Role::Host)?;
    Ok(Json(look.host_view(&look.tables.nodes()[&name])))
}

/// All devices: each function of each slot that has one.
#[utoipa::path(get, path = "/v1/devices", tag = "pool", params(Filter, Paging),
    responses((status = 200, description = "By box, slot and function", body = List<DeviceView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn devices(
    State(manager): State<App>,
    Listing(filter, paging): Listing<Filter>,
) -> Result<Json<List<DeviceView>>, Problem> {
    let look = Look::at(&manager);
    let slots = look.all_slots(&filter).filter(|slot| slot.status != SlotStatus::Empty);
    let devices = slots.flat_map(|slot| {
        let devices = look.tables.functions(&slot.address);
        devices.map(move |device| {
            ((slot.address.clone(), device.address.function), (slot.clone(), device))
        })
    });
    let view = |(slot, device): (PlanSlot, _)| {
        Some(DeviceView {
            connected: look.is_connected(slot.address.box_name()),
            function: views::function(&look.tables, device),
            facts: views::facts(&look.tables, &slot.address),
            slot: slot.address,
            status: slot.status,
            owner: slot.owner,
        })
    };
    paging.page(devices, view).map(Json)
}
