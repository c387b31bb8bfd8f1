//! Commands that start an operation and, unless told not to, wait for it.

use super::args::{Allocate, Release, Waiting};
use super::{Failure, Output, placement, query, render};
use crate::types::{
    AllocationId, BindingId, EventRecord, Exclude, Explanation, LinkUse, OperationId,
    OperationKind, OperationRecord, OperationState, Problem, ProblemCode, SlotAddress, Step,
    StepName, StepState, TakeBackStage,
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
    let key = key(&args.waiting, 0);
    let operation = ask(client, &body, &key, Duration::from_millis(args.wait_ms))?;
    if args.waiting.no_wait {
        return out.print(&operation, render::operation);
    }
    let operation = wait(client, operation)?;
    let id = operation.allocation.expect("an allocation's operation names it");
    out.get::<AllocationView>(client, &format!("/v1/allocations/{id}"), render::allocation)
}

/// Asks for an allocation, and again for a while when what stands in the way may pass by itself.
fn ask(
    client: &Client,
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
                    eprintln!("dxpu-manager: waiting up to {patience:?}: {detail}");
                    told = Some(detail);
                }
            }
            other => return Ok(other?),
        }
        std::thread::sleep(RETRY.min(patience.saturating_sub(begun.elapsed())));
    }
}

pub(super) fn release(client: &Client, out: &Output, args: Release) -> Result<(), Failure> {
    let force = args.force.then(|| "true".to_owned());
    let within = args.within_ms.map(|ms| ms.to_string());
    let query = query(&[("force", force), ("within_ms", within)]);
    // All are begun before any is waited for, so that they go side by side.
    let mut begun = Vec::new();
    for (index, what) in args.what.iter().enumerate() {
        let path = address(client, what)?;
        let key = key(&args.waiting, index);
        begun.push(client.delete::<OperationRecord>(&format!("{path}{query}"), Some(&key))?);
    }
    let mut operations = Vec::new();
    for operation in begun {
        operations.push(if args.waiting.no_wait { operation } else { wait(client, operation)? });
    }
    out.print(&List::from_iter(operations), |list| {
        list.items.iter().map(render::operation).collect::<Vec<_>>().join("\n\n")
    })
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
        operation = follow(client, operation)?;
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

/// The key that was given, or one that no other call has; several requests of one call each have
/// their own.
pub(super) fn key(waiting: &Waiting, index: usize) -> String {
    match &waiting.key {
        Some(key) if index == 0 => key.clone(),
        Some(key) => format!("{key}.{index}"),
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            format!("cli-{:x}-{:x}-{index}", now.as_nanos(), std::process::id())
        }
    }
}

/// Waits for the end of what was begun, if it is wanted, and prints it.
pub(super) fn finish(
    client: &Client,
    out: &Output,
    operation: OperationRecord,
    waiting: &Waiting,
) -> Result<(), Failure> {
    let operation = if waiting.no_wait { operation } else { wait(client, operation)? };
    out.print(&operation, render::operation)
}

/// Waits for the end, which has to be a good one, and tells on stderr how it goes.
fn wait(client: &Client, operation: OperationRecord) -> Result<OperationRecord, Failure> {
    let ended = follow(client, operation)?;
    match ended.state {
        OperationState::Succeeded => Ok(ended),
        _ => Err(Failure::Operation(Box::new(ended))),
    }
}

/// Waits for the end and tells on stderr how it goes.
fn follow(client: &Client, operation: OperationRecord) -> Result<OperationRecord, Failure> {
    let mut told = Told {
        steps: vec![StepState::Pending; operation.steps.len()],
        rolling_back: false,
        warnings: 0,
        waiting: None,
        since: Instant::now(),
    };
    if operation.state.is_final() {
        // A request that was made before: the operation itself may not be kept any more.
        told.tell(&operation);
        return Ok(operation);
    }
    Ok(client.wait(operation.id, |operation| told.tell(operation))?)
}

/// What was told already.
struct Told {
    steps: Vec<StepState>,
    rolling_back: bool,
    warnings: usize,
    /// What was said last of what is waited for, and why that may take.
    waiting: Option<String>,
    since: Instant,
}

