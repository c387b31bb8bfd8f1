// A driver that is loaded for one alone: who finds it by name. Built as the program, and with PLUGIN
// as a library that is linked to the driver.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static void ask(const char *who) {
    dlerror();
    void *of_all = dlsym(RTLD_DEFAULT, "cuLaunchKernel");
    int said = !!dlerror();
    void *next = dlsym(RTLD_NEXT, "cuLaunchKernel");
    said += !!dlerror();
    void *program = dlsym(dlopen(0, RTLD_NOW), "cuLaunchKernel");
    printf("%s: all %d, next %d, program %d, said %d\n", who, !!of_all, !!next, !!program, said);
}

#ifdef PLUGIN
extern int cuInit(unsigned);
int plugin(void) {
    ask("plugin");
    return cuInit(0);
}
#else
int main(void) {
    ask("program without");
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) return 70;
    ask("program");
    void *library = dlopen("libplugin.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) { puts(dlerror()); return 71; }
    ((int (*)(void))dlsym(library, "plugin"))();
    ask("program with plugin");
    fflush(stdout);
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)) return 72;
    ask("program with all");
    return 0;
}
#endif
