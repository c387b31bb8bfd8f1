//! Which operations lose the time that a trace takes longer.
//!
//! What ended last is followed back, from each point to what it waited for. What the fabric added on
//! that way is what made it late, less what the trace had of waiting there: that took up some of
//! what was added before it. So what is lost by all of them together is exactly what the whole
//! takes longer; what was added elsewhere, or taken up, is hidden.

use std::collections::HashMap;

use perf_core::{Kind, Nanos};

use super::graph::{Between, Node, Point};
use super::play::{NONE, Played};
use crate::trace::NameId;

/// Why time is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// What an operation of this kind takes longer.
    Kind(Kind),
    /// Others had the proxy that is shared.
    SharedProxy,
    /// The shim put delays into streams, which no fabric does ([`super::Scenario::putting`]).
    Putting,
}

impl Cause {
    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::Kind(kind) => kind.name(),
            Cause::SharedProxy => "shared-proxy",
            Cause::Putting => "putting",
        }
    }

    /// What a person calls it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Cause::Kind(kind) => kind.title(),
            Cause::SharedProxy => "waiting for the shared proxy",
            Cause::Putting => "the shim's own launches",
        }
    }
}

/// What was added, and what of it was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// How many operations (or waits of the CPU) something was added to.
    pub count: u64,
    /// What was added to all of them, in nanoseconds.
    pub added_ns: u64,
    /// What of that made the whole later, in nanoseconds.
    pub lost_ns: u64,
}

/// What was lost, by cause and by name.
#[derive(Clone, Debug, Default)]
pub struct LostBy {
    /// Each cause that something was added by.
    pub causes: HashMap<Cause, Lost>,
    /// Each kernel, copy or call by its name, that something was added to.
    pub names: HashMap<(Cause, NameId), Lost>,
}

impl LostBy {
    fn added(&mut self, cause: Cause, name: NameId, added: u64) {
        for lost in self.both(cause, name) {
            lost.count += 1;
            lost.added_ns = lost.added_ns.saturating_add(added);
        }
    }

    fn lost(&mut self, cause: Cause, name: NameId, lost_ns: u64) {
        for lost in self.both(cause, name) {
            lost.lost_ns = lost.lost_ns.saturating_add(lost_ns);
        }
    }

    fn both(&mut self, cause: Cause, name: NameId) -> [&mut Lost; 2] {
        [self.causes.entry(cause).or_default(), self.names.entry((cause, name)).or_default()]
    }

    /// What was added to all, in nanoseconds.
    #[must_use]
    pub fn added_ns(&self) -> u64 {
        self.causes.values().fold(0, |sum, lost| sum.saturating_add(lost.added_ns))
    }

    /// What was lost by all: what the whole takes longer, in nanoseconds.
    #[must_use]
    pub fn lost_ns(&self) -> u64 {
        self.causes.values().fold(0, |sum, lost| sum.saturating_add(lost.lost_ns))
    }
}

/// Goes back from the end.
struct Way {
    by: LostBy,
    /// Waiting that the trace had, and that nothing added has taken up yet.
    slack: u64,
}

impl Way {
    fn pass(&mut self, cause: Cause, name: NameId, added: u64) {
        let taken_up = added.min(self.slack);
        self.slack -= taken_up;
        if added > taken_up {
            self.by.lost(cause, name, added - taken_up);
        }
    }
}

