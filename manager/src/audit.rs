//! The audit log: who changed what, when, with what outcome.
//!
//! What a request changed and the entry that says so are written together: no change without its
//! entry, also after a crash. Requests that changed no record (they were refused, or asked a proxy
//! only, or the store failed) have their entries written soon after, or when the store can be written
//! again.

use crate::manager::{Manager, batch};
use crate::records::Txn;
use crate::types::text::is_formatting;
use crate::types::{AuditRecord, OperationId, ProblemCode};
use std::cell::RefCell;
use std::fmt::Display;
use std::future::Future;
use tokio::sync::{Notify, mpsc};

/// Entries that are kept. The oldest go when more come; refusals count.
pub const MAX_AUDIT: usize = 10_000;

/// Entries that wait to be written. When it is full, further ones are only in the log, which says
/// so; what changed a record does not wait here.
pub const QUEUE: usize = 1024;

/// Longest text of what a request asked for, bytes; what is longer is cut.
pub const MAX_WHAT: usize = 512;

/// The request that is being served.
pub struct Served {
    /// Its entry, if no change of the records has taken it.
    pub entry: Option<AuditRecord>,
    /// What it asks for, besides its path.
    pub what: Option<String>,
}

tokio::task_local! {
    static REQUEST: RefCell<Served>;
}

/// Does something on behalf of a request. The first change of the records in it takes the entry;
/// one that no change took is given back.
pub async fn on_behalf<R>(entry: AuditRecord, request: impl Future<Output = R>) -> (R, Served) {
    let served = Served { entry: Some(entry), what: None };
    REQUEST
        .scope(RefCell::new(served), async {
            let result = request.await;
            let entry = take(None);
            (
                result,
                Served { entry, what: REQUEST.with(|request| request.borrow_mut().what.take()) },
            )
        })
        .await
}

/// Notes what the request that is being served asks for, for its entry: in one line, of at most
/// [`MAX_WHAT`] bytes. What was noted before makes way.
pub(crate) fn asks(what: &impl Display) {
    let what = line(&what.to_string(), MAX_WHAT);
    // Only requests that change something have an entry.
    let _ = REQUEST.try_with(|request| request.borrow_mut().what = Some(what));
}

/// The first `most` bytes of a text, without what would be another line, a command to a terminal, or
/// shown in another order.
pub(crate) fn line(text: &str, most: usize) -> String {
    let mut line = String::new();
    for c in text.chars().map(|c| if is_formatting(c) { ' ' } else { c }) {
        if line.len() + c.len_utf8() > most {
            break;
        }
        line.push(c);
    }
    line
}

/// The entry of the request that is being served, if it has not been taken, with the operation
/// that it began.
pub(crate) fn take(operation: Option<OperationId>) -> Option<AuditRecord> {
    let taken = REQUEST.try_with(|request| {
        let mut request = request.borrow_mut();
        let what = request.what.clone();
        request.entry.take().map(|entry| AuditRecord { what, ..entry })
    });
    let entry = taken.ok().flatten()?;
    Some(AuditRecord { operation: operation.or(entry.operation), ..entry })
}

/// Writes entries that no change took, until `last` says that there come no more. While the store
/// cannot be written they wait: some are of what was refused for that.
pub async fn write(manager: &Manager, mut queue: mpsc::Receiver<AuditRecord>, last: &Notify) {
    let mut troubles = manager.records.watch_trouble();
    loop {
        let entries = batch(&mut queue, last).await;
        if entries.is_empty() {
            return;
        }
        let all = |txn: &mut Txn| entries.iter().cloned().for_each(|entry| txn.audit(entry));
        while let Err(problem) = manager.records.apply(all).await {
            if problem.code != ProblemCode::StoreFailed || manager.is_stopping() {
                tracing::error!("entries of the audit log are lost: {problem}");
                break;
            }
            tokio::select! {
                _ = troubles.wait_for(Option::is_none) => {}
                () = manager.stopping() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_one_line_of_a_bounded_length() {
        assert_eq!(line("a\u{1b}[2J\nb\u{9b}c\u{7f}", 99), "a [2J b c ");
        assert_eq!(line("a\u{2028}b\u{2029}c\u{202e}d\u{2066}e\u{200f}\u{61c}", 99), "a b c d e  ");
        // Joiners and letters that go from right to left are words.
        assert_eq!(line("\u{5d0}\u{200d}\u{e9}", 99), "\u{5d0}\u{200d}\u{e9}");
        let long = line(&"\u{20ac}".repeat(MAX_WHAT), MAX_WHAT);
        assert_eq!(long, "\u{20ac}".repeat(MAX_WHAT / 3));
    }
}
