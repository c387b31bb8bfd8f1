//! Has what is not as it is wanted looked at again, now and then.
//!
//! A binding is looked at when its record changes and when one of its proxies connects. After a start
//! neither may happen to it: a manager that was killed just before it would have counted a binding as
//! out of a host that is away, or as lost with its box, may never see one of the two again.

use crate::manager::Manager;
use crate::types::{BindingRecord, Desired, Phase};
use std::sync::Arc;

/// Looks until the manager stops. Not at once: proxies that come back after a start are asked, not
/// counted as away.
pub async fn run(manager: Arc<Manager>) {
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(manager.settings.reconcile_interval) => {}
            () = manager.stopping() => return,
        }
        let tables = manager.records.snapshot();
        let unsettled = tables.bindings().values().filter(|binding| !is_settled(binding));
        manager.records.touch(unsettled.map(|binding| binding.id));
    }
}

fn is_settled(binding: &BindingRecord) -> bool {
    binding.desired == Desired::Bound && matches!(binding.phase, Phase::Bound | Phase::Configured)
}
