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
use manager_client::views::{AllocationView, BindingView, List, SlotView};
use manager_client::{Client, ClientError};
use std::collections::BTreeSet;
use std::fmt;
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
    let made = client.get_patiently::<AllocationView>(&format!("/v1/allocations/{id}"));
    out.print(&made.map_err(|error| Failure::Waiting(operation.id, error))?, render::allocation)
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
                        super::complain!("dxpu-manager: waiting up to {patience:?}: {detail}");
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
    let what = args.what.iter().map(|what| Lent::find(client, what));
    let what = what.collect::<Result<Vec<_>, _>>()?;
    // A slot may have another tenant, or none, when the command is given again.
    let names: Vec<_> = what.iter().map(Lent::to_string).collect();
    let names = if names == args.what { Vec::new() } else { names };
    // All are begun before any is waited for, so that they go side by side. One that is refused does
    // not hide what becomes of the others.
    let key = key(&args.waiting);
    let begin = |(index, lent): (usize, &Lent)| {
        let own = if index == 0 { key.clone() } else { format!("{key}.{index}") };
        let path = format!("{}{query}", lent.path());
        client.delete::<OperationRecord>(&path, Some(&own)).map_err(unanswered_for(&key, &names))
    };
    let once = once(client, &what);
    let begun: Vec<_> =
        what.iter().enumerate().filter(|(at, _)| once.contains(at)).map(begin).collect();
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

/// Which of these are to be released: what is named twice is released once, and a binding together
/// with its allocation, if that is named, too.
fn once(client: &Client, what: &[Lent]) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let first = what.iter().enumerate().filter(|(_, lent)| seen.insert(lent.path()));
    let first: Vec<(usize, &Lent)> = first.collect();
    let is_named = |binding: &BindingId| {
        let view = client.get::<BindingView>(&format!("/v1/bindings/{binding}"));
        view.is_ok_and(|view| seen.contains(&Lent::Allocation(view.allocation).path()))
    };
    let is_alone = what.iter().all(|lent| matches!(lent, Lent::Binding(_)));
    let goes_with = |lent: &Lent| matches!(lent, Lent::Binding(id) if !is_alone && is_named(id));
    first.into_iter().filter(|(_, lent)| !goes_with(lent)).map(|(at, _)| at).collect()
}

/// What can be released, by names that never mean anything else.
enum Lent {
    Allocation(AllocationId),
    Binding(BindingId),
}

impl Lent {
    /// What is meant now. A slot means the binding that it has.
    fn find(client: &Client, what: &str) -> Result<Self, Failure> {
        if let Ok(id) = what.parse() {
            return Ok(Self::Allocation(id));
        }
        if let Ok(id) = what.parse() {
            return Ok(Self::Binding(id));
        }
        let slot: SlotAddress = what.parse().map_err(|_| {
            let names = "alloc-N, bind-N or BOX/SLOT";
            Failure::Argument(format!("{what:?} is nothing to release: {names}"))
        })?;
        let path = format!("/v1/boxes/{}/slots/{}", slot.box_name(), slot.slot());
        let binding = client.get::<SlotView>(&path)?.binding;
        let not_lent = || Problem::new(ProblemCode::NotLent, format!("slot {slot} is not lent"));
        Ok(Self::Binding(binding.ok_or_else(not_lent)?))
    }

    fn path(&self) -> String {
        match self {
            Self::Allocation(id) => format!("/v1/allocations/{id}"),
            Self::Binding(id) => format!("/v1/bindings/{id}"),
        }
    }
}

impl fmt::Display for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocation(id) => id.fmt(f),
            Self::Binding(id) => id.fmt(f),
        }
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
    unanswered_for(key, &[])
}

/// What has failed when a request of a command with this key, for all of this, has.
fn unanswered_for(key: &str, what: &[String]) -> impl Fn(ClientError) -> Failure {
    move |error| match error {
        ClientError::Unreachable { asked: true, .. } => {
            let (key, what) = (key.to_owned(), what.to_vec());
            Failure::Unanswered { key, what, error: error.into() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SlotStatus;
    use serde_json::json;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// Answers one request each with these, then hangs up on one more.
    fn pretended(answers: Vec<serde_json::Value>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for answer in answers.into_iter().map(Some).chain([None]) {
                let (mut stream, _) = listener.accept().unwrap();
                let head = BufReader::new(&stream).lines().map(Result::unwrap);
                head.take_while(|line| !line.is_empty()).for_each(drop);
                let Some(body) = answer.map(|answer| answer.to_string()) else { break };
                let length = body.len();
                let head =
                    format!("HTTP/1.1 200 x\r\nconnection: close\r\ncontent-length: {length}");
                stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
            }
        });
        server
    }

    /// A slot means another binding, or none, when the command is given again.
    #[test]
    fn an_unanswered_release_names_what_its_slots_meant() {
        let slot = |number: u64| SlotView {
            slot: format!("box1/{number}").parse().unwrap(),
            status: SlotStatus::Used,
            connected: true,
            model: String::new(),
            facts: Default::default(),
            functions: Vec::new(),
            owner: None,
            binding: Some(BindingId(number + 6)),
        };
        let begun = json!({
            "id": "op-1", "state": "succeeded", "warnings": [], "started": "2026-01-01T00:00:00Z",
            "what": { "kind": "release", "slots": ["box1/1"], "force": false }, "steps": [],
        });
        let slots = [1, 2].map(|number| serde_json::to_value(slot(number)).unwrap());
        for (what, answers, named) in [
            (["box1/1", "box1/2"], slots.into_iter().chain([begun.clone()]).collect(), true),
            (["bind-7", "bind-8"], vec![begun], false),
        ] {
            let client = Client::new(&pretended(answers)).patient_for(Duration::ZERO);
            let waiting = Waiting { no_wait: false, key: Some("k".into()) };
            let what = what.map(String::from).to_vec();
            let args = Release { what, force: false, within_ms: None, waiting };
            let out = Output { form: Form::Json, watch: false };
            match release(&client, &out, args) {
                Err(Failure::Unanswered { key, what, .. }) => {
                    assert_eq!(key, "k");
                    assert_eq!(what, if named { vec!["bind-7", "bind-8"] } else { vec![] });
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
