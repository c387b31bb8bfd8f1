//! One function as its driver sees it.

use super::ModelHost;
use crate::enumerate::enable_msi;
use crate::error::AccessError;
use crate::interrupts::Vector;
use crate::port::TlpPort;
use crate::regs;
use crate::topology::{Node, VectorKind, Vectors};
use nvme_driver::{DmaBuffer, FunctionError, PciFunction};
use std::time::Instant;
use tlp_codec::ids::Bdf;

/// MSI-X: bytes of a table entry.
const MSIX_ENTRY: u64 = 16;

/// One function of the host, to be driven. It is gone when the function that it was made for is:
/// another one at the same place is another function.
pub struct HostFunction<'a, P> {
    host: &'a mut ModelHost<P>,
    bdf: Bdf,
    instance: u64,
}

impl<'a, P: TlpPort> HostFunction<'a, P> {
    pub(crate) const fn new(host: &'a mut ModelHost<P>, bdf: Bdf, instance: u64) -> Self {
        Self { host, bdf, instance }
    }

    /// Where it is.
    pub const fn bdf(&self) -> Bdf {
        self.bdf
    }

    /// The host that it belongs to.
    pub const fn host(&mut self) -> &mut ModelHost<P> {
        self.host
    }

    /// What the host knows of it.
    ///
    /// # Errors
    ///
    /// [`FunctionError::Gone`].
    pub fn node(&self) -> Result<&Node, FunctionError> {
        let node = self.host.topology.get(self.bdf);
        node.filter(|node| node.instance == self.instance).ok_or(FunctionError::Gone)
    }

    fn node_mut(&mut self) -> Result<&mut Node, FunctionError> {
        let node = self.host.topology.get_mut(self.bdf);
        node.filter(|node| node.instance == self.instance).ok_or(FunctionError::Gone)
    }

    /// The bus address of `len` bytes at an offset of a base address register.
    ///
    /// # Errors
    ///
    /// When the register has no address, or the range is not in it.
    pub fn bar_address(&self, bar: u8, offset: u64, len: u64) -> Result<u64, FunctionError> {
        let what = || format!("{} BAR {bar} offset {offset:#x}", self.bdf);
        let entry = self.node()?.bars.get(usize::from(bar)).copied().flatten();
        let Some((size, address)) = entry.and_then(|bar| Some((bar.size, bar.address?))) else {
            let reason = "there is no such register, or it has no address".into();
            return Err(FunctionError::Access { what: what(), reason });
        };
        if offset.checked_add(len).is_none_or(|end| end > size) {
            let reason = format!("the register has {size:#x} bytes");
            return Err(FunctionError::Access { what: what(), reason });
        }
        Ok(address + offset)
    }

    /// Reads at an offset of a base address register. As a processor sees it: where nobody
    /// answers, all ones.
    ///
    /// # Errors
    ///
    /// When the function is gone, the range is not in the register, or the answer is an error
    /// other than Unsupported Request.
    pub fn bar_read(&mut self, bar: u8, offset: u64, buf: &mut [u8]) -> Result<(), FunctionError> {
        let address = self.bar_address(bar, offset, buf.len() as u64)?;
        match self.host.mmio_read(address, buf) {
            Err(error) if !error.is_unsupported() => Err(access(error)),
            _ => Ok(()),
        }
    }

    /// Writes at an offset of a base address register; posted.
    ///
    /// # Errors
    ///
    /// When the function is gone, or the range is not in the register.
    pub fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) -> Result<(), FunctionError> {
        let address = self.bar_address(bar, offset, data.len() as u64)?;
        let payload = self.host.root.payload(self.bdf);
        self.host.root.write(address, data, payload).map_err(access)
    }

    /// MSI-X: writes the table's entries, then enables.
    fn enable_msix(&mut self, at: u16, wanted: u16) -> Result<Vectors, FunctionError> {
        let control = (self.config_read(at)? >> 16) as u16;
        let table = self.config_read(at + 4)?;
        let (bar, offset) = ((table & 7) as u8, u64::from(table & !7));
        let count = (control & 0x7ff).saturating_add(1).min(wanted).min(32);
        let first = self.vectors(count)?;
        let enabled = self.write_msix(at, control, (bar, offset), first, count);
        self.kept(first, count, enabled)?;
        Ok(Vectors { kind: VectorKind::MsiX, first, count })
    }

    fn write_msix(
        &mut self,
        at: u16,
        control: u16,
        (bar, offset): (u8, u64),
        first: Vector,
        count: u16,
    ) -> Result<(), FunctionError> {
        // Function Mask while entries change (PCIe 5.0 section 6.1.4.2).
        self.config_write16(at + 2, control | 3 << 14)?;
        for n in 0..count {
            let (entry, vector) = (offset + u64::from(n) * MSIX_ENTRY, first.nth(n));
            let mut bytes = [0; MSIX_ENTRY as usize];
            bytes[0..8].copy_from_slice(&vector.address().to_le_bytes());
            bytes[8..12].copy_from_slice(&vector.data().to_le_bytes());
            for (word, part) in bytes.chunks(4).enumerate() {
                self.bar_write(bar, entry + 4 * word as u64, part)?;
            }
        }
        self.config_write16(at + 2, control & !(1 << 14) | 1 << 15)
    }

    fn enable_plain_msi(&mut self, at: u16, wanted: u16) -> Result<Vectors, FunctionError> {
        let control = (self.config_read(at)? >> 16) as u16;
        let capable = 1 << (control >> 1 & 7).min(5);
        // A power of two, not more than wanted.
        let count = 1 << wanted.min(capable).ilog2();
        let first = self.vectors(count)?;
        let enabled = enable_msi(&mut self.host.root, self.bdf, at, first, count).map_err(access);
        self.kept(first, count, enabled)?;
        Ok(Vectors { kind: VectorKind::Msi, first, count })
    }

    /// What a device does not take is given back.
    fn kept<E>(&mut self, first: Vector, count: u16, enabled: Result<(), E>) -> Result<(), E> {
        if enabled.is_err() {
            self.host.root.interrupts().release(first, count);
        }
        enabled
    }

    fn vectors(&mut self, count: u16) -> Result<Vector, FunctionError> {
        let first = self.host.root.interrupts().allocate(count);
        first.ok_or_else(|| FunctionError::NoInterrupts("every vector of the host is used".into()))
    }

    fn config_write16(&mut self, offset: u16, value: u16) -> Result<(), FunctionError> {
        self.host.root.config_write(self.bdf, offset, 2, value.into()).map_err(access)
    }

    fn check(buffer: &DmaBuffer, offset: usize, len: usize) -> Result<u64, FunctionError> {
        let size = buffer.len();
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(FunctionError::OutsideBuffer { offset, len, size });
        }
        Ok(buffer.address() + offset as u64)
    }
}

