//! Placement: which slots, and which ports, a request gets. Pure: the records, who is there and a
//! [`PlanRequest`] in, a [`Plan`] or a reason out. How it chooses is in docs/placement.md.

mod cel;
mod choose;
mod constraints;
mod explain;
mod filter;
mod held;
mod kept;
mod named;
mod ranked;
mod view;

#[cfg(test)]
mod tests;

pub use crate::types::SlotStatus;
pub use view::{BoxView, Everybody, HostView, Liveness, PoolView, SlotView, free_ports, slots};

use crate::records::Tables;
use crate::spares::SparesConfig;
use crate::types::{
    AllocationRecord, Exclude, Explanation, LinkUse, NodeName, Problem, ProblemCode, Role,
    SlotAddress, Together, Wishes,
};
use choose::{Chooser, Place};
use filter::Filter;
use named::named_slot;
use proxy_core::limits::MAX_PORTS;
use std::sync::Arc;
use tlp_codec::ids::{PortId, SlotFunction, SlotId};

/// Most slots that one request can ask for: no host has more ports.
pub const MAX_COUNT: u32 = MAX_PORTS as u32;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    /// The host.
    pub host: NodeName,
    /// How many slots, 1 to [`MAX_COUNT`].
    pub count: u32,
    /// Only this slot; with a box, and for a count of 1.
    pub slot: Option<SlotId>,
    /// Only in the island of this slot, whose box is named: to be together with what is lent
    /// there.
    pub island_of: Option<SlotAddress>,
    /// How many more of an allocation leave where they are, one after the other, and are to find
    /// room with it: free devices that will do, in the same box or island, and that box's bandwidth.
    pub beside: u32,
    /// Which slots.
    pub wishes: Wishes,
    /// How the devices are to use the links: by it they have their bandwidth and their paths.
    pub link: LinkUse,
}

impl PlanRequest {
    /// Any one slot for a host.
    pub fn for_host(host: NodeName) -> Self {
        let (wishes, link) = (Wishes::default(), LinkUse::default());
        Self { host, count: 1, slot: None, island_of: None, beside: 0, wishes, link }
    }

    /// One more slot by the wishes of an allocation that there is.
    pub fn like(allocation: &AllocationRecord) -> Self {
        let (wishes, link) = (allocation.wishes.clone(), allocation.link.clone());
        Self { wishes, link, ..Self::for_host(allocation.host.clone()) }
    }
}

/// One slot for one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The slot.
    pub slot: SlotAddress,
    /// Its functions, lowest first, never empty.
    pub functions: Vec<SlotFunction>,
    /// The host's port.
    pub port: PortId,
}

/// What a request gets: as many placements as it asked for.
pub type Plan = Vec<Placement>;

/// A request of which everything is worked out that takes long and does not have to be found out
/// while the records stand still.
pub struct Prepared {
    request: PlanRequest,
    cel: Option<Arc<cel::Parsed>>,
    verdicts: Option<filter::Verdicts>,
    spares: SparesConfig,
}

impl Prepared {
    /// Checks a request and reads its expression.
    ///
    /// # Errors
    ///
    /// The field that is wrong, and why.
    pub fn read(request: PlanRequest) -> Result<Self, Problem> {
        check(&request)?;
        let cel = request.wishes.cel.as_deref().map(cel::Parsed::read).transpose();
        let cel = cel.map_err(|why| Problem::invalid("cel", why))?;
        Ok(Self { request, cel, verdicts: None, spares: SparesConfig::default() })
    }

    /// The spares that are kept, which it does not take.
    pub fn keeping(self, spares: &SparesConfig) -> Self {
        Self { spares: spares.clone(), ..self }
    }

    /// The request.
    pub fn request(&self) -> &PlanRequest {
        &self.request
    }

    /// Whether its expression has to be asked of single boxes or devices.
    pub fn asks_devices(&self) -> bool {
        self.cel.as_ref().is_some_and(|cel| cel.level() != cel::Level::Profile)
    }

