//! What each point in time of a trace waited for.

use std::collections::HashMap;

use crate::trace::Trace;

/// What comes to pass at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// A call is made.
    CallStart,
    /// A call returns.
    CallEnd,
    /// An operation begins.
    Start,
    /// An operation's own work is done: what it used is free.
    Done,
    /// An operation has ended for what comes after it in its stream.
    End,
}

/// What the fabric adds between one point and the next, beside what it adds to operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    /// Nothing.
    Nothing,
    /// The doorbell's way, and the fetch of the work.
    Doorbell,
    /// The CPU sees later what the device wrote.
    Seen,
}

/// Something that a point waits for: it comes `lag` after that at the earliest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constraint {
    /// In nanoseconds. Negative where the trace's clocks do not agree.
    pub(super) lag: i64,
    /// Place of the operation or call.
    pub(super) index: u32,
    pub(super) point: Point,
    pub(super) between: Between,
}

/// A point whose time is found from its constraints. Of an operation, the start; its end follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    CallStart(u32),
    CallEnd(u32),
    Operation(u32),
}

/// A trace and what each of its points waited for; can be played with any fabric.
#[derive(Debug)]
pub struct Graph<'t> {
    pub(super) trace: &'t Trace,
    /// When calls come that wait for nothing, where that is not when they came in the trace.
    pub(super) begun: HashMap<u32, u64>,
    /// In an order in which each comes after all that it waits for.
    pub(super) order: Vec<Node>,
    /// Where each node's constraints begin, and the end of the last one's.
    pub(super) first: Vec<u32>,
    pub(super) constraints: Vec<Constraint>,
    /// Of operations of graphs: whether it is the last of its launch.
    pub(super) in_graph: Vec<InGraph>,
    /// What a person should know of how the trace was understood, as sentences.
    pub remarks: Vec<String>,
}

/// Whether an operation was launched in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InGraph {
    /// By itself.
    No,
    /// In a graph, and others of it end later.
    Inner,
    /// In a graph, and it is the last of it that ends.
    Last,
}

impl<'t> Graph<'t> {
    /// The trace.
    #[must_use]
    pub fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// When a point was in the trace.
    pub(super) fn native(&self, point: Point, index: u32) -> u64 {
        let at = index as usize;
        match point {
            Point::CallStart => self.trace.calls[at].start,
            Point::CallEnd => self.trace.calls[at].end(),
            Point::Start => self.trace.operations[at].start,
            Point::Done | Point::End => self.trace.operations[at].end(),
        }
    }

    /// When a node was in the trace.
    pub(super) fn native_node(&self, node: Node) -> u64 {
        match node {
            Node::CallStart(index) => self.native(Point::CallStart, index),
            Node::CallEnd(index) => self.native(Point::CallEnd, index),
            Node::Operation(index) => self.native(Point::Start, index),
        }
    }

    /// When a node comes that waits for nothing.
    pub(super) fn unexplained_node(&self, node: Node) -> u64 {
        let begun = match node {
            Node::CallStart(index) => self.begun.get(&index).copied(),
            Node::CallEnd(_) | Node::Operation(_) => None,
        };
        begun.unwrap_or_else(|| self.native_node(node))
    }

    /// How much earlier than it was a point could have been in the trace, as far as this constraint
    /// goes, in nanoseconds.
    pub(super) fn slack(&self, node: Node, constraint: &Constraint) -> u64 {
        let from = self.native(constraint.point, constraint.index);
        let earliest = from.saturating_add_signed(constraint.lag);
        self.native_node(node).saturating_sub(earliest)
    }
}
