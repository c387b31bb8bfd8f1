//! What is and was done: operations, events, the audit log.

use super::{or_dash, table};
use crate::types::{AuditRecord, EventKind, EventRecord, OperationRecord, Timestamp};
use manager_client::views::List;

/// All operations.
pub(in crate::cli) fn operations(list: &List<OperationRecord>) -> String {
    table(
        ["OPERATION", "STATE", "STEPS", "WHAT", "STARTED", "ENDED", "ERROR"],
        list.items.iter().map(|o| {
            [
                o.id.to_string(),
                o.state.to_string(),
                format!("{}/{}", o.progress().0, o.progress().1),
                what(o),
                o.started.to_string(),
                or_dash(o.ended),
                or_dash(o.error.as_ref().map(|problem| &problem.detail)),
            ]
        }),
    )
}

/// An operation.
pub(in crate::cli) fn operation(operation: &OperationRecord) -> String {
    let mut text = format!("{}: {}: {}", operation.id, what(operation), operation.state);
    if let Some(problem) = &operation.error {
        text = format!("{text}\nbecause {problem}");
    }
    for warning in &operation.warnings {
        text = format!("{text}\nwarning: {warning}");
    }
    format!("{text}\n\n{}", steps(operation))
}

fn what(operation: &OperationRecord) -> String {
    use crate::types::OperationKind::{Allocate, Drain, Forget, Release, Replace, TakeBack};
    let list = |slots: &[crate::types::SlotAddress]| {
        slots.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let in_brackets = |slots: &[crate::types::SlotAddress]| match slots {
        [] => String::new(),
        slots => format!(" ({})", list(slots)),
    };
    match &operation.what {
        Allocate { host, slots, .. } => format!("lend {} to {host}", list(slots)),
        Release { slots, reason, .. } => {
            let why = reason.as_ref().map(|why| format!(", because {why}")).unwrap_or_default();
            format!("take back {}{why}", list(slots))
        }
        Replace { host, slots, reason, .. } => {
            format!("{} in the place of {} at {host}, because {reason}", slots[1], slots[0])
        }
        Drain { place, slots, reason, .. } => {
            format!("drain {place}{}, because {reason}", in_brackets(slots))
        }
        Forget { node, slots } => format!("forget {node}{}", in_brackets(slots)),
        TakeBack { slots, due, reason, stage, .. } => {
            // What has ended has no stage.
            let stage = match operation.state.is_final() {
                true => String::new(),
                false => format!(" ({stage})"),
            };
            format!("take back {} at {due}, because {reason}{stage}", list(slots))
        }
    }
}

fn steps(operation: &OperationRecord) -> String {
    table(
        ["STEP", "TARGET", "STATE", "CHANGED", "DETAIL"],
        operation.steps.iter().map(|step| {
            [
                step.name.to_string(),
                step.target.clone(),
                step.state.to_string(),
                step.changed.to_string(),
                or_dash(step.detail.as_ref()),
            ]
        }),
    )
}

/// What happened in an operation: a line for its beginning, one for each event, and how it stands.
pub(in crate::cli) fn story(story: &crate::cli::operations::Story) -> String {
    let operation = &story.operation;
    let mut text = format!("{}: {}\n", operation.id, what(operation));
    for event in &story.events {
        let time = since(operation.started, event.at);
        let again = match event.kind {
            EventKind::ManagerStarted => " (the operation goes on by itself)",
            _ => "",
        };
        text += &format!("{time:>10}  {:<22}  {}{again}\n", event.kind, event.detail);
    }
    let (over, all) = operation.progress();
    let took = operation.ended.map_or_else(
        || "so far".to_owned(),
        |ended| format!("after {}", since(operation.started, ended).trim_start_matches('+')),
    );
    format!(
        "{text}{}: {} {took}, {over} of {all} steps\n\n{}",
        operation.id,
        operation.state,
        steps(operation)
    )
}

/// From one time to another, as `+1.234 s`.
fn since(from: Timestamp, to: Timestamp) -> String {
    let millis = to.as_millis().saturating_sub(from.as_millis());
    format!("+{}.{:03} s", millis / 1000, millis % 1000)
}

/// One event, in one line.
pub(in crate::cli) fn event(event: &EventRecord) -> String {
    format!("{:>6}  {}  {:<22}  {}", event.sequence, event.at, event.kind, event.detail)
}

/// The audit log.
pub(in crate::cli) fn audit(list: &List<AuditRecord>) -> String {
    table(
        // The longest last, so that it is not padded.
        ["AT", "ACTOR", "FROM", "REQUEST", "OPERATION", "OUTCOME", "WHAT"],
        list.items.iter().map(|entry| {
            [
                entry.at.to_string(),
                or_dash(entry.actor.as_ref()),
                entry.peer.clone(),
                format!("{} {}", entry.method, entry.path),
                or_dash(entry.operation),
                entry.problem.map_or_else(|| "done".to_owned(), |problem| problem.to_string()),
                or_dash(entry.what.as_ref()),
            ]
        }),
    )
}
