// What these programs use of the CUDA driver: its functions by their symbols, bound as BINDING says.
// The numbers and layouts are those of the driver's interface, CUDA 12.

#ifndef DXPU_CUDA_H
#define DXPU_CUDA_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELF 1      // linked with the driver
#define DLSYM 2    // by symbol, from the driver loaded locally
#define RESOLVER 3 // from cuGetProcAddress, legacy default stream
#define OWN 4      // from cuGetProcAddress, the thread's own default stream

typedef uint64_t address;
typedef void *handle;

struct side2d {
    size_t x, y;
    uint32_t kind;
    const void *host;
    address device;
    handle array;
    size_t pitch;
};

struct copy2d {
    struct side2d from, to;
    size_t width, height;
};

struct side3d {
    size_t x, y, z, level;
    uint32_t kind;
    const void *host;
    address device;
    handle array;
    void *reserved;
    size_t pitch, height;
};

struct copy3d {
    struct side3d from, to;
    size_t width, height, depth;
};

struct config {
    unsigned grid[3], block[3], shared;
    handle stream;
    void *attributes;
    unsigned count;
};

struct location {
    int type, id;
};

struct kernel_node {
    handle function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    handle kernel, context;
};

enum { HOST = 1, DEVICE = 2, ARRAY = 3, UNIFIED = 4 };

// F(symbol, name, parameters): the symbol of CUDA 12.9, and the name that the resolver takes.
#define FUNCTIONS(F)                                                                               \
    F(cuInit, "cuInit", (unsigned))                                                                \
    F(cuDeviceGet, "cuDeviceGet", (int *, int))                                                    \
    F(cuDeviceGetCount, "cuDeviceGetCount", (int *))                                               \
    F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (handle *, int))                       \
    F(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", (int))                            \
    F(cuCtxSetCurrent, "cuCtxSetCurrent", (handle))                                                \
    F(cuCtxSynchronize, "cuCtxSynchronize", (void))                                                \
    F(cuModuleLoadData, "cuModuleLoadData", (handle *, const void *))                              \
    F(cuModuleGetFunction, "cuModuleGetFunction", (handle *, handle, const char *))                \
    F(cuStreamCreate, "cuStreamCreate", (handle *, unsigned))                                      \
    F(cuStreamDestroy_v2, "cuStreamDestroy", (handle))                                             \
    F(cuStreamQuery, "cuStreamQuery", (handle))                                                    \
    F(cuProfilerStart, "cuProfilerStart", (void))                                                  \
    F(cuProfilerStop, "cuProfilerStop", (void))                                                    \
    F(cuStreamSynchronize, "cuStreamSynchronize", (handle))                                        \
    F(cuStreamWaitEvent, "cuStreamWaitEvent", (handle, handle, unsigned))                          \
    F(cuStreamBeginCapture_v2, "cuStreamBeginCapture", (handle, int))                              \
    F(cuStreamEndCapture, "cuStreamEndCapture", (handle, handle *))                                \
    F(cuStreamAddCallback, "cuStreamAddCallback",                                                  \
      (handle, void (*)(handle, int, void *), void *, unsigned))                                   \
    F(cuLaunchHostFunc, "cuLaunchHostFunc", (handle, void (*)(void *), void *))                    \
    F(cuEventCreate, "cuEventCreate", (handle *, unsigned))                                        \
    F(cuEventRecord, "cuEventRecord", (handle, handle))                                            \
    F(cuEventQuery, "cuEventQuery", (handle))                                                      \
    F(cuEventSynchronize, "cuEventSynchronize", (handle))                                          \
    F(cuEventElapsedTime, "cuEventElapsedTime", (float *, handle, handle))                         \
    F(cuMemAlloc_v2, "cuMemAlloc", (address *, size_t))                                            \
    F(cuMemAllocAsync, "cuMemAllocAsync", (address *, size_t, handle))                             \
    F(cuMemAllocManaged, "cuMemAllocManaged", (address *, size_t, unsigned))                       \
    F(cuMemAllocHost_v2, "cuMemAllocHost", (void **, size_t))                                      \
    F(cuMemHostRegister_v2, "cuMemHostRegister", (void *, size_t, unsigned))                       \
    F(cuMemHostUnregister, "cuMemHostUnregister", (void *))                                        \
    F(cuMemFree_v2, "cuMemFree", (address))                                                        \
    F(cuMemFreeAsync, "cuMemFreeAsync", (address, handle))                                         \
    F(cuMemFreeHost, "cuMemFreeHost", (void *))                                                    \
    F(cuMemcpy, "cuMemcpy", (address, address, size_t))                                            \
    F(cuMemcpyAsync, "cuMemcpyAsync", (address, address, size_t, handle))                          \
    F(cuMemcpyHtoD_v2, "cuMemcpyHtoD", (address, const void *, size_t))                            \
    F(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", (address, const void *, size_t, handle))          \
    F(cuMemcpyDtoH_v2, "cuMemcpyDtoH", (void *, address, size_t))                                  \
    F(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", (void *, address, size_t, handle))                \
    F(cuMemcpyDtoD_v2, "cuMemcpyDtoD", (address, address, size_t))                                 \
    F(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", (address, address, size_t, handle))               \
    F(cuMemcpy2D_v2, "cuMemcpy2D", (const struct copy2d *))                                        \
    F(cuMemcpy2DAsync_v2, "cuMemcpy2DAsync", (const struct copy2d *, handle))                      \
    F(cuMemcpy3D_v2, "cuMemcpy3D", (const struct copy3d *))                                        \
    F(cuMemcpyBatchAsync, "cuMemcpyBatchAsync",                                                    \
      (address *, address *, size_t *, size_t, void *, size_t *, size_t, size_t *, handle))        \
    F(cuMemPrefetchAsync_v2, "cuMemPrefetchAsync",                                                 \
      (address, size_t, struct location, unsigned, handle))                                        \
    F(cuMemsetD8_v2, "cuMemsetD8", (address, unsigned char, size_t))                               \
    F(cuMemsetD8Async, "cuMemsetD8Async", (address, unsigned char, size_t, handle))                \
    F(cuMemsetD32_v2, "cuMemsetD32", (address, unsigned, size_t))                                  \
    F(cuMemsetD2D32Async, "cuMemsetD2D32Async",                                                    \
      (address, size_t, unsigned, size_t, size_t, handle))                                         \
    F(cuLaunchKernel, "cuLaunchKernel",                                                            \
      (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle,       \
       void **, void **))                                                                          \
    F(cuLaunchKernelEx, "cuLaunchKernelEx", (const struct config *, handle, void **, void **))     \
    F(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel",                                      \
      (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle,       \
       void **))                                                                                   \
    F(cuLaunchGridAsync, "cuLaunchGridAsync", (handle, int, int, handle))                          \
    F(cuGraphCreate, "cuGraphCreate", (handle *, unsigned))                                        \
    F(cuGraphAddKernelNode_v2, "cuGraphAddKernelNode",                                             \
      (handle *, handle, const handle *, size_t, const struct kernel_node *))                      \
    F(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags",                                  \
      (handle *, handle, unsigned long long))                                                      \
    F(cuGraphLaunch, "cuGraphLaunch", (handle, handle))                                            \
    F(cuGraphDestroy, "cuGraphDestroy", (handle))                                                  \
    F(cuGraphExecDestroy, "cuGraphExecDestroy", (handle))

