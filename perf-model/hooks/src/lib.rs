//! The functions of the CUDA driver that the shim hooks: what each is, and where its parameters are.
//!
//! The rows are made from NVIDIA's headers (`cargo xtask cuda-hooks`). A function has a *form* for
//! each change of its parameters or its meaning, told apart by the CUDA version that brought it and
//! by the default stream that it takes; each form is a symbol of the driver.

mod generated;

pub use generated::HOOKS;

/// A hooked form of a function.
#[derive(Debug)]
pub struct Hook {
    /// The name that `cuGetProcAddress` takes: `cuMemcpyHtoD`.
    pub name: &'static str,
    /// The first CUDA version that has this form, times 1000, and its minor version times 10.
    pub since: u32,
    /// Whether stream 0 is the calling thread's own rather than the legacy one.
    pub per_thread: bool,
    /// The driver's symbol: `cuMemcpyHtoD_v2_ptds`.
    pub symbol: &'static str,
    /// What it does.
    pub class: Class,
    /// Its parameters in order. The first six are in registers, the others on the stack, eight
    /// bytes each.
    pub parameters: &'static [Parameter],
    /// Where the first parameter of each role is, or [`NOWHERE`].
    places: [u8; ROLES],
}

/// How many roles there are.
const ROLES: usize = Role::Other as usize + 1;

/// The place of a role that no parameter has.
const NOWHERE: u8 = u8::MAX;

/// A parameter of a hooked function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// What it is.
    pub role: Role,
    /// How many bytes of its register or its place on the stack it fills: 1, 2, 4 or 8. The rest
    /// is undefined.
    pub width: u8,
}

