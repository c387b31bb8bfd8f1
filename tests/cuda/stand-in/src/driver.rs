//! All that the driver has: devices, contexts, modules, streams, events, graphs.

use std::collections::HashMap;

use crate::call::{Call, current_context};
use crate::graph::{Capture, Graph, Operation};
use crate::memory::Memory;
use crate::record::{Record, Recorded, thread};
use crate::schedule::Device;
use crate::settings::settings;
use crate::status::{Answer, Status};

/// The handle that C knows a thing by. Each is given once.
pub(crate) type Handle = u64;

/// Stream handles that are no streams' own (cuda.h: `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`).
const LEGACY: Handle = 1;
const PER_THREAD: Handle = 2;

/// The driver. Its fields are what its calls work on; whatever hangs together is kept so by them.
pub(crate) struct Driver {
    /// The process that called `cuInit`.
    pub(crate) process: Option<u32>,
    /// The latest virtual time that any thread has seen.
    pub(crate) latest: u64,
    pub(crate) correlation: u64,
    pub(crate) record: Record,
    pub(crate) calls: HashMap<&'static str, u64>,
    pub(crate) devices: Vec<Device>,
    pub(crate) primaries: Vec<Primary>,
    pub(crate) memory: Memory,
    pub(crate) contexts: HashMap<Handle, Context>,
    pub(crate) streams: HashMap<Handle, Stream>,
    pub(crate) events: HashMap<Handle, Event>,
    pub(crate) modules: HashMap<Handle, Module>,
    pub(crate) functions: HashMap<Handle, Function>,
    pub(crate) arrays: HashMap<Handle, Array>,
    pub(crate) pools: HashMap<Handle, Pool>,
    pub(crate) graphs: HashMap<Handle, Graph>,
    pub(crate) executables: HashMap<Handle, Graph>,
    /// Of each node its graph.
    pub(crate) nodes: HashMap<Handle, Handle>,
    pub(crate) captures: HashMap<u64, Capture>,
    /// What is added to and cut off by linking, and the results, which modules are made of.
    pub(crate) links: HashMap<Handle, Vec<u8>>,
    handles: u64,
    streams_made: u64,
}

/// A device's primary context.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    pub(crate) context: Option<Handle>,
    pub(crate) retained: u32,
    pub(crate) flags: u32,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) is_primary: bool,
    /// The legacy default stream.
    pub(crate) legacy: Handle,
    /// Each thread's own default stream.
    pub(crate) per_thread: HashMap<i32, Handle>,
    /// Limits that were set.
    pub(crate) limits: HashMap<u32, usize>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: Handle,
    /// In the timeline.
    pub(crate) number: u64,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// When its work ends.
    pub(crate) end: u64,
    /// The capture that it is part of, and what its next node comes after.
    pub(crate) capture: Option<(u64, Vec<Handle>)>,
}

impl Stream {
    /// Whether it waits for the legacy default stream, and that one for it.
    pub(crate) fn is_blocking(&self) -> bool {
        self.flags & 1 == 0
    }
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: Handle,
    pub(crate) timing: bool,
    /// When it was last recorded.
    pub(crate) time: Option<u64>,
    /// By what.
    pub(crate) recorded: Option<Recorded>,
    /// The capture that it was recorded in, and after what.
    pub(crate) captured: Option<(u64, Vec<Handle>)>,
}

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: Option<Handle>,
    /// The functions that were asked for.
    pub(crate) functions: HashMap<String, Handle>,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) module: Handle,
    pub(crate) name: std::ffi::CString,
    /// Attributes that were set.
    pub(crate) attributes: HashMap<i32, i32>,
}

/// An array: lines of elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    pub(crate) address: u64,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
    pub(crate) pitch: u64,
}

/// A pool of memory: only its attributes are kept.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    pub(crate) attributes: HashMap<u32, u64>,
}

impl Driver {
    pub(crate) fn new() -> Self {
        Self {
            process: None,
            latest: 0,
            correlation: 0,
            record: Record::open(),
            calls: HashMap::new(),
            devices: Vec::new(),
            primaries: Vec::new(),
            memory: Memory::default(),
            contexts: HashMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            arrays: HashMap::new(),
            pools: HashMap::new(),
            graphs: HashMap::new(),
            executables: HashMap::new(),
            nodes: HashMap::new(),
            captures: HashMap::new(),
            links: HashMap::new(),
            handles: 0,
            streams_made: 0,
        }
    }

    /// What `cuInit` does. A process that its parent initialised for stays without (CUDA
    /// Programming Guide, "Initialization": not to be used on both sides of a fork).
    pub(crate) fn initialize(&mut self) -> Answer {
        let process = std::process::id();
        match self.process {
            Some(before) if before != process => return Err(Status::NOT_INITIALIZED),
            Some(_) => return Ok(()),
            None => self.process = Some(process),
        }
        if settings().devices == 0 {
            self.process = None;
            return Err(Status::NO_DEVICE);
        }
        for _ in 0..settings().devices {
            self.devices.push(Device::new(settings().concurrent as usize));
            self.primaries.push(Primary::default());
            let device = self.devices.len() - 1;
            let pool = self.handle();
            self.pools.insert(pool, Pool { device, attributes: HashMap::new() });
        }
        Ok(())
    }

