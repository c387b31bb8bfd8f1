// Every kind of work that a program gives a GPU, and whether the bytes are right in the end.
// BINDING says how it gets to the driver. Prints a line for each thing that is wrong, and "done".

#include "cuda.h"

enum { N = 1024, BYTES = N * sizeof(uint32_t) };

static uint32_t there[N], back[N];

static int is(uint32_t value, int first, int count) {
    for (int i = first; i < first + count; i++)
        if (back[i] != value) return 0;
    return 1;
}

static int is_there(void) { return memcmp(there, back, BYTES) == 0; }

static void host_function(void *count) { ++*(int *)count; }

static void stream_callback(handle stream, int status, void *count) {
    (void)stream;
    CHECK(status == 0);
    ++*(int *)count;
}

static void copies(address p, address q, handle stream) {
    OK(cuMemcpyHtoD_v2, p, there, BYTES);
    OK(cuMemcpyDtoH_v2, back, p, BYTES);
    CHECK(is_there());
    OK(cuMemsetD8_v2, q, 0x11, BYTES);
    OK(cuMemcpyHtoDAsync_v2, q, there, BYTES / 2, stream);
    OK(cuMemcpyDtoHAsync_v2, back, q, BYTES, stream);
    OK(cuStreamSynchronize, stream);
    CHECK(back[N / 2 - 1] == there[N / 2 - 1] && is(0x11111111, N / 2, N / 2));
    OK(cuMemcpyDtoD_v2, q, p, BYTES);
    OK(cuMemcpy, (address)(uintptr_t)back, q, BYTES);
    CHECK(is_there());
    OK(cuMemsetD32_v2, q, 7, N);
    OK(cuMemcpyDtoDAsync_v2, p + BYTES / 2, q, BYTES / 2, stream);
    OK(cuMemcpyAsync, (address)(uintptr_t)back, p, BYTES, stream);
    OK(cuStreamSynchronize, stream);
    CHECK(back[1] == there[1] && is(7, N / 2, N / 2));
}

static void shaped_copies(address p, handle stream) {
    // 4 lines of 8 words, of a matrix of 16 words a line, to lines of 32 words.
    struct copy2d lines = {.from = {.kind = HOST, .host = there, .pitch = 64},
                           .to = {.kind = DEVICE, .device = p, .pitch = 128},
                           .width = 32,
                           .height = 4};
    OK(cuMemsetD8_v2, p, 0, BYTES);
    OK(cuMemcpy2D_v2, &lines);
    OK(cuMemcpyDtoH_v2, back, p, BYTES);
    CHECK(back[0] == there[0] && back[32 + 7] == there[16 + 7] && back[3 * 32] == there[3 * 16]);
    CHECK(back[8] == 0 && back[4 * 32] == 0);
    lines.to.x = 4;
    OK(cuMemcpy2DAsync_v2, &lines, stream);
    OK(cuStreamSynchronize, stream);
    OK(cuMemcpyDtoH_v2, back, p, BYTES);
    CHECK(back[1] == there[0] && back[32 + 8] == there[16 + 7]);
    struct copy3d layers = {.from = {.kind = UNIFIED, .device = p, .pitch = 128, .height = 2},
                            .to = {.kind = HOST, .host = back, .pitch = 8, .height = 1},
                            .width = 8,
                            .height = 1,
                            .depth = 2};
    memset(back, 0, BYTES);
    OK(cuMemcpy3D_v2, &layers);
    CHECK(back[1] == there[0] && back[3] == there[2 * 16] && back[4] == 0);
}

static void several_copies(address p, address q, handle stream) {
    address to[2] = {p, p + BYTES / 2}, from[2] = {q, q};
    size_t sizes[2] = {BYTES / 2, BYTES / 2}, attribute = 0, failed = 9;
    uint64_t attributes[8] = {1};
    OK(cuMemsetD32_v2, q, 9, N);
    OK(cuMemcpyBatchAsync, to, from, sizes, 2, attributes, &attribute, 1, &failed, stream);
    OK(cuMemcpyDtoHAsync_v2, back, p, BYTES, stream);
    OK(cuStreamSynchronize, stream);
    CHECK(is(9, 0, N));
    address managed;
    OK(cuMemAllocManaged, &managed, BYTES, 1);
    memcpy((void *)(uintptr_t)managed, there, BYTES);
    OK(cuMemPrefetchAsync_v2, managed, BYTES, (struct location){1, 0}, 0, stream);
    OK(cuMemcpyDtoH_v2, back, managed, BYTES);
    CHECK(is_there());
    OK(cuMemFree_v2, managed);
    address ordered;
    OK(cuMemAllocAsync, &ordered, BYTES, stream);
    OK(cuMemsetD8Async, ordered, 1, BYTES, stream);
    OK(cuMemsetD2D32Async, ordered, 8, 2, 1, 3, stream);
    OK(cuMemcpyDtoHAsync_v2, back, ordered, BYTES, stream);
    OK(cuMemFreeAsync, ordered, stream);
    OK(cuStreamSynchronize, stream);
    CHECK(back[0] == 2 && back[1] == 0x01010101 && back[4] == 2 && back[6] == 0x01010101);
}

