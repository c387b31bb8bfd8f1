//! The functions of the driver that the shim calls for itself: the driver's own, never through a
//! thunk.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::real;

/// A handle of the driver: a context, stream, event, function, graph or node. Never looked into.
pub(crate) type Handle = *mut c_void;

/// A result of the driver: CUresult.
pub(crate) type Result32 = c_int;

/// CUDA_SUCCESS.
pub(crate) const SUCCESS: Result32 = 0;

/// CUDA_ERROR_NOT_FOUND: a named symbol was not found.
pub(crate) const NOT_FOUND: Result32 = 500;

/// CUDA_ERROR_NOT_READY: work that was put in earlier has not ended.
pub(crate) const NOT_READY: Result32 = 600;

/// CU_POINTER_ATTRIBUTE_MEMORY_TYPE.
pub(crate) const MEMORY_TYPE: c_int = 2;

/// CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE.
const LEGACY: c_int = 10;

/// CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL.
pub(crate) const DEVICE_ORDINAL: c_int = 9;

/// CU_MEMORYTYPE_HOST.
pub(crate) const MEMORY_HOST: c_uint = 1;
/// CU_MEMORYTYPE_DEVICE.
pub(crate) const MEMORY_DEVICE: c_uint = 2;
/// CU_MEMORYTYPE_ARRAY.
pub(crate) const MEMORY_ARRAY: c_uint = 3;

/// CU_STREAM_CAPTURE_MODE_RELAXED.
const CAPTURE_RELAXED: c_int = 2;

