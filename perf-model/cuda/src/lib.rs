//! The few functions of CUDA's driver that `dxpu-perf calibrate` measures with, found when the
//! program runs: nothing of CUDA is needed to build.
//!
//! One [`Gpu`] holds a device's primary context on the thread that made it. Names and signatures
//! are those of `cuda.h` (CUDA driver API); the oldest version of each that is still exported is
//! taken, so that any driver since CUDA 4 will do.

mod api;
mod memory;
mod stream;

use std::ffi::CStr;
use std::marker::PhantomData;

use perf_core::ptx;

pub use api::CudaError;
use api::{Api, check};
pub use memory::{Device, Pinned};
pub use stream::{Event, Stream};

/// A GPU whose primary context is current on this thread.
#[derive(Debug)]
pub struct Gpu {
    api: Api,
    device: i32,
    modules: [api::Module; 2],
    /// A context is current on one thread.
    one_thread: PhantomData<*const ()>,
}

impl Gpu {
    /// The GPU of this number, with the kernels of [`perf_core::ptx`] loaded.
    ///
    /// # Errors
    /// There is no driver, or no such GPU; what the driver says.
    pub fn open(number: i32) -> Result<Self, CudaError> {
        let api = Api::load()?;
        check("cuInit", (api.init)(0))?;
        let mut device = 0;
        check("cuDeviceGet", (api.device_get)(&raw mut device, number))?;
        let mut context = std::ptr::null_mut();
        check("cuDevicePrimaryCtxRetain", (api.retain)(&raw mut context, device))?;
        check("cuCtxSetCurrent", (api.set_current)(context))?;
        let mut modules = [std::ptr::null_mut(); 2];
        for (module, image) in modules.iter_mut().zip([ptx::MODULE, ptx::DELAY_MODULE]) {
            let image = image.as_ptr().cast();
            check("cuModuleLoadData", (api.module_load)(module, image))?;
        }
        Ok(Self { api, device, modules, one_thread: PhantomData })
    }

    /// What it is called.
    ///
    /// # Errors
    /// What the driver says.
    pub fn name(&self) -> Result<String, CudaError> {
        let mut name = [0_u8; 256];
        // One less: whatever the driver writes, a 0 is behind it.
        let status = (self.api.device_name)(name.as_mut_ptr().cast(), 255, self.device);
        check("cuDeviceGetName", status)?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// Its address on the PCI bus as Linux writes it, `0000:3b:00.0`.
    ///
    /// # Errors
    /// What the driver says.
    pub fn pci_address(&self) -> Result<String, CudaError> {
        let get = |attribute| {
            let mut value = 0;
            let status = (self.api.attribute)(&raw mut value, attribute, self.device);
            check("cuDeviceGetAttribute", status).map(|()| value)
        };
        // CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, _PCI_BUS_ID, _PCI_DEVICE_ID.
        let (domain, bus, device) = (get(50)?, get(33)?, get(34)?);
        Ok(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
    }

    /// One of the kernels of [`perf_core::ptx`].
    ///
    /// # Errors
    /// What the driver says.
    pub fn kernel(&self, name: &CStr) -> Result<Kernel<'_>, CudaError> {
        let mut function = std::ptr::null_mut();
        let module = self.modules[usize::from(name == ptx::DELAY)];
        let status = (self.api.function)(&raw mut function, module, name.as_ptr());
        check("cuModuleGetFunction", status)?;
        Ok(Kernel { gpu: self, function })
    }

    /// The clock that the driver names, in kHz.
    ///
    /// # Errors
    /// What the driver says.
    pub fn clock(&self) -> Result<u32, CudaError> {
        let mut clock = 0;
        // CU_DEVICE_ATTRIBUTE_CLOCK_RATE.
        let status = (self.api.attribute)(&raw mut clock, 13, self.device);
        check("cuDeviceGetAttribute", status)?;
        Ok(u32::try_from(clock).unwrap_or(0))
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // What goes wrong now matters to nobody.
        for module in self.modules {
            let _ = (self.api.module_unload)(module);
        }
        let _ = (self.api.release)(self.device);
    }
}

/// A kernel that takes numbers of up to 64 bits.
#[derive(Debug)]
pub struct Kernel<'a> {
    gpu: &'a Gpu,
    function: api::Function,
}

impl Kernel<'_> {
    /// Puts one thread of it into `stream`.
    ///
    /// # Safety
    /// The kernel takes as many parameters as there are `parameters`, each of 64 bits or (the low
    /// ones) fewer, and what it does with them is sound until it has ended.
    ///
    /// # Errors
    /// What the driver says.
    #[expect(unsafe_code, reason = "a kernel does with its parameters what it likes")]
    pub unsafe fn launch<const N: usize>(
        &self,
        stream: &Stream<'_>,
        parameters: [u64; N],
    ) -> Result<(), CudaError> {
        let mut pointers = parameters.each_ref().map(|parameter| {
            let parameter: *const u64 = parameter;
            parameter.cast_mut().cast()
        });
        let none = std::ptr::null_mut();
        let status = (self.gpu.api.launch)(
            self.function,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            stream.raw(),
            pointers.as_mut_ptr(),
            none,
        );
        check("cuLaunchKernel", status)
    }
}
