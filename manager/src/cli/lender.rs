//! What the lender does.

use super::args::{Drain, Extend, Forget, Lender, Maintain, Replace, TakeBack};
use super::{Failure, Output, operations, query, render};
use crate::types::{HealthRecord, HoldRecord};
use manager_client::Client;
use manager_client::bodies::{DrainBody, HoldBody, LeaseBody, ReplaceBody, TakeBackBody};
use manager_client::views::{AllocationView, List, SparesView};

pub(super) fn lender(client: &Client, out: &Output, command: Lender) -> Result<(), Failure> {
    match command {
        Lender::Extend(args) => extend(client, out, &args),
        Lender::TakeBack(args) => take_back(client, out, args),
        Lender::Replace(args) => replace(client, out, args),
        Lender::Drain(args) => drain(client, out, args),
        Lender::Maintain(args) => maintain(client, out, args),
        Lender::Forget(args) => forget(client, out, &args),
        Lender::Holds => out.get::<List<HoldRecord>>(client, "/v1/holds", holds),
        Lender::Health => out.get::<List<HealthRecord>>(client, "/v1/health", health),
        Lender::Spares => out.get::<List<SparesView>>(client, "/v1/spares", spares),
    }
}

fn extend(client: &Client, out: &Output, args: &Extend) -> Result<(), Failure> {
    let body = LeaseBody { lease_ms: args.lease.as_millis() as u64 };
    let path = format!("/v1/allocations/{}/lease", args.allocation);
    let allocation: AllocationView = client.post(&path, &body, None)?;
    out.print(&allocation, render::allocation)
}

fn take_back(client: &Client, out: &Output, args: TakeBack) -> Result<(), Failure> {
    let key = operations::key(&args.taking.waiting);
    let body = TakeBackBody {
        what: args.what,
        grace_ms: args.grace.as_millis() as u64,
        within_ms: args.taking.within_ms,
        reason: args.taking.reason,
    };
    let operation =
        client.post("/v1/take-backs", &body, Some(&key)).map_err(operations::unanswered(&key))?;
    operations::finish(client, out, operation, &args.taking.waiting)
}

fn replace(client: &Client, out: &Output, args: Replace) -> Result<(), Failure> {
    let key = operations::key(&args.taking.waiting);
    let body = ReplaceBody {
        force: args.force,
        within_ms: args.taking.within_ms,
        reason: args.taking.reason,
    };
    let path = format!("/v1/bindings/{}/replace", args.binding);
    let operation = client.post(&path, &body, Some(&key)).map_err(operations::unanswered(&key))?;
    operations::finish(client, out, operation, &args.taking.waiting)
}

fn drain(client: &Client, out: &Output, args: Drain) -> Result<(), Failure> {
    let key = operations::key(&args.taking.waiting);
    let body = DrainBody {
        place: args.place.to_string(),
        replace: args.replace,
        within_ms: args.taking.within_ms,
        reason: args.taking.reason,
    };
    let operation =
        client.post("/v1/drains", &body, Some(&key)).map_err(operations::unanswered(&key))?;
    operations::finish(client, out, operation, &args.taking.waiting)
}

fn forget(client: &Client, out: &Output, args: &Forget) -> Result<(), Failure> {
    let key = operations::key(&args.waiting);
    let force = args.force.then(|| "true".to_owned());
    let path = format!("/v1/nodes/{}{}", args.name, query(&[("force", force)]));
    let operation = client.delete(&path, Some(&key)).map_err(operations::unanswered(&key))?;
    operations::finish(client, out, operation, &args.waiting)
}

fn maintain(client: &Client, out: &Output, args: Maintain) -> Result<(), Failure> {
    let place = args.place.to_string();
    if args.off {
        let path = format!("/v1/holds{}", query(&[("place", Some(place))]));
        let held: HoldRecord = client.delete(&path, None)?;
        let there = query(&[("place", Some(held.place.to_string()))]);
        // It is done, whether this is answered or not.
        let still: Result<List<HoldRecord>, _> = client.get(&format!("/v1/holds{there}"));
        return out.print(&held, |held| {
            let ended = format!("{} is no longer held back ({})", held.place, held.kind);
            match still.as_ref().map(|still| still.items.first()) {
                Ok(None) => format!("{} can be used again", held.place),
                Ok(Some(HoldRecord { kind, reason, .. })) => {
                    format!("{ended}; it still is ({kind}): {reason}")
                }
                Err(why) => format!("{ended}; whether it still is otherwise is not known: {why}"),
            }
        });
    }
    let body = HoldBody { place, reason: args.reason.unwrap_or_default() };
    let held: HoldRecord = client.post("/v1/holds", &body, None)?;
    out.print(&held, |held| {
        let HoldRecord { place, kind, since, reason, .. } = held;
        format!("{place} gets nothing new since {since} ({kind}): {reason}")
    })
}

fn holds(list: &List<HoldRecord>) -> String {
    let row = |hold: &HoldRecord| {
        [
            hold.place.to_string(),
            hold.kind.to_string(),
            hold.since.to_string(),
            render::or_dash(hold.operation),
            hold.reason.clone(),
        ]
    };
    render::table(["PLACE", "WHY", "SINCE", "OPERATION", "REASON"], list.items.iter().map(row))
}

fn health(list: &List<HealthRecord>) -> String {
    if list.items.is_empty() {
        return "everything is healthy".to_owned();
    }
    let row = |record: &HealthRecord| {
        [
            record.subject.to_string(),
            record.state.to_string(),
            record.since.to_string(),
            record.reason.clone(),
        ]
    };
    render::table(["WHAT", "STATE", "SINCE", "REASON"], list.items.iter().map(row))
}

fn spares(list: &List<SparesView>) -> String {
    let row = |spares: &SparesView| {
        [
            spares.model.clone(),
            spares.total.to_string(),
            spares.lent.to_string(),
            spares.free.to_string(),
            spares.kept.to_string(),
            render::or_dash(spares.needed),
            format!("{:.3} %", spares.runs_out * 100.0),
        ]
    };
    let heading = ["MODEL", "TOTAL", "LENT", "FREE", "KEPT", "NEEDED", "RUNS OUT"];
    let table = render::table(heading, list.items.iter().map(row));
    let how = list.items.iter().map(|spares| format!("{}: {}", spares.model, spares.calculation));
    format!("{table}\n\n{}", how.collect::<Vec<_>>().join("\n"))
}
