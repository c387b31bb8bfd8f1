//! What a parameter of a hooked function is to the shim, and how much of its register counts.

use anyhow::{Result, bail};

use super::headers::Parameter;

/// The role in `cuda-hooks` of a parameter of a function of the class.
pub(super) fn role(class: &str, parameter: &Parameter) -> &'static str {
    match (parameter.kind.as_str(), parameter.name.as_str()) {
        ("CUstream", _) => "Stream",
        ("CUevent", _) => "Event",
        ("CUfunction", _) => "Function",
        ("CUgraphExec", _) => "GraphExec",
        ("CUgraphExec*", _) => "GraphExecOut",
        ("CUgraph", _) => "Graph",
        ("CUgraph*", _) => "GraphOut",
        ("CUgraphNode", _) => "Node",
        ("CUlaunchConfig*", _) => "LaunchConfig",
        ("CUDA_LAUNCH_PARAMS_v1*", _) => "LaunchList",
        ("CUDA_GRAPH_INSTANTIATE_PARAMS*", _) => "InstantiateParams",
        ("CUdevice_v1", "dev") => "Device",
        ("CUdevice_v1", "dstDevice") | ("CUmemLocation_v1", _) => "Location",
        ("CUmemLocation_v1*", _) => "Locations",
        ("CUcontext", "dstContext") => "DestinationContext",
        ("CUcontext", "srcContext") => "SourceContext",
        ("CUcontext", _) => "Context",
        ("CUarray", "dstArray") => "DestinationArray",
        ("CUarray", "srcArray") => "SourceArray",
        ("CUdriverProcAddressQueryResult*", _) => "Status",
        ("CUhostFn" | "CUstreamCallback", _) => "HostFunction",
        ("char*", "symbol") => "Name",
        ("void**", "pfn") => "FunctionOut",
        ("int", "driverVersion") => "Version",
        (_, "dstHost" | "dstDevice" | "dst") => "Destination",
        (_, "srcHost" | "srcDevice" | "src") => "Source",
        (_, "dsts") => "Destinations",
        (_, "srcs") => "Sources",
        (_, "dptrs") => "Addresses",
        (_, "sizes") => "Sizes",
        (_, "dstOffset") => "DestinationOffset",
        (_, "srcOffset") => "SourceOffset",
        (_, "dptr" | "pp" | "pdptr") if parameter.kind.ends_with('*') && class != "Free" => {
            "AddressOut"
        }
        (_, "dptr" | "devPtr" | "p") => "Address",
        (_, "count") if class == "Prefetch" => "Bytes",
        (_, "ByteCount" | "bytesize" | "size") => "Bytes",
        (_, "count" | "numDevices") | ("size_t", "numParams") => "Count",
        (_, "N") => "Elements",
        (_, "Width" | "WidthInBytes") => "Width",
        (_, "Height") => "Height",
        (_, "dstPitch") => "Pitch",
        (_, "uc" | "us" | "ui") => "Value",
        (_, "pCopy" | "opList" | "op") => "Description",
        (_, "kernelParams") => "KernelParameters",
        (_, "extra") => "Extra",
        (_, "userData") => "UserData",
        (_, "flags" | "Flags") => "Flags",
        (_, "mode") => "Mode",
        _ => "Other",
    }
}

/// How many bytes of its register, or of its eight bytes on the stack, a parameter fills. The rest
/// is whatever the caller left there.
///
/// # Errors
///
/// For a type that is not entered here.
pub(super) fn width(parameter: &Parameter) -> Result<u8> {
    let kind = parameter.kind.as_str();
    if kind.ends_with('*') {
        return Ok(8);
    }
    Ok(match kind {
        "size_t" | "unsigned long long" | "cuuint64_t" | "CUdeviceptr" | "CUdeviceptr_v2" => 8,
        // Handles and functions.
        "CUarray"
        | "CUcontext"
        | "CUevent"
        | "CUfunction"
        | "CUgraph"
        | "CUgraphExec"
        | "CUgraphNode"
        | "CUgraphRecaptureCallback"
        | "CUhostFn"
        | "CUmemoryPool"
        | "CUstream"
        | "CUstreamCallback" => 8,
        // Two words of four bytes, which go in one register.
        "CUmemLocation_v1" => 8,
        "int" | "unsigned int" | "CUdeviceptr_v1" | "CUdevice_v1" | "CUstreamCaptureMode" => 4,
        "unsigned short" => 2,
        "unsigned char" => 1,
        _ => bail!(
            "no width for the type `{kind}` of `{}`: enter it in cuda_hooks/roles.rs",
            parameter.name
        ),
    })
}
