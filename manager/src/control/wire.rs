//! Control messages on a TCP stream.

use proxy_core::control::{self, DecodeError, Decoded, FromProxyWith, MAX_MESSAGE, Reply, ToProxy};
use std::cell::RefCell;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

thread_local! {
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; 4 + MAX_MESSAGE]);
}

/// What a proxy says. Replies have room for the longest lists: they are not moved about.
pub type Heard = FromProxyWith<Box<Reply>>;

/// Why a stream cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The other end closed it.
    #[error("the proxy closed the connection")]
    Closed,
    /// The other end closed it in the middle of a message.
    #[error("the connection ended in the middle of a message")]
    CutShort,
    /// The bytes are no message.
    #[error("protocol error: {0}")]
    Decode(DecodeError),
    /// A message that had begun did not end in time, or nothing came.
    #[error("nothing whole came for {0:?}")]
    Silent(Duration),
    /// The other end does not read.
    #[error("the proxy has not read for {0:?}")]
    Stuck(Duration),
    /// The operating system's reason.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Reads messages from a stream.
pub struct Reader<S> {
    stream: S,
    buffer: Vec<u8>,
    filled: usize,
}

impl<S: AsyncRead + Unpin> Reader<S> {
    /// Around a stream.
    pub fn new(stream: S) -> Self {
        Self { stream, buffer: vec![0; 4 + MAX_MESSAGE], filled: 0 }
    }

    /// The next message, which has to be whole within `bound`.
    ///
    /// # Errors
    ///
    /// When there is none; the stream cannot go on.
    pub async fn next(&mut self, bound: Duration) -> Result<Heard, WireError> {
        let deadline = Instant::now() + bound;
        loop {
            match control::decode(&self.buffer[..self.filled]).map_err(WireError::Decode)? {
                Decoded::Message(message, used) => {
                    self.buffer.copy_within(used..self.filled, 0);
                    self.filled -= used;
                    return Ok(message);
                }
                Decoded::Incomplete => self.fill(deadline, bound).await?,
            }
        }
    }

    async fn fill(&mut self, deadline: Instant, bound: Duration) -> Result<(), WireError> {
        let room = &mut self.buffer[self.filled..];
        assert!(!room.is_empty(), "the buffer holds the largest message");
        let read = timeout_at(deadline, self.stream.read(room)).await;
        match read.map_err(|_| WireError::Silent(bound))?? {
            0 if self.filled == 0 => Err(WireError::Closed),
            0 => Err(WireError::CutShort),
            count => {
                self.filled += count;
                Ok(())
            }
        }
    }
}

/// A message as it goes over the wire.
///
/// # Panics
///
/// When it is longer than [`MAX_MESSAGE`]: the manager makes none such.
pub fn encode(message: &ToProxy) -> Box<[u8]> {
    // Most are a hundred bytes long: room for the longest is there once for each thread.
    ROOM.with_borrow_mut(|room| {
        let bytes: &[u8] = control::encode(message, room).expect("messages fit");
        bytes.into()
    })
}

/// Writes messages that are [encoded](encode).
///
/// # Errors
///
/// When they cannot be written within `bound`; the stream cannot go on.
pub async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    bound: Duration,
) -> Result<(), WireError> {
    timeout(bound, stream.write_all(bytes)).await.map_err(|_| WireError::Stuck(bound))??;
    Ok(())
}
