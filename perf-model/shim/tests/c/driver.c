// A driver for tests: it says each call on standard output, and does nothing.
//
// What it gives: a context, streams that have not ended (that have, with REACHED), pinned memory where
// the program says so, ELAPSED_MS between two events.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef uint64_t word;

// At once, and in one piece: threads and a fork's child say things too.
static void say(const char *what, const char *stream, word number) {
    char line[160];
    int length = snprintf(line, sizeof line, "%s %s %llu\n", what, stream, (unsigned long long)number);
    if (write(1, line, (size_t)length) != length) _exit(70);
}

enum { BYTES = 1 << 20 };
static char pinned[BYTES], *device;
static int device_file;
static int waiting = 1;
static word delay_kernel, context = 0xc0;

// The device's memory is a file's, so that it can be mapped again.
__attribute__((constructor)) static void begin(void) {
    device_file = memfd_create("device", MFD_CLOEXEC);
    if (device_file < 0 || ftruncate(device_file, BYTES)) _exit(70);
    device = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, device_file, 0);
    if (device == MAP_FAILED) _exit(70);
    if (getenv("REACHED")) waiting = 0;
}

void *testPinned(void) { return pinned; }
void *testDevice(void) { return device; }
void testWaiting(int yes) { waiting = yes; }

static const char *name_of(word stream) {
    static _Thread_local char name[32];
    snprintf(name, sizeof name, "stream=%llx", (unsigned long long)stream);
    return name;
}

int cuInit(unsigned flags) { say("cuInit", "-", flags); return 0; }

