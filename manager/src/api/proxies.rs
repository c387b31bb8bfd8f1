//! What a proxy itself does or says: counters, stage stamps, recovery of a quarantined slot.

use super::App;
use super::conditional::IfMatch;
use super::extract::{Body, Segments, parse};
use super::pool::{find_slot, shown_slot, slot_view};
use super::tables::connected;
use crate::reconcile::sync::read_slots;
use crate::types::text::plain;
use crate::types::{FunctionAddress, NodeName, Problem, ProblemCode};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use manager_client::bodies::{LogLevelBody, LogLevelName, MAX_ONE_IN, ProblemBody, SamplingBody};
use manager_client::views::{Counters, SlotView, StampView, StampedKind, Stamps};
use proxy_core::control::{LogLevel, Reply, Request, StampEntry};
use proxy_core::stamps::Sampling;
use proxy_core::stamps::StampedTlp;
use std::collections::BTreeMap;

pub(super) fn known(manager: &App, name: &str) -> Result<NodeName, Problem> {
    let name: NodeName = parse("name", name)?;
    there(manager, &name)?;
    Ok(name)
}

/// Refuses the name of a proxy that never was here.
pub(super) fn there(manager: &App, name: &NodeName) -> Result<(), Problem> {
    if !manager.records.snapshot().nodes().contains_key(name) {
        let detail = format!("there is no proxy with the name {name}, or it was forgotten");
        return Err(Problem::new(ProblemCode::NoSuchNode, detail));
    }
    Ok(())
}

