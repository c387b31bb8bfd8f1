//! The virtual machine as the adapter sees it: behind a vfio-user client.

use vfio_user_server::{Irq, MemoryError, Server};
use vmd_adapter::{Guest, MemoryFault, Token};

/// Memory and interrupts of the client.
pub(super) struct Machine<'a>(pub(super) &'a mut Server);

fn fault(error: MemoryError) -> MemoryFault {
    match error {
        MemoryError::ByMessage => MemoryFault::ByMessage,
        _ => MemoryFault::Nothing,
    }
}

impl Guest for Machine<'_> {
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), MemoryFault> {
        self.0.memory().read(address, buf).map_err(fault)
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), MemoryFault> {
        self.0.memory().write(address, data).map_err(fault)
    }

    fn begin_read(&mut self, address: u64, len: usize) -> Option<Token> {
        self.0.dma_read(address, len).ok().map(|token| Token(token.get()))
    }

    fn begin_write(&mut self, address: u64, data: &[u8]) -> bool {
        self.0.dma_write(address, data).is_ok()
    }

    fn signal(&mut self, vector: u16) {
        // A vector that the client set nothing up for is masked, or the driver has let it go.
        self.0.trigger(Irq::Msix, vector.into());
    }
}
