// What the stand-in does as the driver does: errors, streams' order, captures, and when things end.
// Times are virtual, so they are exact. Prints a line for each thing that is wrong, and "done".

#include "cuda.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

int cuCtxGetCurrent(handle *);
int cuCtxCreate_v2(handle *, unsigned, int);
int cuCtxDestroy_v2(handle);
int cuGraphGetNodes(handle, handle *, size_t *);
int cuGraphNodeGetDependencies(handle, handle *, size_t *);
int cuGraphExecUpdate_v2(handle, handle, void *);
int cuStreamIsCapturing(handle, int *);
int cuLaunchKernel_ptsz(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, handle, void **, void **);
uint64_t standInNow(void);
int standInAdvanceCpu(uint64_t);
uint64_t standInStreamEnd(handle);

#define LAUNCH(kernel, stream)                                                                     \
    OK(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, (handle)(stream), NULL, NULL)

static handle context, module, us10, us50;

static handle new_stream(unsigned flags) {
    handle stream;
    OK(cuStreamCreate, &stream, flags);
    return stream;
}

static void errors(void) {
    handle current, made;
    address p;
    static char bytes[16];
    GIVES(3, cuCtxSynchronize());
    GIVES(1, cuInit(7));
    OK(cuInit, 0);
    OK(cuInit, 0);
    GIVES(201, cuCtxSynchronize());
    GIVES(201, cuMemAlloc_v2(&p, 16));
    GIVES(101, cuDeviceGet(&(int){0}, 2));
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
    GIVES(200, cuModuleLoadData(&module, "invalid image"));
    OK(cuModuleLoadData, &module, "kernels");
    GIVES(500, cuModuleGetFunction(&us10, module, ""));
    OK(cuModuleGetFunction, &us10, module, "last_10us");
    OK(cuModuleGetFunction, &us50, module, "last_50us");
    GIVES(2, cuMemAlloc_v2(&p, (size_t)200 << 30));
    GIVES(1, cuMemAlloc_v2(&p, 0));
    OK(cuMemAlloc_v2, &p, 16);
    GIVES(1, cuMemcpyHtoD_v2(p, bytes, 17));
    GIVES(1, cuMemcpyHtoD_v2((address)(uintptr_t)bytes, bytes, 16));
    GIVES(1, cuMemcpyDtoH_v2(bytes, (address)(uintptr_t)bytes, 16));
    GIVES(1, cuMemsetD32_v2(p + 2, 0, 1));
    GIVES(1, cuMemFree_v2(p + 8));
    OK(cuMemFree_v2, p);
    GIVES(1, cuMemFree_v2(p));
    GIVES(713, cuMemHostUnregister(bytes));
    GIVES(400, cuStreamSynchronize((handle)(uintptr_t)77));
    GIVES(400, cuEventSynchronize((handle)(uintptr_t)77));
    GIVES(1, cuLaunchKernel(us10, 1, 1, 1, 2000, 1, 1, 0, NULL, NULL, NULL));
    GIVES(400, cuLaunchKernel((handle)(uintptr_t)77, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuCtxCreate_v2, &made, 0, 1);
    OK(cuCtxGetCurrent, &current);
    CHECK(current == made);
    OK(cuCtxDestroy_v2, made);
    OK(cuCtxSetCurrent, context);
}

static void order(void) {
    handle one = new_stream(0), two = new_stream(0), apart = new_stream(1), event;
    OK(cuCtxSynchronize);
    // A launch costs 2 us, and the device begins 1 us later: kernels of two streams overlap.
    uint64_t start = standInNow();
    LAUNCH(us50, one);
    LAUNCH(us50, two);
    CHECK(standInStreamEnd(one) == start + 2000 + 1000 + 50000);
    CHECK(standInStreamEnd(two) == start + 4000 + 1000 + 50000);
    // The legacy stream comes behind both, and a blocking stream behind it; another does not.
    LAUNCH(us10, NULL);
    CHECK(standInStreamEnd(NULL) == start + 55000 + 10000);
    LAUNCH(us10, one);
    CHECK(standInStreamEnd(one) == start + 65000 + 10000);
    LAUNCH(us10, apart);
    CHECK(standInStreamEnd(apart) == start + 10000 + 1000 + 10000);
    GIVES(600, cuStreamQuery(one));
    OK(cuStreamSynchronize, one);
    CHECK(standInNow() == start + 75000);
    OK(cuStreamQuery, one);
    // An event carries one stream's end to another.
    OK(cuEventCreate, &event, 2);
    LAUNCH(us50, apart);
    OK(cuEventRecord, event, apart);
    GIVES(600, cuEventQuery(event));
    OK(cuStreamWaitEvent, two, event, 0);
    LAUNCH(us10, two);
    CHECK(standInStreamEnd(two) == standInStreamEnd(apart) + 10000);
    OK(cuEventSynchronize, event);
    CHECK(standInNow() == standInStreamEnd(apart));
    // Work that the host does hides what the device does.
    OK(cuCtxSynchronize);
    start = standInNow();
    LAUNCH(us10, apart);
    standInAdvanceCpu(100000);
    OK(cuStreamSynchronize, apart);
    CHECK(standInNow() == start + 2000 + 100000 + 500);
    float milliseconds;
    GIVES(400, cuEventElapsedTime(&milliseconds, event, event));
}

static void engines(void) {
    enum { BYTES = 1120000 }; // 100 us to the device, and 1 us to begin
    handle one = new_stream(1), two = new_stream(1);
    void *pinned, *pageable = malloc(BYTES);
    address p;
    OK(cuMemAllocHost_v2, &pinned, BYTES);
    OK(cuMemAlloc_v2, &p, BYTES);
    OK(cuCtxSynchronize);
    uint64_t start = standInNow();
    OK(cuMemcpyHtoDAsync_v2, p, pinned, BYTES, one);
    CHECK(standInNow() == start + 2000);
    CHECK(standInStreamEnd(one) == start + 3000 + 101000);
    // One engine for each direction: the second copy waits, one back does not, nor does a kernel.
    OK(cuMemcpyHtoDAsync_v2, p, pinned, BYTES, two);
    CHECK(standInStreamEnd(two) == standInStreamEnd(one) + 101000);
    handle three = new_stream(1);
    start = standInNow();
    OK(cuMemcpyDtoHAsync_v2, pinned, p, BYTES, three);
    CHECK(standInStreamEnd(three) == start + 3000 + 1000 + 89600);
    LAUNCH(us10, new_stream(1));
    OK(cuCtxSynchronize);
    // Much pageable memory is waited for.
    start = standInNow();
    OK(cuMemcpyHtoDAsync_v2, p, pageable, BYTES, one);
    CHECK(standInNow() == start + 3000 + 101000);
    OK(cuMemcpyHtoDAsync_v2, p, pageable, 1024, one);
    CHECK(standInNow() == start + 3000 + 101000 + 2000);
    OK(cuMemFree_v2, p);
    free(pageable);
}

static void host_function(void *data) {
    *(int *)data = cuCtxGetCurrent(&(handle){0});
    standInAdvanceCpu(20000);
}

static void callbacks(void) {
    handle stream = new_stream(1);
    int answer = 0;
    uint64_t start = standInNow();
    OK(cuLaunchHostFunc, stream, host_function, &answer);
    CHECK(answer == 800);
    CHECK(standInNow() == start + 2000);
    LAUNCH(us10, stream);
    CHECK(standInStreamEnd(stream) == start + 2000 + 1000 + 3000 + 20000 + 10000);
}

static void captures(void) {
    handle one = new_stream(0), two = new_stream(1), graph, executable, event, nodes[8];
    size_t count = 8, before = 8;
    int status = 9;
    OK(cuEventCreate, &event, 0);
    // A fork and a join: one kernel, two beside each other, and one.
    OK(cuStreamBeginCapture_v2, one, 0);
    LAUNCH(us10, one);
    OK(cuEventRecord, event, one);
    OK(cuStreamWaitEvent, two, event, 0);
    LAUNCH(us50, two);
    LAUNCH(us50, one);
    OK(cuStreamIsCapturing, two, &status);
    CHECK(status == 1);
    GIVES(907, cuEventSynchronize(event));
    OK(cuEventRecord, event, two);
    OK(cuStreamWaitEvent, one, event, 0);
    LAUNCH(us10, one);
    OK(cuStreamEndCapture, one, &graph);
    OK(cuGraphGetNodes, graph, nodes, &count);
    CHECK(count == 4);
    OK(cuGraphNodeGetDependencies, nodes[3], nodes + 4, &before);
    CHECK(before == 2);
    OK(cuGraphInstantiateWithFlags, &executable, graph, 0);
    OK(cuCtxSynchronize);
    uint64_t start = standInNow();
    OK(cuGraphLaunch, executable, one);
    CHECK(standInStreamEnd(one) == start + 2000 + 1000 + 10000 + 50000 + 10000);
    OK(cuStreamIsCapturing, two, &status);
    CHECK(status == 0);
    // The same shape takes over other kernels, another is refused.
    uint64_t info[3];
    handle other;
    OK(cuStreamBeginCapture_v2, two, 0);
    LAUNCH(us50, two);
    OK(cuStreamEndCapture, two, &other);
    GIVES(910, cuGraphExecUpdate_v2(executable, other, info));
    // What is not allowed ends the capture.
    OK(cuStreamBeginCapture_v2, two, 0);
    LAUNCH(us10, two);
    GIVES(900, cuStreamSynchronize(two));
    GIVES(901, cuLaunchKernel(us10, 1, 1, 1, 1, 1, 1, 0, two, NULL, NULL));
    GIVES(901, cuStreamEndCapture(two, &other));
    LAUNCH(us10, two);
    OK(cuStreamBeginCapture_v2, one, 0);
    GIVES(906, cuLaunchKernel(us10, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    GIVES(901, cuStreamEndCapture(one, &other));
    OK(cuStreamBeginCapture_v2, one, 0);
    LAUNCH(us10, one);
    OK(cuEventRecord, event, one);
    OK(cuStreamWaitEvent, two, event, 0);
    LAUNCH(us10, two);
    GIVES(903, cuStreamEndCapture(two, &other));
    GIVES(904, cuStreamEndCapture(one, &other));
    GIVES(900, cuStreamBeginCapture_v2(NULL, 0));
}

static void *own_streams(void *end) {
    OK(cuCtxSetCurrent, context);
    GIVES(0, cuLaunchKernel_ptsz(us50, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    *(uint64_t *)end = standInStreamEnd((handle)(uintptr_t)2);
    return NULL;
}

static void threads_and_processes(void) {
    // Each thread has a default stream of its own, and a clock that begins at the latest time.
    OK(cuCtxSynchronize);
    uint64_t start = standInNow(), end = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, own_streams, &end) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(end == start + 200 + 2000 + 1000 + 50000);
    CHECK(standInNow() == start);
    // A child has no driver that its parent initialised.
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(cuCtxSynchronize() == 3 && cuInit(0) == 3 ? 0 : 1);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(cuCtxSynchronize);
}

int main(void) {
    bind_driver();
    errors();
    order();
    engines();
    callbacks();
    captures();
    threads_and_processes();
    puts("done");
    return failures != 0;
}
