// Wraps malloc, as leak finders and allocators do.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <unistd.h>

static void *(*real)(size_t);
static int depth;

static void end(const char *why, size_t length) {
    _exit(write(2, why, length) == (ssize_t)length ? 77 : 78);
}

void *malloc(size_t bytes) {
    if (!real) {
        if (++depth > 100) end("malloc wraps itself\n", 20);
        real = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
        if ((void *)real == (void *)malloc) end("RTLD_NEXT is my own malloc\n", 27);
        depth--;
        if (write(2, "malloc wrapped\n", 15) != 15) _exit(78);
    }
    return real(bytes);
}