/// Try again to make a quarantined slot usable: reset and readiness test.
#[utoipa::path(post, path = "/v1/boxes/{name}/slots/{slot}/recover", tag = "proxies",
    params(("name" = String, Path, description = "Name of the box"),
        ("slot" = u8, Path, description = "Number of the slot, from 1"),
        ("If-Match" = Option<String>, Header, description = "Only if the slot still has this tag; status 412 else")),
    responses((status = 200, description = "The slot afterwards", body = SlotView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn recover(
    State(manager): State<App>,
    Segments((name, slot)): Segments<(String, String)>,
    if_match: IfMatch,
) -> Result<Json<SlotView>, Problem> {
    let tables = manager.records.snapshot();
    let address = find_slot(&tables, &name, &slot)?;
    // The change is the box's, not one of the records.
    if_match.check(|| shown_slot(&manager, &tables, &address))?;
    if let Some(binding) = tables.binding_at_slot(&address) {
        let owner = binding.owner();
        let detail = format!("slot {address} is lent to {owner}; release it first");
        return Err(Problem::new(ProblemCode::SlotInUse, detail).owned_by(owner));
    }
    let session = connected(&manager, address.box_name())?;
    let asked = session.request(Request::Recover(address.slot()), manager.settings.unbind_bound);
    let Reply::Slot(_) = *asked.await.map_err(|error| error.problem(session.name()))? else {
        return Err(session.nonsense().problem(session.name()));
    };
    // Each function of it has come to something of its own.
    let table = read_slots(&manager, &session).await;
    let table = table.map_err(|error| error.problem(session.name()))?;
    let changed = manager.records.apply(|txn| {
        for entry in table.iter().filter(|entry| entry.valid && entry.slot == address.slot()) {
            let function = FunctionAddress { slot: address.clone(), function: entry.function };
            txn.device_became(&function, entry.state.into());
        }
    });
    changed.await?;
    session.sync.notify_one();
    slot_view(&manager, &name, &slot).map(Json)
}

/// A proxy's counters, as they are now.
#[utoipa::path(get, path = "/v1/nodes/{name}/counters", tag = "proxies",
    params(("name" = String, Path, description = "Name of the proxy")),
    responses((status = 200, description = "All of them", body = Counters),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn counters(
    State(manager): State<App>,
    Segments(name): Segments<String>,
) -> Result<Json<Counters>, Problem> {
    let name = known(&manager, &name)?;
    let session = connected(&manager, &name)?;
    let page = |reply: Box<Reply>| match *reply {
        Reply::Counters { entries, next } => Some((entries.into_iter().collect(), next)),
        _ => None,
    };
    let ask = |from| Request::ReadCounters { from };
    let read = session.read_all(ask, page, manager.settings.request_bound).await;
    let entries = read.map_err(|error| error.problem(&name))?;
    let mut counters = BTreeMap::new();
    for (name, value) in entries {
        // A proxy may give a counter once for each of its links.
        let sum: &mut u64 = counters.entry(plain(name.as_str())).or_default();
        *sum = sum.saturating_add(value);
    }
    let role = session.identity().role;
    Ok(Json(Counters { name, role, counters }))
}

fn stamp(entry: StampEntry) -> StampView {
    let (kind, outstanding, sequence) = match entry.tlp {
        StampedTlp::Request(outstanding) => (StampedKind::Request, Some(outstanding), None),
        StampedTlp::Completion(outstanding) => (StampedKind::Completion, Some(outstanding), None),
        StampedTlp::Posted(sequence) => (StampedKind::Posted, None, sequence),
    };
    StampView {
        peer: entry.peer.get(),
        slot: entry.binding.slot.get(),
        function: entry.binding.function.get(),
        epoch: entry.binding.epoch.to_string(),
        from_host: entry.from_host,
        kind,
        index: outstanding.map(|entry| entry.index),
        generation: outstanding.map(|entry| entry.generation),
        sequence,
        at: entry.at.to_vec(),
    }
}

/// The stage stamps that a proxy has taken.
#[utoipa::path(get, path = "/v1/nodes/{name}/stamps", tag = "proxies",
    params(("name" = String, Path, description = "Name of the proxy")),
    responses((status = 200, description = "All of them", body = Stamps),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn stamps(
    State(manager): State<App>,
    Segments(name): Segments<String>,
) -> Result<Json<Stamps>, Problem> {
    let name = known(&manager, &name)?;
    let session = connected(&manager, &name)?;
    let page = |reply: Box<Reply>| match *reply {
        Reply::Stamps { entries, next } => Some((entries.into_iter().collect(), next)),
        _ => None,
    };
    let ask = |from| Request::ReadStamps { from };
    let read = session.read_all(ask, page, manager.settings.request_bound).await;
    let mut entries: Vec<StampEntry> = read.map_err(|error| error.problem(&name))?;
    // All are by that proxy's own clock. It gives them by their places.
    entries.sort_by_key(|entry| entry.at.iter().flatten().min().copied());
    let identity = session.identity();
    let stamps = entries.into_iter().map(stamp).collect();
    Ok(Json(Stamps { name, node: identity.node.get(), role: identity.role, stamps }))
}

/// Set how much a proxy logs, as long as it runs.
#[utoipa::path(put, path = "/v1/nodes/{name}/log-level", tag = "proxies",
    params(("name" = String, Path, description = "Name of the proxy")), request_body = LogLevelBody,
    responses((status = 204, description = "Set"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn set_log_level(
    State(manager): State<App>,
    Segments(name): Segments<String>,
    Body(body): Body<LogLevelBody>,
) -> Result<StatusCode, Problem> {
    let level = match body.level {
        LogLevelName::Trace => LogLevel::Trace,
        LogLevelName::Debug => LogLevel::Debug,
        LogLevelName::Info => LogLevel::Info,
        LogLevelName::Warn => LogLevel::Warn,
        LogLevelName::Error => LogLevel::Error,
    };
    let name = known(&manager, &name)?;
    let session = connected(&manager, &name)?;
    let asked = session.request_done(Request::SetLogLevel(level), manager.settings.request_bound);
    asked.await.map_err(|error| error.problem(&name))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Set how many TLPs a proxy stamps, and forget its stamps so far.
#[utoipa::path(put, path = "/v1/nodes/{name}/sampling", tag = "proxies",
    params(("name" = String, Path, description = "Name of the proxy")), request_body = SamplingBody,
    responses((status = 204, description = "Set"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn set_sampling(
    State(manager): State<App>,
    Segments(name): Segments<String>,
    Body(body): Body<SamplingBody>,
) -> Result<StatusCode, Problem> {
    let sampling = match body {
        SamplingBody::Off => Sampling::Off,
        SamplingBody::All => Sampling::All,
        SamplingBody::OneIn { n } if (1..=MAX_ONE_IN).contains(&n) => Sampling::OneIn(n),
        SamplingBody::OneIn { n } => {
            return Err(Problem::invalid("n", format!("1 to {MAX_ONE_IN}, not {n}")));
        }
    };
    let name = known(&manager, &name)?;
    let session = connected(&manager, &name)?;
    let asked =
        session.request_done(Request::SetSampling(sampling), manager.settings.request_bound);
    asked.await.map_err(|error| error.problem(&name))?;
    Ok(StatusCode::NO_CONTENT)
}