/// What a hooked function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Gives the address of a function by its name.
    Resolver,
    /// Starts a kernel.
    Launch,
    /// Starts an instantiated graph.
    GraphLaunch,
    /// Puts an instantiated graph on the device, ahead of its launch.
    GraphUpload,
    /// Makes an executable graph of a graph.
    GraphInstantiate,
    /// Changes an executable graph.
    GraphChange,
    /// Destroys an executable graph.
    GraphEnd,
    /// Makes a stream record what is put into it, in a graph.
    CaptureBegin,
    /// Ends such a recording.
    CaptureEnd,
    /// Copies from host memory to the device's memory, or to an array there.
    HostToDevice,
    /// Copies from the device's memory, or from an array there, to host memory.
    DeviceToHost,
    /// Copies from the device's memory to the device's memory.
    DeviceToDevice,
    /// Copies between addresses that say which memory they are of.
    Copy,
    /// Copies between the memories of two contexts.
    CopyPeer,
    /// Copies as a `CUDA_MEMCPY2D` says.
    Copy2d,
    /// Copies as a `CUDA_MEMCPY3D` says.
    Copy3d,
    /// Copies as a `CUDA_MEMCPY3D_PEER` says.
    Copy3dPeer,
    /// Does several copies between addresses that say which memory they are of.
    CopyBatch,
    /// Does one copy or several, as each one's `CUDA_MEMCPY3D_BATCH_OP` says.
    Copy3dBatch,
    /// Moves managed memory.
    Prefetch,
    /// Moves several ranges of managed memory.
    PrefetchBatch,
    /// Moves several ranges of managed memory without what is in them.
    DiscardAndPrefetch,
    /// Sets the device's memory.
    Memset,
    /// Sets lines of the device's memory.
    Memset2d,
    /// Waits for all that is in a stream.
    StreamSynchronize,
    /// Waits for an event.
    EventSynchronize,
    /// Waits for all that is in a context.
    ContextSynchronize,
    /// Asks whether a stream's or an event's work has ended.
    Query,
    /// Puts an event into a stream.
    EventRecord,
    /// Makes a stream wait for an event.
    StreamWait,
    /// Calls a function on the host when a stream gets there.
    HostCallback,
    /// Allocates memory of the device.
    Allocate,
    /// Allocates memory that moves between the host and devices.
    AllocateManaged,
    /// Allocates pinned memory of the host.
    AllocateHost,
    /// Pins memory of the host.
    RegisterHost,
    /// Gives the address that a device has for pinned memory of the host.
    MapHost,
    /// Ends an allocation, or the pinning of memory.
    Free,
    /// Destroys a stream.
    StreamEnd,
    /// Destroys an event.
    EventEnd,
    /// Destroys a context, or lets go of it.
    ContextEnd,
    /// Begins what a profiler is to look at.
    RangeBegin,
    /// Ends it.
    RangeEnd,
}

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A stream. Functions with a launch configuration have it there.
    Stream,
    /// An event.
    Event,
    /// A kernel.
    Function,
    /// An executable graph.
    GraphExec,
    /// Where an executable graph goes.
    GraphExecOut,
    /// A graph.
    Graph,
    /// Where a graph goes.
    GraphOut,
    /// A node of a graph.
    Node,
    /// The address of a `CUlaunchConfig`.
    LaunchConfig,
    /// The address of `CUDA_LAUNCH_PARAMS`, [`Role::Count`] of them.
    LaunchList,
    /// The address of a `CUDA_GRAPH_INSTANTIATE_PARAMS`, which has a stream.
    InstantiateParams,
    /// A device's number.
    Device,
    /// Where managed memory moves to: a device's number or a `CUmemLocation`.
    Location,
    /// The address of `CUmemLocation`s.
    Locations,
    /// A context.
    Context,
    /// The context of a copy's destination.
    DestinationContext,
    /// The context of a copy's source.
    SourceContext,
    /// The array that is a copy's destination.
    DestinationArray,
    /// The array that is a copy's source.
    SourceArray,
    /// The address that a copy or a memset writes to.
    Destination,
    /// The address that a copy reads from.
    Source,
    /// The address of [`Role::Count`] addresses that copies write to.
    Destinations,
    /// The address of [`Role::Count`] addresses that copies read from.
    Sources,
    /// The address of [`Role::Count`] addresses of managed memory.
    Addresses,
    /// The address of [`Role::Count`] numbers of bytes.
    Sizes,
    /// Bytes from the beginning of the destination array.
    DestinationOffset,
    /// Bytes from the beginning of the source array.
    SourceOffset,
    /// An address of memory.
    Address,
    /// Where an address goes.
    AddressOut,
    /// A number of bytes.
    Bytes,
    /// A number of things in a list.
    Count,
    /// A number of elements, each of the value's width.
    Elements,
    /// Elements in a line; bytes of a line where memory is allocated.
    Width,
    /// A number of lines.
    Height,
    /// Bytes from one line to the next.
    Pitch,
    /// What memory is set to.
    Value,
    /// The address of what describes a copy, or of [`Role::Count`] of them.
    Description,
    /// The address of the addresses of a kernel's parameters.
    KernelParameters,
    /// The address of a kernel's parameters in another form.
    Extra,
    /// A function of the host.
    HostFunction,
    /// What a function of the host gets.
    UserData,
    /// A name, ended by a zero byte.
    Name,
    /// Where the address of a function goes.
    FunctionOut,
    /// A CUDA version.
    Version,
    /// Where it goes whether a name was found; may be null.
    Status,
    /// Flags.
    Flags,
    /// A stream capture's mode.
    Mode,
    /// What the shim has no use for.
    Other,
}

impl Hook {
    /// Where the first parameter of this role is, counted from 0.
    pub const fn position(&self, role: Role) -> Option<usize> {
        match self.places[role as usize] {
            NOWHERE => None,
            place => Some(place as usize),
        }
    }
}

/// Where in [`HOOKS`] a symbol of the driver is.
pub fn index_of(symbol: &str) -> Option<usize> {
    HOOKS.binary_search_by(|hook| hook.symbol.cmp(symbol)).ok()
}

