//! Messages in a stream of bytes.

use super::MAX_MESSAGE;
use core::fmt;
use postcard::{Deserializer, Error, de_flavors, ser_flavors};
use serde::{Deserialize, Serialize};

/// Where a message's bytes go. They are put there by a call, and not in each of a hundred places:
/// nobody waits for a message, and a card has little room for code.
struct Sink<'a> {
    out: &'a mut [u8],
    used: usize,
}

impl ser_flavors::Flavor for Sink<'_> {
    /// Bytes of the message.
    type Output = usize;

    #[inline(never)]
    fn try_extend(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let room = self.out.get_mut(self.used..).and_then(|rest| rest.get_mut(..bytes.len()));
        room.ok_or(Error::SerializeBufferFull)?.copy_from_slice(bytes);
        self.used += bytes.len();
        Ok(())
    }

    #[inline(never)]
    fn try_push(&mut self, byte: u8) -> Result<(), Error> {
        self.try_extend(&[byte])
    }

    fn finalize(self) -> Result<usize, Error> {
        Ok(self.used)
    }
}

/// Where a message's bytes come from, by calls as well.
struct Source<'a>(&'a [u8]);

impl<'a> de_flavors::Flavor<'a> for Source<'a> {
    /// What follows the message.
    type Remainder = &'a [u8];
    type Source = &'a [u8];

    #[inline(never)]
    fn pop(&mut self) -> Result<u8, Error> {
        let (byte, rest) = self.0.split_first().ok_or(Error::DeserializeUnexpectedEnd)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }

    #[inline(never)]
    fn try_take_n(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (bytes, rest) =
            self.0.split_at_checked(count).ok_or(Error::DeserializeUnexpectedEnd)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn finalize(self) -> Result<&'a [u8], Error> {
        Ok(self.0)
    }
}

/// Writes a message with its length in front.
///
/// # Errors
///
/// When `out` is too small.
pub fn encode<'a, M: Serialize>(message: &M, out: &'a mut [u8]) -> Result<&'a [u8], Error> {
    let (length, body) = out.split_at_mut_checked(4).ok_or(Error::SerializeBufferFull)?;
    let used = postcard::serialize_with_flavor(message, Sink { out: body, used: 0 })?;
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
    let mut source = Deserializer::from_flavor(Source(body));
    match (M::deserialize(&mut source), source.finalize()) {
        (Ok(message), Ok([])) => Ok(Decoded::Message(message, 4 + body.len())),
        _ => Err(DecodeError::Malformed),
    }
}