    /// Asks its expression of the devices that a choice looks at, so that [`choose`] need not,
    /// unless they have changed since.
    pub fn ask_devices(&mut self, tables: &Tables, live: &impl Liveness) {
        self.verdicts = None;
        let Ok(ports) = find_host(&self.request, tables, live) else { return };
        let filter = Filter::new(self, tables, live);
        // What comes of it is not known yet; what it asked on the way is.
        let _ = Chooser::new(&filter, live).pick(ports.len());
        self.verdicts = Some(filter.into_verdicts());
    }
}

/// Chooses. All or nothing: nothing if nothing fits, whatever the reason.
///
/// # Errors
///
/// A typed problem for a host, box or slot that cannot be.
pub fn choose(
    prepared: &Prepared,
    tables: &Tables,
    live: &impl Liveness,
) -> Result<Option<Plan>, Problem> {
    decide(prepared, tables, live, |_, chosen, ports| {
        Some(chosen?.into_iter().zip(ports).map(|(at, port)| placed(tables, at, *port)).collect())
    })
}

/// As [`choose`], with what has to be worked out before.
///
/// # Errors
///
/// Why nothing fits: a typed problem for a host, box or slot that cannot be, else
/// [`ProblemCode::NothingFits`] with a reason for each constraint. That looks at every device.
pub fn plan(request: &PlanRequest, tables: &Tables, live: &impl Liveness) -> Result<Plan, Problem> {
    plan_prepared(&Prepared::read(request.clone())?, tables, live)
}

/// As [`plan`], of what was worked out before.
///
/// # Errors
///
/// As [`plan`].
pub fn plan_prepared(
    prepared: &Prepared,
    tables: &Tables,
    live: &impl Liveness,
) -> Result<Plan, Problem> {
    decide(prepared, tables, live, |chooser, chosen, ports| {
        let places = chosen.ok_or_else(|| explain::nothing_fits(chooser, ports))?;
        Ok(places.into_iter().zip(ports).map(|(at, port)| placed(tables, at, *port)).collect())
    })?
}

/// Chooses, and says why. Where nothing fits, the explanation has no slots.
///
/// # Errors
///
/// As [`plan`], but never [`ProblemCode::NothingFits`] where slots are not named.
pub fn explain(
    prepared: &Prepared,
    tables: &Tables,
    live: &impl Liveness,
) -> Result<Explanation, Problem> {
    decide(prepared, tables, live, |chooser, chosen, ports| {
        explain::explain(chooser, chosen.as_deref(), ports)
    })
}

