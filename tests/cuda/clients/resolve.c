// Asks the resolver of the library that is its first argument. Each line of its input is a name, a
// version and flags; each line of its output the answer, what is said of the name, the symbol that
// is there, if the library exports it, or "none", the address, and the file that it is of. The
// second argument is the resolver's symbol.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int old_resolver(const char *, void **, int, uint64_t);
typedef int resolver(const char *, void **, int, uint64_t, int *);

int main(int count, char **arguments) {
    if (count != 3) return 2;
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    void *resolve = library ? dlsym(library, arguments[2]) : NULL;
    if (!resolve) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    char name[256];
    int version;
    unsigned long long flags;
    while (scanf("%255s %d %llu", name, &version, &flags) == 3) {
        void *function = NULL;
        int said = 0, code;
        if (strcmp(arguments[2], "cuGetProcAddress_v2") == 0)
            code = ((resolver *)resolve)(name, &function, version, flags, &said);
        else
            code = ((old_resolver *)resolve)(name, &function, version, flags);
        Dl_info found;
        const char *symbol = "none", *file = "none";
        if (function) {
            int is_known = dladdr(function, &found);
            symbol = is_known && found.dli_saddr == function ? found.dli_sname : "?";
            file = is_known ? found.dli_fname : "?";
        }
        printf("%d %d %s %p %s\n", code, said, symbol, function, file);
    }
    return 0;
}
