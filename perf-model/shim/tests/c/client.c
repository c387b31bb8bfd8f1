// Calls the driver in the way that it is built for, and says what it got.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef uint64_t word;
typedef int (*Function)();

#ifdef LINKED
#define LIST(X) X(cuInit) X(cuLaunchKernel) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyHtoD_v2) X(cuMemcpyDtoHAsync_v2)          \
    X(cuMemcpyDtoH_v2) X(cuMemcpyAsync) X(cuMemsetD32Async) X(cuMemsetD2D16_v2) X(cuStreamSynchronize)         \
    X(cuStreamQuery) X(cuEventQuery) X(cuLaunchHostFunc) X(cuMemcpyBatchAsync) X(cuNotHooked) X(cuCtxDestroy_v2) X(cuMemcpy2DAsync_v2)   \
    X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(testPinned) X(testDevice) X(testWaiting)
#define DECLARE(n) extern int n();
LIST(DECLARE)
static Function find(const char *name) {
#define TRY(n) if (!strcmp(name, #n)) return (Function)n;
    LIST(TRY)
    return 0;
}
#else
static void *library;
static Function resolver;
static int version = 12080;
static word flags;
static Function find(const char *name) {
    void *found = 0;
    if (!resolver) return (Function)dlsym(library, name);
    char base[64];
    snprintf(base, sizeof base, "%s", name);
    char *suffix = strstr(base, "_v2");
    if (suffix) *suffix = 0;
    resolver(base, &found, version, flags, (int *)0);
    return found ? (Function)found : (Function)dlsym(library, name);
}
#endif

static void say(const char *what, long number) {
    char line[96];
    int length = snprintf(line, sizeof line, "client %s %ld\n", what, number);
    if (write(1, line, (size_t)length) != length) _exit(70);
}

static int launch(Function f, word kernel, word stream) {
    return f(kernel, 2, 3, 4, 5, 6, 7, 8, stream, (void **)0, (void **)9);
}
static void callback(void *data) { say("callback", (long)data); }
static void *thread(void *f) {
    for (int i = 0; i < 1000; i++) if (launch((Function)f, 7, 5)) _exit(71);
    return 0;
}
static void *launch_thread(void *none) {
    launch(find("cuLaunchKernel"), 7, 5);
    return none;
}
static void *copy_thread(void *none) {
    char *pinned = ((char *(*)())find("testPinned"))(), *device = ((char *(*)())find("testDevice"))();
    find("cuMemcpyHtoD_v2")((word)device, pinned, (word)4096);
    return none;
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "all";
#ifndef LINKED
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) { puts(dlerror()); return 72; }
    if (count > 2) {
        version = atoi(arguments[2]);
        flags = (word)atoi(arguments[3]);
        resolver = (Function)dlsym(library, "cuGetProcAddress_v2");
        // Through itself, as NVIDIA's runtime does.
        void *again = 0;
        resolver("cuGetProcAddress", &again, 12000, flags, (int *)0);
        if (again) resolver = (Function)again;
    }
