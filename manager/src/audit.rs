//! The audit log: who changed what, when, with what outcome.
//!
//! What a request changed and the entry that says so are written together: no change without its
//! entry, also after a crash. Requests that changed no record (they were refused, or asked a proxy
//! only) have their entries written soon after.

use crate::manager::Manager;
use crate::types::{AuditRecord, OperationId};
use std::cell::RefCell;
use std::future::Future;
use tokio::sync::mpsc;

/// Entries that are kept. The oldest go when more come; refusals count.
pub const MAX_AUDIT: usize = 10_000;

/// Entries that wait to be written. When it is full, further ones are only in the log, which says
/// so; what changed a record does not wait here.
pub const QUEUE: usize = 1024;

tokio::task_local! {
    static REQUEST: RefCell<Option<AuditRecord>>;
}

/// Does something on behalf of a request. The first change of the records in it takes the entry;
/// one that no change took is given back.
pub async fn on_behalf<R>(
    entry: AuditRecord,
    request: impl Future<Output = R>,
) -> (R, Option<AuditRecord>) {
    REQUEST
        .scope(RefCell::new(Some(entry)), async {
            let result = request.await;
            (result, take(None))
        })
        .await
}

/// The entry of the request that is being served, if it has not been taken, with the operation
/// that it began.
pub(crate) fn take(operation: Option<OperationId>) -> Option<AuditRecord> {
    let entry = REQUEST.try_with(|entry| entry.borrow_mut().take()).ok().flatten()?;
    Some(AuditRecord { operation: operation.or(entry.operation), ..entry })
}

/// Writes entries that no change took; several may share one write.
pub async fn write(manager: &Manager, mut queue: mpsc::Receiver<AuditRecord>) {
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, 256).await > 0 {
        let entries = std::mem::take(&mut batch);
        let written = manager.records.apply(|txn| {
            entries.into_iter().for_each(|entry| txn.audit(entry));
        });
        if let Err(problem) = written.await {
            tracing::error!("entries of the audit log are lost: {problem}");
        }
    }
}
