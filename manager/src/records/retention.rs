//! How long what is over is kept: operations that have ended, and the events that tell their
//! stories.

use super::tables::over_since;
use super::{MAX_EVENTS, Tables};
use crate::types::{EventKind, EventRecord, OperationId, Timestamp};
use imbl::OrdMap;
use serde::Deserialize;
use std::sync::Arc;

/// Events of operations that are kept besides the last [`MAX_EVENTS`]. When more come, the oldest
/// operation that has ended goes with its events; if none has, the event itself is not kept.
pub const MAX_STORIES: usize = 200_000;

/// Starts of the manager that are kept besides the last [`MAX_EVENTS`]: each is a part of the
/// stories of the operations that went on after it.
pub(super) const MAX_STARTS: usize = 100;

/// Ended operations that go with each change of one because of their age, so that no change is
/// large.
pub(super) const SWEEP: usize = 8;

/// How long operations that have ended are kept; in the file, `[keep]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// The last so many are kept, whatever their age.
    pub operations_least: usize,
    /// No more than so many are kept, whatever their age.
    pub operations_most: usize,
    /// Between the two, those are kept that ended within so many hours.
    pub operations_hours: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { operations_least: 1_000, operations_most: 10_000, operations_hours: 7 * 24 }
    }
}

impl Retention {
    /// Most that [`Retention::operations_most`] can be.
    pub const MAX: usize = 100_000;

    /// Checks that it can be kept to.
    ///
    /// # Errors
    ///
    /// What is wrong with which field.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=Self::MAX).contains(&self.operations_most) {
            return Err(format!("keep.operations_most: 1 to {}", Self::MAX));
        }
        if self.operations_least > self.operations_most {
            return Err("keep.operations_least: at most keep.operations_most".into());
        }
        Ok(())
    }

    fn is_over(&self, ended: Timestamp, now: Timestamp) -> bool {
        let hours = u64::from(self.operations_hours);
        now.as_millis().saturating_sub(ended.as_millis()) >= hours * 3_600_000
    }
}

/// Events that are kept beyond the last ones.
#[derive(Clone, Default)]
pub(super) struct Stories {
    of_operations: OrdMap<(OperationId, u64), Arc<EventRecord>>,
    starts: OrdMap<u64, Arc<EventRecord>>,
}

impl Stories {
    fn of(&self, id: OperationId) -> impl Iterator<Item = (&u64, &EventRecord)> {
        let range = self.of_operations.range((id, 0)..=(id, u64::MAX));
        range.map(|((_, sequence), event)| (sequence, event.as_ref()))
    }

    /// Takes the events of an operation out. Their numbers.
    pub(super) fn remove(&mut self, id: OperationId) -> Vec<u64> {
        let numbers: Vec<u64> = self.of(id).map(|(sequence, _)| *sequence).collect();
        for sequence in &numbers {
            self.of_operations.remove(&(id, *sequence));
        }
        numbers
    }
}

impl Tables {
    /// An event is no longer one of the last. Numbers of the events that are not kept any more: this
    /// one, or an older one in its place.
    pub(super) fn leave_ring(&mut self, event: Arc<EventRecord>) -> Vec<u64> {
        let sequence = event.sequence;
        if event.kind == EventKind::ManagerStarted {
            self.stories.starts.insert(sequence, event);
            let over = self.stories.starts.len() > MAX_STARTS;
            let oldest = self.stories.starts.get_min().map(|(sequence, _)| *sequence);
            let oldest = oldest.filter(|_| over);
            oldest.iter().for_each(|oldest| drop(self.stories.starts.remove(oldest)));
            return oldest.into_iter().collect();
        }
        match event.operation.filter(|id| self.operations.contains_key(id)) {
            Some(id) if self.stories.of_operations.len() < MAX_STORIES => {
                self.stories.of_operations.insert((id, sequence), event);
                Vec::new()
            }
            _ => vec![sequence],
        }
    }

    /// Whether there is no room for further stories.
    pub(super) fn stories_are_full(&self) -> bool {
        self.stories.of_operations.len() >= MAX_STORIES
    }

    /// Sorts events, all in their order, into the last ones and those of stories. Those of no story
    /// are not known any more.
    pub(super) fn sort_events(&mut self, events: Vec<EventRecord>) {
        let before = events.len().saturating_sub(MAX_EVENTS);
        for (index, event) in events.into_iter().enumerate() {
            if index < before {
                self.leave_ring(Arc::new(event));
            } else {
                self.events.insert(event.sequence, event);
            }
        }
    }

    /// The ended operation that goes next, if one has to.
    pub(super) fn surplus(&self, now: Timestamp) -> Option<OperationId> {
        let count = self.ended_count();
        let &id = self.ended.first()?;
        let ended = over_since(self.operations.get(&id)?);
        let Retention { operations_least, operations_most, .. } = self.retention;
        let old = count > operations_least && self.retention.is_over(ended, now);
        (old || count > operations_most || self.stories_are_full()).then_some(id)
    }

    /// Whether more operations that have ended are kept than ever should be.
    pub(super) fn is_over_the_most(&self) -> bool {
        self.ended_count() > self.retention.operations_most || self.stories_are_full()
    }

    /// The events of an operation that are kept, in order: its own, and starts of the manager
    /// between its beginning and its end, after which it went on by itself. By their numbers: the wall
    /// clock may be another one after a start.
    pub fn story(&self, id: OperationId) -> Vec<&EventRecord> {
        let before = self.stories.of(id).map(|(_, event)| event);
        let last = self.events.values().filter(|event| event.operation == Some(id));
        let mut story: Vec<&EventRecord> = before.chain(last).collect();
        let Some(began) = story.first().map(|event| event.sequence) else { return story };
        let runs = self.operations.get(&id).is_some_and(|operation| !operation.state.is_final());
        let ended = if runs { u64::MAX } else { story[story.len() - 1].sequence };
        let starts = self.stories.starts.range(began..=ended).map(|(_, event)| event.as_ref());
        let last = self.events.range(began..=ended).map(|(_, event)| event);
        let last = last.filter(|event| event.kind == EventKind::ManagerStarted);
        story.extend(starts.chain(last));
        story.sort_by_key(|event| event.sequence);
        story
    }
}
