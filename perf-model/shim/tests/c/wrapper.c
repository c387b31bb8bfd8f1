// A library that wraps the driver, as quota tools and profilers do.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <unistd.h>

typedef uint64_t word;

int cuLaunchKernel(word f, int gx, int gy, int gz, int bx, int by, int bz, int shared, word stream,
                   void **parameters, void **extra) {
    static int (*real)();
    if (!real) real = (int (*)())dlsym(RTLD_NEXT, "cuLaunchKernel");
    if (!real) real = (int (*)())dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
    if (write(1, "wrapper\n", 8) != 8) _exit(70);
    return real(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}
