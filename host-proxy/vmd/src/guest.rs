//! The machine that the adapter is in: its memory and its interrupts.

use thiserror::Error;

/// Names a message for the machine's memory that is answered later. A later one has a higher
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Why memory was not read or written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MemoryFault {
    /// There is no memory at that address, or not for that.
    #[error("no memory")]
    Nothing,
    /// It can be reached by a message only ([`Guest::begin_read`], [`Guest::begin_write`]).
    #[error("memory that is reached by messages")]
    ByMessage,
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoMessage {
    /// So many have no answer that there is no room for another one now.
    #[error("no room for a message now")]
    Busy,
    /// The machine takes no such message, and never will.
    #[error("the machine takes no such message")]
    Never,
}

/// The machine's side of the adapter.
pub trait Guest {
    /// Reads memory.
    ///
    /// # Errors
    ///
    /// When it cannot be done at once; nothing was read then that means anything.
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), MemoryFault>;

    /// Writes memory, from the first byte to the last.
    ///
    /// # Errors
    ///
    /// When it cannot be done at once.
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), MemoryFault>;

    /// Whether there is memory to read, at once or by message.
    fn is_readable(&mut self, address: u64, len: usize) -> bool;

    /// Whether there is memory to write, at once or by message.
    fn is_writable(&mut self, address: u64, len: usize) -> bool;

    /// Asks for memory by a message, also for such as could be read at once; the answer goes to
    /// [`Adapter::handle_memory`](crate::Adapter::handle_memory).
    ///
    /// # Errors
    ///
    /// [`NoMessage`].
    fn begin_read(&mut self, address: u64, len: usize) -> Result<Token, NoMessage>;

    /// Writes memory, or where an interrupt is raised, by a message, which is done behind those
    /// before it. That it is done is told to
    /// [`Adapter::handle_memory`](crate::Adapter::handle_memory), too.
    ///
    /// # Errors
    ///
    /// [`NoMessage`].
    fn begin_write(&mut self, address: u64, data: &[u8]) -> Result<Token, NoMessage>;

    /// Signals one of the adapter's own MSI-X vectors.
    fn signal(&mut self, vector: u16);
}
