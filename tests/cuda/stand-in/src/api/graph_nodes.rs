//! The nodes of graphs.

use super::copy::Copy3d;
use super::driver_functions;
use super::graph::{adopt, known, list};
use super::launch::{Shape, kernel};
use crate::call::Call;
use crate::copy::Set;
use crate::driver::Handle;
use crate::ffi::{In, Opaque, Out};
use crate::graph::{Callback, Graph, HostFunction, Kernel, Node, Operation};
use crate::status::{Answer, Status};

driver_functions! {
    Call fn cuGraphAddKernelNode(
        call, out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize,
        parameters: In<KernelParameters>,
    ) {
        let operation = parameters.get()?.operation(call)?;
        add(call, out, graph, after, count, operation)
    }

    Call fn cuGraphAddKernelNode_v2(
        call, out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize,
        parameters: In<KernelParameters2>,
    ) {
        let operation = parameters.get()?.operation(call)?;
        add(call, out, graph, after, count, operation)
    }

    Call fn cuGraphAddMemcpyNode(
        call, out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize,
        parameters: In<Copy3d>, _context: Handle,
    ) {
        let operation = Operation::Copy(parameters.get()?.copy(call)?);
        add(call, out, graph, after, count, operation)
    }

    Call fn cuGraphAddMemsetNode(
        call, out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize,
        parameters: In<SetParameters>, _context: Handle,
    ) {
        let operation = parameters.get()?.operation(call)?;
        add(call, out, graph, after, count, operation)
    }

    Call fn cuGraphAddHostNode(
        call, out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize,
        parameters: In<HostParameters>,
    ) {
        let operation = parameters.get()?.operation()?;
        add(call, out, graph, after, count, operation)
    }

    Call fn cuGraphAddChildGraphNode(
        call, out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, child: Handle,
    ) {
        let operation = Operation::Child(known(call, child)?.clone());
        add(call, out, graph, after, count, operation)
    }

    Call fn cuGraphAddEmptyNode(
        call, out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize,
    ) {
        add(call, out, graph, after, count, Operation::Empty)
    }

    Call fn cuGraphAddEventRecordNode(
        call, out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, event: Handle,
    ) {
        call.events.get(&event).ok_or(Status::INVALID_VALUE)?;
        add(call, out, graph, after, count, Operation::Record(event))
    }

    Call fn cuGraphAddEventWaitNode(
        call, out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, event: Handle,
    ) {
        call.events.get(&event).ok_or(Status::INVALID_VALUE)?;
        add(call, out, graph, after, count, Operation::Wait(event))
    }

    Call fn cuGraphAddNode(
        call, out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize,
        parameters: In<NodeParameters>,
    ) {
        let operation = parameters.get()?.operation(call)?;
        add(call, out, graph, after, count, operation)
    }

    Call fn cuGraphAddNode_v2(
        call, out: Out<Handle>, graph: Handle, after: In<Handle>, _data: Opaque, count: usize,
        parameters: In<NodeParameters>,
    ) {
        let operation = parameters.get()?.operation(call)?;
        add(call, out, graph, after, count, operation)
    }

    Call fn cuGraphDestroyNode(call, node: Handle) {
        let graph = call.nodes.remove(&node).ok_or(Status::INVALID_VALUE)?;
        let graph = call.graphs.get_mut(&graph).ok_or(Status::INVALID_VALUE)?;
        graph.nodes.retain(|other| other.handle != node);
        for other in &mut graph.nodes {
            other.after.retain(|before| *before != node);
        }
        Ok(())
    }

    Get fn cuGraphNodeGetType(call, node: Handle, kind: Out<i32>) {
        kind.put(of(call, node)?.operation.node_type())
    }

    Get fn cuGraphNodeGetDependencies(
        call, node: Handle, nodes: Out<Handle>, count: Out<usize>,
    ) {
        list(&of(call, node)?.after, nodes, count)
    }

    Get fn cuGraphNodeGetDependencies_v2(
        call, node: Handle, nodes: Out<Handle>, data: Out<u64>, count: Out<usize>,
    ) {
        if data.is_wanted() {
            data.put_all(std::iter::repeat(0), count.get()?);
        }
        list(&of(call, node)?.after, nodes, count)
    }

    Get fn cuGraphNodeGetDependentNodes(
        call, node: Handle, nodes: Out<Handle>, count: Out<usize>,
    ) {
        list(&behind(call, node)?, nodes, count)
    }

    Get fn cuGraphNodeGetDependentNodes_v2(
        call, node: Handle, nodes: Out<Handle>, data: Out<u64>, count: Out<usize>,
    ) {
        if data.is_wanted() {
            data.put_all(std::iter::repeat(0), count.get()?);
        }
        list(&behind(call, node)?, nodes, count)
    }

    Call fn cuGraphNodeFindInClone(call, out: Out<Handle>, node: Handle, clone: Handle) {
        let graph = call.nodes.get(&node).ok_or(Status::INVALID_VALUE)?;
        let nodes = &known(call, *graph)?.nodes;
        let index = nodes.iter().position(|other| other.handle == node);
        let found = index.and_then(|index| known(call, clone).ok()?.nodes.get(index));
        out.put(found.ok_or(Status::INVALID_VALUE)?.handle)
    }

    Get fn cuGraphChildGraphNodeGetGraph(call, node: Handle, graph: Out<Handle>) {
        let Operation::Child(child) = &of(call, node)?.operation else {
            return Err(Status::INVALID_VALUE);
        };
        let child = child.clone();
        let made = adopt(call, &child);
        graph.put(made)
    }

    Get fn cuGraphKernelNodeGetParams(call, node: Handle, out: Out<KernelParameters>) {
        out.put(KernelParameters::of(kernel_of(call, node)?))
    }

    Get fn cuGraphKernelNodeGetParams_v2(call, node: Handle, out: Out<KernelParameters2>) {
        let kernel = kernel_of(call, node)?;
        let launch = KernelParameters::of(kernel);
        out.put(KernelParameters2 { launch, kernel: 0, context: call.context().unwrap_or(0) })
    }

    Call fn cuGraphKernelNodeSetParams(call, node: Handle, parameters: In<KernelParameters>) {
        let operation = parameters.get()?.operation(call)?;
        set(call, node, operation)
    }

    Call fn cuGraphKernelNodeSetParams_v2(
        call, node: Handle, parameters: In<KernelParameters2>,
    ) {
        let operation = parameters.get()?.operation(call)?;
        set(call, node, operation)
    }

    Get fn cuGraphMemcpyNodeGetParams(call, node: Handle, out: Out<Copy3d>) {
        let Operation::Copy(copy) = &of(call, node)?.operation else {
            return Err(Status::INVALID_VALUE);
        };
        out.put(Copy3d::of(copy, &call.memory))
    }

    Call fn cuGraphMemcpyNodeSetParams(call, node: Handle, parameters: In<Copy3d>) {
        let operation = Operation::Copy(parameters.get()?.copy(call)?);
        set(call, node, operation)
    }

    Get fn cuGraphMemsetNodeGetParams(call, node: Handle, out: Out<SetParameters>) {
        let Operation::Set(set) = &of(call, node)?.operation else {
            return Err(Status::INVALID_VALUE);
        };
        let Set { address, pitch, value, element, width, height } = *set;
        out.put(SetParameters { address, pitch, value, element, width, height })
    }

    Call fn cuGraphMemsetNodeSetParams(call, node: Handle, parameters: In<SetParameters>) {
        let operation = parameters.get()?.operation(call)?;
        set(call, node, operation)
    }

    Call fn cuGraphHostNodeSetParams(call, node: Handle, parameters: In<HostParameters>) {
        let operation = parameters.get()?.operation()?;
        set(call, node, operation)
    }

    Call fn cuGraphExecKernelNodeSetParams(
        call, executable: Handle, node: Handle, parameters: In<KernelParameters>,
    ) {
        let operation = parameters.get()?.operation(call)?;
        set_executable(call, executable, node, operation)
    }

    Call fn cuGraphExecKernelNodeSetParams_v2(
        call, executable: Handle, node: Handle, parameters: In<KernelParameters2>,
    ) {
        let operation = parameters.get()?.operation(call)?;
        set_executable(call, executable, node, operation)
    }

    Call fn cuGraphExecMemcpyNodeSetParams(
        call, executable: Handle, node: Handle, parameters: In<Copy3d>, _context: Handle,
    ) {
        let operation = Operation::Copy(parameters.get()?.copy(call)?);
        set_executable(call, executable, node, operation)
    }

    Call fn cuGraphExecMemsetNodeSetParams(
        call, executable: Handle, node: Handle, parameters: In<SetParameters>, _context: Handle,
    ) {
        let operation = parameters.get()?.operation(call)?;
        set_executable(call, executable, node, operation)
    }

    Call fn cuGraphExecHostNodeSetParams(
        call, executable: Handle, node: Handle, parameters: In<HostParameters>,
    ) {
        let operation = parameters.get()?.operation()?;
        set_executable(call, executable, node, operation)
    }

    Call fn cuGraphExecChildGraphNodeSetParams(
        call, executable: Handle, node: Handle, child: Handle,
    ) {
        let operation = Operation::Child(known(call, child)?.clone());
        set_executable(call, executable, node, operation)
    }

    Call fn cuGraphNodeSetEnabled(call, executable: Handle, node: Handle, is_enabled: u32) {
        let graph = executable_mut(call, executable)?;
        let node = graph.node_mut(node)?;
        if node.operation.node_type() > 2 {
            return Err(Status::INVALID_VALUE);
        }
        node.enabled = is_enabled != 0;
        Ok(())
    }

    Get fn cuGraphNodeGetEnabled(
        call, executable: Handle, node: Handle, is_enabled: Out<u32>,
    ) {
        let graph = executable_mut(call, executable)?;
        is_enabled.put(u32::from(graph.node(node)?.enabled))
    }
}

