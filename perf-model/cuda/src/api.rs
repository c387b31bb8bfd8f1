//! The driver's functions, by name.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::Library;
use thiserror::Error;

pub(crate) type Status = c_int;
pub(crate) type Module = *mut c_void;
pub(crate) type Function = *mut c_void;
pub(crate) type RawStream = *mut c_void;
pub(crate) type RawEvent = *mut c_void;

/// Why the driver did not do something.
#[derive(Debug, Error)]
pub enum CudaError {
    /// There is no driver.
    #[error("there is no CUDA driver here (libcuda.so.1): {0}")]
    NoDriver(String),
    /// The driver lacks a function.
    #[error("the CUDA driver has no {0}")]
    NoFunction(&'static str),
    /// The driver refused.
    #[error("{call}: CUDA error {status}{}", hint(*status))]
    Refused {
        /// The function.
        call: &'static str,
        /// A CUresult.
        status: i32,
    },
}

/// What the most common errors mean to a person.
fn hint(status: i32) -> &'static str {
    match status {
        2 => " (out of memory)",
        100 => " (no GPU: is one in the machine, and may this user open /dev/nvidia0?)",
        101 => " (there is no GPU of this number)",
        218 => " (the driver cannot compile this program's kernels)",
        802 | 803 => " (the driver and its kernel module do not match, or are not ready)",
        _ => "",
    }
}

/// What the dynamic linker says, which is behind the error.
fn no_driver(error: &libloading::Error) -> CudaError {
    let reason = std::error::Error::source(error).map_or(error.to_string(), ToString::to_string);
    CudaError::NoDriver(reason)
}

/// The driver's answer as a `Result`.
pub(crate) fn check(call: &'static str, status: Status) -> Result<(), CudaError> {
    if status == 0 { Ok(()) } else { Err(CudaError::Refused { call, status }) }
}

macro_rules! api {
    ($($field:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The driver's functions. Each is called with pointers that this crate makes from what it
        /// owns; see [`safe`].
        #[derive(Debug)]
        pub(crate) struct Api {
            $(pub(crate) $field: safe!($($argument),*),)*
            /// Keeps the functions where they are.
            _library: Library,
        }

        impl Api {
            /// The driver of this machine.
            #[expect(unsafe_code, reason = "the driver is a shared library")]
            pub(crate) fn load() -> Result<Self, CudaError> {
                // SAFETY: loading CUDA's driver runs its initialisers, which every CUDA program
                // does at its start; the name is NVIDIA's own.
                let library = unsafe { Library::new("libcuda.so.1") }
                    .map_err(|error| no_driver(&error))?;
                $(
                    // SAFETY: the signature is the one of cuda.h for this exported name, which
                    // NVIDIA keeps for as long as the name is exported.
                    let $field = *unsafe { library.get::<safe!($($argument),*)>($symbol) }
                        .map_err(|_| CudaError::NoFunction(name($symbol)))?;
                )*
                Ok(Self { $($field,)* _library: library })
            }
        }
    };
}

/// The type of a function of the driver.
macro_rules! safe {
    ($($argument:ty),*) => { extern "C" fn($($argument),*) -> Status };
}

fn name(symbol: &'static [u8]) -> &'static str {
    CStr::from_bytes_with_nul(symbol).ok().and_then(|name| name.to_str().ok()).unwrap_or("function")
}

api! {
    init = b"cuInit\0" (c_uint);
    device_get = b"cuDeviceGet\0" (*mut c_int, c_int);
    device_name = b"cuDeviceGetName\0" (*mut c_char, c_int, c_int);
    attribute = b"cuDeviceGetAttribute\0" (*mut c_int, c_int, c_int);
    retain = b"cuDevicePrimaryCtxRetain\0" (*mut *mut c_void, c_int);
    release = b"cuDevicePrimaryCtxRelease\0" (c_int);
    set_current = b"cuCtxSetCurrent\0" (*mut c_void);
    module_load = b"cuModuleLoadData\0" (*mut Module, *const c_void);
    module_unload = b"cuModuleUnload\0" (Module);
    function = b"cuModuleGetFunction\0" (*mut Function, Module, *const c_char);
    launch = b"cuLaunchKernel\0" (
        Function, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, RawStream,
        *mut *mut c_void, *mut *mut c_void
    );
    alloc = b"cuMemAlloc_v2\0" (*mut u64, usize);
    free = b"cuMemFree_v2\0" (u64);
    host_alloc = b"cuMemHostAlloc\0" (*mut *mut c_void, usize, c_uint);
    host_free = b"cuMemFreeHost\0" (*mut c_void);
    host_pointer = b"cuMemHostGetDevicePointer_v2\0" (*mut u64, *mut c_void, c_uint);
    to_device = b"cuMemcpyHtoDAsync_v2\0" (u64, *const c_void, usize, RawStream);
    to_host = b"cuMemcpyDtoHAsync_v2\0" (*mut c_void, u64, usize, RawStream);
    stream_create = b"cuStreamCreate\0" (*mut RawStream, c_uint);
    stream_destroy = b"cuStreamDestroy_v2\0" (RawStream);
    stream_wait = b"cuStreamSynchronize\0" (RawStream);
    event_create = b"cuEventCreate\0" (*mut RawEvent, c_uint);
    event_destroy = b"cuEventDestroy_v2\0" (RawEvent);
    event_record = b"cuEventRecord\0" (RawEvent, RawStream);
    elapsed = b"cuEventElapsedTime\0" (*mut f32, RawEvent, RawEvent);
}