/// The hook of a symbol of the driver.
pub fn by_symbol(symbol: &str) -> Option<&'static Hook> {
    index_of(symbol).map(|found| &HOOKS[found])
}

/// The newest CUDA version that brought a form.
pub fn newest() -> u32 {
    HOOKS.iter().map(|hook| hook.since).max().unwrap_or(0)
}

/// The hook of what `cuGetProcAddress` gives for a name at a CUDA version: the newest form that is
/// no newer. With the per-thread default stream wanted, functions that have no form with it give
/// the ordinary one.
pub fn by_version(name: &str, version: u32, per_thread: bool) -> Option<&'static Hook> {
    let forms = || HOOKS.iter().filter(|hook| hook.name == name);
    let per_thread = per_thread && forms().any(|hook| hook.per_thread);
    forms()
        .filter(|hook| hook.per_thread == per_thread && hook.since <= version)
        .max_by_key(|hook| hook.since)
}

/// A row of the table, with each parameter's role and width.
const fn hook(
    name: &'static str,
    since: u32,
    per_thread: bool,
    symbol: &'static str,
    class: Class,
    parameters: &'static [Parameter],
) -> Hook {
    let mut places = [NOWHERE; ROLES];
    let mut index = parameters.len();
    while index > 0 {
        index -= 1;
        places[parameters[index].role as usize] = index as u8;
    }
    Hook { name, since, per_thread, symbol, class, parameters, places }
}