/// cuda.h: `CUDA_KERNEL_NODE_PARAMS`, first version.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelParameters {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    parameters: In<In<u64>>,
    extra: In<u64>,
}

/// cuda.h: `CUDA_KERNEL_NODE_PARAMS`, second and third version.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelParameters2 {
    launch: KernelParameters,
    /// A kernel of a library, instead of the function.
    kernel: Handle,
    context: Handle,
}

impl KernelParameters {
    fn of(kernel: &Kernel) -> Self {
        let Kernel { function, grid, block, shared, parameters, extra, .. } = *kernel;
        let (parameters, extra) = (In::from_address(parameters), In::from_address(extra));
        Self { function, grid, block, shared, parameters, extra }
    }

    fn operation(self, call: &Call) -> Result<Operation, Status> {
        let Self { function, grid, block, shared, parameters, extra } = self;
        let shape = Shape { function, grid, block, shared };
        Ok(Operation::Kernel(kernel(call, &shape, parameters, extra)?))
    }
}

impl KernelParameters2 {
    fn operation(self, call: &Call) -> Result<Operation, Status> {
        let function = if self.launch.function == 0 { self.kernel } else { self.launch.function };
        KernelParameters { function, ..self.launch }.operation(call)
    }
}

/// cuda.h: `CUDA_MEMSET_NODE_PARAMS`, first version.
#[repr(C)]
#[derive(Clone, Copy)]
struct SetParameters {
    address: u64,
    pitch: u64,
    value: u32,
    element: u32,
    width: u64,
    height: u64,
}