/// Chooses, and has something made of it: so many places as are wanted, or none, and the host's free
/// ports.
fn decide<L: Liveness, R>(
    prepared: &Prepared,
    tables: &Tables,
    live: &L,
    make: impl FnOnce(&Chooser<'_, L>, Option<Vec<Place>>, &[PortId]) -> R,
) -> Result<R, Problem> {
    let request = &prepared.request;
    let free_ports = find_host(request, tables, live)?;
    if let Some(name) = &request.wishes.box_name {
        find_box(name, tables, live)?;
    }
    let filter = Filter::new(prepared, tables, live);
    let chooser = Chooser::new(&filter, live);
    let chosen = chooser.pick(free_ports.len())?;
    Ok(make(&chooser, chosen, &free_ports))
}

impl<'a, L: Liveness> Chooser<'a, L> {
    fn new(filter: &'a Filter<'a>, live: &'a L) -> Self {
        let (capacity, taken) = filter.tables.host_bandwidth(&filter.request.host);
        Self { filter, live, room: capacity.saturating_sub(taken) }
    }

    /// The slots that the request gets, if there are enough, and as many of the host's ports.
    fn pick(&self, ports: usize) -> Result<Option<Vec<Place>>, Problem> {
        let request = self.filter.request;
        let chosen = match (&request.wishes.box_name, request.slot) {
            (Some(name), Some(slot)) => named_slot(name, slot, self)?,
            _ if ports < request.count as usize => None,
            _ => self.choose(),
        };
        Ok(chosen.filter(|_| ports >= request.count as usize))
    }
}

fn placed(tables: &Tables, (node, slot): Place, port: PortId) -> Placement {
    let entry = tables.pool().get(node).expect("it was chosen from there");
    let slot = entry.address(slot);
    let functions = view::functions(tables, &slot).map(|d| d.address.function).collect();
    Placement { functions, port, slot }
}

fn check(request: &PlanRequest) -> Result<(), Problem> {
    if !(1..=MAX_COUNT).contains(&request.count) {
        return Err(Problem::invalid("count", format!("1 to {MAX_COUNT}, not {}", request.count)));
    }
    if request.slot.is_some() && request.wishes.box_name.is_none() {
        return Err(Problem::invalid("slot", "a slot is named together with its box"));
    }
    if request.slot.is_some() && request.count != 1 {
        return Err(Problem::invalid("count", "one named slot is one slot"));
    }
    if request.wishes.together == Together::Spread
        && request.wishes.box_name.is_some()
        && request.count > 1
    {
        return Err(Problem::invalid("together", "one box is named, and they are to be spread"));
    }
    Ok(())
}

/// Refuses to exclude what does not exist: a name that is mistyped excludes nothing.
///
/// # Errors
///
/// Which field, and what there is not.
pub fn check_excluded(request: &PlanRequest, tables: &Tables) -> Result<(), Problem> {
    let Exclude { boxes, racks, slots } = &request.wishes.exclude;
    let none = |field: &str, index: usize, why: String| {
        Err(Problem::invalid(&format!("exclude.{field}[{index}]"), why))
    };
    for (index, name) in boxes.iter().enumerate() {
        if tables.pool_box(name).is_none() {
            return none("boxes", index, format!("there is no box {name}"));
        }
    }
    for (index, name) in racks.iter().enumerate() {
        if !tables.pool().facts().record().inventory.racks.contains_key(name) {
            return none("racks", index, format!("there is no rack {name} in the inventory"));
        }
    }
    for (index, slot) in slots.iter().enumerate() {
        if tables.pool_box(slot.box_name()).is_none_or(|entry| entry.slot(slot.slot()).is_none()) {
            return none("slots", index, format!("there is no slot {slot}"));
        }
    }
    Ok(())
}

/// The host's ports that nothing uses, lowest first.
fn find_host(
    request: &PlanRequest,
    tables: &Tables,
    live: &impl Liveness,
) -> Result<Vec<PortId>, Problem> {
    let name = &request.host;
    match tables.nodes().get(name).map(|node| node.role) {
        Some(Role::Host) if live.is_ready(name) => {
            held::refuse_held_host(tables, name)?;
            Ok(view::free_ports(tables, live, name))
        }
        Some(Role::Host) => {
            held::refuse_held_host(tables, name)?;
            let detail = format!("host {name} is not connected");
            Err(Problem::new(ProblemCode::NotConnected, detail).passing(true))
        }
        Some(Role::Box) => {
            let detail = format!("{name} is a box; slots are lent to hosts");
            Err(Problem::new(ProblemCode::WrongRole, detail))
        }
        None => {
            let detail = format!(
                "there is no host proxy with the name {name}, or it was forgotten; `dxpu-manager nodes` lists \
                 those that were"
            );
            Err(Problem::new(ProblemCode::NoSuchHost, detail))
        }
    }
}

/// Whether a box that was named is there: its size.
fn find_box(name: &NodeName, tables: &Tables, live: &impl Liveness) -> Result<u8, Problem> {
    match tables.nodes().get(name) {
        Some(node) if node.role == Role::Host => {
            let detail = format!("{name} is a host; slots are in boxes");
            Err(Problem::new(ProblemCode::WrongRole, detail))
        }
        Some(node) if live.is_ready(name) => Ok(node.size),
        Some(_) => {
            let detail = format!("box {name} is not connected");
            Err(Problem::new(ProblemCode::NotConnected, detail).passing(true))
        }
        None => {
            let detail = format!("there is no box proxy with the name {name}, or it was forgotten");
            Err(Problem::new(ProblemCode::NoSuchBox, detail))
        }
    }
}
