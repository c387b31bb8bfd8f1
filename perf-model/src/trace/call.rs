//! What a function of the CUDA runtime or driver does to its caller, by its name.

/// What kind of function a call was of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Asks the device for something and returns.
    Issue,
    /// Asks the device for all that is in a graph and returns.
    IssueGraph,
    /// Asks for a copy and returns when it is done.
    IssueAndWait,
    /// Waits until something that was asked for is done.
    Synchronise(Scope),
    /// Makes a stream wait for an event.
    StreamWait,
    /// Anything else: what it does takes the CPU's time only.
    Other,
}

/// What a call waits for, by its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All streams of the device.
    Device,
    /// One stream.
    Stream,
    /// An event.
    Event,
}

impl CallKind {
    /// The kind of a function of the CUDA runtime (`cuda…`), the driver (`cu…`) or of HIP
    /// (`hip…`), with or without a version and stream suffix (`_v2`, `_v7000`, `_ptsz`, `_ptds`).
    #[must_use]
    pub fn of(function: &str) -> CallKind {
        let name = without_suffixes(function);
        let Some(name) = ["cuda", "cu", "hip"].iter().find_map(|p| name.strip_prefix(p)) else {
            return CallKind::Other;
        };
        match name {
            "DeviceSynchronize" | "ThreadSynchronize" | "CtxSynchronize" => {
                CallKind::Synchronise(Scope::Device)
            }
            "StreamSynchronize" => CallKind::Synchronise(Scope::Stream),
            "EventSynchronize" => CallKind::Synchronise(Scope::Event),
            "StreamWaitEvent" => CallKind::StreamWait,
            "GraphLaunch" => CallKind::IssueGraph,
            _ if name.starts_with("Memcpy") && !name.contains("Async") => CallKind::IssueAndWait,
            _ if name.starts_with("Launch")
                || name.starts_with("ModuleLaunch")
                || name.starts_with("Memcpy")
                || name.starts_with("Memset")
                || name.starts_with("MemPrefetch") =>
            {
                CallKind::Issue
            }
            _ => CallKind::Other,
        }
    }

    /// Whether such a call waits for something that was asked for before, or makes a stream wait.
    #[must_use]
    pub fn waits(self) -> bool {
        matches!(self, CallKind::Synchronise(_) | CallKind::StreamWait)
    }
}

fn without_suffixes(mut name: &str) -> &str {
    loop {
        let Some((head, tail)) = name.rsplit_once('_') else { return name };
        let version = tail.strip_prefix('v').is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
        });
        if !version && tail != "ptsz" && tail != "ptds" && tail != "spt" {
            return name;
        }
        name = head;
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn functions_are_known_by_their_names() {
        for (function, kind) in [
            ("cudaLaunchKernel", CallKind::Issue),
            ("cudaLaunchKernelExC_v11060", CallKind::Issue),
            ("cuLaunchKernel_ptsz", CallKind::Issue),
            ("hipModuleLaunchKernel", CallKind::Issue),
            ("hipLaunchKernel", CallKind::Issue),
            ("cudaGraphLaunch_v10000", CallKind::IssueGraph),
            ("cudaMemcpyAsync_ptsz_v7000", CallKind::Issue),
            ("cudaMemcpy_v3020", CallKind::IssueAndWait),
            ("cuMemcpyHtoD_v2", CallKind::IssueAndWait),
            ("cuMemcpyHtoDAsync_v2_ptsz", CallKind::Issue),
            ("cudaMemcpy2D", CallKind::IssueAndWait),
            ("cuMemsetD8Async", CallKind::Issue),
            ("cudaStreamSynchronize_v3020", CallKind::Synchronise(Scope::Stream)),
            ("cuCtxSynchronize", CallKind::Synchronise(Scope::Device)),
            ("cudaDeviceSynchronize", CallKind::Synchronise(Scope::Device)),
            ("cuEventSynchronize", CallKind::Synchronise(Scope::Event)),
            ("cudaStreamWaitEvent_v3020", CallKind::StreamWait),
            ("cudaStreamIsCapturing", CallKind::Other),
            ("cudaMalloc", CallKind::Other),
            ("aten::copy_", CallKind::Other),
            ("", CallKind::Other),
            ("_", CallKind::Other),
        ] {
            assert_eq!(CallKind::of(function), kind, "{function}");
        }
    }
}
