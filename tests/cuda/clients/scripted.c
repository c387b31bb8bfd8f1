// Does what its arguments say, so often as the first one says: the words of a workload.
//
//   k25us@1     a kernel of 25 us in stream 1 (ns, us, ms; 0 is the default stream)
//   h4096@1     4096 bytes to the device, d4096@1 from it, in stream 1; pinned memory
//   H4096 D4096 the same, waiting for the end
//   m4096@1     so many bytes set
//   g20x5us@1   a graph of 20 kernels of 5 us, launched in stream 1
//   e1>2        stream 2 waits for what is in stream 1
//   b1          a host callback in stream 1
//   s1          waits for stream 1, c for everything
//   w3000       the CPU works for 3000 ns
//
// Prints the virtual time that all of it took, in ns.

#include "cuda.h"

enum { STREAMS = 9, KERNELS = 32, GRAPHS = 8, MOST = 64 << 20 };

static handle module, streams[STREAMS];
static void *pinned;
static address memory;

static int (*advance)(uint64_t);
static uint64_t (*now)(void);

static handle kernel_of(const char *lasts, size_t length) {
    static struct { char name[32]; handle kernel; } known[KERNELS];
    char name[32];
    snprintf(name, sizeof name, "last_%.*s", (int)length, lasts);
    for (int i = 0; i < KERNELS; i++) {
        if (!known[i].kernel) {
            strcpy(known[i].name, name);
            OK(cuModuleGetFunction, &known[i].kernel, module, name);
        }
        if (!strcmp(known[i].name, name)) return known[i].kernel;
    }
    puts("too many kernels");
    exit(3);
}

static void launch(handle kernel, handle stream) {
    OK(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static handle graph_of(const char *word) {
    static struct { const char *word; handle graph; } known[GRAPHS];
    for (int i = 0; i < GRAPHS; i++) {
        if (known[i].word && !strcmp(known[i].word, word)) return known[i].graph;
        if (known[i].word) continue;
        char *lasts;
        handle graph, last = NULL;
        long nodes = strtol(word, &lasts, 10);
        lasts++;
        struct kernel_node what = {.function = kernel_of(lasts, strcspn(lasts, "@")),
                                   .grid = {1, 1, 1}, .block = {1, 1, 1}};
        OK(cuGraphCreate, &graph, 0);
        for (long node = 0; node < nodes; node++) {
            handle before = last;
            OK(cuGraphAddKernelNode_v2, &last, graph, &before, before != NULL, &what);
        }
        known[i].word = word;
        OK(cuGraphInstantiateWithFlags, &known[i].graph, graph, 0);
        return known[i].graph;
    }
    puts("too many graphs");
    exit(3);
}

static void called_back(void *nothing) { (void)nothing; }

static void after(handle first, handle second) {
    static handle event;
    if (!event) OK(cuEventCreate, &event, 2);
    OK(cuEventRecord, event, first);
    OK(cuStreamWaitEvent, second, event, 0);
}

static handle stream_of(const char *word) {
    const char *at = strpbrk(word, "@");
    int number = atoi(at ? at + 1 : word);
    if (number < 0 || number >= STREAMS) exit(3);
    return streams[number];
}

static void act(const char *word) {
    const char *rest = word + 1;
    size_t bytes = strtoull(rest, NULL, 10);
    if (strchr("hdmHD", *word) && bytes > MOST) exit(3);
    switch (*word) {
    case 'k': launch(kernel_of(rest, strcspn(rest, "@")), stream_of(word)); break;
    case 'h': OK(cuMemcpyHtoDAsync_v2, memory, pinned, bytes, stream_of(word)); break;
    case 'd': OK(cuMemcpyDtoHAsync_v2, pinned, memory, bytes, stream_of(word)); break;
    case 'H': OK(cuMemcpyHtoD_v2, memory, pinned, bytes); break;
    case 'D': OK(cuMemcpyDtoH_v2, pinned, memory, bytes); break;
    case 'm': OK(cuMemsetD8Async, memory, 0, bytes, stream_of(word)); break;
    case 'g': OK(cuGraphLaunch, graph_of(rest), stream_of(word)); break;
    case 'e': after(stream_of(rest), stream_of(strchr(word, '>') + 1)); break;
    case 'b': OK(cuLaunchHostFunc, stream_of(rest), called_back, NULL); break;
    case 's': OK(cuStreamSynchronize, stream_of(rest)); break;
    case 'c': OK(cuCtxSynchronize); break;
    case 'w': advance(bytes); break;
    default: printf("no such word: %s\n", word); exit(3);
    }
}

int main(int count, char **words) {
    int device;
    handle context;
    bind_driver();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&advance = dlsym(driver, "standInAdvanceCpu");
    *(void **)&now = dlsym(driver, "standInNow");
    OK(cuInit, 0);
    OK(cuDeviceGet, &device, 0);
    OK(cuDevicePrimaryCtxRetain, &context, device);
    OK(cuCtxSetCurrent, context);
    OK(cuModuleLoadData, &module, "kernels");
    for (int i = 1; i < STREAMS; i++) OK(cuStreamCreate, &streams[i], 1);
    OK(cuMemAllocHost_v2, &pinned, MOST);
    OK(cuMemAlloc_v2, &memory, MOST);
    // Once before the clock: graphs are made, and modules loaded.
    for (int i = 2; i < count; i++) act(words[i]);
    OK(cuCtxSynchronize);
    uint64_t begun = now();
    for (int n = atoi(words[1]); n > 0; n--)
        for (int i = 2; i < count; i++) act(words[i]);
    OK(cuCtxSynchronize);
    printf("%llu\n", (unsigned long long)(now() - begun));
    return failures != 0;
}
