//! Graphs as wholes: making, instantiating, launching and changing them.

use super::driver_functions;
use crate::call::Call;
use crate::driver::{Handle, Place};
use crate::ffi::{In, Opaque, Out};
use crate::graph::{Graph, Operation};
use crate::settings::settings;
use crate::status::{Answer, Status};

driver_functions! {
    Call fn cuGraphCreate(call, graph: Out<Handle>, flags: u32) {
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let handle = call.handle();
        call.graphs.insert(handle, Graph::default());
        graph.put(handle)
    }

    Call fn cuGraphDestroy(call, graph: Handle) {
        let graph = call.graphs.remove(&graph).ok_or(Status::INVALID_VALUE)?;
        for node in graph.nodes {
            call.nodes.remove(&node.handle);
        }
        Ok(())
    }

    Call fn cuGraphClone(call, clone: Out<Handle>, graph: Handle) {
        let made = adopt(call, &known(call, graph)?.clone());
        clone.put(made)
    }

    Get fn cuGraphGetNodes(call, graph: Handle, nodes: Out<Handle>, count: Out<usize>) {
        let all: Vec<Handle> = known(call, graph)?.nodes.iter().map(|node| node.handle).collect();
        list(&all, nodes, count)
    }

    Get fn cuGraphGetRootNodes(call, graph: Handle, nodes: Out<Handle>, count: Out<usize>) {
        let roots = known(call, graph)?.nodes.iter().filter(|node| node.after.is_empty());
        let roots: Vec<Handle> = roots.map(|node| node.handle).collect();
        list(&roots, nodes, count)
    }

    Get fn cuGraphGetEdges(
        call, graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>,
    ) {
        edges(call, graph, from, to, count)
    }

    Get fn cuGraphGetEdges_v2(
        call, graph: Handle, from: Out<Handle>, to: Out<Handle>, data: Out<u64>,
        count: Out<usize>,
    ) {
        if data.is_wanted() {
            data.put_all(std::iter::repeat(0), count.get()?);
        }
        edges(call, graph, from, to, count)
    }

    Call fn cuGraphAddDependencies(
        call, graph: Handle, from: In<Handle>, to: In<Handle>, count: usize,
    ) {
        depend(call, graph, from, to, count)
    }

    Call fn cuGraphAddDependencies_v2(
        call, graph: Handle, from: In<Handle>, to: In<Handle>, _data: Opaque, count: usize,
    ) {
        depend(call, graph, from, to, count)
    }

    Call fn cuGraphRemoveDependencies(
        call, graph: Handle, from: In<Handle>, to: In<Handle>, count: usize,
    ) {
        depend_no_more(call, graph, from, to, count)
    }

    Call fn cuGraphRemoveDependencies_v2(
        call, graph: Handle, from: In<Handle>, to: In<Handle>, _data: Opaque, count: usize,
    ) {
        depend_no_more(call, graph, from, to, count)
    }

    Call [cuGraphInstantiate_v2] fn cuGraphInstantiate(
        call, executable: Out<Handle>, graph: Handle, _error: Out<Handle>, _log: Opaque,
        _size: usize,
    ) {
        instantiate(call, executable, graph)
    }

    Call fn cuGraphInstantiateWithFlags(
        call, executable: Out<Handle>, graph: Handle, _flags: u64,
    ) {
        instantiate(call, executable, graph)
    }

    Call [cuGraphInstantiateWithParams_ptsz] fn cuGraphInstantiateWithParams(
        call, executable: Out<Handle>, graph: Handle, parameters: Out<InstantiateParameters>,
    ) {
        let before = parameters.get()?;
        instantiate(call, executable, graph)?;
        parameters.put(InstantiateParameters { error: 0, result: 0, ..before })
    }

    Call fn cuGraphExecDestroy(call, executable: Handle) {
        call.executables.remove(&executable).map(drop).ok_or(Status::INVALID_VALUE)
    }

    Get fn cuGraphExecGetFlags(call, executable: Handle, flags: Out<u64>) {
        call.executables.get(&executable).ok_or(Status::INVALID_VALUE)?;
        flags.put(0)
    }

    Call fn cuGraphExecUpdate(
        call, executable: Handle, graph: Handle, error: Out<Handle>, result: Out<i32>,
    ) {
        let answer = update(call, executable, graph);
        error.put_if_wanted(0);
        result.put_if_wanted(update_result(answer));
        answer
    }

    Call fn cuGraphExecUpdate_v2(
        call, executable: Handle, graph: Handle, info: Out<UpdateInfo>,
    ) {
        let answer = update(call, executable, graph);
        info.put_if_wanted(UpdateInfo { result: update_result(answer), error: 0, from: 0 });
        answer
    }

    Call [cuGraphUpload_ptsz] fn cuGraphUpload(call, executable: Handle, stream: Handle) {
        call.stream(stream)?;
        call.executables.get(&executable).map(drop).ok_or(Status::INVALID_VALUE)
    }

    Launch [cuGraphLaunch_ptsz] fn cuGraphLaunch(call, executable: Handle, stream: Handle) {
        let graph = call.executables.get(&executable).ok_or(Status::INVALID_VALUE)?.clone();
        let stream = call.stream(stream)?;
        if call.streams[&stream].capture.is_some() {
            return call.capture(stream, Operation::Child(graph));
        }
        call.refuse_legacy_while_capturing(stream)?;
        let ready = call.ready(stream).max(call.now() + settings().reach_ns);
        let of = &call.streams[&stream];
        let place = Place { device: call.contexts[&of.context].device, number: of.number };
        let end = call.perform_graph(place, ready, &graph)?;
        call.streams.get_mut(&stream).expect("it is there").end = end;
        Ok(())
    }
}

