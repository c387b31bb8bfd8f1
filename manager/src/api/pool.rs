//! Boxes, slots, hosts, devices.

use super::App;
use super::extract::{Segments, parse};
use super::listing::{Listing, Paging};
use super::views;
use crate::manager::Manager;
use crate::planner::{PoolView, SlotStatus, SlotView as PlanSlot};
use crate::records::Tables;
use crate::types::{NodeName, Problem, ProblemCode, Role, SlotAddress};
use axum::Json;
use axum::extract::State;
use manager_client::bodies::ProblemBody;
use manager_client::views::{BoxView, DeviceView, HostView, List, NodeView, SlotView};
use serde::Deserialize;
use std::sync::Arc;
use tlp_codec::ids::SlotId;
use utoipa::IntoParams;

/// One look at everything.
struct Look {
    tables: Arc<Tables>,
    pool: PoolView,
}

impl Look {
    fn at(manager: &Manager) -> Self {
        let tables = manager.records.snapshot();
        let pool = PoolView::of(&tables, &manager.registry);
        Self { tables, pool }
    }

    fn node(&self, manager: &Manager, name: &NodeName) -> NodeView {
        views::node(manager, &self.tables, &self.tables.nodes()[name])
    }

    fn slots(&self, name: &NodeName) -> Vec<SlotView> {
        let view = &self.pool.boxes[name];
        let slots = view.slots.iter();
        slots.map(|slot| views::slot(&self.tables, slot, view.connected)).collect()
    }

    fn box_view(&self, manager: &Manager, name: &NodeName) -> BoxView {
        BoxView { node: self.node(manager, name), slots: self.slots(name) }
    }

    fn host_view(&self, manager: &Manager, name: &NodeName) -> HostView {
        let bindings = self.tables.bindings_at(name);
        HostView {
            node: self.node(manager, name),
            free_ports: self.pool.hosts[name].free_ports.iter().map(|port| port.get()).collect(),
            bindings: bindings.map(|binding| views::binding(&self.tables, binding)).collect(),
        }
    }

    /// Every slot as placement sees it, with whether its box is connected, by address.
    fn all_slots(&self) -> impl Iterator<Item = (SlotAddress, (&PlanSlot, bool))> {
        self.pool.boxes.values().flat_map(|view| {
            view.slots.iter().map(|slot| (slot.address.clone(), (slot, view.connected)))
        })
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
            let detail = format!("no {role} proxy with the name {name} was ever here");
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

impl ProxyFilter {
    fn lets(&self, connected: bool) -> bool {
        self.connected.is_none_or(|wanted| wanted == connected)
    }
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
    let boxes = look.pool.boxes.iter().filter(|(_, view)| filter.lets(view.connected));
    let boxes = boxes.map(|(name, _)| (name.clone(), name));
    paging.page(boxes, |name| Some(look.box_view(&manager, name))).map(Json)
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
    Ok(Json(look.box_view(&manager, &name)))
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
    fn lets(&self, slot: &PlanSlot, connected: bool) -> bool {
        let host = slot.owner.as_ref().map(|owner| &owner.host);
        self.status.is_none_or(|status| status == slot.status)
            && self.connected.is_none_or(|wanted| wanted == connected)
            && slot.has_model(self.model.as_deref())
            && self.in_box.as_ref().is_none_or(|name| name == slot.address.box_name())
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
    let slots = look.all_slots().filter(|(_, (slot, connected))| filter.lets(slot, *connected));
    let view = |(slot, connected)| Some(views::slot(&look.tables, slot, connected));
    paging.page(slots, view).map(Json)
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
    let slots = look.slots(address.box_name());
    Ok(slots.into_iter().find(|view| view.slot == address).expect("slots up to its size"))
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
    let hosts = look.pool.hosts.iter().filter(|(_, view)| filter.lets(view.connected));
    let hosts = hosts.map(|(name, _)| (name.clone(), name));
    paging.page(hosts, |name| Some(look.host_view(&manager, name))).map(Json)
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
    Ok(Json(look.host_view(&manager, &name)))
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
    let slots = look.all_slots().filter(|(_, (slot, connected))| {
        filter.lets(slot, *connected) && slot.status != SlotStatus::Empty
    });
    let devices = slots.flat_map(|(address, (slot, connected))| {
        let devices = look.tables.functions(&address);
        devices.map(move |device| {
            ((address.clone(), device.address.function), (slot, connected, device))
        })
    });
    let view = |(slot, connected, device): (&PlanSlot, bool, _)| {
        Some(DeviceView {
            slot: slot.address.clone(),
            status: slot.status,
            connected,
            function: views::function(&look.tables, device),
            facts: views::facts(&look.tables, &slot.address),
            owner: slot.owner.clone(),
        })
    };
    paging.page(devices, view).map(Json)
}