impl SetParameters {
    fn operation(self, call: &Call) -> Result<Operation, Status> {
        let Self { address, pitch, value, element, width, height } = self;
        let set = Set { address, pitch, value, element, width, height };
        Ok(Operation::Set(set.checked(&call.memory)?))
    }
}

/// cuda.h: `CUDA_HOST_NODE_PARAMS`, first version.
#[repr(C)]
#[derive(Clone, Copy)]
struct HostParameters {
    function: Option<HostFunction>,
    data: Opaque,
}

impl HostParameters {
    fn operation(self) -> Result<Operation, Status> {
        let function = self.function.ok_or(Status::INVALID_VALUE)?;
        Ok(Operation::Host(Callback::Host(function, self.data)))
    }
}

/// cuda.h: `CUgraphNodeParams`. What is in it depends on the type.
#[repr(C)]
#[derive(Clone, Copy)]
struct NodeParameters {
    kind: i32,
    reserved: [i32; 3],
    what: Parameters,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Parameters {
    kernel: KernelParameters2,
    copy: CopyParameters,
    set: SetParameters,
    host: HostParameters,
    handle: Handle,
}

/// cuda.h: `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyParameters {
    flags: [i32; 2],
    context: Handle,
    copy: Copy3d,
}

impl NodeParameters {
    fn operation(self, call: &Call) -> Result<Operation, Status> {
        let what = self.what;
        // SAFETY, of all that follow: the type says which of them the caller wrote.
        match self.kind {
            // SAFETY: see above.
            0 => unsafe { what.kernel }.operation(call),
            // SAFETY: see above.
            1 => Ok(Operation::Copy(unsafe { what.copy }.copy.copy(call)?)),
            // SAFETY: see above.
            2 => unsafe { what.set }.operation(call),
            // SAFETY: see above.
            3 => unsafe { what.host }.operation(),
            // SAFETY: see above.
            4 => Ok(Operation::Child(known(call, unsafe { what.handle })?.clone())),
            5 => Ok(Operation::Empty),
            6 | 7 => {
                // SAFETY: see above.
                let event = unsafe { what.handle };
                call.events.get(&event).ok_or(Status::INVALID_VALUE)?;
                let is_wait = self.kind == 6;
                Ok(if is_wait { Operation::Wait(event) } else { Operation::Record(event) })
            }
            _ => Err(Status::NOT_SUPPORTED),
        }
    }
}