static void launches(handle kernel, handle stream) {
    uint32_t value = 5;
    void *parameters[] = {&value};
    for (int i = 0; i < 3; i++)
        OK(cuLaunchKernel, kernel, 2, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
    struct config config = {.grid = {4, 1, 1}, .block = {8, 1, 1}, .stream = stream};
    OK(cuLaunchKernelEx, &config, kernel, parameters, NULL);
    OK(cuLaunchCooperativeKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters);
    OK(cuLaunchGridAsync, kernel, 2, 2, stream);
    OK(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    OK(cuCtxSynchronize);
}

static void events(handle kernel, handle stream, handle other) {
    handle first, last;
    float milliseconds = 0;
    OK(cuEventCreate, &first, 0);
    OK(cuEventCreate, &last, 0);
    OK(cuEventRecord, first, stream);
    OK(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    OK(cuEventRecord, last, stream);
    OK(cuStreamWaitEvent, other, last, 0);
    OK(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, other, NULL, NULL);
    OK(cuEventSynchronize, last);
    OK(cuEventQuery, last);
    OK(cuEventElapsedTime, &milliseconds, first, last);
    CHECK(milliseconds >= 0.0099f);
    OK(cuStreamSynchronize, other);
    OK(cuStreamQuery, other);
    int calls = 0;
    OK(cuLaunchHostFunc, stream, host_function, &calls);
    OK(cuStreamAddCallback, stream, stream_callback, &calls, 0);
    OK(cuStreamSynchronize, stream);
    CHECK(calls == 2);
}

static void graphs(handle kernel, address p, handle stream) {
    handle graph, executable, node;
    OK(cuStreamBeginCapture_v2, stream, 0);
    OK(cuMemcpyHtoDAsync_v2, p, there, BYTES, stream);
    OK(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    OK(cuMemcpyDtoHAsync_v2, back, p, BYTES, stream);
    OK(cuStreamEndCapture, stream, &graph);
    OK(cuGraphInstantiateWithFlags, &executable, graph, 0);
    memset(back, 0, BYTES);
    OK(cuGraphLaunch, executable, stream);
    OK(cuStreamSynchronize, stream);
    CHECK(is_there());
    OK(cuGraphExecDestroy, executable);
    OK(cuGraphDestroy, graph);
    OK(cuGraphCreate, &graph, 0);
    struct kernel_node what = {.function = kernel, .grid = {1, 1, 1}, .block = {1, 1, 1}};
    OK(cuGraphAddKernelNode_v2, &node, graph, NULL, 0, &what);
    OK(cuGraphInstantiateWithFlags, &executable, graph, 0);
    OK(cuGraphLaunch, executable, stream);
    OK(cuGraphLaunch, executable, stream);
    OK(cuStreamSynchronize, stream);
}

int main(void) {
    bind_driver();
    for (uint32_t i = 0; i < N; i++) there[i] = 0x01000000 + i;
    int device, count;
    handle context, module, kernel, stream, other;
    address p, q;
    OK(cuInit, 0);
    OK(cuDeviceGetCount, &count);
    OK(cuDeviceGet, &device, 0);
    OK(cuDevicePrimaryCtxRetain, &context, device);
    OK(cuCtxSetCurrent, context);
    OK(cuModuleLoadData, &module, "kernels");
    OK(cuModuleGetFunction, &kernel, module, "last_10us");
    OK(cuStreamCreate, &stream, 0);
    OK(cuStreamCreate, &other, 1);
    OK(cuMemAlloc_v2, &p, BYTES);
    OK(cuMemAlloc_v2, &q, BYTES);
    OK(cuMemHostRegister_v2, there, BYTES, 0);
    void *pinned;
    OK(cuMemAllocHost_v2, &pinned, BYTES);
    OK(cuMemFreeHost, pinned);
    copies(p, q, stream);
    shaped_copies(p, stream);
    several_copies(p, q, stream);
    launches(kernel, stream);
    events(kernel, stream, other);
    graphs(kernel, p, stream);
    GIVES(400, CALL(cuStreamSynchronize)((handle)(uintptr_t)0x123456));
    OK(cuMemHostUnregister, there);
    OK(cuMemFree_v2, p);
    OK(cuMemFree_v2, q);
    OK(cuStreamDestroy_v2, stream);
    OK(cuDevicePrimaryCtxRelease_v2, device);
    puts("done");
    return failures != 0;
}