/// A parameter of a row.
const fn p(role: Role, width: u8) -> Parameter {
    Parameter { role, width }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn symbols_are_in_order_and_once() {
        assert!(HOOKS.windows(2).all(|two| two[0].symbol < two[1].symbol));
        for hook in &HOOKS {
            assert!(std::ptr::eq(by_symbol(hook.symbol).unwrap(), hook));
            assert!(std::ptr::eq(
                by_version(hook.name, hook.since, hook.per_thread).unwrap(),
                hook
            ));
        }
        assert!(by_symbol("cuInit").is_none());
    }

    #[test]
    fn versions_choose_forms_as_the_driver_does() {
        let symbol = |name, version, per_thread| {
            by_version(name, version, per_thread).map(|hook| hook.symbol)
        };
        assert_eq!(symbol("cuMemcpyHtoD", 1999, false), None);
        assert_eq!(symbol("cuMemcpyHtoD", 2000, false), Some("cuMemcpyHtoD"));
        assert_eq!(symbol("cuMemcpyHtoD", 12000, false), Some("cuMemcpyHtoD_v2"));
        assert_eq!(symbol("cuMemcpyHtoD", 12000, true), Some("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(symbol("cuMemcpyHtoD", 6999, true), None);
        assert_eq!(symbol("cuMemAlloc", 12000, true), Some("cuMemAlloc_v2"));
        assert_eq!(symbol("cuGetProcAddress", 11030, false), Some("cuGetProcAddress"));
        assert_eq!(symbol("cuGetProcAddress", 12000, false), Some("cuGetProcAddress_v2"));
    }

    #[test]
    fn rows_have_what_their_class_needs() {
        for hook in &HOOKS {
            let has = |role| hook.position(role).is_some();
            let addressed = |one, other| has(one) != has(other);
            let complete = match hook.class {
                Class::Resolver => has(Role::Name) && has(Role::FunctionOut) && has(Role::Version),
                Class::Launch => {
                    addressed(Role::Function, Role::LaunchList)
                        && (!has(Role::KernelParameters)
                            || addressed(Role::Stream, Role::LaunchConfig))
                }
                Class::GraphLaunch | Class::GraphUpload => {
                    has(Role::GraphExec) && has(Role::Stream)
                }
                Class::GraphInstantiate => has(Role::GraphExecOut) && has(Role::Graph),
                Class::GraphChange | Class::GraphEnd => has(Role::GraphExec),
                Class::CaptureBegin | Class::CaptureEnd => has(Role::Stream),
                Class::HostToDevice | Class::DeviceToHost | Class::DeviceToDevice => {
                    has(Role::Bytes)
                        && addressed(Role::Destination, Role::DestinationArray)
                        && addressed(Role::Source, Role::SourceArray)
                }
                Class::Copy | Class::CopyPeer => {
                    has(Role::Bytes) && has(Role::Destination) && has(Role::Source)
                }
                Class::Copy2d | Class::Copy3d | Class::Copy3dPeer | Class::Copy3dBatch => {
                    has(Role::Description)
                }
                Class::CopyBatch => {
                    [Role::Destinations, Role::Sources, Role::Sizes, Role::Count, Role::Stream]
                        .into_iter()
                        .all(has)
                }
                Class::Prefetch => {
                    [Role::Address, Role::Bytes, Role::Location, Role::Stream].into_iter().all(has)
                }
                Class::PrefetchBatch | Class::DiscardAndPrefetch => {
                    [Role::Addresses, Role::Sizes, Role::Count, Role::Locations, Role::Stream]
                        .into_iter()
                        .all(has)
                }
                Class::Memset => has(Role::Destination) && has(Role::Value) && has(Role::Elements),
                Class::Memset2d => {
                    has(Role::Value) && has(Role::Pitch) && has(Role::Width) && has(Role::Height)
                }
                Class::StreamSynchronize | Class::StreamEnd => has(Role::Stream),
                Class::EventSynchronize | Class::EventEnd => has(Role::Event),
                Class::ContextSynchronize => hook.parameters.is_empty() || has(Role::Context),
                Class::Query => addressed(Role::Stream, Role::Event),
                Class::EventRecord | Class::StreamWait => has(Role::Stream) && has(Role::Event),
                Class::HostCallback => has(Role::Stream) && has(Role::HostFunction),
                Class::Allocate | Class::AllocateManaged | Class::AllocateHost => {
                    has(Role::AddressOut) && (has(Role::Bytes) || has(Role::Height))
                }
                Class::RegisterHost => has(Role::Address) && has(Role::Bytes),
                Class::MapHost => has(Role::Address) && has(Role::AddressOut),
                Class::Free => has(Role::Address),
                Class::ContextEnd => addressed(Role::Context, Role::Device),
                Class::RangeBegin | Class::RangeEnd => hook.parameters.is_empty(),
            };
            assert!(complete, "{hook:?}");
            let asynchronous = hook.symbol.contains("Async");
            assert!(!asynchronous || has(Role::Stream), "{hook:?}");
        }
    }

    #[test]
    fn places_are_those_of_the_first_of_a_role() {
        for hook in &HOOKS {
            for parameter in hook.parameters {
                let first = hook.parameters.iter().position(|other| other.role == parameter.role);
                assert_eq!(hook.position(parameter.role), first, "{hook:?}");
            }
            let with = hook.places.iter().filter(|place| **place != NOWHERE).count();
            let roles: std::collections::BTreeSet<u8> =
                hook.parameters.iter().map(|parameter| parameter.role as u8).collect();
            assert_eq!(with, roles.len(), "{hook:?}");
        }
    }

    #[test]
    fn old_forms_have_short_addresses() {
        let width = |symbol, role| {
            let hook = by_symbol(symbol).unwrap();
            hook.parameters[hook.position(role).unwrap()].width
        };
        assert_eq!(width("cuMemcpyHtoD", Role::Destination), 4);
        assert_eq!(width("cuMemcpyHtoD", Role::Source), 8);
        assert_eq!(width("cuMemcpyHtoD_v2", Role::Destination), 8);
        assert_eq!(width("cuMemsetD16_v2", Role::Value), 2);
        assert_eq!(by_symbol("cuLaunchKernel").unwrap().position(Role::Stream), Some(8));
    }
}
