//! `VFIO_USER_VERSION`: what the client proposes and what the server says to it.

use crate::limits::{
    DEFAULT_MSG_FDS, MAX_DATA_XFER, MAX_DMA_MAPS, MAX_MSG_FDS, MIN_DATA_XFER, PAGE,
};
use serde::{Deserialize, Serialize};

/// The protocol's version, 0.1: what libvfio-user speaks. QEMU 11 proposes 0.0.
const MAJOR: u16 = 0;
const MINOR: u16 = 1;

/// The payload's fixed part: major and minor.
const FIXED: usize = 4;

/// What client and server agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Negotiated {
    /// File descriptors that may come with one message.
    pub(crate) msg_fds: usize,
    /// Bytes of one DMA message.
    pub(crate) dma_xfer: usize,
    /// DMA maps at one time.
    pub(crate) dma_maps: usize,
    /// Messages to the client, and their replies, have a socket of their own.
    pub(crate) twin: bool,
}

/// Why a version message is not agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another major version: the connection is closed.
    Major,
    /// Something else is wrong, or too small; the client may try again.
    Malformed,
}

/// The JSON after the version. Capabilities that nobody here knows are passed over.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Data {
    #[serde(skip_serializing_if = "Option::is_none")]
    capabilities: Option<Capabilities>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Capabilities {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_msg_fds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_data_xfer_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_dma_maps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pgsizes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    twin_socket: Option<TwinSocket>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_multiple: Option<bool>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct TwinSocket {
    #[serde(default)]
    supported: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    fd_index: Option<u32>,
}

/// What is agreed on, and the payload of the reply. The reply names what the client named and no
/// more (the specification's "the capability list must be a subset of those proposed"; QEMU takes
/// no reply that is longer than its request). If `twin` is agreed on, the reply has the client's
/// end of the socket as its only file descriptor.
pub(crate) fn negotiate(payload: &[u8]) -> Result<(Negotiated, Vec<u8>), Refused> {
    let (fixed, json) = payload.split_at_checked(FIXED).ok_or(Refused::Malformed)?;
    let number = |at: usize| u16::from_ne_bytes([fixed[at], fixed[at + 1]]);
    if number(0) != MAJOR {
        return Err(Refused::Major);
    }
    let data = parse(json)?;
    let proposed = data.and_then(|data| data.capabilities);
    let mut reply = MAJOR.to_ne_bytes().to_vec();
    reply.extend(number(2).min(MINOR).to_ne_bytes());
    let Some(proposed) = proposed else {
        return Ok((agree(&Capabilities::default()), reply));
    };
    let agreed = agree(&proposed);
    if agreed.dma_xfer < MIN_DATA_XFER {
        return Err(Refused::Malformed);
    }
    let answer = Data { capabilities: Some(answer(&proposed, &agreed)) };
    reply.extend(serde_json::to_vec(&answer).expect("numbers and booleans have a JSON form"));
    reply.push(0);
    Ok((agreed, reply))
}

fn parse(json: &[u8]) -> Result<Option<Data>, Refused> {
    let Some((end, json)) = json.split_last() else {
        return Ok(None);
    };
    if *end != 0 {
        return Err(Refused::Malformed);
    }
    serde_json::from_slice(json).map(Some).map_err(|_| Refused::Malformed)
}

fn agree(proposed: &Capabilities) -> Negotiated {
    // What a client leaves out has the specification's default, which is no less than ours except
    // for file descriptors.
    let at_most = |asked: Option<u64>, most: usize| {
        asked.map_or(most, |asked| usize::try_from(asked).unwrap_or(usize::MAX).min(most))
    };
    // A client that takes in no file descriptor cannot be given the other end of a socket.
    let takes_fds = proposed.max_msg_fds != Some(0);
    let twin = proposed.twin_socket.as_ref().is_some_and(|twin| twin.supported) && takes_fds;
    Negotiated {
        msg_fds: if proposed.max_msg_fds.is_some() { MAX_MSG_FDS } else { DEFAULT_MSG_FDS },
        dma_xfer: at_most(proposed.max_data_xfer_size, MAX_DATA_XFER),
        dma_maps: at_most(proposed.max_dma_maps, MAX_DMA_MAPS),
        twin,
    }
}

fn answer(proposed: &Capabilities, agreed: &Negotiated) -> Capabilities {
    let twin = TwinSocket { supported: true, fd_index: Some(0) };
    Capabilities {
        max_msg_fds: proposed.max_msg_fds.map(|_| MAX_MSG_FDS as u64),
        max_data_xfer_size: proposed.max_data_xfer_size.map(|_| MAX_DATA_XFER as u64),
        max_dma_maps: proposed.max_dma_maps.map(|_| agreed.dma_maps as u64),
        pgsizes: proposed.pgsizes.map(|_| PAGE),
        twin_socket: agreed.twin.then_some(twin),
        write_multiple: proposed.write_multiple.filter(|wanted| *wanted),
    }
}

#[cfg(test)]
mod tests;
