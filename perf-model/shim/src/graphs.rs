//! Graphs: many nodes that one call launches.
//!
//! A graph's launch costs a kernel's end once, or what its nodes cost, as the settings say. Nodes of
//! a captured graph have their delays behind them, as nodes of their own, so that branches stay side
//! by side. A graph that was built node by node is left as it is: what its nodes cost is added after
//! it, one after another. A graph may have nodes of both sorts: a captured one that is a node of
//! another, or that had nodes added to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use perf_core::{Fact, Graphs as Setting, Kind, Nanos};

use crate::arch::Frame;
use crate::call::After;
use crate::copies::Volume;
use crate::driver::{Driver, Handle, Result32, SUCCESS};
use crate::real;
use crate::session::Session;
use crate::table::{Hook, Role};
use crate::work::{Work, number, stream_or_default};

/// Executable graphs that are known at a time; those beyond cost a kernel's end.
const GRAPHS: usize = 65_536;

/// Graphs within graphs are looked at to this depth.
const DEPTH: u32 = 8;

/// CUgraphNodeType (cuda.h).
const KERNEL: i32 = 0;
const COPY: i32 = 1;
const MEMSET: i32 = 2;
const HOST: i32 = 3;
const CHILD: i32 = 4;

/// What a graph does.
#[derive(Clone, Copy, Debug, Default)]
struct Contents {
    nodes: u64,
    bytes: u64,
    /// Delays that are nodes.
    delays: u64,
    /// What the nodes cost that have such delays, which take that time.
    delayed: Nanos,
    /// What the others cost: it is added after the graph.
    extra: Nanos,
}

impl Contents {
    /// Adds one node.
    fn add(&mut self, bytes: u64, extra: Nanos, is_delayed: bool) {
        self.nodes += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let sum = if is_delayed { &mut self.delayed } else { &mut self.extra };
        *sum = sum.saturating_add(extra);
    }
}

/// The executable graphs of the process.
#[derive(Debug, Default)]
pub(crate) struct Graphs(Mutex<BTreeMap<usize, Contents>>);