impl Played<'_> {
    /// What was added, and which of it made the whole later.
    #[must_use]
    pub fn lost(&self) -> LostBy {
        let mut way = Way { by: self.added(), slack: 0 };
        let Some((mut point, mut index)) = self.last() else { return way.by };
        // The trace may have ended with something else.
        let native_end = self.graph.native(point, index);
        way.slack = self.graph.trace.length_ns() - native_end;
        loop {
            self.pass_operation(&mut way, point, index);
            let (node, by) = self.node(point, index);
            if by == NONE {
                return way.by;
            }
            let constraint = &self.graph.constraints[by as usize];
            way.slack += self.graph.slack(node, constraint);
            self.pass_between(&mut way, node, by);
            self.pass_putting(&mut way, node);
            (point, index) = (constraint.point, constraint.index);
        }
    }

    /// What was added to each operation and wait, wherever it is.
    fn added(&self) -> LostBy {
        let mut by = LostBy::default();
        for (at, operation) in (0_u32..).zip(&self.graph.trace.operations) {
            let (kind, extra) = self.extra(at, operation);
            if extra > Nanos::ZERO {
                by.added(Cause::Kind(kind), operation.name, extra.0);
            }
            let queued = self.queued.get(at as usize).copied().unwrap_or(0);
            if queued > 0 {
                by.added(Cause::SharedProxy, operation.name, queued);
            }
        }
        for (call, cost) in self.graph.trace.calls.iter().zip(&self.putting) {
            if *cost > 0 {
                by.added(Cause::Putting, call.name, *cost);
            }
        }
        for (place, node) in self.graph.order.iter().enumerate() {
            let (from, to) = (self.graph.first[place], self.graph.first[place + 1]);
            let own = from..to;
            // Of several that a call waits for, what is added to one is added once.
            let between = own.filter_map(|at| self.added_between(*node, at)).max();
            if let Some((added, cause, name)) = between {
                by.added(cause, name, added);
            }
        }
        by
    }

    /// What the fabric adds to a constraint, as what, and to the operation or call of which name.
    fn added_between(&self, node: Node, constraint: u32) -> Option<(u64, Cause, NameId)> {
        let trace = self.graph.trace;
        let constraint = &self.graph.constraints[constraint as usize];
        let (kind, name, device) = match (constraint.between, node) {
            (Between::Nothing, _) => return None,
            (_, Node::Operation(at)) => {
                let operation = &trace.operations[at as usize];
                (Kind::Doorbell, operation.name, trace.device_of(operation).index())
            }
            (_, Node::CallStart(at) | Node::CallEnd(at)) => {
                (Kind::Synchronise, trace.calls[at as usize].name, 0)
            }
        };
        let added = self.between(constraint, device).0;
        (added > 0).then_some((added, Cause::Kind(kind), name))
    }

    fn pass_between(&self, way: &mut Way, node: Node, constraint: u32) {
        if let Some((added, cause, name)) = self.added_between(node, constraint) {
            way.pass(cause, name, added);
        }
    }

    /// Passes what a call took longer to put delays into streams.
    fn pass_putting(&self, way: &mut Way, node: Node) {
        if let Node::CallEnd(at) = node
            && let Some(cost) = self.putting.get(at as usize)
        {
            way.pass(Cause::Putting, self.graph.trace.calls[at as usize].name, *cost);
        }
    }

    /// Passes what was added to an operation, where its end is what was waited for.
    fn pass_operation(&self, way: &mut Way, point: Point, index: u32) {
        let operation = match point {
            Point::End | Point::Done => &self.graph.trace.operations[index as usize],
            Point::Start | Point::CallStart | Point::CallEnd => return,
        };
        let own = self.time(point, index).saturating_sub(self.time(Point::Start, index));
        let longer = own.saturating_sub(operation.duration);
        let queued = self.queued.get(index as usize).copied().unwrap_or(0).min(longer);
        way.pass(Cause::SharedProxy, operation.name, queued);
        let (kind, _) = self.extra(index, operation);
        way.pass(Cause::Kind(kind), operation.name, longer - queued);
    }

    /// What ended last.
    fn last(&self) -> Option<(Point, u32)> {
        let latest = |times: &[super::play::Times], point| {
            let ends = (0_u32..).zip(times).map(|(at, times)| (times.end, at));
            ends.max().map(|(end, at)| (end, point, at))
        };
        let operation = latest(&self.operations, Point::End);
        let call = latest(&self.calls, Point::CallEnd);
        let (_, point, at) = operation.into_iter().chain(call).max_by_key(|(end, ..)| *end)?;
        Some((point, at))
    }

    /// The node that a point's time is found with, and by which constraint it was.
    fn node(&self, point: Point, index: u32) -> (Node, u32) {
        let at = index as usize;
        match point {
            Point::CallStart => (Node::CallStart(index), self.calls[at].start_by),
            Point::CallEnd => (Node::CallEnd(index), self.calls[at].end_by),
            Point::Start | Point::Done | Point::End => {
                (Node::Operation(index), self.operations[at].start_by)
            }
        }
    }

    /// When something that a thread did between its calls came, that in the trace was at a time.
    /// `of_thread` are the places of the thread's calls in the trace's, in order.
    #[must_use]
    pub fn time_in_thread(&self, of_thread: &[u32], native: u64) -> u64 {
        let calls = &self.graph.trace.calls;
        let until = of_thread.partition_point(|at| calls[*at as usize].start <= native);
        let Some(at) = until.checked_sub(1).map(|last| of_thread[last] as usize) else {
            return native;
        };
        let times = &self.calls[at];
        let (call, after) = (&calls[at], native.saturating_sub(calls[at].end()));
        if native >= call.end() {
            return times.end.saturating_add(after);
        }
        times.start.saturating_add(native - call.start).min(times.end)
    }
}
