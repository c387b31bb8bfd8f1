//! The proxies' own tables, read from them when asked.

use super::App;
use super::extract::Segments;
use super::pool::find;
use super::views;
use crate::control::Session;
use crate::manager::Manager;
use crate::reconcile::sync;
use crate::records::Tables;
use crate::types::{NodeName, Problem, ProblemCode, Role, Timestamp};
use axum::Json;
use axum::extract::State;
use manager_client::bodies::ProblemBody;
use manager_client::views::{
    AllTables, BoxTable, HostTable, MappingView, Range, SilentProxy, SlotTableEntry, TableFunction,
    WindowView,
};
use proxy_core::control::{MappingEntry, PortState, SlotEntry, Window, WindowRange};
use std::sync::Arc;
use tlp_codec::ids::{Epoch, NodeId};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

fn range(window: WindowRange) -> Option<Range> {
    window.map(|(base, limit)| Range { base, limit })
}

/// A proxy that is connected, or why not.
pub(super) fn connected(manager: &Manager, name: &NodeName) -> Result<Arc<Session>, Problem> {
    manager
        .registry
        .ready(name)
        .ok_or_else(|| Problem::new(ProblemCode::NotConnected, format!("{name} is not connected")))
}

fn name_of(tables: &Tables, node: u16) -> Option<NodeName> {
    tables.node_by_number(NodeId::new(node).ok()?).map(|n| n.name.clone())
}

fn mapping(tables: &Tables, entry: MappingEntry) -> MappingView {
    let state = match entry.state {
        PortState::Empty => "empty",
        PortState::Placeholder => "placeholder",
        PortState::Linking => "linking",
        PortState::Present => "present",
        PortState::Removing => "removing",
        PortState::Failed => "failed",
    };
    let functions = entry.functions.iter().map(|(function, epoch)| TableFunction {
        function: function.get(),
        epoch: epoch.to_string(),
    });
    MappingView {
        port: entry.port.get(),
        used: entry.used,
        state: state.into(),
        secondary_bus: entry.buses.0,
        subordinate_bus: entry.buses.1,
        device: entry.device.to_string(),
        memory: range(entry.memory),
        prefetchable: range(entry.prefetchable),
        io: range(entry.io),
        box_node: entry.box_node,
        box_name: name_of(tables, entry.box_node),
        slot: entry.slot,
        functions: functions.collect(),
        paths: views::paths(entry.path_set),
        configured: entry.configured,
    }
}

fn window(window: &Window) -> WindowView {
    WindowView {
        base: window.base,
        limit: window.limit,
        node: window.node.get(),
        target: window.target,
        epoch: window.epoch.to_string(),
        read: window.read,
        write: window.write,
    }
}

fn slot(tables: &Tables, entry: SlotEntry) -> SlotTableEntry {
    SlotTableEntry {
        entry: entry.entry,
        valid: entry.valid,
        used: entry.used,
        state: entry.state.into(),
        slot: entry.slot.get(),
        function: entry.function.get(),
        host_node: entry.host_node,
        host: name_of(tables, entry.host_node),
        paths: views::paths(entry.path_set),
        epoch: Epoch::from_bits(entry.epoch).ok().map(|epoch| epoch.to_string()),
        windows: entry.windows.iter().map(window).collect(),
    }
}

async fn read_host(manager: &Manager, session: &Session) -> Result<HostTable, Problem> {
    let read = sync::read_mapping(manager, session).await;
    let entries = read.map_err(|error| error.problem(session.name()))?;
    let tables = manager.records.snapshot();
    Ok(HostTable {
        host: session.name().clone(),
        node: session.identity().node.get(),
        at: Timestamp::now(),
        root_complex: views::root_complex(manager, &tables, session),
        entries: entries.into_iter().map(|entry| mapping(&tables, entry)).collect(),
    })
}

async fn read_box(manager: &Manager, session: &Session) -> Result<BoxTable, Problem> {
    let read = sync::read_slots(manager, session).await;
    let entries = read.map_err(|error| error.problem(session.name()))?;
    let tables = manager.records.snapshot();
    Ok(BoxTable {
        box_name: session.name().clone(),
        node: session.identity().node.get(),
        at: Timestamp::now(),
        entries: entries.into_iter().map(|entry| slot(&tables, entry)).collect(),
    })
}

/// Proxies that are asked for their tables at a time.
const AT_ONCE: usize = 64;

/// What a proxy answers.
enum Table {
    Host(HostTable),
    Box(BoxTable),
}

async fn read(manager: &Manager, session: &Session) -> Result<Table, Problem> {
    match session.identity().role {
        Role::Host => read_host(manager, session).await.map(Table::Host),
        Role::Box => read_box(manager, session).await.map(Table::Box),
    }
}

/// The tables of all proxies that are connected, as they are now.
#[utoipa::path(get, path = "/v1/tables", tag = "proxies",
    responses((status = 200, description = "By name", body = AllTables),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn all(State(manager): State<App>) -> Result<Json<AllTables>, Problem> {
    let seats = Arc::new(Semaphore::new(AT_ONCE));
    // It ends when nobody waits for the answer any more.
    let mut asked = JoinSet::new();
    for session in manager.registry.all().into_iter().filter(|session| session.is_ready()) {
        let (manager, seats) = (manager.clone(), seats.clone());
        asked.spawn(async move {
            let _seat = seats.acquire().await.expect("never closed");
            let answer = read(&manager, &session).await;
            (session.name().clone(), answer)
        });
    }
    let mut all = AllTables { hosts: Vec::new(), boxes: Vec::new(), silent: Vec::new() };
    while let Some(answer) = asked.join_next().await {
        match answer.map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))? {
            (_, Ok(Table::Host(table))) => all.hosts.push(table),
            (_, Ok(Table::Box(table))) => all.boxes.push(table),
            // One that does not answer hides none of the others.
            (name, Err(problem)) => {
                all.silent.push(SilentProxy { name, reason: problem.to_string() });
            }
        }
    }
    all.hosts.sort_by(|a, b| a.host.cmp(&b.host));
    all.boxes.sort_by(|a, b| a.box_name.cmp(&b.box_name));
    all.silent.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Json(all))
}

/// A host's mapping table, as it is now.
#[utoipa::path(get, path = "/v1/hosts/{name}/table", tag = "proxies",
    params(("name" = String, Path, description = "Name of the host")),
    responses((status = 200, description = "The table", body = HostTable),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn of_host(
    State(manager): State<App>,
    Segments(name): Segments<String>,
) -> Result<Json<HostTable>, Problem> {
    let name = find(&manager.records.snapshot(), &name, Role::Host)?;
    read_host(&manager, &*connected(&manager, &name)?).await.map(Json)
}

/// A box's slot table, as it is now.
#[utoipa::path(get, path = "/v1/boxes/{name}/table", tag = "proxies",
    params(("name" = String, Path, description = "Name of the box")),
    responses((status = 200, description = "The table", body = BoxTable),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn of_box(
    State(manager): State<App>,
    Segments(name): Segments<String>,
) -> Result<Json<BoxTable>, Problem> {
    let name = find(&manager.records.snapshot(), &name, Role::Box)?;
    read_box(&manager, &*connected(&manager, &name)?).await.map(Json)
}