/// cuda.h: `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct InstantiateParameters {
    flags: u64,
    stream: Handle,
    error: Handle,
    result: i32,
}

/// cuda.h: `CUgraphExecUpdateResultInfo`.
#[repr(C)]
struct UpdateInfo {
    result: i32,
    error: Handle,
    from: Handle,
}

pub(super) fn known(call: &Call, graph: Handle) -> Result<&Graph, Status> {
    call.graphs.get(&graph).ok_or(Status::INVALID_VALUE)
}

/// Makes a graph of its own of another's nodes.
pub(super) fn adopt(call: &mut Call, graph: &Graph) -> Handle {
    let copied = graph.copied(|| call.handle());
    let handle = call.handle();
    for node in &copied.nodes {
        call.nodes.insert(node.handle, handle);
    }
    call.graphs.insert(handle, copied);
    handle
}

/// Gives as many as there is room for, and says how many there are; only says it without room.
pub(super) fn list(all: &[Handle], out: Out<Handle>, count: Out<usize>) -> Answer {
    let room = if out.is_wanted() { count.get()? } else { 0 };
    out.put_all(all.iter().copied(), room);
    // What is left of the room is zero (cuda.h: `cuGraphGetNodes`).
    if out.is_wanted() && room > all.len() {
        out.put_all(all.iter().copied().chain(std::iter::repeat(0)), room);
        return count.put(all.len());
    }
    if out.is_wanted() { count.put(room.min(all.len())) } else { count.put(all.len()) }
}

fn edges(
    call: &Call,
    graph: Handle,
    from: Out<Handle>,
    to: Out<Handle>,
    count: Out<usize>,
) -> Answer {
    let nodes = &known(call, graph)?.nodes;
    let all = nodes.iter().flat_map(|node| node.after.iter().map(|other| (*other, node.handle)));
    let (starts, ends): (Vec<Handle>, Vec<Handle>) = all.unzip();
    if from.is_wanted() {
        let room = count.get()?;
        to.put_all(ends, room);
    }
    list(&starts, from, count)
}

fn depend(
    call: &mut Call,
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    count: usize,
) -> Answer {
    let (from, to) = (from.all(count)?, to.all(count)?);
    let of = call.graphs.get_mut(&graph).ok_or(Status::INVALID_VALUE)?;
    for (from, to) in from.into_iter().zip(to) {
        of.node(from)?;
        let node = of.node_mut(to)?;
        if from == to || node.after.contains(&from) {
            return Err(Status::INVALID_VALUE);
        }
        node.after.push(from);
        if of.in_order().is_err() {
            of.node_mut(to)?.after.pop();
            return Err(Status::INVALID_VALUE);
        }
    }
    Ok(())
}

fn depend_no_more(
    call: &mut Call,
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    count: usize,
) -> Answer {
    let (from, to) = (from.all(count)?, to.all(count)?);
    let of = call.graphs.get_mut(&graph).ok_or(Status::INVALID_VALUE)?;
    for (from, to) in from.into_iter().zip(to) {
        let after = &mut of.node_mut(to)?.after;
        let index = after.iter().position(|other| *other == from);
        after.remove(index.ok_or(Status::INVALID_VALUE)?);
    }
    Ok(())
}

fn instantiate(call: &mut Call, executable: Out<Handle>, graph: Handle) -> Answer {
    let graph = known(call, graph)?.clone();
    graph.in_order()?;
    let handle = call.handle();
    // The nodes keep their handles: they are what an executable graph's are changed by.
    call.executables.insert(handle, graph);
    executable.put(handle)
}

/// Takes over a graph's parameters, if it is of the same shape.
fn update(call: &mut Call, executable: Handle, graph: Handle) -> Answer {
    let new = known(call, graph)?.clone();
    let old = call.executables.get_mut(&executable).ok_or(Status::INVALID_VALUE)?;
    let shape = |graph: &Graph| -> Vec<(i32, Vec<Option<usize>>)> {
        let index = |handle: &Handle| graph.nodes.iter().position(|node| node.handle == *handle);
        let of = graph
            .nodes
            .iter()
            .map(|node| (node.operation.node_type(), node.after.iter().map(&index).collect()));
        of.collect()
    };
    if shape(old) != shape(&new) {
        return Err(Status::GRAPH_EXEC_UPDATE_FAILURE);
    }
    for (old, new) in old.nodes.iter_mut().zip(new.nodes) {
        old.operation = new.operation;
    }
    Ok(())
}

/// cuda.h, `CUgraphExecUpdateResult`: 0 done, 1 an error, 2 another shape.
fn update_result(answer: Answer) -> i32 {
    match answer {
        Ok(()) => 0,
        Err(Status::GRAPH_EXEC_UPDATE_FAILURE) => 2,
        Err(_) => 1,
    }
}