fn access(error: AccessError) -> FunctionError {
    FunctionError::Access { what: "the function".into(), reason: error.to_string() }
}

impl<P: TlpPort> PciFunction for HostFunction<'_, P> {
    fn config_read(&mut self, offset: u16) -> Result<u32, FunctionError> {
        self.node()?;
        self.host.root.config_read(self.bdf, offset).map_err(access)
    }

    fn config_write(&mut self, offset: u16, value: u32) -> Result<(), FunctionError> {
        self.node()?;
        self.host.root.config_write(self.bdf, offset, 4, value).map_err(access)
    }

    fn bar_read32(&mut self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        let mut bytes = [0; 4];
        self.bar_read(bar, offset, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn bar_read64(&mut self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        let mut bytes = [0; 8];
        self.bar_read(bar, offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn bar_write32(&mut self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        self.bar_write(bar, offset, &value.to_le_bytes())
    }

    fn bar_write64(&mut self, bar: u8, offset: u64, value: u64) -> Result<(), FunctionError> {
        self.bar_write(bar, offset, &value.to_le_bytes())
    }

    fn dma_alloc(&mut self, bytes: usize) -> Result<DmaBuffer, FunctionError> {
        self.node()?;
        let (address, len) = self
            .host
            .root
            .memory_mut()
            .allocate(bytes)
            .map_err(|_| FunctionError::NoMemory(bytes))?;
        self.node_mut()?.dma.push((address, len));
        Ok(DmaBuffer::new(address, len))
    }

    fn dma_free(&mut self, buffer: DmaBuffer) {
        // A function that is gone took all its memory with it.
        let Ok(node) = self.node_mut() else { return };
        let run = (buffer.address(), buffer.len());
        if let Some(at) = node.dma.iter().position(|held| *held == run) {
            node.dma.swap_remove(at);
            self.host.root.memory_mut().release(run.0, run.1);
        }
    }

    fn dma_read(
        &mut self,
        buffer: &DmaBuffer,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), FunctionError> {
        self.node()?;
        let address = Self::check(buffer, offset, to.len())?;
        let from = self.host.root.memory().get(address, to.len()).ok_or(FunctionError::Gone)?;
        to.copy_from_slice(from);
        Ok(())
    }

    fn dma_write(
        &mut self,
        buffer: &DmaBuffer,
        offset: usize,
        from: &[u8],
    ) -> Result<(), FunctionError> {
        self.node()?;
        let address = Self::check(buffer, offset, from.len())?;
        let to = self.host.root.memory_mut().get_mut(address, from.len());
        to.ok_or(FunctionError::Gone)?.copy_from_slice(from);
        Ok(())
    }

    fn enable_interrupts(&mut self, wanted: u16) -> Result<u16, FunctionError> {
        let node = self.node()?;
        if let Some(vectors) = node.vectors {
            return Ok(vectors.count);
        }
        let (msix, msi) = (node.capability(regs::CAP_MSIX), node.capability(regs::CAP_MSI));
        let vectors = match (msix, msi) {
            (Some(at), _) => self.enable_msix(at, wanted.max(1))?,
            (None, Some(at)) => self.enable_plain_msi(at, wanted.max(1))?,
            (None, None) => {
                let reason = format!("{} has neither MSI-X nor MSI", self.bdf);
                return Err(FunctionError::NoInterrupts(reason));
            }
        };
        self.node_mut()?.vectors = Some(vectors);
        Ok(vectors.count)
    }

    fn wait(&mut self, vector: Option<u16>, deadline: Instant) -> Result<(), FunctionError> {
        let host_vector = match vector {
            Some(n) => {
                let vectors = self.node()?.vectors.filter(|vectors| n < vectors.count);
                let none = || FunctionError::NoInterrupts(format!("vector {n} is not enabled"));
                Some(vectors.ok_or_else(none)?.first.nth(n))
            }
            None => None,
        };
        loop {
            // Hot-plugs go on while a driver waits, and may take its device away.
            self.host.serve_once().map_err(|error| access(error.into()))?;
            self.node()?;
            if self.host.lost_while_serving(self.bdf).map_err(access)? {
                return Err(FunctionError::Gone);
            }
            let fired = host_vector.is_some_and(|vector| self.host.root.interrupts().take(vector));
            if fired || self.now() >= deadline {
                return Ok(());
            }
            let timer = self.host.slots.next_timer().filter(|timer| *timer > self.now());
            let until = timer.map_or(deadline, |timer| timer.min(deadline));
            let came = self.host.root.pump(until).map_err(|error| access(error.into()))?;
            if came && host_vector.is_none() {
                return Ok(());
            }
        }
    }
}
