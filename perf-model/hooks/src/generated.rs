//! The hooked functions, in the order of their symbols.
// Made from NVIDIA's headers by `cargo xtask cuda-hooks`: change that, not this.

use super::{Class::*, Hook, Role::*, hook, p};

/// Every hooked form of a function, in the order of symbols.
pub static HOOKS: [Hook; 222] = [
    hook("cuCtxDestroy", 2000, false, "cuCtxDestroy", ContextEnd, &[p(Context, 8)]),
    hook("cuCtxDestroy", 4000, false, "cuCtxDestroy_v2", ContextEnd, &[p(Context, 8)]),
    hook("cuCtxDetach", 2000, false, "cuCtxDetach", ContextEnd, &[p(Context, 8)]),
    hook("cuCtxSynchronize", 2000, false, "cuCtxSynchronize", ContextSynchronize, &[]),
    hook(
        "cuCtxSynchronize",
        13000,
        false,
        "cuCtxSynchronize_v2",
        ContextSynchronize,
        &[p(Context, 8)],
    ),
    hook(
        "cuDevicePrimaryCtxRelease",
        7000,
        false,
        "cuDevicePrimaryCtxRelease",
        ContextEnd,
        &[p(Device, 4)],
    ),
    hook(
        "cuDevicePrimaryCtxRelease",
        11000,
        false,
        "cuDevicePrimaryCtxRelease_v2",
        ContextEnd,
        &[p(Device, 4)],
    ),
    hook(
        "cuDevicePrimaryCtxReset",
        7000,
        false,
        "cuDevicePrimaryCtxReset",
        ContextEnd,
        &[p(Device, 4)],
    ),
    hook(
        "cuDevicePrimaryCtxReset",
        11000,
        false,
        "cuDevicePrimaryCtxReset_v2",
        ContextEnd,
        &[p(Device, 4)],
    ),
    hook("cuEventDestroy", 2000, false, "cuEventDestroy", EventEnd, &[p(Event, 8)]),
    hook("cuEventDestroy", 4000, false, "cuEventDestroy_v2", EventEnd, &[p(Event, 8)]),
    hook("cuEventQuery", 2000, false, "cuEventQuery", Query, &[p(Event, 8)]),
    hook("cuEventRecord", 2000, false, "cuEventRecord", EventRecord, &[p(Event, 8), p(Stream, 8)]),
    hook(
        "cuEventRecordWithFlags",
        11010,
        false,
        "cuEventRecordWithFlags",
        EventRecord,
        &[p(Event, 8), p(Stream, 8), p(Flags, 4)],
    ),
    hook(
        "cuEventRecordWithFlags",
        11010,
        true,
        "cuEventRecordWithFlags_ptsz",
        EventRecord,
        &[p(Event, 8), p(Stream, 8), p(Flags, 4)],
    ),
    hook(
        "cuEventRecord",
        7000,
        true,
        "cuEventRecord_ptsz",
        EventRecord,
        &[p(Event, 8), p(Stream, 8)],
    ),
    hook("cuEventSynchronize", 2000, false, "cuEventSynchronize", EventSynchronize, &[p(Event, 8)]),
    hook(
        "cuGetProcAddress",
        11030,
        false,
        "cuGetProcAddress",
        Resolver,
        &[p(Name, 8), p(FunctionOut, 8), p(Version, 4), p(Flags, 8)],
    ),
    hook(
        "cuGetProcAddress",
        12000,
        false,
        "cuGetProcAddress_v2",
        Resolver,
        &[p(Name, 8), p(FunctionOut, 8), p(Version, 4), p(Flags, 8), p(Status, 8)],
    ),
    hook(
        "cuGraphExecBatchMemOpNodeSetParams",
        11070,
        false,
        "cuGraphExecBatchMemOpNodeSetParams",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Other, 8)],
    ),
    hook(
        "cuGraphExecChildGraphNodeSetParams",
        11010,
        false,
        "cuGraphExecChildGraphNodeSetParams",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Graph, 8)],
    ),
    hook("cuGraphExecDestroy", 10000, false, "cuGraphExecDestroy", GraphEnd, &[p(GraphExec, 8)]),
    hook(
        "cuGraphExecEventRecordNodeSetEvent",
        11010,
        false,
        "cuGraphExecEventRecordNodeSetEvent",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Event, 8)],
    ),
    hook(
        "cuGraphExecEventWaitNodeSetEvent",
        11010,
        false,
        "cuGraphExecEventWaitNodeSetEvent",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Event, 8)],
    ),
    hook(
        "cuGraphExecExternalSemaphoresSignalNodeSetParams",
        11020,
        false,
        "cuGraphExecExternalSemaphoresSignalNodeSetParams",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Other, 8)],
    ),
    hook(
        "cuGraphExecExternalSemaphoresWaitNodeSetParams",
        11020,
        false,
        "cuGraphExecExternalSemaphoresWaitNodeSetParams",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Other, 8)],
    ),
    hook(
        "cuGraphExecHostNodeSetParams",
        10020,
        false,
        "cuGraphExecHostNodeSetParams",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Other, 8)],
    ),
    hook(
        "cuGraphExecKernelNodeSetParams",
        10010,
        false,
        "cuGraphExecKernelNodeSetParams",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Other, 8)],
    ),
    hook(
        "cuGraphExecKernelNodeSetParams",
        12000,
        false,
        "cuGraphExecKernelNodeSetParams_v2",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Other, 8)],
    ),
    hook(
        "cuGraphExecMemcpyNodeSetParams",
        10020,
        false,
        "cuGraphExecMemcpyNodeSetParams",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Other, 8), p(Context, 8)],
    ),
    hook(
        "cuGraphExecMemsetNodeSetParams",
        10020,
        false,
        "cuGraphExecMemsetNodeSetParams",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Other, 8), p(Context, 8)],
    ),
    hook(
        "cuGraphExecNodeSetParams",
        12020,
        false,
        "cuGraphExecNodeSetParams",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Other, 8)],
    ),
    hook(
        "cuGraphExecUpdate",
        10020,
        false,
        "cuGraphExecUpdate",
        GraphChange,
        &[p(GraphExec, 8), p(Graph, 8), p(Other, 8), p(Other, 8)],
    ),
    hook(
        "cuGraphExecUpdate",
        12000,
        false,
        "cuGraphExecUpdate_v2",
        GraphChange,
        &[p(GraphExec, 8), p(Graph, 8), p(Other, 8)],
    ),
    hook(
        "cuGraphInstantiate",
        10000,
        false,
        "cuGraphInstantiate",
        GraphInstantiate,
        &[p(GraphExecOut, 8), p(Graph, 8), p(Other, 8), p(Other, 8), p(Other, 8)],
    ),
    hook(
        "cuGraphInstantiateWithFlags",
        11040,
        false,
        "cuGraphInstantiateWithFlags",
        GraphInstantiate,
        &[p(GraphExecOut, 8), p(Graph, 8), p(Flags, 8)],
    ),
    hook(
        "cuGraphInstantiateWithParams",
        12000,
        false,
        "cuGraphInstantiateWithParams",
        GraphInstantiate,
        &[p(GraphExecOut, 8), p(Graph, 8), p(InstantiateParams, 8)],
    ),
    hook(
        "cuGraphInstantiateWithParams",
        12000,
        true,
        "cuGraphInstantiateWithParams_ptsz",
        GraphInstantiate,
        &[p(GraphExecOut, 8), p(Graph, 8), p(InstantiateParams, 8)],
    ),
    hook(
        "cuGraphInstantiate",
        11000,
        false,
        "cuGraphInstantiate_v2",
        GraphInstantiate,
        &[p(GraphExecOut, 8), p(Graph, 8), p(Other, 8), p(Other, 8), p(Other, 8)],
    ),
    hook(
        "cuGraphLaunch",
        10000,
        false,
        "cuGraphLaunch",
        GraphLaunch,
        &[p(GraphExec, 8), p(Stream, 8)],
    ),
    hook(
        "cuGraphLaunch",
        10000,
        true,
        "cuGraphLaunch_ptsz",
        GraphLaunch,
        &[p(GraphExec, 8), p(Stream, 8)],
    ),
    hook(
        "cuGraphNodeSetEnabled",
        11060,
        false,
        "cuGraphNodeSetEnabled",
        GraphChange,
        &[p(GraphExec, 8), p(Node, 8), p(Other, 4)],
    ),
    hook(
        "cuGraphUpload",
        11010,
        false,
        "cuGraphUpload",
        GraphUpload,
        &[p(GraphExec, 8), p(Stream, 8)],
    ),
    hook(
        "cuGraphUpload",
        11010,
        true,
        "cuGraphUpload_ptsz",
        GraphUpload,
        &[p(GraphExec, 8), p(Stream, 8)],
    ),
    hook("cuLaunch", 2000, false, "cuLaunch", Launch, &[p(Function, 8)]),
    hook(
        "cuLaunchCooperativeKernel",
        9000,
        false,
        "cuLaunchCooperativeKernel",
        Launch,
        &[
            p(Function, 8),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Stream, 8),
            p(KernelParameters, 8),
        ],
    ),
    hook(
        "cuLaunchCooperativeKernelMultiDevice",
        9000,
        false,
        "cuLaunchCooperativeKernelMultiDevice",
        Launch,
        &[p(LaunchList, 8), p(Count, 4), p(Flags, 4)],
    ),
    hook(
        "cuLaunchCooperativeKernel",
        9000,
        true,
        "cuLaunchCooperativeKernel_ptsz",
        Launch,
        &[
            p(Function, 8),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Stream, 8),
            p(KernelParameters, 8),
        ],
    ),
    hook(
        "cuLaunchGrid",
        2000,
        false,
        "cuLaunchGrid",
        Launch,
        &[p(Function, 8), p(Other, 4), p(Other, 4)],
    ),
    hook(
        "cuLaunchGridAsync",
        2000,
        false,
        "cuLaunchGridAsync",
        Launch,
        &[p(Function, 8), p(Other, 4), p(Other, 4), p(Stream, 8)],
    ),
    hook(
        "cuLaunchHostFunc",
        10000,
        false,
        "cuLaunchHostFunc",
        HostCallback,
        &[p(Stream, 8), p(HostFunction, 8), p(UserData, 8)],
    ),
    hook(
        "cuLaunchHostFunc",
        10000,
        true,
        "cuLaunchHostFunc_ptsz",
        HostCallback,
        &[p(Stream, 8), p(HostFunction, 8), p(UserData, 8)],
    ),
    hook(
        "cuLaunchHostFunc",
        13010,
        false,
        "cuLaunchHostFunc_v2",
        HostCallback,
        &[p(Stream, 8), p(HostFunction, 8), p(UserData, 8), p(Other, 4)],
    ),
    hook(
        "cuLaunchHostFunc",
        13010,
        true,
        "cuLaunchHostFunc_v2_ptsz",
        HostCallback,
        &[p(Stream, 8), p(HostFunction, 8), p(UserData, 8), p(Other, 4)],
    ),
    hook(
        "cuLaunchKernel",
        4000,
        false,
        "cuLaunchKernel",
        Launch,
        &[
            p(Function, 8),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Stream, 8),
            p(KernelParameters, 8),
            p(Extra, 8),
        ],
    ),
    hook(
        "cuLaunchKernelEx",
        11060,
        false,
        "cuLaunchKernelEx",
        Launch,
        &[p(LaunchConfig, 8), p(Function, 8), p(KernelParameters, 8), p(Extra, 8)],
    ),
    hook(
        "cuLaunchKernelEx",
        11060,
        true,
        "cuLaunchKernelEx_ptsz",
        Launch,
        &[p(LaunchConfig, 8), p(Function, 8), p(KernelParameters, 8), p(Extra, 8)],
    ),
    hook(
        "cuLaunchKernel",
        7000,
        true,
        "cuLaunchKernel_ptsz",
        Launch,
        &[
            p(Function, 8),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Other, 4),
            p(Stream, 8),
            p(KernelParameters, 8),
            p(Extra, 8),
        ],
    ),
    hook("cuMemAlloc", 2000, false, "cuMemAlloc", Allocate, &[p(AddressOut, 8), p(Bytes, 4)]),
    hook(
        "cuMemAllocAsync",
        11020,
        false,
        "cuMemAllocAsync",
        Allocate,
        &[p(AddressOut, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemAllocAsync",
        11020,
        true,
        "cuMemAllocAsync_ptsz",
        Allocate,
        &[p(AddressOut, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemAllocFromPoolAsync",
        11020,
        false,
        "cuMemAllocFromPoolAsync",
        Allocate,
        &[p(AddressOut, 8), p(Bytes, 8), p(Other, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemAllocFromPoolAsync",
        11020,
        true,
        "cuMemAllocFromPoolAsync_ptsz",
        Allocate,
        &[p(AddressOut, 8), p(Bytes, 8), p(Other, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemAllocHost",
        2000,
        false,
        "cuMemAllocHost",
        AllocateHost,
        &[p(AddressOut, 8), p(Bytes, 4)],
    ),
    hook(
        "cuMemAllocHost",
        3020,
        false,
        "cuMemAllocHost_v2",
        AllocateHost,
        &[p(AddressOut, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemAllocManaged",
        6000,
        false,
        "cuMemAllocManaged",
        AllocateManaged,
        &[p(AddressOut, 8), p(Bytes, 8), p(Flags, 4)],
    ),
    hook(
        "cuMemAllocPitch",
        2000,
        false,
        "cuMemAllocPitch",
        Allocate,
        &[p(AddressOut, 8), p(Other, 8), p(Width, 4), p(Height, 4), p(Other, 4)],
    ),
    hook(
        "cuMemAllocPitch",
        3020,
        false,
        "cuMemAllocPitch_v2",
        Allocate,
        &[p(AddressOut, 8), p(Other, 8), p(Width, 8), p(Height, 8), p(Other, 4)],
    ),
    hook("cuMemAlloc", 3020, false, "cuMemAlloc_v2", Allocate, &[p(AddressOut, 8), p(Bytes, 8)]),
    hook(
        "cuMemDiscardAndPrefetchBatchAsync",
        13000,
        false,
        "cuMemDiscardAndPrefetchBatchAsync",
        DiscardAndPrefetch,
        &[
            p(Addresses, 8),
            p(Sizes, 8),
            p(Count, 8),
            p(Locations, 8),
            p(Other, 8),
            p(Other, 8),
            p(Flags, 8),
            p(Stream, 8),
        ],
    ),
    hook(
        "cuMemDiscardAndPrefetchBatchAsync",
        13000,
        true,
        "cuMemDiscardAndPrefetchBatchAsync_ptsz",
        DiscardAndPrefetch,
        &[
            p(Addresses, 8),
            p(Sizes, 8),
            p(Count, 8),
            p(Locations, 8),
            p(Other, 8),
            p(Other, 8),
            p(Flags, 8),
            p(Stream, 8),
        ],
    ),
    hook("cuMemFree", 2000, false, "cuMemFree", Free, &[p(Address, 4)]),
    hook("cuMemFreeAsync", 11020, false, "cuMemFreeAsync", Free, &[p(Address, 8), p(Stream, 8)]),
    hook(
        "cuMemFreeAsync",
        11020,
        true,
        "cuMemFreeAsync_ptsz",
        Free,
        &[p(Address, 8), p(Stream, 8)],
    ),
    hook("cuMemFreeHost", 2000, false, "cuMemFreeHost", Free, &[p(Address, 8)]),
    hook("cuMemFree", 3020, false, "cuMemFree_v2", Free, &[p(Address, 8)]),
    hook(
        "cuMemHostAlloc",
        2020,
        false,
        "cuMemHostAlloc",
        AllocateHost,
        &[p(AddressOut, 8), p(Bytes, 8), p(Flags, 4)],
    ),
    hook(
        "cuMemHostGetDevicePointer",
        2020,
        false,
        "cuMemHostGetDevicePointer",
        MapHost,
        &[p(AddressOut, 8), p(Address, 8), p(Flags, 4)],
    ),
    hook(
        "cuMemHostGetDevicePointer",
        3020,
        false,
        "cuMemHostGetDevicePointer_v2",
        MapHost,
        &[p(AddressOut, 8), p(Address, 8), p(Flags, 4)],
    ),
    hook(
        "cuMemHostRegister",
        4000,
        false,
        "cuMemHostRegister",
        RegisterHost,
        &[p(Address, 8), p(Bytes, 8), p(Flags, 4)],
    ),
    hook(
        "cuMemHostRegister",
        6050,
        false,
        "cuMemHostRegister_v2",
        RegisterHost,
        &[p(Address, 8), p(Bytes, 8), p(Flags, 4)],
    ),
    hook("cuMemHostUnregister", 4000, false, "cuMemHostUnregister", Free, &[p(Address, 8)]),
    hook(
        "cuMemPrefetchAsync",
        8000,
        false,
        "cuMemPrefetchAsync",
        Prefetch,
        &[p(Address, 8), p(Bytes, 8), p(Location, 4), p(Stream, 8)],
    ),
    hook(
        "cuMemPrefetchAsync",
        8000,
        true,
        "cuMemPrefetchAsync_ptsz",
        Prefetch,
        &[p(Address, 8), p(Bytes, 8), p(Location, 4), p(Stream, 8)],
    ),
    hook(
        "cuMemPrefetchAsync",
        12020,
        false,
        "cuMemPrefetchAsync_v2",
        Prefetch,
        &[p(Address, 8), p(Bytes, 8), p(Location, 8), p(Flags, 4), p(Stream, 8)],
    ),
    hook(
        "cuMemPrefetchAsync",
        12020,
        true,
        "cuMemPrefetchAsync_v2_ptsz",
        Prefetch,
        &[p(Address, 8), p(Bytes, 8), p(Location, 8), p(Flags, 4), p(Stream, 8)],
    ),
    hook(
        "cuMemPrefetchBatchAsync",
        13000,
        false,
        "cuMemPrefetchBatchAsync",
        PrefetchBatch,
        &[
            p(Addresses, 8),
            p(Sizes, 8),
            p(Count, 8),
            p(Locations, 8),
            p(Other, 8),
            p(Other, 8),
            p(Flags, 8),
            p(Stream, 8),
        ],
    ),
    hook(
        "cuMemPrefetchBatchAsync",
        13000,
        true,
        "cuMemPrefetchBatchAsync_ptsz",
        PrefetchBatch,
        &[
            p(Addresses, 8),
            p(Sizes, 8),
            p(Count, 8),
            p(Locations, 8),
            p(Other, 8),
            p(Other, 8),
            p(Flags, 8),
            p(Stream, 8),
        ],
    ),
    hook(
        "cuMemcpy",
        4000,
        false,
        "cuMemcpy",
        Copy,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8)],
    ),
    hook("cuMemcpy2D", 2000, false, "cuMemcpy2D", Copy2d, &[p(Description, 8)]),
    hook(
        "cuMemcpy2DAsync",
        2000,
        false,
        "cuMemcpy2DAsync",
        Copy2d,
        &[p(Description, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpy2DAsync",
        3020,
        false,
        "cuMemcpy2DAsync_v2",
        Copy2d,
        &[p(Description, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpy2DAsync",
        7000,
        true,
        "cuMemcpy2DAsync_v2_ptsz",
        Copy2d,
        &[p(Description, 8), p(Stream, 8)],
    ),
    hook("cuMemcpy2DUnaligned", 2000, false, "cuMemcpy2DUnaligned", Copy2d, &[p(Description, 8)]),
    hook(
        "cuMemcpy2DUnaligned",
        3020,
        false,
        "cuMemcpy2DUnaligned_v2",
        Copy2d,
        &[p(Description, 8)],
    ),
    hook(
        "cuMemcpy2DUnaligned",
        7000,
        true,
        "cuMemcpy2DUnaligned_v2_ptds",
        Copy2d,
        &[p(Description, 8)],
    ),
    hook("cuMemcpy2D", 3020, false, "cuMemcpy2D_v2", Copy2d, &[p(Description, 8)]),
    hook("cuMemcpy2D", 7000, true, "cuMemcpy2D_v2_ptds", Copy2d, &[p(Description, 8)]),
    hook("cuMemcpy3D", 2000, false, "cuMemcpy3D", Copy3d, &[p(Description, 8)]),
    hook(
        "cuMemcpy3DAsync",
        2000,
        false,
        "cuMemcpy3DAsync",
        Copy3d,
        &[p(Description, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpy3DAsync",
        3020,
        false,
        "cuMemcpy3DAsync_v2",
        Copy3d,
        &[p(Description, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpy3DAsync",
        7000,
        true,
        "cuMemcpy3DAsync_v2_ptsz",
        Copy3d,
        &[p(Description, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpy3DBatchAsync",
        12080,
        false,
        "cuMemcpy3DBatchAsync",
        Copy3dBatch,
        &[p(Count, 8), p(Description, 8), p(Other, 8), p(Flags, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpy3DBatchAsync",
        12080,
        true,
        "cuMemcpy3DBatchAsync_ptsz",
        Copy3dBatch,
        &[p(Count, 8), p(Description, 8), p(Other, 8), p(Flags, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpy3DBatchAsync",
        13000,
        false,
        "cuMemcpy3DBatchAsync_v2",
        Copy3dBatch,
        &[p(Count, 8), p(Description, 8), p(Flags, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpy3DBatchAsync",
        13000,
        true,
        "cuMemcpy3DBatchAsync_v2_ptsz",
        Copy3dBatch,
        &[p(Count, 8), p(Description, 8), p(Flags, 8), p(Stream, 8)],
    ),
    hook("cuMemcpy3DPeer", 4000, false, "cuMemcpy3DPeer", Copy3dPeer, &[p(Description, 8)]),
    hook(
        "cuMemcpy3DPeerAsync",
        4000,
        false,
        "cuMemcpy3DPeerAsync",
        Copy3dPeer,
        &[p(Description, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpy3DPeerAsync",
        7000,
        true,
        "cuMemcpy3DPeerAsync_ptsz",
        Copy3dPeer,
        &[p(Description, 8), p(Stream, 8)],
    ),
    hook("cuMemcpy3DPeer", 7000, true, "cuMemcpy3DPeer_ptds", Copy3dPeer, &[p(Description, 8)]),
    hook(
        "cuMemcpy3DWithAttributesAsync",
        13020,
        false,
        "cuMemcpy3DWithAttributesAsync",
        Copy3dBatch,
        &[p(Description, 8), p(Flags, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpy3DWithAttributesAsync",
        13020,
        true,
        "cuMemcpy3DWithAttributesAsync_ptsz",
        Copy3dBatch,
        &[p(Description, 8), p(Flags, 8), p(Stream, 8)],
    ),
    hook("cuMemcpy3D", 3020, false, "cuMemcpy3D_v2", Copy3d, &[p(Description, 8)]),
    hook("cuMemcpy3D", 7000, true, "cuMemcpy3D_v2_ptds", Copy3d, &[p(Description, 8)]),
    hook(
        "cuMemcpyAsync",
        4000,
        false,
        "cuMemcpyAsync",
        Copy,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyAsync",
        7000,
        true,
        "cuMemcpyAsync_ptsz",
        Copy,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyAtoA",
        2000,
        false,
        "cuMemcpyAtoA",
        DeviceToDevice,
        &[
            p(DestinationArray, 8),
            p(DestinationOffset, 4),
            p(SourceArray, 8),
            p(SourceOffset, 4),
            p(Bytes, 4),
        ],
    ),
    hook(
        "cuMemcpyAtoA",
        3020,
        false,
        "cuMemcpyAtoA_v2",
        DeviceToDevice,
        &[
            p(DestinationArray, 8),
            p(DestinationOffset, 8),
            p(SourceArray, 8),
            p(SourceOffset, 8),
            p(Bytes, 8),
        ],
    ),
    hook(
        "cuMemcpyAtoA",
        7000,
        true,
        "cuMemcpyAtoA_v2_ptds",
        DeviceToDevice,
        &[
            p(DestinationArray, 8),
            p(DestinationOffset, 8),
            p(SourceArray, 8),
            p(SourceOffset, 8),
            p(Bytes, 8),
        ],
    ),
    hook(
        "cuMemcpyAtoD",
        2000,
        false,
        "cuMemcpyAtoD",
        DeviceToDevice,
        &[p(Destination, 4), p(SourceArray, 8), p(SourceOffset, 4), p(Bytes, 4)],
    ),
    hook(
        "cuMemcpyAtoD",
        3020,
        false,
        "cuMemcpyAtoD_v2",
        DeviceToDevice,
        &[p(Destination, 8), p(SourceArray, 8), p(SourceOffset, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyAtoD",
        7000,
        true,
        "cuMemcpyAtoD_v2_ptds",
        DeviceToDevice,
        &[p(Destination, 8), p(SourceArray, 8), p(SourceOffset, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyAtoH",
        2000,
        false,
        "cuMemcpyAtoH",
        DeviceToHost,
        &[p(Destination, 8), p(SourceArray, 8), p(SourceOffset, 4), p(Bytes, 4)],
    ),
    hook(
        "cuMemcpyAtoHAsync",
        2000,
        false,
        "cuMemcpyAtoHAsync",
        DeviceToHost,
        &[p(Destination, 8), p(SourceArray, 8), p(SourceOffset, 4), p(Bytes, 4), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyAtoHAsync",
        3020,
        false,
        "cuMemcpyAtoHAsync_v2",
        DeviceToHost,
        &[p(Destination, 8), p(SourceArray, 8), p(SourceOffset, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyAtoHAsync",
        7000,
        true,
        "cuMemcpyAtoHAsync_v2_ptsz",
        DeviceToHost,
        &[p(Destination, 8), p(SourceArray, 8), p(SourceOffset, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyAtoH",
        3020,
        false,
        "cuMemcpyAtoH_v2",
        DeviceToHost,
        &[p(Destination, 8), p(SourceArray, 8), p(SourceOffset, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyAtoH",
        7000,
        true,
        "cuMemcpyAtoH_v2_ptds",
        DeviceToHost,
        &[p(Destination, 8), p(SourceArray, 8), p(SourceOffset, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyBatchAsync",
        12080,
        false,
        "cuMemcpyBatchAsync",
        CopyBatch,
        &[
            p(Destinations, 8),
            p(Sources, 8),
            p(Sizes, 8),
            p(Count, 8),
            p(Other, 8),
            p(Other, 8),
            p(Other, 8),
            p(Other, 8),
            p(Stream, 8),
        ],
    ),
    hook(
        "cuMemcpyBatchAsync",
        12080,
        true,
        "cuMemcpyBatchAsync_ptsz",
        CopyBatch,
        &[
            p(Destinations, 8),
            p(Sources, 8),
            p(Sizes, 8),
            p(Count, 8),
            p(Other, 8),
            p(Other, 8),
            p(Other, 8),
            p(Other, 8),
            p(Stream, 8),
        ],
    ),
    hook(
        "cuMemcpyBatchAsync",
        13000,
        false,
        "cuMemcpyBatchAsync_v2",
        CopyBatch,
        &[
            p(Destinations, 8),
            p(Sources, 8),
            p(Sizes, 8),
            p(Count, 8),
            p(Other, 8),
            p(Other, 8),
            p(Other, 8),
            p(Stream, 8),
        ],
    ),
    hook(
        "cuMemcpyBatchAsync",
        13000,
        true,
        "cuMemcpyBatchAsync_v2_ptsz",
        CopyBatch,
        &[
            p(Destinations, 8),
            p(Sources, 8),
            p(Sizes, 8),
            p(Count, 8),
            p(Other, 8),
            p(Other, 8),
            p(Other, 8),
            p(Stream, 8),
        ],
    ),
    hook(
        "cuMemcpyDtoA",
        2000,
        false,
        "cuMemcpyDtoA",
        DeviceToDevice,
        &[p(DestinationArray, 8), p(DestinationOffset, 4), p(Source, 4), p(Bytes, 4)],
    ),
    hook(
        "cuMemcpyDtoA",
        3020,
        false,
        "cuMemcpyDtoA_v2",
        DeviceToDevice,
        &[p(DestinationArray, 8), p(DestinationOffset, 8), p(Source, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyDtoA",
        7000,
        true,
        "cuMemcpyDtoA_v2_ptds",
        DeviceToDevice,
        &[p(DestinationArray, 8), p(DestinationOffset, 8), p(Source, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyDtoD",
        2000,
        false,
        "cuMemcpyDtoD",
        DeviceToDevice,
        &[p(Destination, 4), p(Source, 4), p(Bytes, 4)],
    ),
    hook(
        "cuMemcpyDtoDAsync",
        3000,
        false,
        "cuMemcpyDtoDAsync",
        DeviceToDevice,
        &[p(Destination, 4), p(Source, 4), p(Bytes, 4), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyDtoDAsync",
        3020,
        false,
        "cuMemcpyDtoDAsync_v2",
        DeviceToDevice,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyDtoDAsync",
        7000,
        true,
        "cuMemcpyDtoDAsync_v2_ptsz",
        DeviceToDevice,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyDtoD",
        3020,
        false,
        "cuMemcpyDtoD_v2",
        DeviceToDevice,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyDtoD",
        7000,
        true,
        "cuMemcpyDtoD_v2_ptds",
        DeviceToDevice,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyDtoH",
        2000,
        false,
        "cuMemcpyDtoH",
        DeviceToHost,
        &[p(Destination, 8), p(Source, 4), p(Bytes, 4)],
    ),
    hook(
        "cuMemcpyDtoHAsync",
        2000,
        false,
        "cuMemcpyDtoHAsync",
        DeviceToHost,
        &[p(Destination, 8), p(Source, 4), p(Bytes, 4), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyDtoHAsync",
        3020,
        false,
        "cuMemcpyDtoHAsync_v2",
        DeviceToHost,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyDtoHAsync",
        7000,
        true,
        "cuMemcpyDtoHAsync_v2_ptsz",
        DeviceToHost,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyDtoH",
        3020,
        false,
        "cuMemcpyDtoH_v2",
        DeviceToHost,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyDtoH",
        7000,
        true,
        "cuMemcpyDtoH_v2_ptds",
        DeviceToHost,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyHtoA",
        2000,
        false,
        "cuMemcpyHtoA",
        HostToDevice,
        &[p(DestinationArray, 8), p(DestinationOffset, 4), p(Source, 8), p(Bytes, 4)],
    ),
    hook(
        "cuMemcpyHtoAAsync",
        2000,
        false,
        "cuMemcpyHtoAAsync",
        HostToDevice,
        &[p(DestinationArray, 8), p(DestinationOffset, 4), p(Source, 8), p(Bytes, 4), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyHtoAAsync",
        3020,
        false,
        "cuMemcpyHtoAAsync_v2",
        HostToDevice,
        &[p(DestinationArray, 8), p(DestinationOffset, 8), p(Source, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyHtoAAsync",
        7000,
        true,
        "cuMemcpyHtoAAsync_v2_ptsz",
        HostToDevice,
        &[p(DestinationArray, 8), p(DestinationOffset, 8), p(Source, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyHtoA",
        3020,
        false,
        "cuMemcpyHtoA_v2",
        HostToDevice,
        &[p(DestinationArray, 8), p(DestinationOffset, 8), p(Source, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyHtoA",
        7000,
        true,
        "cuMemcpyHtoA_v2_ptds",
        HostToDevice,
        &[p(DestinationArray, 8), p(DestinationOffset, 8), p(Source, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyHtoD",
        2000,
        false,
        "cuMemcpyHtoD",
        HostToDevice,
        &[p(Destination, 4), p(Source, 8), p(Bytes, 4)],
    ),
    hook(
        "cuMemcpyHtoDAsync",
        2000,
        false,
        "cuMemcpyHtoDAsync",
        HostToDevice,
        &[p(Destination, 4), p(Source, 8), p(Bytes, 4), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyHtoDAsync",
        3020,
        false,
        "cuMemcpyHtoDAsync_v2",
        HostToDevice,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyHtoDAsync",
        7000,
        true,
        "cuMemcpyHtoDAsync_v2_ptsz",
        HostToDevice,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyHtoD",
        3020,
        false,
        "cuMemcpyHtoD_v2",
        HostToDevice,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyHtoD",
        7000,
        true,
        "cuMemcpyHtoD_v2_ptds",
        HostToDevice,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemcpyPeer",
        4000,
        false,
        "cuMemcpyPeer",
        CopyPeer,
        &[
            p(Destination, 8),
            p(DestinationContext, 8),
            p(Source, 8),
            p(SourceContext, 8),
            p(Bytes, 8),
        ],
    ),
    hook(
        "cuMemcpyPeerAsync",
        4000,
        false,
        "cuMemcpyPeerAsync",
        CopyPeer,
        &[
            p(Destination, 8),
            p(DestinationContext, 8),
            p(Source, 8),
            p(SourceContext, 8),
            p(Bytes, 8),
            p(Stream, 8),
        ],
    ),
    hook(
        "cuMemcpyPeerAsync",
        7000,
        true,
        "cuMemcpyPeerAsync_ptsz",
        CopyPeer,
        &[
            p(Destination, 8),
            p(DestinationContext, 8),
            p(Source, 8),
            p(SourceContext, 8),
            p(Bytes, 8),
            p(Stream, 8),
        ],
    ),
    hook(
        "cuMemcpyPeer",
        7000,
        true,
        "cuMemcpyPeer_ptds",
        CopyPeer,
        &[
            p(Destination, 8),
            p(DestinationContext, 8),
            p(Source, 8),
            p(SourceContext, 8),
            p(Bytes, 8),
        ],
    ),
    hook(
        "cuMemcpyWithAttributesAsync",
        13020,
        false,
        "cuMemcpyWithAttributesAsync",
        Copy,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8), p(Other, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpyWithAttributesAsync",
        13020,
        true,
        "cuMemcpyWithAttributesAsync_ptsz",
        Copy,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8), p(Other, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemcpy",
        7000,
        true,
        "cuMemcpy_ptds",
        Copy,
        &[p(Destination, 8), p(Source, 8), p(Bytes, 8)],
    ),
    hook(
        "cuMemsetD16",
        2000,
        false,
        "cuMemsetD16",
        Memset,
        &[p(Destination, 4), p(Value, 2), p(Elements, 4)],
    ),
    hook(
        "cuMemsetD16Async",
        3020,
        false,
        "cuMemsetD16Async",
        Memset,
        &[p(Destination, 8), p(Value, 2), p(Elements, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemsetD16Async",
        7000,
        true,
        "cuMemsetD16Async_ptsz",
        Memset,
        &[p(Destination, 8), p(Value, 2), p(Elements, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemsetD16",
        3020,
        false,
        "cuMemsetD16_v2",
        Memset,
        &[p(Destination, 8), p(Value, 2), p(Elements, 8)],
    ),
    hook(
        "cuMemsetD16",
        7000,
        true,
        "cuMemsetD16_v2_ptds",
        Memset,
        &[p(Destination, 8), p(Value, 2), p(Elements, 8)],
    ),
    hook(
        "cuMemsetD2D16",
        2000,
        false,
        "cuMemsetD2D16",
        Memset2d,
        &[p(Destination, 4), p(Pitch, 4), p(Value, 2), p(Width, 4), p(Height, 4)],
    ),
    hook(
        "cuMemsetD2D16Async",
        3020,
        false,
        "cuMemsetD2D16Async",
        Memset2d,
        &[p(Destination, 8), p(Pitch, 8), p(Value, 2), p(Width, 8), p(Height, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemsetD2D16Async",
        7000,
        true,
        "cuMemsetD2D16Async_ptsz",
        Memset2d,
        &[p(Destination, 8), p(Pitch, 8), p(Value, 2), p(Width, 8), p(Height, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemsetD2D16",
        3020,
        false,
        "cuMemsetD2D16_v2",
        Memset2d,
        &[p(Destination, 8), p(Pitch, 8), p(Value, 2), p(Width, 8), p(Height, 8)],
    ),
    hook(
        "cuMemsetD2D16",
        7000,
        true,
        "cuMemsetD2D16_v2_ptds",
        Memset2d,
        &[p(Destination, 8), p(Pitch, 8), p(Value, 2), p(Width, 8), p(Height, 8)],
    ),
    hook(
        "cuMemsetD2D32",
        2000,
        false,
        "cuMemsetD2D32",
        Memset2d,
        &[p(Destination, 4), p(Pitch, 4), p(Value, 4), p(Width, 4), p(Height, 4)],
    ),
    hook(
        "cuMemsetD2D32Async",
        3020,
        false,
        "cuMemsetD2D32Async",
        Memset2d,
        &[p(Destination, 8), p(Pitch, 8), p(Value, 4), p(Width, 8), p(Height, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemsetD2D32Async",
        7000,
        true,
        "cuMemsetD2D32Async_ptsz",
        Memset2d,
        &[p(Destination, 8), p(Pitch, 8), p(Value, 4), p(Width, 8), p(Height, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemsetD2D32",
        3020,
        false,
        "cuMemsetD2D32_v2",
        Memset2d,
        &[p(Destination, 8), p(Pitch, 8), p(Value, 4), p(Width, 8), p(Height, 8)],
    ),
    hook(
        "cuMemsetD2D32",
        7000,
        true,
        "cuMemsetD2D32_v2_ptds",
        Memset2d,
        &[p(Destination, 8), p(Pitch, 8), p(Value, 4), p(Width, 8), p(Height, 8)],
    ),
    hook(
        "cuMemsetD2D8",
        2000,
        false,
        "cuMemsetD2D8",
        Memset2d,
        &[p(Destination, 4), p(Pitch, 4), p(Value, 1), p(Width, 4), p(Height, 4)],
    ),
    hook(
        "cuMemsetD2D8Async",
        3020,
        false,
        "cuMemsetD2D8Async",
        Memset2d,
        &[p(Destination, 8), p(Pitch, 8), p(Value, 1), p(Width, 8), p(Height, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemsetD2D8Async",
        7000,
        true,
        "cuMemsetD2D8Async_ptsz",
        Memset2d,
        &[p(Destination, 8), p(Pitch, 8), p(Value, 1), p(Width, 8), p(Height, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemsetD2D8",
        3020,
        false,
        "cuMemsetD2D8_v2",
        Memset2d,
        &[p(Destination, 8), p(Pitch, 8), p(Value, 1), p(Width, 8), p(Height, 8)],
    ),
    hook(
        "cuMemsetD2D8",
        7000,
        true,
        "cuMemsetD2D8_v2_ptds",
        Memset2d,
        &[p(Destination, 8), p(Pitch, 8), p(Value, 1), p(Width, 8), p(Height, 8)],
    ),
    hook(
        "cuMemsetD32",
        2000,
        false,
        "cuMemsetD32",
        Memset,
        &[p(Destination, 4), p(Value, 4), p(Elements, 4)],
    ),
    hook(
        "cuMemsetD32Async",
        3020,
        false,
        "cuMemsetD32Async",
        Memset,
        &[p(Destination, 8), p(Value, 4), p(Elements, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemsetD32Async",
        7000,
        true,
        "cuMemsetD32Async_ptsz",
        Memset,
        &[p(Destination, 8), p(Value, 4), p(Elements, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemsetD32",
        3020,
        false,
        "cuMemsetD32_v2",
        Memset,
        &[p(Destination, 8), p(Value, 4), p(Elements, 8)],
    ),
    hook(
        "cuMemsetD32",
        7000,
        true,
        "cuMemsetD32_v2_ptds",
        Memset,
        &[p(Destination, 8), p(Value, 4), p(Elements, 8)],
    ),
    hook(
        "cuMemsetD8",
        2000,
        false,
        "cuMemsetD8",
        Memset,
        &[p(Destination, 4), p(Value, 1), p(Elements, 4)],
    ),
    hook(
        "cuMemsetD8Async",
        3020,
        false,
        "cuMemsetD8Async",
        Memset,
        &[p(Destination, 8), p(Value, 1), p(Elements, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemsetD8Async",
        7000,
        true,
        "cuMemsetD8Async_ptsz",
        Memset,
        &[p(Destination, 8), p(Value, 1), p(Elements, 8), p(Stream, 8)],
    ),
    hook(
        "cuMemsetD8",
        3020,
        false,
        "cuMemsetD8_v2",
        Memset,
        &[p(Destination, 8), p(Value, 1), p(Elements, 8)],
    ),
    hook(
        "cuMemsetD8",
        7000,
        true,
        "cuMemsetD8_v2_ptds",
        Memset,
        &[p(Destination, 8), p(Value, 1), p(Elements, 8)],
    ),
    hook("cuProfilerStart", 4000, false, "cuProfilerStart", RangeBegin, &[]),
    hook("cuProfilerStop", 4000, false, "cuProfilerStop", RangeEnd, &[]),
    hook(
        "cuStreamAddCallback",
        5000,
        false,
        "cuStreamAddCallback",
        HostCallback,
        &[p(Stream, 8), p(HostFunction, 8), p(UserData, 8), p(Flags, 4)],
    ),
    hook(
        "cuStreamAddCallback",
        7000,
        true,
        "cuStreamAddCallback_ptsz",
        HostCallback,
        &[p(Stream, 8), p(HostFunction, 8), p(UserData, 8), p(Flags, 4)],
    ),
    hook(
        "cuStreamBeginCapture",
        10000,
        false,
        "cuStreamBeginCapture",
        CaptureBegin,
        &[p(Stream, 8)],
    ),
    hook(
        "cuStreamBeginCaptureToCig",
        13010,
        false,
        "cuStreamBeginCaptureToCig",
        CaptureBegin,
        &[p(Stream, 8), p(Other, 8)],
    ),
    hook(
        "cuStreamBeginCaptureToCig",
        13010,
        true,
        "cuStreamBeginCaptureToCig_ptsz",
        CaptureBegin,
        &[p(Stream, 8), p(Other, 8)],
    ),
    hook(
        "cuStreamBeginCaptureToGraph",
        12030,
        false,
        "cuStreamBeginCaptureToGraph",
        CaptureBegin,
        &[p(Stream, 8), p(Graph, 8), p(Other, 8), p(Other, 8), p(Other, 8), p(Mode, 4)],
    ),
    hook(
        "cuStreamBeginCaptureToGraph",
        12030,
        true,
        "cuStreamBeginCaptureToGraph_ptsz",
        CaptureBegin,
        &[p(Stream, 8), p(Graph, 8), p(Other, 8), p(Other, 8), p(Other, 8), p(Mode, 4)],
    ),
    hook(
        "cuStreamBeginCapture",
        10000,
        true,
        "cuStreamBeginCapture_ptsz",
        CaptureBegin,
        &[p(Stream, 8)],
    ),
    hook(
        "cuStreamBeginCapture",
        10010,
        false,
        "cuStreamBeginCapture_v2",
        CaptureBegin,
        &[p(Stream, 8), p(Mode, 4)],
    ),
    hook(
        "cuStreamBeginCapture",
        10010,
        true,
        "cuStreamBeginCapture_v2_ptsz",
        CaptureBegin,
        &[p(Stream, 8), p(Mode, 4)],
    ),
    hook(
        "cuStreamBeginRecaptureToGraph",
        13030,
        false,
        "cuStreamBeginRecaptureToGraph",
        CaptureBegin,
        &[p(Stream, 8), p(Mode, 4), p(Graph, 8), p(Other, 8), p(UserData, 8)],
    ),
    hook(
        "cuStreamBeginRecaptureToGraph",
        13030,
        true,
        "cuStreamBeginRecaptureToGraph_ptsz",
        CaptureBegin,
        &[p(Stream, 8), p(Mode, 4), p(Graph, 8), p(Other, 8), p(UserData, 8)],
    ),
    hook("cuStreamDestroy", 2000, false, "cuStreamDestroy", StreamEnd, &[p(Stream, 8)]),
    hook("cuStreamDestroy", 4000, false, "cuStreamDestroy_v2", StreamEnd, &[p(Stream, 8)]),
    hook(
        "cuStreamEndCapture",
        10000,
        false,
        "cuStreamEndCapture",
        CaptureEnd,
        &[p(Stream, 8), p(GraphOut, 8)],
    ),
    hook(
        "cuStreamEndCaptureToCig",
        13010,
        false,
        "cuStreamEndCaptureToCig",
        CaptureEnd,
        &[p(Stream, 8)],
    ),
    hook(
        "cuStreamEndCaptureToCig",
        13010,
        true,
        "cuStreamEndCaptureToCig_ptsz",
        CaptureEnd,
        &[p(Stream, 8)],
    ),
    hook(
        "cuStreamEndCapture",
        10000,
        true,
        "cuStreamEndCapture_ptsz",
        CaptureEnd,
        &[p(Stream, 8), p(GraphOut, 8)],
    ),
    hook("cuStreamQuery", 2000, false, "cuStreamQuery", Query, &[p(Stream, 8)]),
    hook("cuStreamQuery", 7000, true, "cuStreamQuery_ptsz", Query, &[p(Stream, 8)]),
    hook(
        "cuStreamSynchronize",
        2000,
        false,
        "cuStreamSynchronize",
        StreamSynchronize,
        &[p(Stream, 8)],
    ),
    hook(
        "cuStreamSynchronize",
        7000,
        true,
        "cuStreamSynchronize_ptsz",
        StreamSynchronize,
        &[p(Stream, 8)],
    ),
    hook(
        "cuStreamWaitEvent",
        3020,
        false,
        "cuStreamWaitEvent",
        StreamWait,
        &[p(Stream, 8), p(Event, 8), p(Flags, 4)],
    ),
    hook(
        "cuStreamWaitEvent",
        7000,
        true,
        "cuStreamWaitEvent_ptsz",
        StreamWait,
        &[p(Stream, 8), p(Event, 8), p(Flags, 4)],
    ),
];

/// Gives a macro the number and the symbol of every row: `$then! { 0 cuCtxDestroy … }`.
#[macro_export]
macro_rules! each_hook {
    ($then:ident) => {
        $then! {
                    0 cuCtxDestroy
                    1 cuCtxDestroy_v2
                    2 cuCtxDetach
                    3 cuCtxSynchronize
                    4 cuCtxSynchronize_v2
                    5 cuDevicePrimaryCtxRelease
                    6 cuDevicePrimaryCtxRelease_v2
                    7 cuDevicePrimaryCtxReset
                    8 cuDevicePrimaryCtxReset_v2
                    9 cuEventDestroy
                    10 cuEventDestroy_v2
                    11 cuEventQuery
                    12 cuEventRecord
                    13 cuEventRecordWithFlags
                    14 cuEventRecordWithFlags_ptsz
                    15 cuEventRecord_ptsz
                    16 cuEventSynchronize
                    17 cuGetProcAddress
                    18 cuGetProcAddress_v2
                    19 cuGraphExecBatchMemOpNodeSetParams
                    20 cuGraphExecChildGraphNodeSetParams
                    21 cuGraphExecDestroy
                    22 cuGraphExecEventRecordNodeSetEvent
                    23 cuGraphExecEventWaitNodeSetEvent
                    24 cuGraphExecExternalSemaphoresSignalNodeSetParams
                    25 cuGraphExecExternalSemaphoresWaitNodeSetParams
                    26 cuGraphExecHostNodeSetParams
                    27 cuGraphExecKernelNodeSetParams
                    28 cuGraphExecKernelNodeSetParams_v2
                    29 cuGraphExecMemcpyNodeSetParams
                    30 cuGraphExecMemsetNodeSetParams
                    31 cuGraphExecNodeSetParams
                    32 cuGraphExecUpdate
                    33 cuGraphExecUpdate_v2
                    34 cuGraphInstantiate
                    35 cuGraphInstantiateWithFlags
                    36 cuGraphInstantiateWithParams
                    37 cuGraphInstantiateWithParams_ptsz
                    38 cuGraphInstantiate_v2
                    39 cuGraphLaunch
                    40 cuGraphLaunch_ptsz
                    41 cuGraphNodeSetEnabled
                    42 cuGraphUpload
                    43 cuGraphUpload_ptsz
                    44 cuLaunch
                    45 cuLaunchCooperativeKernel
                    46 cuLaunchCooperativeKernelMultiDevice
                    47 cuLaunchCooperativeKernel_ptsz
                    48 cuLaunchGrid
                    49 cuLaunchGridAsync
                    50 cuLaunchHostFunc
                    51 cuLaunchHostFunc_ptsz
                    52 cuLaunchHostFunc_v2
                    53 cuLaunchHostFunc_v2_ptsz
                    54 cuLaunchKernel
                    55 cuLaunchKernelEx
                    56 cuLaunchKernelEx_ptsz
                    57 cuLaunchKernel_ptsz
                    58 cuMemAlloc
                    59 cuMemAllocAsync
                    60 cuMemAllocAsync_ptsz
                    61 cuMemAllocFromPoolAsync
                    62 cuMemAllocFromPoolAsync_ptsz
                    63 cuMemAllocHost
                    64 cuMemAllocHost_v2
                    65 cuMemAllocManaged
                    66 cuMemAllocPitch
                    67 cuMemAllocPitch_v2
                    68 cuMemAlloc_v2
                    69 cuMemDiscardAndPrefetchBatchAsync
                    70 cuMemDiscardAndPrefetchBatchAsync_ptsz
                    71 cuMemFree
                    72 cuMemFreeAsync
                    73 cuMemFreeAsync_ptsz
                    74 cuMemFreeHost
                    75 cuMemFree_v2
                    76 cuMemHostAlloc
                    77 cuMemHostGetDevicePointer
                    78 cuMemHostGetDevicePointer_v2
                    79 cuMemHostRegister
                    80 cuMemHostRegister_v2
                    81 cuMemHostUnregister
                    82 cuMemPrefetchAsync
                    83 cuMemPrefetchAsync_ptsz
                    84 cuMemPrefetchAsync_v2
                    85 cuMemPrefetchAsync_v2_ptsz
                    86 cuMemPrefetchBatchAsync
                    87 cuMemPrefetchBatchAsync_ptsz
                    88 cuMemcpy
                    89 cuMemcpy2D
                    90 cuMemcpy2DAsync
                    91 cuMemcpy2DAsync_v2
                    92 cuMemcpy2DAsync_v2_ptsz
                    93 cuMemcpy2DUnaligned
                    94 cuMemcpy2DUnaligned_v2
                    95 cuMemcpy2DUnaligned_v2_ptds
                    96 cuMemcpy2D_v2
                    97 cuMemcpy2D_v2_ptds
                    98 cuMemcpy3D
                    99 cuMemcpy3DAsync
                    100 cuMemcpy3DAsync_v2
                    101 cuMemcpy3DAsync_v2_ptsz
                    102 cuMemcpy3DBatchAsync
                    103 cuMemcpy3DBatchAsync_ptsz
                    104 cuMemcpy3DBatchAsync_v2
                    105 cuMemcpy3DBatchAsync_v2_ptsz
                    106 cuMemcpy3DPeer
                    107 cuMemcpy3DPeerAsync
                    108 cuMemcpy3DPeerAsync_ptsz
                    109 cuMemcpy3DPeer_ptds
                    110 cuMemcpy3DWithAttributesAsync
                    111 cuMemcpy3DWithAttributesAsync_ptsz
                    112 cuMemcpy3D_v2
                    113 cuMemcpy3D_v2_ptds
                    114 cuMemcpyAsync
                    115 cuMemcpyAsync_ptsz
                    116 cuMemcpyAtoA
                    117 cuMemcpyAtoA_v2
                    118 cuMemcpyAtoA_v2_ptds
                    119 cuMemcpyAtoD
                    120 cuMemcpyAtoD_v2
                    121 cuMemcpyAtoD_v2_ptds
                    122 cuMemcpyAtoH
                    123 cuMemcpyAtoHAsync
                    124 cuMemcpyAtoHAsync_v2
                    125 cuMemcpyAtoHAsync_v2_ptsz
                    126 cuMemcpyAtoH_v2
                    127 cuMemcpyAtoH_v2_ptds
                    128 cuMemcpyBatchAsync
                    129 cuMemcpyBatchAsync_ptsz
                    130 cuMemcpyBatchAsync_v2
                    131 cuMemcpyBatchAsync_v2_ptsz
                    132 cuMemcpyDtoA
                    133 cuMemcpyDtoA_v2
                    134 cuMemcpyDtoA_v2_ptds
                    135 cuMemcpyDtoD
                    136 cuMemcpyDtoDAsync
                    137 cuMemcpyDtoDAsync_v2
                    138 cuMemcpyDtoDAsync_v2_ptsz
                    139 cuMemcpyDtoD_v2
                    140 cuMemcpyDtoD_v2_ptds
                    141 cuMemcpyDtoH
                    142 cuMemcpyDtoHAsync
                    143 cuMemcpyDtoHAsync_v2
                    144 cuMemcpyDtoHAsync_v2_ptsz
                    145 cuMemcpyDtoH_v2
                    146 cuMemcpyDtoH_v2_ptds
                    147 cuMemcpyHtoA
                    148 cuMemcpyHtoAAsync
                    149 cuMemcpyHtoAAsync_v2
                    150 cuMemcpyHtoAAsync_v2_ptsz
                    151 cuMemcpyHtoA_v2
                    152 cuMemcpyHtoA_v2_ptds
                    153 cuMemcpyHtoD
                    154 cuMemcpyHtoDAsync
                    155 cuMemcpyHtoDAsync_v2
                    156 cuMemcpyHtoDAsync_v2_ptsz
                    157 cuMemcpyHtoD_v2
                    158 cuMemcpyHtoD_v2_ptds
                    159 cuMemcpyPeer
                    160 cuMemcpyPeerAsync
                    161 cuMemcpyPeerAsync_ptsz
                    162 cuMemcpyPeer_ptds
                    163 cuMemcpyWithAttributesAsync
                    164 cuMemcpyWithAttributesAsync_ptsz
                    165 cuMemcpy_ptds
                    166 cuMemsetD16
                    167 cuMemsetD16Async
                    168 cuMemsetD16Async_ptsz
                    169 cuMemsetD16_v2
                    170 cuMemsetD16_v2_ptds
                    171 cuMemsetD2D16
                    172 cuMemsetD2D16Async
                    173 cuMemsetD2D16Async_ptsz
                    174 cuMemsetD2D16_v2
                    175 cuMemsetD2D16_v2_ptds
                    176 cuMemsetD2D32
                    177 cuMemsetD2D32Async
                    178 cuMemsetD2D32Async_ptsz
                    179 cuMemsetD2D32_v2
                    180 cuMemsetD2D32_v2_ptds
                    181 cuMemsetD2D8
                    182 cuMemsetD2D8Async
                    183 cuMemsetD2D8Async_ptsz
                    184 cuMemsetD2D8_v2
                    185 cuMemsetD2D8_v2_ptds
                    186 cuMemsetD32
                    187 cuMemsetD32Async
                    188 cuMemsetD32Async_ptsz
                    189 cuMemsetD32_v2
                    190 cuMemsetD32_v2_ptds
                    191 cuMemsetD8
                    192 cuMemsetD8Async
                    193 cuMemsetD8Async_ptsz
                    194 cuMemsetD8_v2
                    195 cuMemsetD8_v2_ptds
                    196 cuProfilerStart
                    197 cuProfilerStop
                    198 cuStreamAddCallback
                    199 cuStreamAddCallback_ptsz
                    200 cuStreamBeginCapture
                    201 cuStreamBeginCaptureToCig
                    202 cuStreamBeginCaptureToCig_ptsz
                    203 cuStreamBeginCaptureToGraph
                    204 cuStreamBeginCaptureToGraph_ptsz
                    205 cuStreamBeginCapture_ptsz
                    206 cuStreamBeginCapture_v2
                    207 cuStreamBeginCapture_v2_ptsz
                    208 cuStreamBeginRecaptureToGraph
                    209 cuStreamBeginRecaptureToGraph_ptsz
                    210 cuStreamDestroy
                    211 cuStreamDestroy_v2
                    212 cuStreamEndCapture
                    213 cuStreamEndCaptureToCig
                    214 cuStreamEndCaptureToCig_ptsz
                    215 cuStreamEndCapture_ptsz
                    216 cuStreamQuery
                    217 cuStreamQuery_ptsz
                    218 cuStreamSynchronize
                    219 cuStreamSynchronize_ptsz
                    220 cuStreamWaitEvent
                    221 cuStreamWaitEvent_ptsz
        }
    };
}
