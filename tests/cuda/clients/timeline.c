// One kind of work over and over, for its place on the timeline. Arguments: the kind, how often.
// Prints how long it took in all, in nanoseconds of virtual time.

#include "cuda.h"

#include <unistd.h>

enum { BYTES = 1 << 20 };

static void nothing(void *data) { (void)data; }

int main(int count, char **arguments) {
    if (count != 3) return 2;
    const char *kind = arguments[1];
    int times = atoi(arguments[2]);
    bind_driver();
    handle kernel, one, two, graph, executable;
    address there;
    void *pinned;
    OK(cuInit, 0);
    kernel = a_kernel();
    OK(cuStreamCreate, &one, 1);
    OK(cuStreamCreate, &two, 1);
    OK(cuMemAlloc_v2, &there, BYTES);
    OK(cuMemAllocHost_v2, &pinned, BYTES);
    uint64_t (*now)(void) = (uint64_t (*)(void))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "standInNow");
#define LAUNCH(stream) OK(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL)
    // The first delay loads its kernel, which takes time of its own.
    LAUNCH(one);
    OK(cuStreamSynchronize, one);
    if (!strcmp(kind, "open")) {
        // A range that the program ends in, without a wait.
        OK(cuProfilerStart);
        for (int i = 0; i < times; i++) {
            usleep(2000);
            OK(cuMemcpyHtoD_v2, there, pinned, BYTES);
        }
        return failures != 0;
    }
    int nodes = !strcmp(kind, "graph");
    if (nodes) {
        OK(cuStreamBeginCapture_v2, one, 0);
        for (int i = 0; i < 4; i++) LAUNCH(one);
        OK(cuStreamEndCapture, one, &graph);
        OK(cuGraphInstantiateWithFlags, &executable, graph, 0);
    }
    uint64_t begin = now();
    for (int i = 0; i < times; i++) {
        if (!strcmp(kind, "kernel")) {
            LAUNCH(one);
        } else if (!strcmp(kind, "streams")) {
            LAUNCH(one);
            LAUNCH(two);
        } else if (!strcmp(kind, "legacy")) {
            LAUNCH(NULL);
        } else if (!strcmp(kind, "htod")) {
            OK(cuMemcpyHtoDAsync_v2, there, pinned, BYTES, one);
        } else if (!strcmp(kind, "dtoh")) {
            OK(cuMemcpyDtoHAsync_v2, pinned, there, BYTES, one);
        } else if (!strcmp(kind, "now")) {
            OK(cuMemcpyHtoD_v2, there, pinned, BYTES);
        } else if (!strcmp(kind, "dtod")) {
            OK(cuMemcpyDtoDAsync_v2, there, there + BYTES / 2, BYTES / 2, one);
        } else if (!strcmp(kind, "memset")) {
            OK(cuMemsetD8Async, there, 3, BYTES, one);
        } else if (!strcmp(kind, "callback")) {
            OK(cuLaunchHostFunc, one, nothing, NULL);
        } else if (!strcmp(kind, "ranges")) {
            OK(cuProfilerStart);
            LAUNCH(one);
            OK(cuProfilerStop);
            LAUNCH(one);
        } else if (!strcmp(kind, "sync")) {
            LAUNCH(one);
            OK(cuStreamSynchronize, one);
        } else if (nodes) {
            OK(cuGraphLaunch, executable, one);
        } else {
            return 2;
        }
    }
    OK(cuStreamSynchronize, one);
    OK(cuStreamSynchronize, two);
    OK(cuCtxSynchronize);
    printf("%llu\n", (unsigned long long)(now() - begin));
    return failures != 0;
}
