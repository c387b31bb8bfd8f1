//! Streams, and their capture.

use super::driver_functions;
use crate::call::Call;
use crate::driver::Handle;
use crate::ffi::{In, Opaque, Out};
use crate::graph::{Callback, Capture, Graph, HostFunction, Operation, StreamFunction};
use crate::record::thread;
use crate::status::{Answer, Status};

driver_functions! {
    Call fn cuStreamCreate(call, stream: Out<Handle>, flags: u32) {
        create(call, stream, flags, 0)
    }

    Call fn cuStreamCreateWithPriority(call, stream: Out<Handle>, flags: u32, priority: i32) {
        create(call, stream, flags, priority.clamp(-5, 0))
    }

    Call [cuStreamDestroy_v2] fn cuStreamDestroy(call, stream: Handle) {
        let is_default = |stream: &Handle| {
            call.contexts.values().any(|c| {
                c.legacy == *stream || c.per_thread.values().any(|other| other == stream)
            })
        };
        if stream <= 2 || is_default(&stream) {
            return Err(Status::INVALID_HANDLE);
        }
        // What it was to do is done all the same, and nobody waits.
        call.streams.remove(&stream).map(drop).ok_or(Status::INVALID_HANDLE)
    }

    Sync [cuStreamSynchronize_ptsz] fn cuStreamSynchronize(call, stream: Handle) {
        let stream = call.stream(stream)?;
        call.refuse_captured(stream)?;
        call.refuse_legacy_while_capturing(stream)?;
        let end = call.ready(stream);
        call.wait_until(end);
        Ok(())
    }

    Query [cuStreamQuery_ptsz] fn cuStreamQuery(call, stream: Handle) {
        let stream = call.stream(stream)?;
        call.refuse_captured(stream)?;
        call.refuse_legacy_while_capturing(stream)?;
        if call.ready(stream) > call.now() { Err(Status::NOT_READY) } else { Ok(()) }
    }

    Wait [cuStreamWaitEvent_ptsz] fn cuStreamWaitEvent(
        call, stream: Handle, event: Handle, _flags: u32,
    ) {
        let stream = call.stream(stream)?;
        let known = call.events.get(&event).ok_or(Status::INVALID_HANDLE)?;
        if known.captured.is_some() && call.streams[&stream].capture.is_none() {
            return call.join(stream, event);
        }
        call.event = known.recorded;
        call.submit(stream, Operation::Wait(event))?;
        Ok(())
    }

    Launch [cuStreamAddCallback_ptsz] fn cuStreamAddCallback(
        call, handle: Handle, function: Option<StreamFunction>, data: Opaque, _flags: u32,
    ) {
        let stream = call.stream(handle)?;
        call.refuse_captured(stream)?;
        let function = function.ok_or(Status::INVALID_VALUE)?;
        call.submit(stream, Operation::Host(Callback::Stream(function, handle, data)))?;
        Ok(())
    }

    Launch [cuLaunchHostFunc_ptsz] fn cuLaunchHostFunc(
        call, stream: Handle, function: Option<HostFunction>, data: Opaque,
    ) {
        host_function(call, stream, function, data)
    }

    Launch [cuLaunchHostFunc_v2_ptsz] fn cuLaunchHostFunc_v2(
        call, stream: Handle, function: Option<HostFunction>, data: Opaque, _mode: u32,
    ) {
        host_function(call, stream, function, data)
    }

    Get [cuStreamGetPriority_ptsz] fn cuStreamGetPriority(
        call, stream: Handle, priority: Out<i32>,
    ) {
        let stream = call.stream(stream)?;
        priority.put(call.streams[&stream].priority)
    }

    Get [cuStreamGetFlags_ptsz] fn cuStreamGetFlags(call, stream: Handle, flags: Out<u32>) {
        let stream = call.stream(stream)?;
        flags.put(call.streams[&stream].flags)
    }

    Get [cuStreamGetId_ptsz] fn cuStreamGetId(call, stream: Handle, id: Out<u64>) {
        let stream = call.stream(stream)?;
        id.put(call.streams[&stream].number)
    }

    Get [cuStreamGetCtx_ptsz] fn cuStreamGetCtx(call, stream: Handle, context: Out<Handle>) {
        let stream = call.stream(stream)?;
        context.put(call.streams[&stream].context)
    }

    Get [cuStreamGetCtx_v2_ptsz] fn cuStreamGetCtx_v2(
        call, stream: Handle, context: Out<Handle>, green: Out<Handle>,
    ) {
        let stream = call.stream(stream)?;
        green.put_if_wanted(0);
        context.put(call.streams[&stream].context)
    }

    Get [cuStreamGetDevice_ptsz] fn cuStreamGetDevice(
        call, stream: Handle, device: Out<i32>,
    ) {
        let stream = call.stream(stream)?;
        let context = call.streams[&stream].context;
        device.put(call.contexts[&context].device as i32)
    }

    Call [cuStreamAttachMemAsync_ptsz] fn cuStreamAttachMemAsync(
        call, stream: Handle, address: u64, _length: usize, _flags: u32,
    ) {
        call.stream(stream)?;
        crate::api::memory::managed(call, address, 1)
    }

    Call [cuStreamBeginCapture_ptsz] fn cuStreamBeginCapture(call, stream: Handle) {
        let graph = call.handle();
        call.graphs.insert(graph, Graph::default());
        begin(call, stream, graph, Vec::new(), 0)
    }

    Call [cuStreamBeginCapture_v2_ptsz] fn cuStreamBeginCapture_v2(
        call, stream: Handle, mode: i32,
    ) {
        let graph = call.handle();
        call.graphs.insert(graph, Graph::default());
        begin(call, stream, graph, Vec::new(), mode)
    }

    Call [cuStreamBeginCaptureToGraph_ptsz] fn cuStreamBeginCaptureToGraph(
        call, stream: Handle, graph: Handle, after: In<Handle>, _data: Opaque, count: usize,
        mode: i32,
    ) {
        if !call.graphs.contains_key(&graph) {
            return Err(Status::INVALID_VALUE);
        }
        let after = after.all(count)?;
        begin(call, stream, graph, after, mode)
    }

    Call [cuStreamEndCapture_ptsz] fn cuStreamEndCapture(
        call, stream: Handle, graph: Out<Handle>,
    ) {
        let stream = call.stream(stream)?;
        let made = end(call, stream)?;
        graph.put(made)
    }

    Get [cuStreamIsCapturing_ptsz] fn cuStreamIsCapturing(
        call, stream: Handle, status: Out<i32>,
    ) {
        let stream = call.stream(stream)?;
        call.refuse_legacy_while_capturing(stream)?;
        status.put(capture_status(call, stream))
    }

    Get [cuStreamGetCaptureInfo_ptsz] fn cuStreamGetCaptureInfo(
        call, stream: Handle, status: Out<i32>, id: Out<u64>,
    ) {
        let stream = call.stream(stream)?;
        status.put(capture_status(call, stream))?;
        id.put_if_wanted(call.streams[&stream].capture.as_ref().map_or(0, |capture| capture.0));
        Ok(())
    }

    Get [cuStreamGetCaptureInfo_v2_ptsz] fn cuStreamGetCaptureInfo_v2(
        call, stream: Handle, status: Out<i32>, id: Out<u64>, graph: Out<Handle>,
        after: Out<*const Handle>, count: Out<usize>,
    ) {
        info(call, stream, status, id, graph, after, count)
    }

    Get [cuStreamGetCaptureInfo_v3_ptsz] fn cuStreamGetCaptureInfo_v3(
        call, stream: Handle, status: Out<i32>, id: Out<u64>, graph: Out<Handle>,
        after: Out<*const Handle>, data: Out<*const u64>, count: Out<usize>,
    ) {
        data.put_if_wanted(std::ptr::null());
        info(call, stream, status, id, graph, after, count)
    }

    Call [cuStreamUpdateCaptureDependencies_ptsz] fn cuStreamUpdateCaptureDependencies(
        call, stream: Handle, after: In<Handle>, count: usize, flags: u32,
    ) {
        update(call, stream, after, count, flags)
    }

    Call [cuStreamUpdateCaptureDependencies_v2_ptsz] fn cuStreamUpdateCaptureDependencies_v2(
        call, stream: Handle, after: In<Handle>, _data: Opaque, count: usize, flags: u32,
    ) {
        update(call, stream, after, count, flags)
    }

    // It looks at the thread alone, as what only asks.
    Get fn cuThreadExchangeStreamCaptureMode(_call, mode: Out<i32>) {
        use std::cell::Cell;
        thread_local! {
            static MODE: Cell<i32> = const { Cell::new(0) };
        }
        let wanted = mode.get()?;
        if !(0..=2).contains(&wanted) {
            return Err(Status::INVALID_VALUE);
        }
        mode.put(MODE.replace(wanted))
    }
}

