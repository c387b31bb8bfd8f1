// Two GPUs, and what the first argument says.
//
//   peer   copies from one to the other
//   range  a kernel on each, in a range
//   reset  the first one's context goes many times, once while a stream is captured

#include "cuda.h"

int cuDevicePrimaryCtxReset_v2(int);
int cuMemcpyPeerAsync(address, handle, address, handle, size_t, handle);

enum { BYTES = 1 << 20, RESETS = 150 };

static handle contexts[2], kernels[2], streams[2];
static address memory[2];

#define LAUNCH(gpu) OK(cuLaunchKernel, kernels[gpu], 1, 1, 1, 1, 1, 1, 0, streams[gpu], NULL, NULL)

static void begin(int gpu) {
    handle module;
    OK(cuDevicePrimaryCtxRetain, &contexts[gpu], gpu);
    OK(cuCtxSetCurrent, contexts[gpu]);
    OK(cuModuleLoadData, &module, "kernels");
    OK(cuModuleGetFunction, &kernels[gpu], module, "last_25us");
    OK(cuStreamCreate, &streams[gpu], 1);
    OK(cuMemAlloc_v2, &memory[gpu], BYTES);
}

int main(int count, char **arguments) {
    bind_driver();
    const char *what = count > 1 ? arguments[1] : "";
    OK(cuInit, 0);
    for (int gpu = 0; gpu < 2; gpu++) begin(gpu);
    if (!strcmp(what, "peer")) {
        OK(cuMemcpyDtoDAsync_v2, memory[0], memory[1], BYTES, streams[1]);
        GIVES(0, cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], BYTES, streams[1]));
        OK(cuStreamSynchronize, streams[1]);
    } else if (!strcmp(what, "range")) {
        OK(cuProfilerStart);
        for (int gpu = 0; gpu < 2; gpu++) LAUNCH(gpu);
        OK(cuProfilerStop);
    } else if (!strcmp(what, "reset")) {
        for (int i = 0; i < RESETS; i++) {
            begin(0);
            LAUNCH(0);
            OK(cuCtxSynchronize);
            if (i == 0) OK(cuStreamBeginCapture_v2, streams[0], 2);
            GIVES(0, cuDevicePrimaryCtxReset_v2(0));
        }
    } else {
        return 2;
    }
    return failures != 0;
}
