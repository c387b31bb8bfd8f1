//! Graphs: many nodes that one call launches.
//!
//! A graph's launch costs a kernel's end once, or what its nodes cost, as the settings say. Nodes of
//! a captured graph have their delays behind them, as nodes of their own, so that branches stay side
//! by side. A graph that was built node by node is left as it is: what its nodes cost is added after
//! it, one after another.

use std::collections::BTreeMap;
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
    /// What the nodes cost.
    extra: Nanos,
    /// Delays that are nodes: then those take that time.
    delays: u64,
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
    if hook.position(Role::Graph).is_none() || (session.is_native() && !session.ledger.is_on()) {
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
    look(session, real::pointer(made.graph), &mut contents, 0);
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
    if session.settings.graphs == Setting::Node && work.extra != Nanos::ZERO {
        if contents.delays > 0 && !work.captured {
            work.extra = Nanos::ZERO;
            return After::Delayed { work, delays: contents.delays, time: contents.extra };
        }
        work.extra = contents.extra;
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

/// Adds what the nodes of a graph do.
fn look(session: &Session, graph: Handle, contents: &mut Contents, depth: u32) {
    let driver = &session.driver;
    let by_node = session.settings.graphs == Setting::Node && !session.is_native();
    for node in nodes(driver, graph).unwrap_or_default() {
        let kind = node_type(driver, node);
        if kind == Some(KERNEL) && is_delay(session, node) {
            contents.delays += 1;
            continue;
        }
        contents.nodes += 1;
        let (kind, bytes) = match kind {
            Some(KERNEL) => (Kind::Kernel, 0),
            Some(COPY) => match copy_of(session, node) {
                Some(copy) => copy,
                None => continue,
            },
            Some(MEMSET) => (Kind::Memset, 0),
            Some(HOST) => (Kind::HostCallback, 0),
            Some(CHILD) if depth < DEPTH => {
                contents.nodes -= 1;
                if let Some(child) = child(driver, node) {
                    look(session, child, contents, depth + 1);
                }
                continue;
            }
            _ => continue,
        };
        contents.bytes = contents.bytes.saturating_add(bytes);
        if by_node {
            contents.extra = contents.extra.saturating_add(session.extra(kind, bytes));
        }
    }
}

fn nodes(driver: &Driver, graph: Handle) -> Option<Vec<Handle>> {
    let list = driver.graph_nodes?;
    let mut count = 0_usize;
    // SAFETY: the graph is one that the program has just given the driver; without a place for
    // nodes their number is written.
    if unsafe { list(graph, core::ptr::null_mut(), &raw mut count) } != SUCCESS {
        return None;
    }
    let mut nodes = vec![core::ptr::null_mut(); count];
    // SAFETY: as above; there is room for as many.
    let result = unsafe { list(graph, nodes.as_mut_ptr(), &raw mut count) };
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