fn create(call: &mut Call, stream: Out<Handle>, flags: u32, priority: i32) -> Answer {
    let context = call.context()?;
    if flags > 1 || !stream.is_wanted() {
        return Err(Status::INVALID_VALUE);
    }
    let made = call.make_stream(context, flags, priority);
    stream.put(made)
}

fn host_function(
    call: &mut Call,
    stream: Handle,
    function: Option<HostFunction>,
    data: Opaque,
) -> Answer {
    let stream = call.stream(stream)?;
    let function = function.ok_or(Status::INVALID_VALUE)?;
    call.submit(stream, Operation::Host(Callback::Host(function, data)))?;
    Ok(())
}

fn begin(call: &mut Call, stream: Handle, graph: Handle, after: Vec<Handle>, mode: i32) -> Answer {
    let stream = call.stream(stream)?;
    let of = &call.streams[&stream];
    let is_legacy = call.contexts[&of.context].legacy == stream;
    if is_legacy {
        return Err(Status::STREAM_CAPTURE_UNSUPPORTED);
    }
    if of.capture.is_some() {
        return Err(Status::ILLEGAL_STATE);
    }
    if !(0..=2).contains(&mode) {
        return Err(Status::INVALID_VALUE);
    }
    let id = call.handle();
    let (origin, thread) = (stream, thread());
    let capture = Capture { graph, origin, thread, mode, is_invalid: false, streams: vec![stream] };
    call.captures.insert(id, capture);
    call.streams.get_mut(&stream).expect("it is there").capture = Some((id, after));
    Ok(())
}