fn add(
    call: &mut Call,
    out: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    operation: Operation,
) -> Answer {
    let after = after.all(count)?;
    let node = call.add_node(graph, after, operation)?;
    out.put(node)
}

fn of(call: &Call, node: Handle) -> Result<&Node, Status> {
    let graph = call.nodes.get(&node).ok_or(Status::INVALID_VALUE)?;
    known(call, *graph)?.node(node)
}

fn behind(call: &Call, node: Handle) -> Result<Vec<Handle>, Status> {
    let graph = call.nodes.get(&node).ok_or(Status::INVALID_VALUE)?;
    let nodes = known(call, *graph)?.nodes.iter().filter(|other| other.after.contains(&node));
    Ok(nodes.map(|other| other.handle).collect())
}

fn kernel_of(call: &Call, node: Handle) -> Result<&Kernel, Status> {
    match &of(call, node)?.operation {
        Operation::Kernel(kernel) => Ok(kernel),
        _ => Err(Status::INVALID_VALUE),
    }
}

/// Gives a node other parameters, of the same type.
fn replace(node: &mut Node, operation: Operation) -> Answer {
    if node.operation.node_type() != operation.node_type() {
        return Err(Status::INVALID_VALUE);
    }
    node.operation = operation;
    Ok(())
}

fn set(call: &mut Call, node: Handle, operation: Operation) -> Answer {
    let graph = *call.nodes.get(&node).ok_or(Status::INVALID_VALUE)?;
    let graph = call.graphs.get_mut(&graph).ok_or(Status::INVALID_VALUE)?;
    replace(graph.node_mut(node)?, operation)
}

fn executable_mut(call: &mut Call, executable: Handle) -> Result<&mut Graph, Status> {
    call.executables.get_mut(&executable).ok_or(Status::INVALID_VALUE)
}

fn set_executable(
    call: &mut Call,
    executable: Handle,
    node: Handle,
    operation: Operation,
) -> Answer {
    replace(executable_mut(call, executable)?.node_mut(node)?, operation)
}
