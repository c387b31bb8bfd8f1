//! What the driver needs from the machine it runs on.

use std::time::Instant;

/// The page size that the driver and the controller agree on (CC.MPS = 0), in bytes.
pub const PAGE: usize = 4096;

/// Memory that the device can reach. It is a handle: [`PciFunction`] gives it, reads and writes
/// it, and takes it back. Whoever drops it without giving it back leaks the memory, which is
/// right when the device may still write to it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a buffer that is dropped is never freed"]
pub struct DmaBuffer {
    address: u64,
    len: usize,
}

impl DmaBuffer {
    /// For implementers of [`PciFunction`]: a handle to `len` bytes that the device sees from bus
    /// address `address` on.
    ///
    /// # Panics
    ///
    /// When `address` is not a multiple of [`PAGE`], or the range wraps around.
    pub fn new(address: u64, len: usize) -> Self {
        assert_eq!(address % PAGE as u64, 0, "a DMA buffer starts on a page");
        assert!(address.checked_add(len as u64).is_some(), "a DMA buffer does not wrap around");
        Self { address, len }
    }

    /// First bus address.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Why the machine could not do what the driver asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// The device is not there any more: pulled out, or its link is down.
    #[error("the device is gone (removed, or its link is down)")]
    Gone,
    /// The access was refused or was answered by nobody.
    #[error("access to {what} failed: {reason}")]
    Access {
        /// What was accessed, such as `BAR 0 offset 0x1c`.
        what: String,
        /// What came of it.
        reason: String,
    },
    /// No DMA memory of that size.
    #[error("no DMA memory left for {0} bytes")]
    NoMemory(usize),
    /// The function has no interrupts that this machine can use.
    #[error("no interrupt vectors: {0}")]
    NoInterrupts(String),
    /// Outside the buffer.
    #[error("{len} bytes at offset {offset:#x} are outside a DMA buffer of {size} bytes")]
    OutsideBuffer {
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
        /// Bytes of the buffer.
        size: usize,
    },
}

/// One PCIe function as its driver sees it: registers, memory for DMA, interrupts and time.
pub trait PciFunction {
    /// Reads the doubleword of configuration space at `offset` (a multiple of 4, below 4096).
    ///
    /// # Errors
    ///
    /// When the function is gone or answers with an error.
    fn config_read(&mut self, offset: u16) -> Result<u32, FunctionError>;

    /// Writes a doubleword of configuration space.
    ///
    /// # Errors
    ///
    /// As [`PciFunction::config_read`].
    fn config_write(&mut self, offset: u16, value: u32) -> Result<(), FunctionError>;

    /// Reads 4 bytes at byte `offset` of base address register `bar` (0 to 5; the lower register
    /// of a 64-bit pair).
    ///
    /// # Errors
    ///
    /// When the function is gone or answers with an error.
    fn bar_read32(&mut self, bar: u8, offset: u64) -> Result<u32, FunctionError>;

    /// Reads 8 bytes.
    ///
    /// # Errors
    ///
    /// As [`PciFunction::bar_read32`].
    fn bar_read64(&mut self, bar: u8, offset: u64) -> Result<u64, FunctionError>;

    /// Writes 4 bytes. The write is posted: success means that it is on its way.
    ///
    /// # Errors
    ///
    /// When the function is known to be gone.
    fn bar_write32(&mut self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError>;

    /// Writes 8 bytes, posted.
    ///
    /// # Errors
    ///
    /// As [`PciFunction::bar_write32`].
    fn bar_write64(&mut self, bar: u8, offset: u64, value: u64) -> Result<(), FunctionError>;

    /// Memory that the device can reach: contiguous, page aligned, zeroed, `bytes` rounded up to
    /// whole pages.
    ///
    /// # Errors
    ///
    /// [`FunctionError::NoMemory`].
    fn dma_alloc(&mut self, bytes: usize) -> Result<DmaBuffer, FunctionError>;

    /// Takes memory back. The caller knows that the device will not touch it any more.
    fn dma_free(&mut self, buffer: DmaBuffer);

    /// Reads what is at `offset` of a buffer.
    ///
    /// # Errors
    ///
    /// [`FunctionError::OutsideBuffer`].
    fn dma_read(
        &mut self,
        buffer: &DmaBuffer,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), FunctionError>;

    /// Writes to `offset` of a buffer. A later register write is ordered behind it.
    ///
    /// # Errors
    ///
    /// [`FunctionError::OutsideBuffer`].
    fn dma_write(
        &mut self,
        buffer: &DmaBuffer,
        offset: usize,
        from: &[u8],
    ) -> Result<(), FunctionError>;

    /// Sets up MSI-X (or MSI) with up to `wanted` vectors, numbered from 0, and says how many there
    /// are (at least 1). Asked again, it gives the same vectors.
    ///
    /// # Errors
    ///
    /// [`FunctionError::NoInterrupts`]; the driver then polls.
    fn enable_interrupts(&mut self, wanted: u16) -> Result<u16, FunctionError>;

    /// Waits until something may have changed: with `Some(vector)` until that vector was signalled
    /// since the last wait for it, with `None` until the device did anything at all; in either case
    /// not longer than to `deadline`. It may return early for no reason.
    ///
    /// # Errors
    ///
    /// [`FunctionError::Gone`] when the device was removed.
    fn wait(&mut self, vector: Option<u16>, deadline: Instant) -> Result<(), FunctionError>;

    /// The machine's monotonic clock, which deadlines are measured on.
    fn now(&self) -> Instant {
        Instant::now()
    }
}
