//! Who waits for a change, and for what: nobody is woken by what is not theirs.

use super::writes::Touched;
use crate::types::{BindingId, OperationId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// One binding.
    Binding(BindingId),
    /// One operation.
    Operation(OperationId),
    /// The end of one operation.
    End(OperationId),
    /// Any operation.
    Operations,
    /// Any event.
    Events,
    /// Any erasure.
    Erasures,
    /// The rollout of firmware.
    Rollout,
}

/// Topics that somebody waits for. No more than there are who wait.
#[derive(Default)]
pub(super) struct Topics(Mutex<HashMap<Topic, watch::Sender<()>>>);

impl Topics {
    fn all(&self) -> MutexGuard<'_, HashMap<Topic, watch::Sender<()>>> {
        self.0.lock().expect("no one panics while holding it")
    }

    /// Begins to wait.
    pub(super) fn watch(self: &Arc<Self>, topic: Topic) -> Watch {
        let changes = self.all().entry(topic).or_default().subscribe();
        Watch { topic, changes: Some(changes), topics: self.clone() }
    }

    /// Wakes whom a change concerns.
    pub(super) fn tell(&self, touched: &Touched) {
        let all = self.all();
        if all.is_empty() {
            return;
        }
        let tell = |topic: Topic| {
            if let Some(waiting) = all.get(&topic) {
                waiting.send_replace(());
            }
        };
        touched.bindings.iter().copied().map(Topic::Binding).for_each(tell);
        touched.operations.iter().copied().map(Topic::Operation).for_each(tell);
        touched.ended.iter().copied().map(Topic::End).for_each(tell);
        let classes = [
            (!touched.operations.is_empty(), Topic::Operations),
            (!touched.events.is_empty(), Topic::Events),
            (touched.erasures, Topic::Erasures),
            (touched.rollout, Topic::Rollout),
        ];
        classes.into_iter().filter(|(is, _)| *is).for_each(|(_, topic)| tell(topic));
    }
}

/// Waits for changes of one topic.
pub struct Watch {
    topic: Topic,
    /// There until this is dropped.
    changes: Option<watch::Receiver<()>>,
    topics: Arc<Topics>,
}

impl Watch {
    fn changes(&mut self) -> &mut watch::Receiver<()> {
        self.changes.as_mut().expect("it is there until this is dropped")
    }

    /// What changed until now is not waited for.
    pub fn mark_unchanged(&mut self) {
        self.changes().mark_unchanged();
    }

    /// Waits for the next change: since this was made, since [`Watch::mark_unchanged`], or since
    /// this returned last.
    pub async fn changed(&mut self) {
        // The sender stays as long as anybody waits.
        let _ = self.changes().changed().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = self.topics.all();
        // Before the lock is let go: of two that go at once the second one sees that it is the last.
        self.changes = None;
        if all.get(&self.topic).is_some_and(|waiting| waiting.receiver_count() == 0) {
            all.remove(&self.topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn touched(operation: u64) -> Touched {
        let operations = [OperationId(operation)].into();
        Touched { operations, ..Touched::default() }
    }

    fn woken(watch: &mut Watch) -> bool {
        watch.changed().now_or_never().is_some()
    }

    #[test]
    fn only_who_waits_for_it_is_woken() {
        let topics = Arc::new(Topics::default());
        let mut first = topics.watch(Topic::Operation(OperationId(1)));
        let mut second = topics.watch(Topic::Operation(OperationId(2)));
        let mut any = topics.watch(Topic::Operations);
        let mut events = topics.watch(Topic::Events);
        topics.tell(&touched(2));
        let all = [&mut first, &mut second, &mut any, &mut events].map(woken);
        assert_eq!(all, [false, true, true, false]);
        assert!(!woken(&mut second), "once for each change");
        topics.tell(&touched(1));
        first.mark_unchanged();
        assert!(!woken(&mut first));
    }

    #[test]
    fn who_waits_for_an_end_is_not_woken_before() {
        let topics = Arc::new(Topics::default());
        let mut end = topics.watch(Topic::End(OperationId(1)));
        topics.tell(&touched(1));
        assert!(!woken(&mut end));
        let ended = [OperationId(1)].into();
        topics.tell(&Touched { ended, ..touched(1) });
        assert!(woken(&mut end));
    }

    #[test]
    fn nothing_is_kept_for_who_waits_no_longer() {
        let topics = Arc::new(Topics::default());
        let topic = Topic::Binding(BindingId(1));
        let (first, mut second) = (topics.watch(topic), topics.watch(topic));
        drop(first);
        let bindings = [BindingId(1)].into();
        topics.tell(&Touched { bindings, ..Touched::default() });
        assert!(woken(&mut second), "another one still waits");
        drop(second);
        assert!(topics.all().is_empty());
    }

    #[test]
    fn nothing_is_kept_when_many_go_at_once() {
        let topics = Arc::new(Topics::default());
        for _ in 0..2_000 {
            let start = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    let watch = topics.watch(Topic::Events);
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        drop(watch);
                    });
                }
            });
            assert!(topics.all().is_empty());
        }
    }
}