fn end(call: &mut Call, stream: Handle) -> Result<Handle, Status> {
    let Some((id, after)) = call.streams[&stream].capture.clone() else {
        return Err(Status::ILLEGAL_STATE);
    };
    let capture = &call.captures[&id];
    if capture.origin != stream {
        return Err(Status::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != 2 && capture.thread != thread() {
        return Err(Status::STREAM_CAPTURE_WRONG_THREAD);
    }
    let capture = call.captures.remove(&id).expect("it is there");
    // What other streams did last has to come before what the origin did last.
    let mut joined = after.clone();
    let mut todo = after;
    let graph = &call.graphs[&capture.graph];
    while let Some(node) = todo.pop() {
        for other in graph.node(node).map(|node| node.after.clone()).unwrap_or_default() {
            if !joined.contains(&other) {
                joined.push(other);
                todo.push(other);
            }
        }
    }
    let mut is_joined = true;
    for other in &capture.streams {
        let Some(stream) = call.streams.get_mut(other) else { continue };
        let Some((_, last)) = stream.capture.take() else { continue };
        is_joined &= last.iter().all(|node| joined.contains(node));
    }
    for event in call.events.values_mut() {
        if event.captured.as_ref().is_some_and(|captured| captured.0 == id) {
            event.captured = None;
        }
    }
    if capture.is_invalid {
        return Err(Status::STREAM_CAPTURE_INVALIDATED);
    }
    if is_joined { Ok(capture.graph) } else { Err(Status::STREAM_CAPTURE_UNJOINED) }
}

/// cuda.h: `CUstreamCaptureStatus`.
fn capture_status(call: &Call, stream: Handle) -> i32 {
    match &call.streams[&stream].capture {
        None => 0,
        Some((id, _)) if call.captures[id].is_invalid => 2,
        Some(_) => 1,
    }
}

fn info(
    call: &mut Call,
    stream: Handle,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<Handle>,
    after: Out<*const Handle>,
    count: Out<usize>,
) -> Answer {
    let stream = call.stream(stream)?;
    status.put(capture_status(call, stream))?;
    let Some((number, nodes)) = &call.streams[&stream].capture else { return Ok(()) };
    id.put_if_wanted(*number);
    graph.put_if_wanted(call.captures[number].graph);
    // Until the stream's next call it stays where it is.
    after.put_if_wanted(nodes.as_ptr());
    count.put_if_wanted(nodes.len());
    Ok(())
}

fn update(call: &mut Call, stream: Handle, after: In<Handle>, count: usize, flags: u32) -> Answer {
    let stream = call.stream(stream)?;
    let wanted = after.all(count)?;
    let Some((id, mut nodes)) = call.capture_of(stream)? else {
        return Err(Status::ILLEGAL_STATE);
    };
    match flags {
        // Adds to what the next node comes after, or sets it.
        0 => nodes.extend(wanted),
        1 => nodes = wanted,
        _ => return Err(Status::INVALID_VALUE),
    }
    call.streams.get_mut(&stream).expect("it is captured").capture = Some((id, nodes));
    Ok(())
}
