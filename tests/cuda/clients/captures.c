// Captures that end in other ways than they should, and work after them.

#include "cuda.h"

#define LAUNCH(stream) OK(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL)

int main(void) {
    bind_driver();
    handle kernel, one, two, graph = NULL, none = NULL, exec;
    OK(cuInit, 0);
    kernel = a_kernel();
    OK(cuStreamCreate, &one, 1);
    OK(cuStreamCreate, &two, 1);
    LAUNCH(one);
    OK(cuStreamSynchronize, one);

    // The end of a stream that is not captured is refused, and the other's capture goes on.
    OK(cuStreamBeginCapture_v2, one, 0);
    GIVES(401, CALL(cuStreamEndCapture)(two, &none));
    for (int i = 0; i < 4; i++) LAUNCH(one);
    OK(cuStreamEndCapture, one, &graph);
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    OK(cuGraphLaunch, exec, two);
    OK(cuStreamSynchronize, two);

    // One that is spoilt ends with an error.
    OK(cuStreamBeginCapture_v2, one, 0);
    LAUNCH(one);
    GIVES(900, CALL(cuStreamQuery)(one));
    GIVES(901, CALL(cuStreamEndCapture)(one, &none));
    LAUNCH(two);
    OK(cuStreamSynchronize, two);

    // A stream goes while it is captured.
    OK(cuStreamBeginCapture_v2, one, 2);
    LAUNCH(one);
    OK(cuStreamDestroy_v2, one);
    for (int i = 0; i < 10; i++) {
        LAUNCH(two);
        OK(cuStreamSynchronize, two);
    }
    return failures != 0;
}
