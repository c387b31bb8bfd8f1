// A graph with a graph in it, of which another takes the place in the executable graph.

#include "cuda.h"

int cuGraphAddChildGraphNode(handle *, handle, const handle *, size_t, handle);
int cuGraphExecChildGraphNodeSetParams(handle, handle, handle);

static handle graph_of(handle kernel, int kernels) {
    handle graph, node;
    struct kernel_node what = {.function = kernel, .grid = {1, 1, 1}, .block = {1, 1, 1}};
    OK(cuGraphCreate, &graph, 0);
    for (int i = 0; i < kernels; i++) OK(cuGraphAddKernelNode_v2, &node, graph, NULL, 0, &what);
    return graph;
}

int main(void) {
    bind_driver();
    handle kernel, stream, node, exec;
    OK(cuInit, 0);
    kernel = a_kernel();
    OK(cuStreamCreate, &stream, 1);
    handle graph = graph_of(kernel, 3);
    GIVES(0, cuGraphAddChildGraphNode(&node, graph, NULL, 0, graph_of(kernel, 1)));
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    OK(cuGraphLaunch, exec, stream);
    GIVES(0, cuGraphExecChildGraphNodeSetParams(exec, node, graph_of(kernel, 1)));
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    return failures != 0;
}
