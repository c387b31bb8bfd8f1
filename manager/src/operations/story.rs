//! What happened in an operation.

use crate::records::Tables;
use crate::types::{EventKind, EventRecord, OperationId};

/// The events of an operation that are kept, in order: its own; and, between its beginning and its
/// end, starts of the manager, after which it went on by itself.
pub fn events(tables: &Tables, id: OperationId) -> impl Iterator<Item = &EventRecord> {
    let operation = tables.operations().get(&id);
    let began = operation.map(|operation| operation.started);
    let ended = operation.and_then(|operation| operation.ended);
    tables.events().values().filter(move |event| {
        let meanwhile = began.is_some_and(|began| event.at >= began)
            && ended.is_none_or(|ended| event.at <= ended);
        event.operation == Some(id) || event.kind == EventKind::ManagerStarted && meanwhile
    })
}
