//! The seam below the model: where a root port's TLPs go and come from.

use std::time::Instant;

/// Why a [`TlpPort`] cannot go on. None of them passes by itself.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The other side ended.
    #[error("the other side of the root port has closed")]
    Closed,
    /// A TLP is longer than the port carries.
    #[error("a TLP of {len} bytes is longer than the {max} that the root port carries")]
    TooLong {
        /// Its bytes.
        len: usize,
        /// The port's limit.
        max: usize,
    },
    /// The operating system refused input or output.
    #[error("input or output of the root port failed: {0}")]
    Io(#[from] std::io::Error),
}

/// Where the root port's TLPs go and come from. The host proxy's daemon implements it over its
/// data plane (`send` hands to the virtual switch, `recv` turns the whole I/O loop), tests in
/// process, others over a socket.
pub trait TlpPort {
    /// Hands a TLP down. Blocks, turning the I/O loop, while the other side has no room.
    ///
    /// # Errors
    ///
    /// When the port cannot go on at all.
    fn send(&mut self, tlp: &[u8]) -> Result<(), PortError>;

    /// The next TLP that came up, into `buf` (which has room for
    /// [`MAX_TLP`](tlp_codec::tlp::MAX_TLP) bytes), and its length; or `None` if none came until
    /// `deadline`. With a deadline that has passed it looks once and returns.
    ///
    /// # Errors
    ///
    /// When the port cannot go on at all.
    fn recv(&mut self, buf: &mut [u8], deadline: Instant) -> Result<Option<usize>, PortError>;

    /// As [`recv`](TlpPort::recv), of a TLP that is there already: the I/O loop is not turned for
    /// it. `None` where none is, or where the port does not know.
    fn at_hand(&mut self, buf: &mut [u8]) -> Option<usize> {
        let _ = buf;
        None
    }
}

impl<P: TlpPort + ?Sized> TlpPort for Box<P> {
    fn send(&mut self, tlp: &[u8]) -> Result<(), PortError> {
        (**self).send(tlp)
    }

    fn recv(&mut self, buf: &mut [u8], deadline: Instant) -> Result<Option<usize>, PortError> {
        (**self).recv(buf, deadline)
    }

    fn at_hand(&mut self, buf: &mut [u8]) -> Option<usize> {
        (**self).at_hand(buf)
    }
}
