//! Which functions of the driver the shim hooks, and which of those that look alike it leaves.

/// A class of `cuda-hooks`, and the functions in it by their names without suffixes.
pub(super) struct Family {
    pub(super) class: &'static str,
    pub(super) names: &'static [&'static str],
}

const fn family(class: &'static str, names: &'static [&'static str]) -> Family {
    Family { class, names }
}

/// Every hooked function.
pub(super) const FAMILIES: &[Family] = &[
    family("Resolver", &["cuGetProcAddress"]),
    family(
        "Launch",
        &[
            "cuLaunch",
            "cuLaunchGrid",
            "cuLaunchGridAsync",
            "cuLaunchKernel",
            "cuLaunchKernelEx",
            "cuLaunchCooperativeKernel",
            "cuLaunchCooperativeKernelMultiDevice",
        ],
    ),
    family("GraphLaunch", &["cuGraphLaunch"]),
    family("GraphUpload", &["cuGraphUpload"]),
    family(
        "GraphInstantiate",
        &["cuGraphInstantiate", "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams"],
    ),
    family(
        "GraphChange",
        &[
            "cuGraphExecUpdate",
            "cuGraphExecBatchMemOpNodeSetParams",
            "cuGraphExecChildGraphNodeSetParams",
            "cuGraphExecEventRecordNodeSetEvent",
            "cuGraphExecEventWaitNodeSetEvent",
            "cuGraphExecExternalSemaphoresSignalNodeSetParams",
            "cuGraphExecExternalSemaphoresWaitNodeSetParams",
            "cuGraphExecHostNodeSetParams",
            "cuGraphExecKernelNodeSetParams",
            "cuGraphExecMemcpyNodeSetParams",
            "cuGraphExecMemsetNodeSetParams",
            "cuGraphExecNodeSetParams",
            "cuGraphNodeSetEnabled",
        ],
    ),
    family("GraphEnd", &["cuGraphExecDestroy"]),
    family(
        "CaptureBegin",
        &[
            "cuStreamBeginCapture",
            "cuStreamBeginCaptureToGraph",
            "cuStreamBeginRecaptureToGraph",
            "cuStreamBeginCaptureToCig",
        ],
    ),
    family("CaptureEnd", &["cuStreamEndCapture", "cuStreamEndCaptureToCig"]),
    family(
        "HostToDevice",
        &["cuMemcpyHtoD", "cuMemcpyHtoDAsync", "cuMemcpyHtoA", "cuMemcpyHtoAAsync"],
    ),
    family(
        "DeviceToHost",
        &["cuMemcpyDtoH", "cuMemcpyDtoHAsync", "cuMemcpyAtoH", "cuMemcpyAtoHAsync"],
    ),
    family(
        "DeviceToDevice",
        &["cuMemcpyDtoD", "cuMemcpyDtoDAsync", "cuMemcpyDtoA", "cuMemcpyAtoD", "cuMemcpyAtoA"],
    ),
    family("Copy", &["cuMemcpy", "cuMemcpyAsync", "cuMemcpyWithAttributesAsync"]),
    family("CopyPeer", &["cuMemcpyPeer", "cuMemcpyPeerAsync"]),
    family("Copy2d", &["cuMemcpy2D", "cuMemcpy2DUnaligned", "cuMemcpy2DAsync"]),
    family("Copy3d", &["cuMemcpy3D", "cuMemcpy3DAsync"]),
    family("Copy3dPeer", &["cuMemcpy3DPeer", "cuMemcpy3DPeerAsync"]),
    family("CopyBatch", &["cuMemcpyBatchAsync"]),
    family("Copy3dBatch", &["cuMemcpy3DBatchAsync", "cuMemcpy3DWithAttributesAsync"]),
    family("Prefetch", &["cuMemPrefetchAsync"]),
    family("PrefetchBatch", &["cuMemPrefetchBatchAsync"]),
    family("DiscardAndPrefetch", &["cuMemDiscardAndPrefetchBatchAsync"]),
    family(
        "Memset",
        &[
            "cuMemsetD8",
            "cuMemsetD8Async",
            "cuMemsetD16",
            "cuMemsetD16Async",
            "cuMemsetD32",
            "cuMemsetD32Async",
        ],
    ),
    family(
        "Memset2d",
        &[
            "cuMemsetD2D8",
            "cuMemsetD2D8Async",
            "cuMemsetD2D16",
            "cuMemsetD2D16Async",
            "cuMemsetD2D32",
            "cuMemsetD2D32Async",
        ],
    ),
    family("StreamSynchronize", &["cuStreamSynchronize"]),
    family("EventSynchronize", &["cuEventSynchronize"]),
    family("ContextSynchronize", &["cuCtxSynchronize"]),
    family("Query", &["cuStreamQuery", "cuEventQuery"]),
    family("EventRecord", &["cuEventRecord", "cuEventRecordWithFlags"]),
    family("StreamWait", &["cuStreamWaitEvent"]),
    family("HostCallback", &["cuLaunchHostFunc", "cuStreamAddCallback"]),
    family(
        "Allocate",
        &["cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync", "cuMemAllocFromPoolAsync"],
    ),
    family("AllocateManaged", &["cuMemAllocManaged"]),
    family("AllocateHost", &["cuMemAllocHost", "cuMemHostAlloc"]),
    family("RegisterHost", &["cuMemHostRegister"]),
    family("MapHost", &["cuMemHostGetDevicePointer"]),
    family("Free", &["cuMemFree", "cuMemFreeAsync", "cuMemFreeHost", "cuMemHostUnregister"]),
    family("StreamEnd", &["cuStreamDestroy"]),
    family("EventEnd", &["cuEventDestroy"]),
    family(
        "ContextEnd",
        &["cuCtxDestroy", "cuCtxDetach", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset"],
    ),
    family("RangeBegin", &["cuProfilerStart"]),
    family("RangeEnd", &["cuProfilerStop"]),
];

/// The beginnings of names that a new CUDA may give to something that has to be hooked.
pub(super) const WATCHED: &[&str] = &[
    "cuCtxSynchronize",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFabricCpy",
    "cuGetProcAddress",
    "cuGraphExec",
    "cuGraphInstantiate",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuLaunch",
    "cuMemAlloc",
    "cuMemBatch",
    "cuMemDiscard",
    "cuMemFree",
    "cuMemHost",
    "cuMemPrefetch",
    "cuMemcpy",
    "cuMemset",
    "cuProfiler",
    "cuStreamAddCallback",
    "cuStreamBegin",
    "cuStreamEnd",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// What is watched and not hooked, and why.
pub(super) const LEFT: &[(&str, &str)] = &[
    ("cuFabricCpyBatchAsync", "between devices over NVLink; nothing of it crosses PCIe"),
    ("cuGraphExecGetFlags", "asks, and does nothing on a device"),
    ("cuGraphExecGetId", "asks, and does nothing on a device"),
    ("cuMemBatchDecompressAsync", "decompresses from device memory to device memory"),
    ("cuMemDiscardBatchAsync", "drops pages; nothing is copied"),
    ("cuMemHostGetFlags", "asks, and does nothing on a device"),
    ("cuProfilerInitialize", "names files of a profiler that CUDA 11 removed"),
];
