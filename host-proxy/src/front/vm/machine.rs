//! The virtual machine as the adapter sees it: behind a vfio-user client.

use vfio_user_server::limits::{MAX_DMA_PIECES, MIN_DATA_XFER};
use vfio_user_server::{DmaRefused, DmaToken, Irq, MemoryError, Server};
use vmd_adapter::{Guest, LONGEST_READ, MemoryFault, NoMessage, Token};

// No request of a device is too long for a client that was agreed with.
const _: () = assert!(LONGEST_READ <= MIN_DATA_XFER * MAX_DMA_PIECES);

/// Memory and interrupts of the client.
pub(super) struct Machine<'a>(pub(super) &'a mut Server);

fn fault(error: MemoryError) -> MemoryFault {
    match error {
        MemoryError::ByMessage => MemoryFault::ByMessage,
        _ => MemoryFault::Nothing,
    }
}

fn sent(result: Result<DmaToken, DmaRefused>) -> Result<Token, NoMessage> {
    result.map(|token| Token(token.get())).map_err(|why| match why {
        DmaRefused::Busy => NoMessage::Busy,
        // Who is gone is told as gone, and what waits is forgotten then.
        DmaRefused::NotConnected | DmaRefused::TooLong { .. } => NoMessage::Never,
    })
}

impl Guest for Machine<'_> {
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), MemoryFault> {
        self.0.memory().read(address, buf).map_err(fault)
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), MemoryFault> {
        self.0.memory().write(address, data).map_err(fault)
    }

    fn is_readable(&mut self, address: u64, len: usize) -> bool {
        self.0.memory().is_readable(address, len)
    }

    fn is_writable(&mut self, address: u64, len: usize) -> bool {
        self.0.memory().is_writable(address, len)
    }

    fn begin_read(&mut self, address: u64, len: usize) -> Result<Token, NoMessage> {
        sent(self.0.dma_read(address, len))
    }

    fn begin_write(&mut self, address: u64, data: &[u8]) -> Result<Token, NoMessage> {
        sent(self.0.dma_write(address, data))
    }

    fn signal(&mut self, vector: u16) {
        // A vector that the client set nothing up for is masked, or the driver has let it go.
        self.0.trigger(Irq::Msix, vector.into());
    }
}
