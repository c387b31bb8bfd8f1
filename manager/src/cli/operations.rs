//! Commands that start an operation and, unless told not to, wait for it.

use super::args::{Allocate, Release, Waiting};
use super::output::Form;
use super::progress::Told;
use super::{Failure, Output, placement, query, render};
use crate::types::{
    AllocationId, BindingId, EventRecord, Exclude, Explanation, LinkUse, OperationId,
    OperationRecord, OperationState, Problem, ProblemCode, SlotAddress,
};
use manager_client::bodies::AllocateBody;
use manager_client::views::{AllocationView, List, SlotView};
use manager_client::{Client, ClientError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Pause before a refused allocation is asked for again.
const RETRY: Duration = Duration::from_millis(100);

pub(super) fn allocate(client: &Client, out: &Output, args: Allocate) -> Result<(), Failure> {
    let body = AllocateBody {
        host: args.host.to_string(),
        count: args.count,
        model: args.model,
        box_name: args.box_name.map(String::from),
        slot: args.slot,
        reason: args.reason,
        lease_ms: args.lease.map(|lease| lease.as_millis() as u64),
        link: LinkUse {
            paths: args.paths,
            weight: args.weight,
            limit: args.limit,
            guarantee: args.guarantee,
        },
        selector: args.selector,
        cel: args.cel,
        together: args.together,
        island_rate: args.island_rate,
        near: args.near,
        exclude: Exclude {
            boxes: args.exclude_box,
            racks: args.exclude_rack,
            slots: args.exclude_slot,
        },
        tenant: args.tenant,
        keep_unenumerated: args.keep_unenumerated,
    };
    if args.dry_run {
        let why: Explanation = client.post("/v1/allocations?dry_run=true", &body, None)?;
        let fits = !why.slots.is_empty();
        out.print(&why, placement::explanation)?;
        return if fits { Ok(()) } else { Err(Failure::NothingFits) };
    }
    let key = key(&args.waiting);
    let operation = ask(client, out, &body, &key, Duration::from_millis(args.wait_ms))?;
    if args.waiting.no_wait {
        return out.print(&operation, render::operation);
    }
    let operation = wait(client, out, operation)?;
    let id = operation.allocation.expect("an allocation's operation names it");
    out.get::<AllocationView>(client, &format!("/v1/allocations/{id}"), render::allocation)
}

/// Asks for an allocation, and again for a while when what stands in the way may pass by itself.
fn ask(
    client: &Client,
    out: &Output,
    body: &AllocateBody,
    key: &str,
    patience: Duration,
) -> Result<OperationRecord, Failure> {
    let begun = Instant::now();
    let mut told = None;
    loop {
        match client.post("/v1/allocations", body, Some(key)) {
            Err(ClientError::Problem(problem))
                if problem.transient && begun.elapsed() < patience =>
            {
                let detail = problem.detail;
                if told.as_ref() != Some(&detail) {
                    if out.form != Form::Json {
                        eprintln!("dxpu-manager: waiting up to {patience:?}: {detail}");
                    }
                    told = Some(detail);
                }
            }
            other => return other.map_err(unanswered(key)),
        }
        std::thread::sleep(RETRY.min(patience.saturating_sub(begun.elapsed())));
    }
}

pub(super) fn release(client: &Client, out: &Output, args: Release) -> Result<(), Failure> {
    let force = args.force.then(|| "true".to_owned());
    let within = args.within_ms.map(|ms| ms.to_string());
    let query = query(&[("force", force), ("within_ms", within)]);
    // What is named and cannot be is found before anything is begun.
    let paths = args.what.iter().map(|what| address(client, what));
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    // All are begun before any is waited for, so that they go side by side. One that is refused does
    // not hide what becomes of the others.
    let key = key(&args.waiting);
    let begin = |(index, path)| {
        let own = if index == 0 { key.clone() } else { format!("{key}.{index}") };
        let path = format!("{path}{query}");
        client.delete::<OperationRecord>(&path, Some(&own)).map_err(unanswered(&key))
    };
    let begun: Vec<_> = paths.iter().enumerate().map(begin).collect();
    let (mut operations, mut failures) = (Vec::new(), Vec::new());
    for begun in begun {
        match begun {
            Ok(operation) if args.waiting.no_wait => operations.push(operation),
            Ok(operation) => match follow(client, out, operation.clone()) {
                Ok(ended) => {
                    if ended.state != OperationState::Succeeded {
                        failures.push(Failure::Operation(Box::new(ended.clone())));
                    }
                    operations.push(ended);
                }
                Err(failure) => {
                    operations.push(operation);
                    failures.push(failure);
                }
            },
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() || (args.what.len() > 1 && !operations.is_empty()) {
        out.print(&List::from_iter(operations), |list| {
            list.items.iter().map(render::operation).collect::<Vec<_>>().join("\n\n")
        })?;
    }
    let mut failures = failures.into_iter();
    let first = failures.next();
    failures.for_each(|failure| failure.print(out.form == Form::Json));
    first.map_or(Ok(()), Err)
}

pub(super) fn cancel(
    client: &Client,
    out: &Output,
    id: OperationId,
    no_wait: bool,
) -> Result<(), Failure> {
    let path = format!("/v1/operations/{id}/cancel");
    let mut operation: OperationRecord = client.post(&path, &serde_json::json!({}), None)?;
    if !no_wait {
        operation = follow(client, out, operation)?;
    }
    match operation.state {
        OperationState::Succeeded | OperationState::Failed => {
            Err(Failure::Operation(Box::new(operation)))
        }
        _ => out.print(&operation, render::operation),
    }
}

/// An operation and what happened in it.
#[derive(serde::Serialize)]
pub(super) struct Story {
    /// The operation.
    pub(super) operation: OperationRecord,
    /// Its events, in order.
    pub(super) events: Vec<EventRecord>,
}

pub(super) fn story(client: &Client, out: &Output, id: OperationId) -> Result<(), Failure> {
    let operation = client.get(&format!("/v1/operations/{id}"))?;
    let events: List<EventRecord> = client.get(&format!("/v1/operations/{id}/events"))?;
    out.print(&Story { operation, events: events.items }, render::story)
}

/// Where the thing to release is.
fn address(client: &Client, what: &str) -> Result<String, Failure> {
    if let Ok(id) = what.parse::<AllocationId>() {
        return Ok(format!("/v1/allocations/{id}"));
    }
    if let Ok(id) = what.parse::<BindingId>() {
        return Ok(format!("/v1/bindings/{id}"));
    }
    let slot: SlotAddress = what.parse().map_err(|_| {
        Failure::Argument(format!("{what:?} is nothing to release: alloc-N, bind-N or BOX/SLOT"))
    })?;
    let path = format!("/v1/boxes/{}/slots/{}", slot.box_name(), slot.slot());
    match client.get::<SlotView>(&path)?.binding {
        Some(id) => Ok(format!("/v1/bindings/{id}")),
        None => Err(Problem::new(ProblemCode::NotLent, format!("slot {slot} is not lent")).into()),
    }
}

/// The key that was given, or one that no other call has.
pub(super) fn key(waiting: &Waiting) -> String {
    waiting.key.clone().unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("cli-{:x}-{:x}", now.as_nanos(), std::process::id())
    })
}

/// What has failed when a request of a command with this key has.
pub(super) fn unanswered(key: &str) -> impl Fn(ClientError) -> Failure {
    move |error| match error {
        ClientError::Unreachable { asked: true, .. } => {
            Failure::Unanswered(key.to_owned(), error.into())
        }
        other => other.into(),
    }
}

/// Waits for the end of what was begun, if it is wanted, and prints it.
pub(super) fn finish(
    client: &Client,
    out: &Output,
    operation: OperationRecord,
    waiting: &Waiting,
) -> Result<(), Failure> {
    let operation = if waiting.no_wait { operation } else { wait(client, out, operation)? };
    out.print(&operation, render::operation)
}

/// Waits for the end, which has to be a good one, and tells on stderr how it goes.
fn wait(
    client: &Client,
    out: &Output,
    operation: OperationRecord,
) -> Result<OperationRecord, Failure> {
    let ended = follow(client, out, operation)?;
    match ended.state {
        OperationState::Succeeded => Ok(ended),
        _ => Err(Failure::Operation(Box::new(ended))),
    }
}

/// Waits for the end and tells on stderr how it goes.
fn follow(
    client: &Client,
    out: &Output,
    operation: OperationRecord,
) -> Result<OperationRecord, Failure> {
    let mut told = Told::new(out, &operation);
    if operation.state.is_final() {
        // A request that was made before: the operation itself may not be kept any more.
        told.tell(&operation);
        return Ok(operation);
    }
    let ended = client.wait(operation.id, |operation| told.tell(operation));
    ended.map_err(|error| Failure::Waiting(operation.id, error))
}
