// How long calls of a driver that does nothing take, through dlsym and past it. Arguments: calls.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef uint64_t word;
typedef int (*Function)();

static double time_of(Function f, int second, long calls) {
    struct timespec begin, end;
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        for (long i = 0; i < calls; i++) f((word)1, (word)second, (word)3, (word)4);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        double each = ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / calls;
        if (each < best) best = each;
    }
    return best;
}

int main(int count, char **arguments) {
    long calls = count > 1 ? atol(arguments[1]) : 1000000;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *names[] = {"cuMemsetD8Async", "cuMemcpyDtoDAsync_v2"};
    for (int i = 0; i < 2; i++) {
        double bare = time_of((Function)dlvsym(driver, names[i], "DRIVER"), 2, calls);
        double hooked = time_of((Function)dlsym(driver, names[i]), 2, calls);
        printf("%s: %.1f ns more a call\n", names[i], hooked - bare);
    }
    printf("%llu right\n", ((word(*)())dlsym(driver, "testQuiet"))());
    return 0;
}
