//! Asking an operating system to let go. It may, as soon as it is asked: from then on a release cannot
//! be called back, so that is on record before anybody asks.

use super::progress::same_life;
use crate::control::Registry;
use crate::reconcile::action::{self, Action, Ends};
use crate::records::{Tables, Txn};
use crate::types::{BindingRecord, OperationRecord, StepName};
use proxy_core::control::Removal;

/// An operating system is about to be asked. Whether it is still to be.
pub fn begin(txn: &mut Txn, asked: &BindingRecord) -> bool {
    let wanted = |b: &&BindingRecord| b.desired == asked.desired && b.phase == asked.phase;
    let Some(binding) = same_life(txn, asked).filter(wanted).cloned() else { return false };
    let operation = binding.operation.and_then(|id| txn.operations().get(&id).cloned());
    if let Some(mut operation) = operation {
        let now = txn.now();
        if let Some(step) = operation.step_mut(binding.id, StepName::UnbindPort) {
            step.asked.get_or_insert(now);
            txn.put_operation(operation);
        }
    }
    true
}

/// Whether these records say that it is about to be asked, and for what it is to be asked now.
pub fn is_begun(tables: &Tables, asked: &BindingRecord) -> bool {
    let now = tables.bindings().get(&asked.id);
    let same = now.is_some_and(|b| b.desired == asked.desired && b.phase == asked.phase);
    let operation = asked.operation.and_then(|id| tables.operations().get(&id));
    let step = operation.and_then(|o| {
        o.steps.iter().find(|s| s.binding == asked.id && s.name == StepName::UnbindPort)
    });
    same && step.is_some_and(|step| step.asked.is_some())
}

/// As [`begin`], for the bindings of a release that has just begun (`begun`) and whose hosts are there:
/// those are asked next whatever happens, so one write is enough for both. The operation then.
pub fn begin_at_once(
    txn: &mut Txn,
    registry: &Registry,
    begun: OperationRecord,
) -> OperationRecord {
    let mut asked = false;
    for binding in txn.bindings_under(&begun) {
        let life = |name| registry.ready(name).map(|session| session.identity().incarnation);
        let ends = Ends { at_box: life(binding.slot.box_name()), at_host: life(&binding.host) };
        if matches!(action::next(&binding, ends), Action::UnbindPort(Removal::Orderly { .. })) {
            asked |= begin(txn, &binding);
        }
    }
    // One that is asked for again may be known by its key alone.
    let now = txn.operations().get(&begun.id).filter(|_| asked);
    now.cloned().unwrap_or(begun)
}
