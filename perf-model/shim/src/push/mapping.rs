//! Device memory in the CPU's address space, in two ways: GDRCopy's kernel module, and a dma-buf of
//! the driver that can be mapped.

use core::ffi::{c_int, c_uint, c_ulong, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use crate::driver::{Driver, SUCCESS};
use crate::real;

/// GDRCopy maps whole pages of the GPU (gdrapi.h, GPU_PAGE_SIZE).
const GPU_PAGE: u64 = 64 << 10;

/// CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD (cuda.h).
const DMA_BUF: c_int = 1;

/// CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE (cuda.h, since CUDA 12.8), and none before.
const DMA_BUF_FLAGS: [u64; 2] = [1, 0];

/// An allocation, mapped or not.
#[derive(Debug)]
pub(super) struct Mapping {
    /// Where the device has it.
    pub(super) base: u64,
    bytes: u64,
    how: How,
}

/// How it is mapped: where the allocation begins for the CPU.
#[derive(Debug)]
enum How {
    Gdr { at: usize, mapped: usize, length: usize, handle: c_ulong },
    DmaBuf { at: usize, mapped: usize, length: usize },
    Not(String),
}

impl Mapping {
    /// Maps an allocation, or finds out why not.
    pub(super) fn new(driver: &Driver, base: u64, bytes: u64) -> Self {
        let how = match gdr(base, bytes) {
            Ok(how) => how,
            Err(first) => match dma_buf(driver, base, bytes) {
                Ok(how) => how,
                Err(second) => How::Not(format!("{first}; {second}")),
            },
        };
        Self { base, bytes, how }
    }

    /// Whether the device's address lies in it.
    pub(super) fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.bytes
    }

    /// Where `bytes` from the device's address on are, if all of them are mapped.
    pub(super) fn place(&self, address: u64, bytes: u64) -> Option<*mut u8> {
        let offset = address.checked_sub(self.base)?;
        if offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        match self.how {
            How::Gdr { at, .. } | How::DmaBuf { at, .. } => {
                Some(real::pointer(at + offset as usize).cast())
            }
            How::Not(_) => None,
        }
    }

    /// Why it is not mapped.
    pub(super) fn why_not(&self) -> Option<&str> {
        match &self.how {
            How::Not(why) => Some(why),
            How::Gdr { .. } | How::DmaBuf { .. } => None,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.how {
            How::Gdr { mapped, length, handle, .. } => {
                if let Ok(gdr) = Gdr::get() {
                    // SAFETY: both are of `gdr` below, and nothing points into the mapping: a
                    // place is used while the mappings are held.
                    unsafe {
                        (gdr.unmap)(gdr.device(), handle, real::pointer(mapped), length);
                        (gdr.unpin)(gdr.device(), handle);
                    }
                }
            }
            // SAFETY: as above, of `dma_buf`.
            How::DmaBuf { mapped, length, .. } => unsafe {
                libc::munmap(real::pointer(mapped), length);
            },
            How::Not(_) => {}
        }
    }
}

type Open = unsafe extern "C" fn() -> *mut c_void;
type Pin = unsafe extern "C" fn(*mut c_void, c_ulong, usize, u64, c_uint, *mut c_ulong) -> c_int;
type Map = unsafe extern "C" fn(*mut c_void, c_ulong, *mut *mut c_void, usize) -> c_int;
type Unmap = unsafe extern "C" fn(*mut c_void, c_ulong, *mut c_void, usize) -> c_int;
type Unpin = unsafe extern "C" fn(*mut c_void, c_ulong) -> c_int;

/// GDRCopy's library (gdrapi.h, version 2). Its handle is a structure of one word, which goes where
/// a word does.
struct Gdr {
    /// What `gdr_open` gave.
    device: usize,
    pin: Pin,
    map: Map,
    unmap: Unmap,
    unpin: Unpin,
}

impl Gdr {
    /// The library, opened once.
    fn get() -> Result<&'static Self, &'static str> {
        static GDR: OnceLock<Result<Gdr, &'static str>> = OnceLock::new();
        GDR.get_or_init(Self::open).as_ref().map_err(|why| *why)
    }

    fn open() -> Result<Self, &'static str> {
        // SAFETY: the library's constructors run, as for any program that is linked to it.
        let library = unsafe { libc::dlopen(c"libgdrapi.so.2".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err("GDRCopy (libgdrapi.so.2) is not installed");
        }
        let find = |name| real::symbol(library, name).ok_or("GDRCopy lacks a function");
        let (open, pin, map) = (find(c"gdr_open")?, find(c"gdr_pin_buffer")?, find(c"gdr_map")?);
        let (unmap, unpin) = (find(c"gdr_unmap")?, find(c"gdr_unpin_buffer")?);
        // SAFETY: the library's symbols of these names have these types (gdrapi.h).
        let (open, gdr) = unsafe {
            (
                core::mem::transmute::<*mut c_void, Open>(open),
                Self {
                    device: 0,
                    pin: core::mem::transmute::<*mut c_void, Pin>(pin),
                    map: core::mem::transmute::<*mut c_void, Map>(map),
                    unmap: core::mem::transmute::<*mut c_void, Unmap>(unmap),
                    unpin: core::mem::transmute::<*mut c_void, Unpin>(unpin),
                },
            )
        };
        // SAFETY: it takes nothing.
        let device = real::address(unsafe { open() });
        if device == 0 {
            return Err("GDRCopy's kernel module (/dev/gdrdrv) is not there");
        }
        Ok(Self { device, ..gdr })
    }

    fn device(&self) -> *mut c_void {
        real::pointer(self.device)
    }
}

/// Through GDRCopy.
fn gdr(base: u64, bytes: u64) -> Result<How, String> {
    let gdr = Gdr::get()?;
    let start = base & !(GPU_PAGE - 1);
    let length = (base - start + bytes).next_multiple_of(GPU_PAGE) as usize;
    let mut handle = 0;
    // SAFETY: the range is an allocation's, to whole pages, which the driver gives out whole; the
    // handle is written here.
    let error = unsafe { (gdr.pin)(gdr.device(), start, length, 0, 0, &raw mut handle) };
    if error != 0 {
        return Err(format!("GDRCopy does not pin this memory: error {error}"));
    }
    let mut mapped = core::ptr::null_mut();
    // SAFETY: the handle is the one above; the address is written here.
    let error = unsafe { (gdr.map)(gdr.device(), handle, &raw mut mapped, length) };
    if error != 0 || mapped.is_null() {
        // SAFETY: as above.
        unsafe { (gdr.unpin)(gdr.device(), handle) };
        return Err(format!("GDRCopy does not map this memory: error {error}"));
    }
    let mapped = real::address(mapped);
    Ok(How::Gdr { at: mapped + (base - start) as usize, mapped, length, handle })
}

/// What Linux gives for an operation that a driver does not have (include/linux/errno.h). It is not
/// among what programs are to see, so that no library has words for it; dma-bufs of NVIDIA's driver
/// 580 give it.
const ENOTSUPP: i32 = 524;

/// Through a dma-buf of the driver.
fn dma_buf(driver: &Driver, base: u64, bytes: u64) -> Result<How, String> {
    let export = driver.export_memory.ok_or("the driver exports no dma-buf (CUDA 11.7 does)")?;
    // SAFETY: it asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = u64::try_from(page).map_err(|_| "the size of a page is not known")?;
    let start = base & !(page - 1);
    let length = (base - start + bytes).next_multiple_of(page) as usize;
    let mut fd: c_int = -1;
    let mut error = SUCCESS;
    for flags in DMA_BUF_FLAGS {
        // SAFETY: the range is an allocation's, to whole pages; the file descriptor is written here.
        error = unsafe { export((&raw mut fd).cast(), start, length, DMA_BUF, flags) };
        if error == SUCCESS {
            break;
        }
    }
    if error != SUCCESS || fd < 0 {
        return Err(format!("the driver exports no dma-buf of this memory: CUDA error {error}"));
    }
    // SAFETY: the driver has just given this file to the caller. The mapping keeps what it needs.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a new mapping, of which only `place` gives addresses.
    let mapped = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        let error = std::io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(ENOTSUPP) => "the driver does not let its dma-buf be mapped".to_owned(),
            _ => format!("the driver's dma-buf cannot be mapped: {error}"),
        });
    }
    let mapped = real::address(mapped);
    Ok(How::DmaBuf { at: mapped + (base - start) as usize, mapped, length })
}
