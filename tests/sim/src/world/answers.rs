//! What proxies were asked on connections that stand: each request is answered once, at once or when
//! its work is done (`proxy-fw/core/docs/control.md`, "Order and repetition").

use crate::oracle::{Verdict, Violation};
use proxy_core::control::{OperationId, Removal, Request};
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::{NodeId, SlotFunction, SlotId};

/// How long the work of a request may take, besides the time that an orderly removal is given: a
/// little less than a manager waits before it ends the connection, which hides that nothing came.
const WORK: Duration = Duration::from_millis(29_500);

/// Which work a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    UnbindSlot(SlotId, SlotFunction),
    Recover(SlotId),
    UnbindPort(NodeId, SlotId),
}

/// The work of a request, and how long it may take; nothing of one that is answered at once.
fn work(request: &Request) -> Option<(Work, Duration)> {
    Some(match request {
        Request::UnbindSlot(key) => (Work::UnbindSlot(key.slot, key.function), WORK),
        Request::Recover(slot) => (Work::Recover(*slot), WORK),
        Request::UnbindPort { box_node, slot, mode, .. } => {
            let within = match mode {
                Removal::Orderly { within_ms } => Duration::from_millis((*within_ms).into()),
                Removal::Force => Duration::ZERO,
            };
            (Work::UnbindPort(*box_node, *slot), WORK + within)
        }
        _ => return None,
    })
}

/// A request that was not answered yet.
#[derive(Debug)]
struct Asked {
    node: usize,
    id: OperationId,
    since: Instant,
    work: Option<(Work, Duration)>,
    /// The same was asked for again: this one may get no answer.
    again: bool,
}

/// Every request that was not answered yet.
#[derive(Default)]
pub(super) struct Answers {
    owed: Vec<Asked>,
}

impl Answers {
    /// A proxy is asked. Who asks for the same work again waits since the first time.
    pub(super) fn asked(&mut self, now: Instant, node: usize, id: OperationId, request: &Request) {
        let work = work(request);
        let same = |asked: &&mut Asked| {
            asked.node == node && work.is_some() && asked.work.map(|w| w.0) == work.map(|w| w.0)
        };
        let mut since = now;
        for asked in self.owed.iter_mut().filter(same) {
            asked.again = true;
            since = since.min(asked.since);
        }
        self.owed.push(Asked { node, id, since, work, again: false });
    }

    /// A proxy answers, and did what it was asked for, or refused to.
    pub(super) fn answered(&mut self, node: usize, id: OperationId, done: bool) -> Verdict {
        let Some(at) = self.owed.iter().position(|asked| (asked.node, asked.id) == (node, id))
        else {
            let what = format!("node {} answered {id:?}, which nobody waits for", node + 1);
            return Err(Violation::new(4, what));
        };
        let Some((work, _)) = self.owed.remove(at).work else { return Ok(()) };
        // Who asked before is not answered any more when it is done.
        let same = |asked: &Asked| asked.node == node && asked.work.map(|w| w.0) == Some(work);
        self.owed.retain(|asked| !(done && asked.again && same(asked)));
        Ok(())
    }

    /// Whether a proxy that has done all that it could owes an answer that is given at once.
    pub(super) fn check_node(&self, node: usize) -> Verdict {
        let owed = self.owed.iter().find(|asked| asked.node == node && asked.work.is_none());
        owed.map_or(Ok(()), |asked| unanswered(asked, "at once"))
    }

    /// Whether some work takes too long; `still`: how long a node stood still since then.
    pub(super) fn check(
        &self,
        now: Instant,
        still: impl Fn(usize, Instant) -> Duration,
    ) -> Verdict {
        let late = |asked: &&Asked| {
            let bound = asked.work.map_or(Duration::ZERO, |work| work.1);
            let waits = now.saturating_since(asked.since);
            !asked.again && waits > bound + still(asked.node, asked.since)
        };
        self.owed.iter().find(late).map_or(Ok(()), |asked| unanswered(asked, "in time"))
    }

    /// A node's connection is over: nothing is owed.
    pub(super) fn forget(&mut self, node: usize) {
        self.owed.retain(|asked| asked.node != node);
    }
}

fn unanswered(asked: &Asked, how: &str) -> Verdict {
    let Asked { node, id, since, .. } = asked;
    let what = format!("node {} does not answer {id:?} {how}, asked at {since:?}", node + 1);
    Err(Violation::new(0, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn recover(slot: u8) -> Request {
        Request::Recover(SlotId::new(slot).unwrap())
    }

    #[test]
    fn each_request_is_answered_once() {
        let mut answers = Answers::default();
        let id = OperationId(1);
        answers.asked(at(0), 2, id, &Request::ReadTable { from: 0 });
        assert!(answers.answered(1, id, true).is_err(), "another node was asked");
        assert!(answers.check_node(1).is_ok() && answers.check_node(2).is_err());
        assert!(answers.answered(2, id, true).is_ok() && answers.check_node(2).is_ok());
        assert!(answers.answered(2, id, true).is_err(), "twice");
        answers.asked(at(0), 2, id, &Request::ReadTable { from: 0 });
        answers.forget(2);
        assert!(answers.answered(2, id, true).is_err(), "on a connection that is over");
    }

    #[test]
    fn work_has_its_time_and_that_of_a_freeze() {
        let mut answers = Answers::default();
        answers.asked(at(0), 0, OperationId(1), &recover(1));
        let still = |ms| move |_, _| Duration::from_millis(ms);
        assert!(answers.check_node(0).is_ok());
        assert!(answers.check(at(29_500), still(0)).is_ok());
        assert!(answers.check(at(29_501), still(0)).is_err());
        assert!(answers.check(at(29_501), still(1)).is_ok());
        // Again, and of another slot.
        answers.asked(at(20_000), 0, OperationId(2), &recover(1));
        answers.asked(at(20_000), 0, OperationId(3), &recover(2));
        assert!(answers.check(at(29_501), still(0)).is_err(), "it waits since the first time");
        assert!(answers.answered(0, OperationId(2), true).is_ok());
        assert!(answers.check(at(29_501), still(0)).is_ok());
        assert!(answers.answered(0, OperationId(1), true).is_err(), "the last one was answered");
        assert!(answers.check(at(49_501), still(0)).is_err());
        // One that is refused ends no work.
        answers.asked(at(20_000), 0, OperationId(4), &recover(2));
        assert!(answers.answered(0, OperationId(4), false).is_ok());
        assert!(answers.answered(0, OperationId(3), true).is_ok());
    }
}
