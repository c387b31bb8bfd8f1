// Loads another program's code as a library that is linked with the driver, locally, as Python
// loads its extensions: the driver then is in no program-wide list of symbols.

#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
    void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", count == 2 ? dlerror() : "which library?");
        return 3;
    }
    int (*run)(void);
    *(void **)&run = dlsym(library, "main");
    return run ? run() : 3;
}
