// Graphs of which some nodes were captured, and have the shim's delays behind them, and others not.

#include "cuda.h"

int cuGraphAddChildGraphNode(handle *, handle, const handle *, size_t, handle);

static handle kernel, stream;

static void add(handle graph, int kernels) {
    handle node;
    struct kernel_node what = {.function = kernel, .grid = {1, 1, 1}, .block = {1, 1, 1}};
    for (int i = 0; i < kernels; i++) OK(cuGraphAddKernelNode_v2, &node, graph, NULL, 0, &what);
}

static handle executable(handle graph) {
    handle exec;
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    return exec;
}

static void launch(handle graph) {
    OK(cuGraphLaunch, executable(graph), stream);
    OK(cuStreamSynchronize, stream);
}

// A graph's launch, captured.
static handle captured(handle graph) {
    handle exec = executable(graph), outer;
    OK(cuStreamBeginCapture_v2, stream, 0);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamEndCapture, stream, &outer);
    return outer;
}

int main(void) {
    bind_driver();
    handle node, inner, both, by_hand;
    OK(cuInit, 0);
    kernel = a_kernel();
    OK(cuStreamCreate, &stream, 1);

    OK(cuStreamBeginCapture_v2, stream, 0);
    for (int i = 0; i < 2; i++) OK(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    OK(cuStreamEndCapture, stream, &inner);
    // Two kernels each.
    launch(inner);
    launch(captured(inner));
    // Two that were captured, and three beside them.
    OK(cuGraphCreate, &both, 0);
    add(both, 3);
    GIVES(0, cuGraphAddChildGraphNode(&node, both, NULL, 0, inner));
    launch(both);
    // The same in a capture.
    launch(captured(both));
    // Two that were captured, and one in the same graph.
    add(inner, 1);
    launch(inner);
    // Three, none of which was captured but in the whole.
    OK(cuGraphCreate, &by_hand, 0);
    add(by_hand, 3);
    launch(captured(by_hand));
    return failures != 0;
}
