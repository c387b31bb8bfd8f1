//! What the lender does.

use super::args::{Extend, Lender, TakeBack};
use super::{Failure, Output, operations, render};
use manager_client::Client;
use manager_client::bodies::{LeaseBody, TakeBackBody};
use manager_client::views::AllocationView;

pub(super) fn lender(client: &Client, out: &Output, command: Lender) -> Result<(), Failure> {
    match command {
        Lender::Extend(args) => extend(client, out, &args),
        Lender::TakeBack(args) => take_back(client, out, args),
    }
}

fn extend(client: &Client, out: &Output, args: &Extend) -> Result<(), Failure> {
    let body = LeaseBody { lease_ms: args.lease.as_millis() as u64 };
    let path = format!("/v1/allocations/{}/lease", args.allocation);
    let allocation: AllocationView = client.post(&path, &body, None)?;
    out.print(&allocation, render::allocation)
}

fn take_back(client: &Client, out: &Output, args: TakeBack) -> Result<(), Failure> {
    let key = operations::key(&args.waiting, 0);
    let body = TakeBackBody {
        what: args.what,
        grace_ms: args.grace.as_millis() as u64,
        within_ms: args.within_ms,
        reason: args.reason,
    };
    let operation = client.post("/v1/take-backs", &body, Some(&key))?;
    operations::finish(client, out, operation, &args.waiting)
}