#define LAUNCH(symbol)                                                                             \
    int symbol(word f, int gx, int gy, int gz, int bx, int by, int bz, int shared, word stream,    \
               void **parameters, void **extra) {                                                  \
        if (delay_kernel && f == delay_kernel) {                                                   \
            say(#symbol " delay", name_of(stream), *(word *)parameters[0]);                        \
            return 0;                                                                              \
        }                                                                                          \
        int right = gx == 2 && gy == 3 && gz == 4 && bx == 5 && by == 6 && bz == 7 &&              \
                    shared == 8 && (parameters || extra == (void **)9);                                            \
        say(#symbol, name_of(stream), right ? f : 0);                                              \
        return f == 99 ? 719 : 0;                                                                  \
    }
LAUNCH(cuLaunchKernel)
LAUNCH(cuLaunchKernel_ptsz)

#define COPY(symbol)                                                                               \
    int symbol(word to, word from, word bytes, word stream) {                                      \
        (void)to; (void)from; say(#symbol, name_of(stream), bytes); return 0;                      \
    }
COPY(cuMemcpyHtoDAsync_v2)
COPY(cuMemcpyHtoDAsync_v2_ptsz)
COPY(cuMemcpyDtoHAsync_v2)
COPY(cuMemcpyAsync)
#define COPY_NOW(symbol)                                                                           \
    int symbol(word to, word from, word bytes) {                                                   \
        (void)to; (void)from; say(#symbol, "-", bytes); return 0;                                  \
    }
COPY_NOW(cuMemcpyHtoD_v2)
COPY_NOW(cuMemcpyHtoD_v2_ptds)
COPY_NOW(cuMemcpyDtoH_v2)

int cuMemcpyBatchAsync(word *to, word *from, word *bytes, word count, void *attributes,
                       word *indices, word number, word *failed, word stream) {
    (void)to; (void)from; (void)bytes; (void)attributes; (void)indices; (void)number; (void)failed;
    say("cuMemcpyBatchAsync", name_of(stream), count);
    return 0;
}
int cuMemcpyBatchAsync_v2(word *to, word *from, word *bytes, word count, void *attributes,
                          word *indices, word number, word stream) {
    (void)to; (void)from; (void)bytes; (void)attributes; (void)indices; (void)number;
    say("cuMemcpyBatchAsync_v2", name_of(stream), count);
    return 0;
}
// As a CUDA that comes after the shim: a form that no table has, at an address of its own.
static int later_batch(word a) { say("later_batch", "-", a); return 0; }

int cuMemcpy2DAsync_v2(void *plane, word stream) { (void)plane; say("cuMemcpy2DAsync_v2", name_of(stream), 0); return 0; }
int cuMemcpy3DAsync_v2(void *volume, word stream) { (void)volume; say("cuMemcpy3DAsync_v2", name_of(stream), 0); return 0; }
int cuMemsetD2D16_v2(word to, word pitch, short value, word width, word height) {
    (void)to; (void)pitch; say("cuMemsetD2D16_v2", "-", (word)(value == 3) * width * height); return 0;
}
int cuMemsetD32Async(word to, unsigned value, word count, word stream) {
    (void)to; say("cuMemsetD32Async", name_of(stream), value == 4 ? count : 0); return 0;
}
// Says nothing: called often.
static word quiet;
int cuMemsetD8Async(word to, unsigned char value, word count, word stream) {
    quiet += to == 1 && value == 2 && count == 3 && stream == 4;
    return 0;
}
int cuMemcpyDtoDAsync_v2(word to, word from, word count, word stream) {
    quiet += to == 1 && from == 2 && count == 3 && stream == 4;
    return 0;
}
word testQuiet(void) { return quiet; }
int cuStreamSynchronize(word stream) { say("cuStreamSynchronize", name_of(stream), 0); return 0; }
// As if another thread captured a stream, of which this one knows nothing (GLOBAL): what is asked
// then ends that capture, but in mode relaxed.
static _Thread_local int mode;
int cuThreadExchangeStreamCaptureMode(int *other) { int old = mode; mode = *other; *other = old; return 0; }
static void asks(const char *what) { if (getenv("GLOBAL") && mode != 2) say("ends a capture:", what, 0); }
int cuStreamQuery(word stream) { asks("cuStreamQuery"); say("cuStreamQuery", name_of(stream), waiting); return waiting ? 600 : 0; }
// The thread's own stream has ended; that it waits for the legacy one it does not say.
int cuStreamQuery_ptsz(word stream) { return stream ? cuStreamQuery(stream) : 0; }
int cuEventSynchronize(word event) { asks("cuEventSynchronize"); say("cuEventSynchronize", "-", event); return 0; }
int cuEventQuery(word event) { asks("cuEventQuery"); say("cuEventQuery", "-", event); return waiting ? 600 : 0; }
int cuLaunchHostFunc(word stream, void (*f)(void *), void *data) { say("cuLaunchHostFunc", name_of(stream), 0); f(data); return 0; }
int cuCtxGetCurrent(word *out) { *out = context; return 0; }
void testContext(word other) { context = other; }
int cuCtxSynchronize(void) { say("cuCtxSynchronize", "-", context); return 0; }
// The memory of context 0xc0 goes with it.
static int gone;
int cuCtxDestroy_v2(word old) {
    say("cuCtxDestroy_v2", "-", old);
    if (getenv("NO_DESTROY")) return 201;
    gone |= old == 0xc0;
    return 0;
}
// Its device's primary context is another one, and has no other users.
// With NO_MODULE another context is of device 1, and no module can be loaded there.
static int device_of_context(void) { return getenv("NO_MODULE") && context != 0xc0; }
int cuCtxGetDevice(int *out) { *out = device_of_context(); return 0; }
int cuDeviceGetName(char *out, int bytes, int device) { snprintf(out, (size_t)bytes, "Test GPU %d", device); return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = *active = 0; return device; }
int cuDevicePrimaryCtxRelease_v2(int device) { say("cuDevicePrimaryCtxRelease_v2", "-", device); return 0; }
int cuStreamGetCtx(word stream, word *out) { (void)stream; *out = context; return 0; }
int cuModuleLoadData(word *out, const char *image) {
    asks("cuModuleLoadData");
    if (device_of_context()) return 209;
    say("cuModuleLoadData", "-", strstr(image, ".entry dxpu_delay") != 0); *out = 0xd0; return 0;
}
int cuModuleGetFunction(word *out, word module, const char *name) {
    say("cuModuleGetFunction", name, module); *out = delay_kernel = 0xd1; return 0;
}
int cuPointerGetAttribute(void *out, int attribute, word address) {
    char *at = (char *)address;
    if (attribute == 9) { *(int *)out = 0; return 0; }
    if (attribute == 10) { *(char *)out = !getenv("POOL"); return 0; }
    if (attribute != 2) return 1;
    if (gone) return 1;
    if (address == 0x700000) { *(int *)out = 3; return 0; }
    if (at >= pinned && at < pinned + BYTES) { *(int *)out = 1; return 0; }
    if (at >= device && at < device + BYTES) { *(int *)out = 2; return 0; }
    return 1;
}
int cuStreamBeginCapture_v2(word stream, int mode) { say("cuStreamBeginCapture_v2", name_of(stream), mode); return 0; }
int cuStreamEndCapture(word stream, word *graph) { *graph = 0x60; say("cuStreamEndCapture", name_of(stream), 0); return 0; }
int cuStreamIsCapturing(word stream, int *status) { *status = stream == 0x77; return 0; }
int cuNotHooked(word a) { asks("cuNotHooked"); say("cuNotHooked", "-", a); return (int)a; }
int cudnnLikeName(word a) { return (int)a; }

int cuEventElapsedTime(float *milliseconds, word from, word to) {
    asks("cuEventElapsedTime");
    const char *said = getenv("ELAPSED_MS");
    *milliseconds = said ? strtof(said, NULL) : 0;
    return 0;
}
int cuEventCreate(word *out, unsigned flags) { *out = 0xe0; say("cuEventCreate", "-", flags); return 0; }
// While a stream is full a call waits; not for ever, here.
static volatile int full, inside;
void testFull(int yes) { full = yes; }
int testInside(void) { return inside; }
static void until_there_is_room(void) {
    inside = full;
    for (int i = 0; full; i++) {
        if (i == 5000) { say("nobody made room", "-", 0); return; }
        usleep(1000);
    }
}
int cuEventRecord(word event, word stream) {
    until_there_is_room();
    say("cuEventRecord", name_of(stream), event);
    return 0;
}
int cuStreamDestroy_v2(word stream) { say("cuStreamDestroy_v2", name_of(stream), 0); return 0; }
int cuProfilerStart(void) { say("cuProfilerStart", "-", 0); return 0; }
int cuProfilerStop(void) { say("cuProfilerStop", "-", 0); return 0; }
int cuEventDestroy_v2(word event) { say("cuEventDestroy_v2", "-", event); return 0; }
int cuMemFree_v2(word address) { say("cuMemFree_v2", "-", (char *)address == device); return 0; }
int cuMemGetAddressRange_v2(word *base, size_t *bytes, word address) {
    if ((char *)address < device || (char *)address >= device + BYTES) return 1;
    *base = (word)device;
    *bytes = BYTES;
    return 0;
}
// As drivers do that do not know the flag for a mapping over PCIe.
int cuMemGetHandleForAddressRange(int *out, word address, size_t bytes, int kind, word flags) {
    say("cuMemGetHandleForAddressRange", "-", flags);
    if (getenv("NO_DMA_BUF")) return 801;
    if ((char *)address != device || bytes != BYTES || kind != 1 || flags) return 1;
    *out = dup(device_file);
    return 0;
}

// Two parameters: a number of 32 bits and an address.
int cuFuncGetParamInfo(word function, size_t index, size_t *offset, size_t *bytes) {
    if (function == delay_kernel || index > 1) return 1;
    *offset = index * 8;
    *bytes = index ? 8 : 4;
    return 0;
}
int cuMemAllocManaged(word *out, size_t bytes, unsigned flags) { *out = 0x700000; say("cuMemAllocManaged", "-", bytes + flags); return 0; }
int cuMemHostAlloc(word *out, size_t bytes, unsigned flags) { *out = (word)pinned; say("cuMemHostAlloc", "-", bytes + flags); return 0; }
int cuMemFreeHost(word address) { say("cuMemFreeHost", "-", (char *)address == pinned); return 0; }
// With NO_PREFETCH as where the GPU and the host cannot have such memory at the same time.
int cuMemPrefetchAsync(word address, size_t bytes, int device, word stream) {
    if (getenv("NO_PREFETCH")) return 101;
    say(device < 0 ? "cuMemPrefetchAsync home" : "cuMemPrefetchAsync", name_of(stream), address == 0x700000 ? bytes : 0);
    return 0;
}
int cuMemDiscardAndPrefetchBatchAsync(word *addresses, size_t *sizes, size_t count, void *locations,
                                      size_t *firsts, size_t places, word flags, word stream) {
    (void)addresses; (void)locations; (void)firsts; (void)places; (void)flags;
    say("cuMemDiscardAndPrefetchBatchAsync", name_of(stream), count ? sizes[0] : 0);
    return 0;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, word flags, int *status) {
    static const char *suffixes[] = {"_v2_ptsz", "_ptsz", "_v2", ""};
    char symbol[128];
    if (status) *status = 0;
    if (!strcmp(name, "cuMemcpyBatchAsync") && version >= 99000) { *out = (void *)later_batch; return 0; }
    int newest = strcmp(name, "cuMemcpyBatchAsync") || version >= 13000;
    for (int i = flags & 2 ? 0 : 2; i < 4; i++) {
        if (!newest && strstr(suffixes[i], "_v2")) continue;
        snprintf(symbol, sizeof symbol, "%s%s", name, suffixes[i]);
        void *self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        *out = self ? dlvsym(self, symbol, "DRIVER") : 0;
        if (*out) return 0;
    }
    *out = 0;
    if (status) *status = 1;
    return 500;
}
