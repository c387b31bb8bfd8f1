// A CUPTI for tests: one subscriber, which the client has called.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    int site;
    const char *function;
    const void *parameters;
    int *result;
    const char *symbol;
    void *context;
    uint32_t context_number;
    uint64_t *correlation_data;
    uint32_t correlation;
} Data;
typedef void (*Callback)(void *, uint32_t, uint32_t, const Data *);

static Callback subscriber;
static int on;

int cuptiSubscribe(void **handle, Callback callback, void *user) {
    (void)user;
    if (subscriber || getenv("CUPTI_TAKEN")) return 39;
    subscriber = callback;
    *handle = (void *)0x5;
    return 0;
}
int cuptiEnableDomain(uint32_t enable, void *handle, uint32_t domain) {
    if (handle != (void *)0x5 || domain != 1) return 1;
    on = enable;
    return 0;
}
// What CUPTI does around a call of the driver.
void testSite(int site, uint32_t number, const char *name, const void *parameters, int *result,
              uint32_t correlation) {
    Data data = {site, name, parameters, result, 0, 0, 1, 0, correlation};
    if (on) subscriber(0, 1, number, &data);
}