#if BINDING == ELF

#define DECLARE(symbol, name, parameters) int symbol parameters;
FUNCTIONS(DECLARE)
#define CALL(symbol) symbol
static void bind_driver(void) {}

#else

#define DECLARE(symbol, name, parameters) static int(*bound_##symbol) parameters;
FUNCTIONS(DECLARE)
#define CALL(symbol) bound_##symbol

static void *driver_library(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("no driver: %s\n", dlerror());
        exit(3);
    }
    return library;
}

static void *found(const char *name, void *function) {
    if (!function) {
        printf("the driver has no %s\n", name);
        exit(3);
    }
    return function;
}

#if BINDING == DLSYM

#define BIND(symbol, name, parameters)                                                             \
    *(void **)&bound_##symbol = found(#symbol, dlsym(library, #symbol));
static void bind_driver(void) {
    void *library = driver_library();
    FUNCTIONS(BIND)
}

#else

typedef int resolver(const char *, void **, int, uint64_t, int *);

static resolver *resolve;

static void *resolved(const char *name) {
    void *function = NULL;
    int said = -1;
    int code = resolve(name, &function, 12090, BINDING == OWN ? 2 : 1, &said);
    if (code || said) {
        printf("%s: the resolver says %d, %d\n", name, code, said);
        exit(3);
    }
    return found(name, function);
}

#define BIND(symbol, name, parameters) *(void **)&bound_##symbol = resolved(name);
static void bind_driver(void) {
    // The resolver is asked for itself, as NVIDIA's runtime does.
    *(void **)&resolve = found("resolver", dlsym(driver_library(), "cuGetProcAddress_v2"));
    *(void **)&resolve = resolved("cuGetProcAddress");
    FUNCTIONS(BIND)
}

#endif
#endif

static int failures;

// Says what did not hold, and goes on.
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                         \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

// Says what a call should have answered.
#define GIVES(code, call)                                                                          \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ != (code)) {                                                                     \
            printf("%s:%d: %s gives %d, not %d\n", __FILE__, __LINE__, #call, code_, (code));      \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

#define OK(symbol, ...) GIVES(0, CALL(symbol)(__VA_ARGS__))

// A kernel of 25 microseconds in the first device's primary context, which is current from then on.
static inline handle a_kernel(void) {
    handle context, module, kernel = NULL;
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
    OK(cuModuleLoadData, &module, "kernels");
    OK(cuModuleGetFunction, &kernel, module, "last_25us");
    return kernel;
}

#endif
