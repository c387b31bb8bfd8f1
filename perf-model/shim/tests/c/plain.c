// A program without CUDA that looks for it, as many do.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void say(const char *what, int yes) { printf("%s %s\n", what, yes ? "yes" : "no"); }

int main(void) {
    dlerror();
    void *found = dlsym(RTLD_DEFAULT, "cuLaunchKernel");
    const char *message = dlerror();
    say("nothing found", found == 0);
    say("message names it", message && strstr(message, "cuLaunchKernel"));
    say("nothing in the program", dlsym(dlopen(0, RTLD_NOW), "cuMemcpyHtoD_v2") == 0);
    dlerror();
    say("nothing next", dlsym(RTLD_NEXT, "cuLaunchKernel") == 0 && dlerror());
    found = dlsym(RTLD_DEFAULT, "noSuchName");
    message = dlerror();
    say("other names keep their message", !found && message && strstr(message, "noSuchName"));
    say("other names are found", dlsym(RTLD_DEFAULT, "strstr") == dlsym(RTLD_NEXT, "strstr") && !dlerror());
    return 0;
}
