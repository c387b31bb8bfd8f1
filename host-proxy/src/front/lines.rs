//! Lines of the log that somebody else causes.

use proxy_core::time::Instant;
use std::fmt::Display;
use std::time::Duration;
use tracing::{debug, info, warn};

/// How many of one kind are said in a while; further ones are there for who asks for details.
const MOST: u32 = 8;

/// A while.
const WHILE: Duration = Duration::from_secs(60);

/// Lines of one kind: whoever does again and again what is told fills nobody's log.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// When the while began.
    since: Instant,
    said: u32,
    unsaid: u64,
}

impl Lines {
    /// Tells what is as it should be, or not.
    pub(super) fn info(&mut self, now: Instant, what: impl Display) {
        match self.unsaid_before(now) {
            Some(unsaid) => info!(unsaid = (unsaid > 0).then_some(unsaid), "{what}"),
            None => debug!("{what}"),
        }
    }

    /// Warns, or not.
    pub(super) fn warn(&mut self, now: Instant, what: impl Display) {
        match self.unsaid_before(now) {
            Some(unsaid) => warn!(unsaid = (unsaid > 0).then_some(unsaid), "{what}"),
            None => debug!("{what}"),
        }
    }

    /// How many went unsaid before the one that is to be said now; `None` when it is not.
    fn unsaid_before(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_since(self.since) >= WHILE {
            (self.since, self.said) = (now, 0);
        }
        if self.said == MOST {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tracing::field::{Field, Visit};
    use tracing::{Event, Level, Metadata, span};

    /// The lines that a person gets.
    #[derive(Clone, Default)]
    pub(in crate::front) struct Log(Arc<Mutex<Vec<String>>>);

    impl Log {
        pub(in crate::front) fn lines(&self) -> Vec<String> {
            self.0.lock().unwrap().clone()
        }
    }

    struct Message(String);

    impl Visit for Message {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                self.0 = format!("{value:?}");
            }
        }
    }

    impl tracing::Subscriber for Log {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.is_event() && *metadata.level() <= Level::INFO
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut message = Message(String::new());
            event.record(&mut message);
            self.0.lock().unwrap().push(message.0);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn what_happens_again_and_again_is_said_a_few_times_a_while() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut lines = Lines::default();
        let mut said = Vec::new();
        for millis in 0..180_000 {
            said.extend(lines.unsaid_before(at(millis)).map(|unsaid| (millis, unsaid)));
        }
        assert_eq!(said.len(), 3 * MOST as usize);
        assert_eq!(said[7..10], [(7, 0), (60_000, 60_000 - 8), (60_001, 0)]);
        // Seldom is always.
        assert!((4..100).all(|minute| lines.unsaid_before(at(minute * 60_000)).is_some()));
    }
}
