//! Messages in a stream of bytes.

use super::MAX_MESSAGE;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Writes a message with its length in front.
///
/// # Errors
///
/// When `out` is too small.
pub fn encode<'a, M: Serialize>(
    message: &M,
    out: &'a mut [u8],
) -> Result<&'a [u8], postcard::Error> {
    let (length, body) = out.split_at_mut_checked(4).ok_or(postcard::Error::SerializeBufferFull)?;
    let used = postcard::to_slice(message, body)?.len();
    length.copy_from_slice(&(used as u32).to_le_bytes());
    Ok(&out[..4 + used])
}

/// What [`decode`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded<M> {
    /// A whole message, and how many bytes it took with its length.
    Message(M, usize),
    /// More bytes are needed.
    Incomplete,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The length is above [`MAX_MESSAGE`].
    TooLong(u32),
    /// The bytes do not decode, or some are left over.
    Malformed,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(n) => {
                write!(f, "message of {n} bytes; at most {MAX_MESSAGE} are allowed")
            }
            Self::Malformed => f.write_str("message does not decode"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Reads one message from the front of a stream's bytes.
///
/// # Errors
///
/// When the length is too large or the bytes are no message; the stream cannot go on.
pub fn decode<M: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<Decoded<M>, DecodeError> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(Decoded::Incomplete);
    };
    let length = u32::from_le_bytes(*length);
    if length as usize > MAX_MESSAGE {
        return Err(DecodeError::TooLong(length));
    }
    let Some(body) = rest.get(..length as usize) else {
        return Ok(Decoded::Incomplete);
    };
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(Decoded::Message(message, 4 + body.len())),
        _ => Err(DecodeError::Malformed),
    }
}
