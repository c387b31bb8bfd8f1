//! What a trace would have been without the profiler that took it.
//!
//! A profiler makes calls and what lies between them longer, and so a program slower that waits for
//! its CPU: its trace hides behind the CPU what the program itself would not hide. How much longer the
//! trace does not say; the time that the program takes without the profiler does.

use std::collections::HashMap;

use perf_core::{Fabric, Nanos, Proxies, Settings};

use super::graph::{Constraint, Graph, Node, Point};
use super::play::Scenario;
use crate::trace::{Step, ThreadId, Trace};

/// The CPU's time is cut by so many of [`PARTS`] at most: something of it is the program's own.
const MOST: u64 = PARTS / 10 * 9;

/// What is longer by one in so many than the shortest is as short: the rest is the GPU's, and a CPU
/// that is faster still changes nothing.
const AS_SHORT: u64 = 200;

/// How finely that is found.
const PARTS: u64 = 1 << 20;

/// A trace in which the CPU takes a part of its time.
#[derive(Debug)]
pub struct Untraced {
    /// The trace, with the times that its points come at then.
    pub trace: Trace,
    /// The part of the CPU's time that is left, from 0.1 to 1.
    pub left: f64,
    constraints: Vec<Constraint>,
}

/// What a thread does before its first call: no call that it waits for says how long that takes.
#[derive(Clone, Copy, Debug)]
struct Lead {
    /// When its first step begins.
    from: u64,
    /// Its first call.
    call: u32,
}

/// So many of [`PARTS`] of a time.
fn part(time: u64, parts: u64) -> u64 {
    (u128::from(time) * u128::from(parts) / u128::from(PARTS)) as u64
}

impl Graph<'_> {
    /// The trace as it would be if it took so long: a step of it, on average, where it marks steps,
    /// and else the whole. None if it is that short already. Where no CPU is fast enough for that,
    /// with the slowest one that is hardly slower than the fastest.
    #[must_use]
    pub fn untraced(&self, wanted: Nanos) -> Option<Untraced> {
        if self.trace.measure() <= wanted.0 {
            return None;
        }
        let shortest = self.without(MOST).trace.measure();
        let wanted = wanted.0.max(shortest.saturating_add(shortest / AS_SHORT));
        let (mut low, mut high) = (0, MOST);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if self.without(middle).trace.measure() > wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(self.without(high))
    }

    /// The trace with the CPU's time cut by so many of [`PARTS`].
    fn without(&self, parts: u64) -> Untraced {
        let leads = self.leads();
        let cut = |lead: &Lead, time: u64| time - part(time - lead.from, parts);
        let starts = leads.values().map(|lead| (lead.call, cut(lead, self.start_of(lead.call))));
        let shorter = Graph { begun: starts.collect(), ..self.with(self.trace, self.cut(parts)) };
        let played = shorter.play(&Scenario::of(Settings::of(Fabric::NATIVE), Proxies::Each));
        let mut trace = self.trace.clone();
        for (call, times) in trace.calls.iter_mut().zip(&played.calls) {
            (call.start, call.duration) = (times.start, times.end.saturating_sub(times.start));
        }
        for (operation, times) in trace.operations.iter_mut().zip(&played.operations) {
            operation.start = times.start;
        }
        let of_thread = self.trace.calls_of_steps();
        for step in &mut trace.steps {
            let calls = &of_thread[&step.thread];
            let lead = leads.get(&step.thread);
            let came = |time| match lead {
                Some(lead) if time < self.start_of(lead.call) => cut(lead, time),
                _ => played.time_in_thread(calls, time),
            };
            let (start, end) = (came(step.start), came(step.end()));
            *step = Step { start, duration: end.saturating_sub(start), ..*step };
        }
        drop(played);
        let mut constraints = shorter.constraints;
        let retimed = self.with(&trace, Vec::new());
        for constraint in &mut constraints {
            // Where clocks do not agree a point comes before what it waits for, but not before the
            // trace: what waits for something that is earlier now has less of a lead.
            let from = retimed.native(constraint.point, constraint.index).cast_signed();
            constraint.lag = constraint.lag.max(-from);
        }
        let left = 1.0 - parts as f64 / PARTS as f64;
        Untraced { trace, left, constraints }
    }

    /// What each thread does in its steps before its first call, where that call waits for nothing.
    fn leads(&self) -> HashMap<ThreadId, Lead> {
        let mut begins: HashMap<ThreadId, u64> = HashMap::new();
        for step in &self.trace.steps {
            let from = begins.entry(step.thread).or_insert(step.start);
            *from = step.start.min(*from);
        }
        let lead = |(place, node): (usize, &Node)| {
            let Node::CallStart(call) = *node else { return None };
            let waits = self.first[place] < self.first[place + 1];
            let thread = self.trace.calls[call as usize].thread;
            let from = *begins.get(&thread)?;
            (!waits && from < self.start_of(call)).then_some((thread, Lead { from, call }))
        };
        self.order.iter().enumerate().filter_map(lead).collect()
    }

    fn start_of(&self, call: u32) -> u64 {
        self.trace.calls[call as usize].start
    }

    /// The constraints with less of the CPU's time in them: calls' own, that between a thread's calls,
    /// and what of the time until an operation begins is its call's.
    fn cut(&self, parts: u64) -> Vec<Constraint> {
        let cut = |time: i64| part(time.max(0).unsigned_abs(), parts).cast_signed();
        let call = |call: u32| self.trace.calls[call as usize].duration.cast_signed();
        let mut constraints = self.constraints.clone();
        for (place, node) in self.order.iter().enumerate() {
            let (from, to) = (self.first[place] as usize, self.first[place + 1] as usize);
            for constraint in &mut constraints[from..to] {
                constraint.lag -= match (*node, constraint.point) {
                    (Node::CallEnd(_), Point::CallStart) | (Node::CallStart(_), Point::CallEnd) => {
                        cut(constraint.lag)
                    }
                    (Node::Operation(_), Point::CallStart) => {
                        cut(call(constraint.index).min(constraint.lag))
                    }
                    _ => 0,
                };
            }
        }
        constraints
    }

    /// The graph of that trace: each point waits for what it waited for.
    #[must_use]
    pub fn of_untraced<'t>(&self, untraced: &'t Untraced) -> Graph<'t> {
        Graph {
            remarks: self.remarks.clone(),
            ..self.with(&untraced.trace, untraced.constraints.clone())
        }
    }

    /// The graph with another trace and other lags in the same constraints.
    fn with<'t>(&self, trace: &'t Trace, constraints: Vec<Constraint>) -> Graph<'t> {
        Graph {
            trace,
            begun: HashMap::new(),
            order: self.order.clone(),
            first: self.first.clone(),
            constraints,
            in_graph: self.in_graph.clone(),
            remarks: Vec::new(),
        }
    }
}
