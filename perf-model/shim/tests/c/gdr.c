// A GDRCopy for tests: device memory can be reached by the CPU where it is.
#include <stdint.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static int pinned;

void *gdr_open(void) { return getenv("NO_GDRDRV") ? 0 : (void *)0x6d; }
int gdr_pin_buffer(void *gdr, unsigned long address, size_t bytes, uint64_t token, uint32_t va_space,
                   unsigned long *handle) {
    if (gdr != (void *)0x6d || address % 65536 || bytes % 65536 || token || va_space) return 22;
    *handle = address;
    pinned++;
    return 0;
}
int gdr_map(void *gdr, unsigned long handle, void **at, size_t bytes) {
    *at = (void *)handle;
    return gdr != (void *)0x6d || !bytes;
}
int gdr_unmap(void *gdr, unsigned long handle, void *at, size_t bytes) {
    return gdr != (void *)0x6d || (void *)handle != at || !bytes;
}
int gdr_unpin_buffer(void *gdr, unsigned long handle) {
    (void)handle;
    return gdr != (void *)0x6d || pinned-- <= 0 || write(1, "unpinned\n", 9) != 9;
}
