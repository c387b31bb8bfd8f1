//! Replacing devices that failed, by the policy: tried again as long as the reason holds.

use crate::manager::Manager;
use crate::operations::choosing;
use crate::operations::replace::{self, Replace};
use crate::records::Tables;
use crate::types::{
    BindingId, Desired, EventKind, EventRecord, HealthState, Problem, SlotAddress, Subject,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest time between two tries.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// When a device is tried again.
#[derive(Clone, Debug)]
struct Attempt {
    binding: BindingId,
    at: Instant,
    pause: Duration,
    /// Why the last one did not begin.
    refused: Option<String>,
}

/// The tries of all devices that failed and are lent.
#[derive(Default)]
pub(super) struct Attempts(BTreeMap<SlotAddress, Attempt>);

impl Attempts {
    /// Begins what is due: at once when a device has failed, then again and again, each time after
    /// twice as long, until another one is in its place or it is better.
    pub(super) async fn round(&mut self, manager: &Arc<Manager>, tables: &Tables, now: Instant) {
        let failed = failed_and_lent(tables);
        self.0.retain(|slot, attempt| {
            failed.get(slot).is_some_and(|(binding, _)| *binding == attempt.binding)
        });
        let first = Duration::from_millis(manager.settings.health.interval_ms).min(MAX_PAUSE);
        for (slot, (binding, why)) in failed {
            let fresh = Attempt { binding, at: now, pause: first, refused: None };
            let attempt = self.0.entry(slot.clone()).or_insert(fresh);
            let is_worked_on =
                tables.bindings().get(&binding).is_none_or(|b| b.operation.is_some());
            if attempt.at > now || is_worked_on || replaces(tables, binding) {
                continue;
            }
            attempt.at = now + attempt.pause;
            attempt.pause = (attempt.pause * 2).min(MAX_PAUSE);
            let said = attempt.refused.clone();
            match begin(manager, &slot, binding, why, said).await {
                Ok(refused) => attempt.refused = refused,
                Err(problem) => tracing::error!("{slot} cannot be replaced: {problem}"),
            }
        }
    }
}

/// Whether an operation is replacing what a binding has.
fn replaces(tables: &Tables, binding: BindingId) -> bool {
    tables.running().any(|operation| replace::old_binding(operation) == Some(binding))
}

fn failed_and_lent(tables: &Tables) -> BTreeMap<SlotAddress, (BindingId, String)> {
    let failed = tables.health().values().filter(|record| record.state == HealthState::Failed);
    let lent = failed.filter_map(|record| {
        let Subject::Slot { slot } = &record.subject else { return None };
        let binding = tables.binding_at_slot(slot).filter(|b| b.desired == Desired::Bound)?;
        Some((slot.clone(), (binding.id, record.reason.clone())))
    });
    lent.collect()
}

/// Begins a replacement. Why it does not, which is said if it is another reason than the last one.
///
/// # Errors
///
/// When the records cannot be changed.
async fn begin(
    manager: &Arc<Manager>,
    slot: &SlotAddress,
    binding: BindingId,
    reason: String,
    said: Option<String>,
) -> Result<Option<String>, Problem> {
    let within_ms = Some(manager.settings.orderly_bound.as_millis() as u32);
    let how = Replace { within_ms, reason, parent: None };
    let why = match choosing::replace(manager, binding, &how, None, |_| Ok(())).await {
        Ok(_) => return Ok(None),
        Err(problem) if choosing::is_the_managers(&problem) => return Err(problem),
        Err(problem) => problem.detail,
    };
    if said.as_ref() != Some(&why) {
        let detail = format!("{slot} has failed and is not replaced: {why}; it is tried again");
        let event = EventRecord::new(EventKind::Trouble, detail).slot(slot);
        manager.records.apply(|txn| txn.event(event)).await?;
    }
    Ok(Some(why))
}
