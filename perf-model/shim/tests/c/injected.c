// What CUDA does with CUDA_INJECTION64_PATH: loads a library and calls it, then a call of the driver
// with CUPTI around it.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef uint64_t word;
typedef int (*Function)();
typedef void (*Site)(int, uint32_t, const char *, const void *, int *, uint32_t);

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    Function run = (Function)dlvsym(driver, "cuLaunchKernel", "DRIVER");
    Function wait = (Function)dlvsym(driver, "cuStreamSynchronize", "DRIVER");
    void *shim = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW | RTLD_LOCAL);
    if (!shim) { puts(dlerror()); return 70; }
    Function begin = (Function)dlsym(shim, "InitializeInjection");
    if (!begin || begin() != 1) return 71;
    void *cupti = dlopen("libcupti.so.12", RTLD_NOW | RTLD_NOLOAD);
    Site site = cupti ? (Site)dlsym(cupti, "testSite") : 0;
    struct { word f; unsigned grid[3], block[3], shared; word stream; void **parameters, **extra; }
        launch = {7, {2, 3, 4}, {5, 6, 7}, 8, 5, 0, (void **)9};
    struct { word stream; } stream = {5};
    for (int i = 0; i < 3; i++) {
        int result = 0, kernel = i == 2 ? 99 : 7;
        launch.f = kernel;
        if (site) site(0, 307, "cuLaunchKernel", &launch, 0, 10 + i);
        // Within the call, another one that is a part of it.
        if (site) site(0, 307, "cuLaunchKernel", &launch, 0, 50 + i);
        if (site) site(1, 307, "cuLaunchKernel", &launch, &result, 50 + i);
        result = run((word)kernel, 2, 3, 4, 5, 6, 7, 8, (word)5, (void **)0, (void **)9);
        if (site) site(1, 307, "cuLaunchKernel", &launch, &result, 10 + i);
        if (site) site(0, 3000, "cuNotHooked", &stream, 0, 30 + i);
        if (site) site(1, 3000, "cuNotHooked", &stream, &result, 30 + i);
    }
    int result = 0;
    if (site) site(0, 12, "cuStreamSynchronize", &stream, 0, 20);
    result = wait((word)5);
    if (site) site(1, 12, "cuStreamSynchronize", &stream, &result, 20);
    return 0;
}