#endif
    Function run = find("cuLaunchKernel");
    char *pinned = ((char *(*)())find("testPinned"))(), *device = ((char *(*)())find("testDevice"))();
    char pageable[8];
    find("cuInit")(0);
    if (!strcmp(what, "all")) {
        launch(run, 7, 5);
        launch(run, 7, 0);
        say("failed launch", launch(run, 99, 5));
        find("cuMemcpyHtoDAsync_v2")((word)device, pinned, (word)4096, (word)5);
        find("cuMemcpyHtoDAsync_v2")((word)device, pageable, (word)(1 << 20), (word)5);
        find("cuMemcpyDtoHAsync_v2")(pinned, (word)device, (word)4096, (word)5);
        find("cuMemcpyAsync")((word)pinned, (word)device, (word)100, (word)5);
        find("cuMemcpyAsync")((word)device, (word)device + 512, (word)100, (word)5);
        find("cuMemcpyHtoD_v2")((word)device, pageable, (word)8);
        find("cuMemcpyDtoH_v2")(pageable, (word)device, (word)8);
        find("cuMemsetD32Async")((word)device, 4, (word)10, (word)6);
        find("cuMemsetD2D16_v2")((word)device, (word)64, 3, (word)4, (word)5);
        find("cuLaunchHostFunc")((word)5, callback, (void *)42);
        find("cuStreamSynchronize")((word)5);
        say("not hooked", find("cuNotHooked")((word)17));
    } else if (!strcmp(what, "batch")) {
        word to[3] = {(word)device, (word)pinned, (word)device}, from[3] = {(word)pinned, (word)device, (word)device + 512};
        word bytes[3] = {100, 200, 300}, at = 0, failed = 0;
        find("cuMemcpyBatchAsync")(to, from, bytes, (word)3, (void *)0, &at, (word)1, &failed, (word)5);
    } else if (!strcmp(what, "query")) {
        Function query = find("cuStreamQuery");
        Function wait = find("testWaiting");
        say("query", query((word)5));
        wait(0);
        say("query", query((word)5));
        say("query", query((word)5));
        find("cuStreamSynchronize")((word)5);
    } else if (!strcmp(what, "seen")) {
        // What a wait has seen, and what is destroyed, no query sees any more.
        Function stream = find("cuStreamQuery"), event = find("cuEventQuery"), wait = find("testWaiting");
        stream((word)5);
        find("cuStreamSynchronize")((word)5);
        event((word)0x70);
        find("cuEventSynchronize")((word)0x70);
        stream((word)6);
        find("cuStreamDestroy_v2")((word)6);
        event((word)0x80);
        find("cuEventDestroy_v2")((word)0x80);
        wait(0);
        stream((word)5);
        event((word)0x70);
        stream((word)6);
        event((word)0x80);
    } else if (!strcmp(what, "seen in a capture")) {
        word graph;
        find("cuStreamQuery")((word)5);
        find("cuStreamBeginCapture_v2")((word)0x77, 0);
        find("cuStreamSynchronize")((word)5);
        find("cuStreamEndCapture")((word)0x77, &graph);
        find("testWaiting")(0);
        find("cuStreamQuery")((word)5);
    } else if (!strcmp(what, "open range")) {
        find("cuProfilerStart")();
        for (int i = 0; i < 10; i++) {
            usleep(5000);
            find("cuMemcpyHtoD_v2")((word)device, pageable, (word)8);
        }
    } else if (!strcmp(what, "range wait")) {
        launch(run, 7, 5);
        find("cuCtxSynchronize")();
        find("cuProfilerStart")();
        find("cuCtxSynchronize")();
        find("cuProfilerStop")();
    } else if (!strcmp(what, "context")) {
        launch(run, 7, 5);
        find("cuCtxDestroy_v2")((word)0xc0);
        launch(run, 7, 5);
    } else if (!strcmp(what, "context wait")) {
        Function wait = find("cuCtxSynchronize"), context = find("testContext");
        wait();
        launch(run, 7, 5);
        wait();
        wait();
        // Another context may have been given the work.
        context((word)0xc1);
        wait();
        wait();
        find("cuMemsetD32Async")((word)device, 4, (word)10, (word)6);
        wait();
        context((word)0xc0);
        wait();
        wait();
    } else if (!strcmp(what, "parts")) {
        word managed = 0, there = 0;
        unsigned number = 1;
        void *with[2] = {&number, &there};
#define GIVEN(address) there = address, run((word)7, 2, 3, 4, 5, 6, 7, 8, (word)5, with, (void **)0)
        Function prefetch = find("cuMemPrefetchAsync"), discard = find("cuMemDiscardAndPrefetchBatchAsync");
        word part = 256 << 10, whole = 1 << 20;
        find("cuMemAllocManaged")(&managed, whole, 1);
        // A part that is prefetched twice is there once.
        prefetch(managed, part, 0, (word)5);
        prefetch(managed, part, 0, (word)5);
        GIVEN(managed);
        GIVEN(managed);
        prefetch(managed + part, 2 * part, -1, (word)5);
        GIVEN(managed);
        // To the device without what is in it.
        prefetch(managed, whole, -1, (word)5);
        int location[2] = {1, 0};
        size_t first = 0;
        discard(&managed, &whole, (size_t)1, location, &first, (size_t)1, (word)0, (word)5);
        GIVEN(managed);
    } else if (!strcmp(what, "context memory") || !strcmp(what, "primary memory")) {
        word managed = 0, mapped = 0, there = 0;
        unsigned number = 1;
        void *with[2] = {&number, &there};
        find("cuMemAllocManaged")(&managed, (word)(1 << 20), 1);
        find("cuMemHostAlloc")(&mapped, (word)4096, 2);
        if (!strcmp(what, "context memory")) find("cuCtxDestroy_v2")((word)0xc0);
        else find("cuDevicePrimaryCtxRelease_v2")(0);
        GIVEN(managed);
        GIVEN(mapped);
    } else if (!strcmp(what, "memory")) {
        word managed = 0, mapped = 0, there = (word)device;
        unsigned number = 1;
        void *with[2] = {&number, &there};
        find("cuMemAllocManaged")(&managed, (word)(1 << 20), 1);
        find("cuMemHostAlloc")(&mapped, (word)4096, 2);
        GIVEN((word)device);
        GIVEN(managed + 100);
        GIVEN(managed + 200);
        find("cuMemPrefetchAsync")(managed, (word)(1 << 20), -1, (word)5);
        GIVEN(managed);
        find("cuMemPrefetchAsync")(managed, (word)(1 << 20), 0, (word)5);
        GIVEN(managed + (1 << 20));
        GIVEN(mapped + 8);
        GIVEN(mapped + 4096);
        find("cuMemFreeHost")(mapped);
        GIVEN(mapped + 8);
    } else if (!strcmp(what, "empty")) {
        find("cuMemcpyDtoH_v2")(pageable, (word)device, (word)0);
        find("cuMemcpyHtoD_v2")((word)device, pinned, (word)0);
        find("cuMemcpyDtoHAsync_v2")(pageable, (word)device, (word)0, (word)5);
    } else if (!strcmp(what, "two contexts")) {
        launch(run, 7, 5);
        find("testContext")((word)0xc1);
        launch(run, 7, 5);
    } else if (!strcmp(what, "turn")) {
        for (int left = 1; left >= 0; left--) {
            find("testWaiting")(left);
            find("cuMemcpyHtoD_v2")((word)device, pageable, (word)8);
            find("cuMemcpyHtoD_v2_ptds")((word)device, pageable, (word)8);
            find("cuMemcpyHtoDAsync_v2")((word)device, pageable, (word)8, (word)0);
        }
    } else if (!strcmp(what, "push turn")) {
        find("cuMemcpyHtoD_v2_ptds")((word)device, pinned, (word)4096);
    } else if (!strcmp(what, "idle")) {
        launch(run, 7, 5);
        find("testWaiting")(0);
        launch(run, 7, 5);
        find("cuMemsetD32Async")((word)device, 4, (word)10, (word)5);
    } else if (!strcmp(what, "push wait")) {
        find("cuMemcpyHtoD_v2")((word)device, pinned, (word)4096);
        find("cuCtxSynchronize")();
    } else if (!strcmp(what, "push")) {
        Function now = find("cuMemcpyHtoD_v2"), later = find("cuMemcpyHtoDAsync_v2");
        for (int i = 0; i < 1 << 20; i++) pinned[i] = (char)(i * 31 + (i >> 8));
        now((word)device + 3, pinned, (word)4096);
        say("now right", !memcmp(device + 3, pinned, 4096) && device[2] == 0 && device[4099] == 0);
        later((word)device, pinned + 1, (word)4096, (word)5);
        say("not in turn: left", !!memcmp(device, pinned + 1, 4096));
        find("testWaiting")(0);
        later((word)device, pinned + 1, (word)4096, (word)5);
        say("in turn: right", !memcmp(device, pinned + 1, 4096));
        later((word)device, pinned + 2, (word)4096, (word)0);
        say("default stream: left", !memcmp(device, pinned + 1, 4096));
        now((word)device, pinned + 2, (word)8);
        say("too small: left", !memcmp(device, pinned + 1, 4096));
        now((word)device + (1 << 20) - 100, pinned, (word)4096);
        find("cuMemcpyAsync")((word)device, pinned + 4, (word)5000, (word)5);
        say("unnamed: right", !memcmp(device, pinned + 4, 5000));
        find("cuMemFree_v2")((word)device);
        now((word)device, pinned + 3, (word)4096);
        say("mapped again: right", !memcmp(device, pinned + 3, 4096));
    } else if (!strcmp(what, "capture")) {
        word graph;
        find("cuStreamBeginCapture_v2")((word)0x77, 0);
        launch(run, 7, 0x77);
        launch(run, 7, 5);
        find("cuStreamEndCapture")((word)0x77, &graph);
        launch(run, 7, 0x77);
    } else if (!strcmp(what, "exec")) {
        // The same process, as another program each time.
        launch(run, 7, 5);
        int left = atoi(arguments[2]);
        char next[16];
        snprintf(next, sizeof next, "%d", left - 1);
        if (left > 0) execl("/proc/self/exe", arguments[0], "exec", next, "0", (char *)0);
    } else if (!strcmp(what, "threads")) {
        pthread_t threads[8];
        for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, thread, (void *)run);
        for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
    } else if (!strncmp(what, "full", 4)) {
        // Another thread's stream is full until this one has done its part.
        int copies = !strcmp(what, "full copy");
        pthread_t other;
        find("testFull")(1);
        pthread_create(&other, 0, copies ? copy_thread : launch_thread, 0);
        while (!find("testInside")()) usleep(1000);
        if (copies) find("cuMemFree_v2")((word)pinned);
        else find("cuCtxDestroy_v2")((word)0xc1);
        find("testFull")(0);
        pthread_join(other, 0);
    } else if (!strcmp(what, "fork")) {
        launch(run, 7, 5);
        pid_t child = fork();
        if (child == 0) { launch(run, 7, 6); launch(run, 7, 6); _exit(0); }
        int status = 0;
        waitpid(child, &status, 0);
        say("child", status);
        launch(run, 7, 5);
    } else if (!strcmp(what, "again")) {
#ifndef LINKED
        say("same thunk", run == find("cuLaunchKernel"));
        say("dlvsym is the driver's", (Function)dlvsym(library, "cuLaunchKernel", "DRIVER") != run);
        for (int i = 0; i < 3; i++) {
            dlclose(library);
            library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
            launch((Function)dlsym(library, "cuLaunchKernel"), 7, 5);
        }
#endif
    } else {
        return 73;
    }
    return 0;
}
