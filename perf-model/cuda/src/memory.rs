//! Memory of the GPU, and of the host for the GPU.

use std::ffi::c_void;

use crate::api::check;
use crate::stream::Stream;
use crate::{CudaError, Gpu};

/// Memory of the GPU.
#[derive(Debug)]
pub struct Device<'a> {
    gpu: &'a Gpu,
    address: u64,
    bytes: usize,
}

/// Memory of the host, pinned, which the GPU can read.
#[derive(Debug)]
pub struct Pinned<'a> {
    gpu: &'a Gpu,
    memory: *mut c_void,
    bytes: usize,
}

/// CU_MEMHOSTALLOC_DEVICEMAP: the GPU can read it in place.
const MAPPED: u32 = 2;

impl Gpu {
    /// So many bytes of the GPU's memory.
    ///
    /// # Errors
    /// What the driver says.
    pub fn device_memory(&self, bytes: usize) -> Result<Device<'_>, CudaError> {
        let mut address = 0;
        check("cuMemAlloc", (self.api.alloc)(&raw mut address, bytes))?;
        Ok(Device { gpu: self, address, bytes })
    }

    /// So many bytes of the host's memory, pinned and mapped; all 0.
    ///
    /// # Errors
    /// What the driver says.
    #[expect(unsafe_code, reason = "the driver's memory comes with whatever was in it")]
    pub fn pinned_memory(&self, bytes: usize) -> Result<Pinned<'_>, CudaError> {
        let mut memory = std::ptr::null_mut();
        check("cuMemHostAlloc", (self.api.host_alloc)(&raw mut memory, bytes, MAPPED))?;
        // SAFETY: the driver gave so many bytes, which nobody else knows yet.
        unsafe { std::ptr::write_bytes(memory.cast::<u8>(), 0, bytes) };
        Ok(Pinned { gpu: self, memory, bytes })
    }
}

impl Pinned<'_> {
    /// Where the GPU finds it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn address(&self) -> Result<u64, CudaError> {
        let mut address = 0;
        let status = (self.gpu.api.host_pointer)(&raw mut address, self.memory, 0);
        check("cuMemHostGetDevicePointer", status)?;
        Ok(address)
    }

    /// Its words, while no kernel or copy uses it: whoever holds it alone knows.
    #[expect(unsafe_code, reason = "the driver's memory as a slice")]
    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: the driver's pinned memory is aligned to a page, was written (0) when it was given
        // and belongs to this value, which is borrowed here alone. A copy or kernel that is still
        // under way is the caller's to wait for, as `copy_to` says.
        unsafe { std::slice::from_raw_parts_mut(self.memory.cast(), self.bytes / 8) }
    }
}

impl Device<'_> {
    /// Where the GPU finds it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Puts a copy of the first `bytes` of `host` into `stream`.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// More bytes than either has.
    pub fn copy_from(
        &self,
        host: &Pinned<'_>,
        bytes: usize,
        stream: &Stream<'_>,
    ) -> Result<(), CudaError> {
        assert!(bytes <= self.bytes && bytes <= host.bytes, "a copy within both");
        let status = (self.gpu.api.to_device)(self.address, host.memory, bytes, stream.raw());
        check("cuMemcpyHtoDAsync", status)
    }

    /// Puts a copy of the first `bytes` to `host` into `stream`. Wait for the stream before you
    /// look at [`Pinned::words`].
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// More bytes than either has.
    pub fn copy_to(
        &self,
        host: &mut Pinned<'_>,
        bytes: usize,
        stream: &Stream<'_>,
    ) -> Result<(), CudaError> {
        assert!(bytes <= self.bytes && bytes <= host.bytes, "a copy within both");
        let status = (self.gpu.api.to_host)(host.memory, self.address, bytes, stream.raw());
        check("cuMemcpyDtoHAsync", status)
    }
}

impl Drop for Device<'_> {
    fn drop(&mut self) {
        let _ = (self.gpu.api.free)(self.address);
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // The driver waits for what still uses it.
        let _ = (self.gpu.api.host_free)(self.memory);
    }
}