impl Told {
    fn tell(&mut self, operation: &OperationRecord) {
        let id = operation.id;
        if operation.state == OperationState::RollingBack && !self.rolling_back {
            self.rolling_back = true;
            let why = operation.error.as_ref().map_or("", |problem| &problem.detail);
            eprintln!("{id}: undone, because {why}");
        }
        for (index, step) in operation.steps.iter().enumerate() {
            let before = self.steps.get(index).copied().unwrap_or(StepState::Pending);
            if before != step.state {
                eprintln!("{id}: {}", line(step));
            }
        }
        let steps = operation.steps.iter().map(|step| step.state).collect();
        let news = std::mem::replace(&mut self.steps, steps) != self.steps;
        if !news && let Some((step, why)) = waits_for(operation) {
            let step = format!("{} {}", step.name, step.target);
            let all = format!("{step}{why}");
            if self.waiting.as_ref() == Some(&all) {
                let seconds = self.since.elapsed().as_secs();
                eprintln!("{id}: waiting for {step}, {seconds} s so far");
            } else {
                eprintln!("{id}: waiting for {all}");
                self.waiting = Some(all);
            }
        }
        for warning in operation.warnings.iter().skip(self.warnings) {
            eprintln!("{id}: warning: {warning}");
        }
        self.warnings = operation.warnings.len();
    }
}

/// The step that an operation waits for and what that may take; nothing if it has ended.
fn waits_for(operation: &OperationRecord) -> Option<(&Step, String)> {
    if operation.state.is_final() {
        return None;
    }
    let mut pending = operation.steps.iter().filter(|step| step.state == StepState::Pending);
    let step = pending.next()?;
    let asked = matches!(operation.what, OperationKind::Release { force: false, .. });
    if let OperationKind::TakeBack { stage: TakeBackStage::Notice, due, .. } = &operation.what {
        return Some((step, format!(" (the borrower has until {due})")));
    }
    let why = match (step.name, &step.detail) {
        (StepName::UnbindPort, Some(away)) if asked => {
            format!(" ({away}; it goes on when that is back, --force does not wait)")
        }
        (_, Some(away)) => format!(" ({away}; it goes on when that is back)"),
        (StepName::UnbindPort, None) if asked => {
            " (its operating system was asked by the attention button and leaves a person 5 s to \
             think again; --force does not ask)"
                .to_owned()
        }
        (StepName::Enumerate, None) => " (its operating system enables the device)".to_owned(),
        _ => String::new(),
    };
    Some((step, why))
}

fn line(step: &Step) -> String {
    let detail = step.detail.as_ref().map(|d| format!(" ({d})")).unwrap_or_default();
    format!("{} {}: {}{detail}", step.name, step.target, step.state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(force: bool, states: [StepState; 2]) -> OperationRecord {
        let step = |name: &str, target: &str, state: StepState| {
            serde_json::json!({ "name": name, "binding": "bind-1", "target": target,
                "state": state, "changed": "2026-01-01T00:00:00Z" })
        };
        let record = serde_json::json!({
            "id": "op-1", "state": "running", "warnings": [], "started": "2026-01-01T00:00:00Z",
            "what": { "kind": "release", "slots": ["box-a/1"], "force": force },
            "steps": [step("unbind-port", "host-1 port 0", states[0]),
                step("unbind-slot", "box-a/1", states[1])],
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn a_release_says_what_it_waits_for() {
        use StepState::{Done, Pending};
        let asked = release(false, [Pending, Pending]);
        let (step, why) = waits_for(&asked).unwrap();
        assert!(step.target == "host-1 port 0" && why.contains("attention button"), "{why}");
        assert_eq!(waits_for(&release(true, [Pending, Pending])).unwrap().1, "");
        assert_eq!(waits_for(&release(false, [Done, Pending])).unwrap().0.target, "box-a/1");
        assert_eq!(waits_for(&release(false, [Done, Done])), None);
        let mut away = release(false, [Pending, Pending]);
        away.steps[0].detail = Some("host-1 has not been connected since noon".into());
        let (_, why) = waits_for(&away).unwrap();
        assert!(why.contains("since noon") && !why.contains("attention button"), "{why}");
        let ended =
            OperationRecord { state: OperationState::Failed, ..release(false, [Pending, Pending]) };
        assert_eq!(waits_for(&ended), None);
    }
}