impl Graphs {
    fn with<T>(&self, what: impl FnOnce(&mut BTreeMap<usize, Contents>) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// An executable graph that a call makes of a graph, or makes like it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    graph: usize,
    /// The executable graph, or where it goes.
    exec: Exec,
}

#[derive(Clone, Copy, Debug)]
enum Exec {
    Handle(usize),
    Out(usize),
}

/// Before an executable graph is made or changed.
pub(crate) fn making(session: &Session, hook: &Hook, frame: &Frame) -> After {
    let at = |role| number(hook, frame, role) as usize;
    // A graph that is set as what one node does is not the whole of it.
    let is_whole = hook.position(Role::Graph).is_some() && hook.position(Role::Node).is_none();
    if !is_whole || (session.is_native() && !session.ledger.is_on()) {
        return After::Nothing;
    }
    let exec = match hook.position(Role::GraphExecOut) {
        Some(_) => Exec::Out(at(Role::GraphExecOut)),
        None => Exec::Handle(at(Role::GraphExec)),
    };
    After::Graph(Made { graph: at(Role::Graph), exec })
}

/// After it was.
pub(crate) fn made(session: &Session, made: Made, result: Result32) {
    if result != SUCCESS {
        return;
    }
    let exec = match made.exec {
        Exec::Handle(handle) => handle,
        // SAFETY: the driver has just written the handle there.
        Exec::Out(out) => unsafe { *real::pointer(out).cast::<usize>() },
    };
    let mut contents = Contents::default();
    look(session, real::pointer(made.graph), &mut contents, Within { depth: 0, is_delayed: false });
    session.graphs.with(|graphs| {
        if graphs.len() < GRAPHS || graphs.contains_key(&exec) {
            graphs.insert(exec, contents);
        }
    });
}

/// Before an executable graph goes.
pub(crate) fn end(session: &Session, hook: &Hook, frame: &Frame) -> After {
    let exec = number(hook, frame, Role::GraphExec) as usize;
    session.graphs.with(|graphs| graphs.remove(&exec));
    After::Nothing
}

/// Before a graph is launched.
pub(crate) fn launch(session: &Session, hook: &Hook, frame: &Frame) -> After {
    let exec = number(hook, frame, Role::GraphExec) as usize;
    let contents = session.graphs.with(|graphs| graphs.get(&exec).copied());
    let mut work = Work::begin(session, Kind::Graph, 0, stream_or_default(hook, frame));
    let Some(contents) = contents else { return After::Work(work) };
    work.operations = contents.nodes;
    work.bytes = contents.bytes;
    if session.settings.graphs == Setting::Node {
        // Nodes cost what they are, whatever a graph's launch would.
        work.extra = contents.extra;
        // Of a graph that is captured, the graph that becomes of that counts them.
        if contents.delays > 0 && !work.captured {
            return After::Delayed { work, delays: contents.delays, time: contents.delayed };
        }
    }
    After::Work(work)
}

/// After a graph was launched that has delays as nodes.
pub(crate) fn launched(session: &Session, work: &Work, delays: u64, time: Nanos, result: Result32) {
    crate::work::end(session, work, result);
    if result == SUCCESS {
        session.ledger.delays(Kind::Graph, Fact::GpuDelays, delays, time);
    }
}

/// Where a graph is that is looked at: so deep in others, of which one may have a delay behind it.
#[derive(Clone, Copy, Debug)]
struct Within {
    depth: u32,
    is_delayed: bool,
}

/// Adds what the nodes of a graph do.
fn look(session: &Session, graph: Handle, contents: &mut Contents, within: Within) {
    let driver = &session.driver;
    let is_ours =
        |node: &(Handle, Option<i32>)| node.1 == Some(KERNEL) && is_delay(session, node.0);
    let nodes = nodes(driver, graph).unwrap_or_default().into_iter();
    let (delays, nodes): (Vec<_>, Vec<_>) =
        nodes.map(|node| (node, node_type(driver, node))).partition(is_ours);
    contents.delays += delays.len() as u64;
    let delayed = before(driver, delays.into_iter().map(|(delay, _)| delay));
    for (node, kind) in nodes {
        let is_delayed = within.is_delayed
            || delayed.as_ref().is_none_or(|delayed| delayed.contains(&real::address(node)));
        if kind == Some(CHILD) && within.depth < DEPTH {
            if let Some(child) = child(driver, node) {
                look(session, child, contents, Within { depth: within.depth + 1, is_delayed });
            }
            continue;
        }
        let (extra, bytes) = cost(session, node, kind);
        contents.add(bytes, extra, is_delayed);
    }
}

/// The nodes that have one of these delays behind them. None where the driver does not say: then all
/// are taken to have, as in a graph that is captured.
fn before(driver: &Driver, delays: impl Iterator<Item = Handle>) -> Option<BTreeSet<usize>> {
    let mut all = BTreeSet::new();
    for delay in delays {
        let before = list(driver.node_dependencies?, delay)?;
        all.extend(before.into_iter().map(real::address));
    }
    Some(all)
}

/// What a node costs, where each costs its own, and how many bytes it copies.
fn cost(session: &Session, node: Handle, kind: Option<i32>) -> (Nanos, u64) {
    let known = match kind {
        Some(KERNEL) => Some((Kind::Kernel, 0)),
        Some(COPY) => copy_of(session, node),
        Some(MEMSET) => Some((Kind::Memset, 0)),
        Some(HOST) => Some((Kind::HostCallback, 0)),
        _ => None,
    };
    let by_node = session.settings.graphs == Setting::Node;
    known.map_or((Nanos::ZERO, 0), |(kind, bytes)| {
        let extra = if by_node { session.extra(kind, bytes) } else { Nanos::ZERO };
        (extra, bytes)
    })
}

fn nodes(driver: &Driver, graph: Handle) -> Option<Vec<Handle>> {
    list(driver.graph_nodes?, graph)
}

/// A function of the driver that lists nodes.
type List = unsafe extern "C" fn(Handle, *mut Handle, *mut usize) -> Result32;

/// The nodes of a graph, or those that a node comes after.
fn list(list: List, of: Handle) -> Option<Vec<Handle>> {
    let mut count = 0_usize;
    // SAFETY: the graph is one that the program has just given the driver, or a node is of it; without
    // a place for nodes their number is written.
    if unsafe { list(of, core::ptr::null_mut(), &raw mut count) } != SUCCESS {
        return None;
    }
    let mut nodes = vec![core::ptr::null_mut(); count];
    // SAFETY: as above; there is room for as many.
    let result = unsafe { list(of, nodes.as_mut_ptr(), &raw mut count) };
    nodes.truncate(count);
    (result == SUCCESS).then_some(nodes)
}

fn node_type(driver: &Driver, node: Handle) -> Option<i32> {
    let mut kind = 0;
    // SAFETY: the node is of a graph that is there; the type is written here.
    let result = unsafe { driver.node_type?(node, &raw mut kind) };
    (result == SUCCESS).then_some(kind)
}

fn child(driver: &Driver, node: Handle) -> Option<Handle> {
    let mut graph = core::ptr::null_mut();
    // SAFETY: the node holds a graph, which is written here.
    let result = unsafe { driver.child_graph?(node, &raw mut graph) };
    (result == SUCCESS).then_some(graph)
}

/// A `CUDA_KERNEL_NODE_PARAMS_v1` (cuda.h).
#[repr(C)]
struct KernelNode {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    parameters: Handle,
    extra: Handle,
}

/// Whether a kernel node is a delay.
fn is_delay(session: &Session, node: Handle) -> bool {
    let mut kernel = core::mem::MaybeUninit::<KernelNode>::zeroed();
    let Some(ask) = session.driver.kernel_node else { return false };
    // SAFETY: the node is a kernel's; its parameters are written here.
    let result = unsafe { ask(node, kernel.as_mut_ptr().cast()) };
    // SAFETY: it was zeroed, which is a value of it, and the driver has written over that.
    let kernel = unsafe { kernel.assume_init() };
    result == SUCCESS && session.contexts.is_ours(kernel.function)
}

/// What a copy node copies.
fn copy_of(session: &Session, node: Handle) -> Option<(Kind, u64)> {
    let mut volume = Volume::default();
    // SAFETY: the node is a copy's; its description is written here.
    let result = unsafe { session.driver.copy_node?(node, (&raw mut volume).cast()) };
    let copy = volume.copy();
    (result == SUCCESS).then(|| (copy.kind(session), copy.bytes))
}