    /// Whether this process called `cuInit`.
    pub(crate) fn is_usable(&self) -> bool {
        self.process == Some(std::process::id())
    }

    /// A new handle. It looks like an address, as the driver's do, and nothing is there.
    pub(crate) fn handle(&mut self) -> Handle {
        self.handles += 1;
        0x5000_0000_0000 + self.handles * 16
    }

    /// The index of a device.
    pub(crate) fn device(&self, device: i32) -> Result<usize, Status> {
        let index = usize::try_from(device).map_err(|_| Status::INVALID_DEVICE)?;
        if index < self.devices.len() { Ok(index) } else { Err(Status::INVALID_DEVICE) }
    }

    /// The thread's current context.
    pub(crate) fn context(&self) -> Result<Handle, Status> {
        let current = current_context().ok_or(Status::INVALID_CONTEXT)?;
        if self.contexts.contains_key(&current) {
            return Ok(current);
        }
        Err(Status::CONTEXT_IS_DESTROYED)
    }

    /// The device of the thread's current context.
    pub(crate) fn current_device(&self) -> Result<usize, Status> {
        self.context().map(|context| self.contexts[&context].device)
    }

    /// The same, or the first device where there is no current context.
    pub(crate) fn device_of_thread(&self) -> usize {
        self.current_device().unwrap_or(0)
    }

    /// Makes a context.
    pub(crate) fn make_context(&mut self, device: usize, flags: u32, is_primary: bool) -> Handle {
        let (context, per_thread, limits) = (self.handle(), HashMap::new(), HashMap::new());
        let legacy = self.make_stream(context, 0, 0);
        let made = Context { device, flags, is_primary, legacy, per_thread, limits };
        self.contexts.insert(context, made);
        context
    }

    /// Makes a stream.
    pub(crate) fn make_stream(&mut self, context: Handle, flags: u32, priority: i32) -> Handle {
        let (stream, number) = (self.handle(), self.streams_made);
        self.streams_made += 1;
        let made = Stream { context, number, flags, priority, end: 0, capture: None };
        self.streams.insert(stream, made);
        stream
    }

    /// Ends a context, and all that is in it.
    pub(crate) fn end_context(&mut self, context: Handle) {
        self.contexts.remove(&context);
        self.streams.retain(|_, stream| stream.context != context);
        self.events.retain(|_, event| event.context != context);
        self.modules.retain(|_, module| module.context != Some(context));
        let modules = &self.modules;
        self.functions.retain(|_, function| modules.contains_key(&function.module));
    }

    /// When all work of a context ends.
    pub(crate) fn end_of_context(&self, context: Handle) -> u64 {
        let ours = self.streams.values().filter(|stream| stream.context == context);
        ours.map(|stream| stream.end).max().unwrap_or(0)
    }

    /// A stream of the context, whose work may begin only behind what it waits for.
    pub(crate) fn ready(&self, stream: Handle) -> u64 {
        let of = &self.streams[&stream];
        let context = &self.contexts[&of.context];
        if stream == context.legacy {
            let blocking = self.streams.values().filter(|other| other.context == of.context);
            let blocking = blocking.filter(|other| other.is_blocking());
            return blocking.map(|other| other.end).max().unwrap_or(0);
        }
        let legacy = if of.is_blocking() { self.streams[&context.legacy].end } else { 0 };
        of.end.max(legacy)
    }
}

impl Call {
    /// The stream that a handle means in this call.
    pub(crate) fn stream(&mut self, handle: Handle) -> Result<Handle, Status> {
        let stream = match handle {
            0 if self.is_per_thread() => self.own_stream()?,
            PER_THREAD => self.own_stream()?,
            0 | LEGACY => self.contexts[&self.context()?].legacy,
            _ if self.streams.contains_key(&handle) => handle,
            _ => return Err(Status::INVALID_HANDLE),
        };
        self.stream = Some(self.streams[&stream].number);
        Ok(stream)
    }

    fn own_stream(&mut self) -> Result<Handle, Status> {
        let context = self.context()?;
        if let Some(stream) = self.contexts[&context].per_thread.get(&thread()) {
            return Ok(*stream);
        }
        let stream = self.make_stream(context, 0, 0);
        let of = self.contexts.get_mut(&context).expect("it is the current one");
        of.per_thread.insert(thread(), stream);
        Ok(stream)
    }

    /// A stream's work, or a node in the graph that it is captured to. Gives when the work ends;
    /// none for a node.
    pub(crate) fn submit(
        &mut self,
        stream: Handle,
        operation: Operation,
    ) -> Result<Option<u64>, Status> {
        if self.streams[&stream].capture.is_some() {
            self.capture(stream, operation)?;
            return Ok(None);
        }
        self.refuse_legacy_while_capturing(stream)?;
        let reach = self.now() + settings().reach_ns;
        let ready = self.ready(stream).max(reach);
        let of = &self.streams[&stream];
        let place = Place { device: self.contexts[&of.context].device, number: of.number };
        let end = self.perform(place, ready, &operation)?;
        self.streams.get_mut(&stream).expect("it was there").end = end;
        Ok(Some(end))
    }
}

/// Where work is done, for the timeline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) device: usize,
    /// The stream's number.
    pub(crate) number: u64,
}