/// `cuLaunchKernel`.
pub(crate) type LaunchFn = unsafe extern "C" fn(
    Handle,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Handle,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Result32;

macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident: $symbol:literal, $kind:ty;)*) => {
        /// What the shim calls. A driver may lack what came later than CUDA 10.
        #[derive(Debug)]
        pub(crate) struct Driver {
            $($(#[$doc])* pub(crate) $field: Option<$kind>,)*
        }

        impl Driver {
            /// A driver that can be asked nothing.
            pub(crate) const fn none() -> Self {
                Self { $($field: None,)* }
            }

            /// The functions of the library `handle`, which has to stay loaded.
            fn of(handle: *mut c_void) -> Self {
                Self {
                    $($field: real::symbol(handle, $symbol).map(|found| {
                        // SAFETY: the driver's symbol of this name has this type (cuda.h).
                        unsafe { core::mem::transmute::<*mut c_void, $kind>(found) }
                    }),)*
                }
            }
        }
    };
}

functions! {
    /// Starts a kernel; stream 0 is the legacy one.
    launch: c"cuLaunchKernel", LaunchFn;
    /// Starts a kernel; stream 0 is the thread's own.
    launch_per_thread: c"cuLaunchKernel_ptsz", LaunchFn;
    /// The calling thread's context.
    context: c"cuCtxGetCurrent", unsafe extern "C" fn(*mut Handle) -> Result32;
    /// Makes a context the calling thread's.
    push_context: c"cuCtxPushCurrent_v2", unsafe extern "C" fn(Handle) -> Result32;
    /// Gives the calling thread back the one before.
    pop_context: c"cuCtxPopCurrent_v2", unsafe extern "C" fn(*mut Handle) -> Result32;
    /// The device of the calling thread's context.
    device: c"cuCtxGetDevice", unsafe extern "C" fn(*mut c_int) -> Result32;
    /// A device's name.
    device_name: c"cuDeviceGetName", unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Result32;
    /// A number about a device.
    device_attribute: c"cuDeviceGetAttribute",
        unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Result32;
    /// How many devices there are.
    device_count: c"cuDeviceGetCount", unsafe extern "C" fn(*mut c_int) -> Result32;
    /// Takes hold of a device's primary context, which is made if it is not there.
    retain_primary: c"cuDevicePrimaryCtxRetain",
        unsafe extern "C" fn(*mut Handle, c_int) -> Result32;
    /// Lets go of it.
    release_primary: c"cuDevicePrimaryCtxRelease_v2", unsafe extern "C" fn(c_int) -> Result32;
    /// Whether a device's primary context is there.
    primary_state: c"cuDevicePrimaryCtxGetState",
        unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> Result32;
    /// A stream's context.
    stream_context: c"cuStreamGetCtx", unsafe extern "C" fn(Handle, *mut Handle) -> Result32;
    /// Whether a stream's work has ended; stream 0 is the legacy one.
    stream_query: c"cuStreamQuery", unsafe extern "C" fn(Handle) -> Result32;
    /// Whether a stream's work has ended; stream 0 is the thread's own.
    stream_query_per_thread: c"cuStreamQuery_ptsz", unsafe extern "C" fn(Handle) -> Result32;
    /// Whether what goes into a stream is recorded in a graph.
    stream_capturing: c"cuStreamIsCapturing", unsafe extern "C" fn(Handle, *mut c_int) -> Result32;
    /// The same; stream 0 is the thread's own.
    stream_capturing_per_thread: c"cuStreamIsCapturing_ptsz",
        unsafe extern "C" fn(Handle, *mut c_int) -> Result32;
    /// What the calling thread may do while a stream is captured.
    exchange_capture_mode: c"cuThreadExchangeStreamCaptureMode",
        unsafe extern "C" fn(*mut c_int) -> Result32;
    /// Loads a module into the calling thread's context.
    load_module: c"cuModuleLoadData", unsafe extern "C" fn(*mut Handle, *const c_void) -> Result32;
    /// A module's function.
    function: c"cuModuleGetFunction",
        unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> Result32;
    /// Loads a function that would be loaded at its first launch.
    load_function: c"cuFuncLoad", unsafe extern "C" fn(Handle) -> Result32;
    /// Where a kernel's parameter is and how long.
    parameter: c"cuFuncGetParamInfo",
        unsafe extern "C" fn(Handle, usize, *mut usize, *mut usize) -> Result32;
    /// What an address belongs to.
    pointer_attribute: c"cuPointerGetAttribute",
        unsafe extern "C" fn(*mut c_void, c_int, u64) -> Result32;
    /// Makes an event.
    create_event: c"cuEventCreate", unsafe extern "C" fn(*mut Handle, c_uint) -> Result32;
    /// Puts an event into a stream; stream 0 is the legacy one.
    record_event: c"cuEventRecord", unsafe extern "C" fn(Handle, Handle) -> Result32;
    /// Puts an event into a stream; stream 0 is the thread's own.
    record_event_per_thread: c"cuEventRecord_ptsz", unsafe extern "C" fn(Handle, Handle) -> Result32;
    /// Whether an event was reached.
    event_query: c"cuEventQuery", unsafe extern "C" fn(Handle) -> Result32;
    /// The time between two events, ms.
    elapsed: c"cuEventElapsedTime", unsafe extern "C" fn(*mut f32, Handle, Handle) -> Result32;
    /// A graph's nodes.
    graph_nodes: c"cuGraphGetNodes",
        unsafe extern "C" fn(Handle, *mut Handle, *mut usize) -> Result32;
    /// What a node is.
    node_type: c"cuGraphNodeGetType", unsafe extern "C" fn(Handle, *mut c_int) -> Result32;
    /// What a node comes after.
    node_dependencies: c"cuGraphNodeGetDependencies",
        unsafe extern "C" fn(Handle, *mut Handle, *mut usize) -> Result32;
    /// A kernel node's launch, in the form from before CUDA 12.
    kernel_node: c"cuGraphKernelNodeGetParams",
        unsafe extern "C" fn(Handle, *mut c_void) -> Result32;
    /// A copy node's description.
    copy_node: c"cuGraphMemcpyNodeGetParams",
        unsafe extern "C" fn(Handle, *mut c_void) -> Result32;
    /// The graph within a node.
    child_graph: c"cuGraphChildGraphNodeGetGraph",
        unsafe extern "C" fn(Handle, *mut Handle) -> Result32;
    /// The allocation that an address lies in.
    address_range: c"cuMemGetAddressRange_v2",
        unsafe extern "C" fn(*mut u64, *mut usize, u64) -> Result32;
    /// A handle of device memory for others.
    export_memory: c"cuMemGetHandleForAddressRange",
        unsafe extern "C" fn(*mut c_void, u64, usize, c_int, u64) -> Result32;
    /// Waits for an event.
    event_wait: c"cuEventSynchronize", unsafe extern "C" fn(Handle) -> Result32;
    /// Destroys an event.
    destroy_event: c"cuEventDestroy_v2", unsafe extern "C" fn(Handle) -> Result32;
    /// Moves a virtual clock of the calling thread, ns. Only a driver whose clock is not the real
    /// one has it.
    advance_clock: c"standInAdvanceCpu", unsafe extern "C" fn(u64) -> Result32;
}

impl Driver {
    /// The driver that the process has loaded, which then stays loaded.
    pub(crate) fn loaded() -> Option<Self> {
        real::driver().map(Self::of)
    }

    /// Starts one thread of a kernel.
    ///
    /// # Safety
    /// `function` is of the current context, and `parameters` are what it takes.
    pub(crate) unsafe fn launch_one(
        &self,
        function: Handle,
        stream: Stream,
        parameters: &mut [*mut c_void],
    ) -> Result32 {
        let launch = if stream.per_thread { self.launch_per_thread } else { self.launch };
        let Some(launch) = launch.or(self.launch) else { return NOT_FOUND };
        let parameters = parameters.as_mut_ptr();
        // SAFETY: as this function's.
        unsafe {
            launch(function, 1, 1, 1, 1, 1, 1, 0, stream.handle, parameters, core::ptr::null_mut())
        }
    }

    /// Asks the driver what ends captures elsewhere, so that it ends none: a thread in mode relaxed may
    /// ask it even while another captures a stream in mode global. To look first whether one does is not
    /// enough, as a capture may begin meanwhile.
    pub(crate) fn relaxed<T>(&self, ask: impl FnOnce() -> T) -> T {
        let exchange = |mode: &mut c_int| {
            // SAFETY: the mode is read and written here.
            self.exchange_capture_mode.is_some_and(|exchange| unsafe { exchange(mode) } == SUCCESS)
        };
        let mut mode = CAPTURE_RELAXED;
        let is_relaxed = exchange(&mut mode);
        let answer = ask();
        if is_relaxed {
            // The mode is the one that was before.
            exchange(&mut mode);
        }
        answer
    }

    /// Whether all work of a stream has ended; false where the driver does not say.
    pub(crate) fn is_idle(&self, stream: Stream) -> bool {
        let query =
            if stream.per_thread { self.stream_query_per_thread } else { self.stream_query };
        let Some(query) = query.or(self.stream_query) else { return false };
        // SAFETY: the program has just given the driver this stream.
        self.relaxed(|| unsafe { query(stream.handle) } == SUCCESS)
    }

    /// Whether an event was reached; false where the driver does not say.
    pub(crate) fn is_reached(&self, event: Handle) -> bool {
        let Some(query) = self.event_query else { return false };
        // SAFETY: the event is one of the shim's that is there, or one that the program has just given
        // the driver.
        self.relaxed(|| unsafe { query(event) } == SUCCESS)
    }

    /// Whether what goes into a stream is recorded in a graph, or would be if that were not spoilt;
    /// none where the driver does not say.
    pub(crate) fn captures(&self, stream: Stream) -> Option<bool> {
        let query = if stream.per_thread {
            self.stream_capturing_per_thread
        } else {
            self.stream_capturing
        };
        let mut status = 0;
        // SAFETY: the program has just given the driver this stream; the status is written here.
        let result = unsafe { query.or(self.stream_capturing)?(stream.handle, &raw mut status) };
        (result == SUCCESS).then_some(status != 0)
    }

    /// Records `event` in a stream.
    pub(crate) fn record(&self, event: Handle, stream: Stream) -> bool {
        let record =
            if stream.per_thread { self.record_event_per_thread } else { self.record_event };
        // SAFETY: the event is the shim's, the stream is one that the program has just used.
        record
            .or(self.record_event)
            .is_some_and(|record| unsafe { record(event, stream.handle) } == SUCCESS)
    }

    /// Waits for what is in a stream, and for what that waits for. False if that cannot be.
    pub(crate) fn wait_for(&self, stream: Stream) -> bool {
        let (Some(create), Some(wait), Some(destroy)) =
            (self.create_event, self.event_wait, self.destroy_event)
        else {
            return false;
        };
        self.relaxed(|| {
            let mut event = core::ptr::null_mut();
            // SAFETY: the event is written here; CU_EVENT_DISABLE_TIMING.
            if unsafe { create(&raw mut event, 2) } != SUCCESS {
                return false;
            }
            // SAFETY: the event is the one above.
            let waited = self.record(event, stream) && unsafe { wait(event) } == SUCCESS;
            // SAFETY: as above; nothing else knows it.
            unsafe { destroy(event) };
            waited
        })
    }

    /// The calling thread's context, if it has one.
    pub(crate) fn current_context(&self) -> Option<Handle> {
        let mut context = core::ptr::null_mut();
        // SAFETY: the context is written here.
        let result = unsafe { self.context?(&raw mut context) };
        (result == SUCCESS && !context.is_null()).then_some(context)
    }

    /// Does something with a context as the calling thread's. None if it cannot be that.
    pub(crate) fn within<T>(&self, context: Handle, act: impl FnOnce() -> T) -> Option<T> {
        if self.current_context() == Some(context) {
            return Some(act());
        }
        let (push, pop) = (self.push_context?, self.pop_context?);
        // SAFETY: the driver looks whether it is a context.
        if unsafe { push(context) } != SUCCESS {
            return None;
        }
        let done = act();
        let mut popped = core::ptr::null_mut();
        // SAFETY: this thread pushed one above.
        unsafe { pop(&raw mut popped) };
        Some(done)
    }

    /// Whether a device's primary context is there; none where the driver does not say.
    pub(crate) fn has_primary(&self, device: c_int) -> Option<bool> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: both numbers are written here.
        let result = unsafe { self.primary_state?(device, &raw mut flags, &raw mut active) };
        (result == SUCCESS).then_some(active != 0)
    }

    /// How many devices there are.
    pub(crate) fn devices(&self) -> c_int {
        let mut count = 0;
        // SAFETY: the number is written here.
        let result = self.device_count.map(|ask| unsafe { ask(&raw mut count) });
        if result == Some(SUCCESS) { count } else { 0 }
    }

    /// A stream's context. Streams without a handle of their own are the current context's.
    pub(crate) fn context_of(&self, stream: Stream) -> Option<Handle> {
        let asked = if stream.is_default() { None } else { self.stream_context };
        let Some(ask) = asked else { return self.current_context() };
        let mut context = core::ptr::null_mut();
        // SAFETY: the program has just given the driver this stream; the context is written here.
        let result = unsafe { ask(stream.handle, &raw mut context) };
        (result == SUCCESS && !context.is_null()).then_some(context)
    }

    /// What kind of memory an address is: CUmemorytype, or none for memory that the driver does
    /// not know.
    pub(crate) fn memory_type(&self, address: u64) -> Option<c_uint> {
        let mut kind: c_uint = 0;
        // SAFETY: the attribute is a number of this size, written here.
        let result =
            unsafe { self.pointer_attribute?((&raw mut kind).cast(), MEMORY_TYPE, address) };
        (result == SUCCESS).then_some(kind)
    }

    /// The device that memory belongs to.
    pub(crate) fn device_of(&self, address: u64) -> Option<c_int> {
        let mut device: c_int = -1;
        // SAFETY: the attribute is a number of this size, written here.
        let result =
            unsafe { self.pointer_attribute?((&raw mut device).cast(), DEVICE_ORDINAL, address) };
        (result == SUCCESS).then_some(device)
    }

    /// Whether memory is `cuMemAlloc`'s: it stays where it is until it is freed. What a pool has, or
    /// the program mapped itself, may get another place behind the same address.
    pub(crate) fn stays_in_place(&self, address: u64) -> bool {
        let mut legacy: c_int = 0;
        // SAFETY: the attribute is a number of at most this size, written here.
        let result = self
            .pointer_attribute
            .map(|ask| unsafe { ask((&raw mut legacy).cast(), LEGACY, address) });
        result == Some(SUCCESS) && legacy & 0xff != 0
    }

    /// The device of the current context.
    pub(crate) fn current_device(&self) -> Option<c_int> {
        let mut device = 0;
        // SAFETY: the device's number is written here.
        let result = unsafe { self.device?(&raw mut device) };
        (result == SUCCESS).then_some(device)
    }

    /// A device's name.
    pub(crate) fn name_of(&self, device: c_int) -> Option<String> {
        let mut name = [0_u8; 128];
        // SAFETY: the name is written here, with its end, in at most as many bytes.
        let result =
            unsafe { self.device_name?(name.as_mut_ptr().cast(), name.len() as c_int, device) };
        let name = CStr::from_bytes_until_nul(&name).ok()?;
        (result == SUCCESS).then(|| name.to_string_lossy().into_owned())
    }

    /// Which device it is, for people: a process may have several.
    pub(crate) fn which(&self, device: Option<c_int>) -> String {
        let Some(device) = device else { return "a device that the driver does not name".into() };
        match self.name_of(device) {
            Some(name) => format!("device {device} ({name})"),
            None => format!("device {device}"),
        }
    }
}

/// A stream as a call names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Its handle: 0, 1 (CU_STREAM_LEGACY) and 2 (CU_STREAM_PER_THREAD) are default streams.
    pub(crate) handle: Handle,
    /// Whether handle 0 is the calling thread's own stream.
    pub(crate) per_thread: bool,
}

impl Stream {
    /// Whether it is a default stream, which each context has.
    pub(crate) fn is_default(self) -> bool {
        real::address(self.handle) <= 2
    }
}
