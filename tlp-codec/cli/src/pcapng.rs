//! The blocks of a pcapng capture (draft-ietf-opsawg-pcapng): those that packets are read from, and
//! of these no more than that needs. All others are passed over by their length, whatever is in them.

use pcap_file::DataLink;
use std::io::{self, BufRead, Read};

/// Bytes of a packet's block, more than which no program writes.
const LONGEST_PACKET_BLOCK: u32 = 16 << 20;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
/// Obsolete, and in old captures.
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// How a section header says its byte order.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;

/// An interface, as far as it can be read.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: DataLink,
    /// Bytes of a packet that are recorded at most; 0 is no limit.
    snap: u32,
}

/// A packet as its block has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    pub(crate) link: DataLink,
    pub(crate) bytes: &'a [u8],
    /// How long it was on the wire.
    pub(crate) original: u32,
    options: &'a [u8],
    order: Order,
}

impl Packet<'_> {
    /// The comments that are text. An option list ends with its block, too.
    pub(crate) fn comments(&self) -> impl Iterator<Item = &str> {
        let mut rest = self.options;
        std::iter::from_fn(move || {
            let (code, length) = (self.order.u16_at(rest, 0)?, self.order.u16_at(rest, 2)?);
            let value = rest.get(4..4 + usize::from(length))?;
            rest = rest.get(4 + usize::from(length).next_multiple_of(4)..).unwrap_or(&[]);
            (code != END_OF_OPTIONS).then_some((code, value))
        })
        .filter(|(code, _)| *code == COMMENT)
        .filter_map(|(_, value)| std::str::from_utf8(value).ok())
    }
}

/// The byte order of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        Some(self.u32(*bytes.get(at..)?.first_chunk()?))
    }

    fn u16_at(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        })
    }
}

/// Why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("it ends in the middle of a block")]
    Cut,
    #[error("a section header has no byte order")]
    NoOrder,
    #[error("a section is of version {0}; only version 1 is known")]
    Version(u16),
    #[error("a block is said to have {0} bytes, which no block has")]
    Length(u32),
    #[error("a packet's block has {0} bytes, more than {LONGEST_PACKET_BLOCK}")]
    TooLong(u32),
    #[error("a block has {0} bytes by its start and {1} by its end")]
    Lengths(u32, u32),
}

/// What is wrong with a packet behind which there may be further ones.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("its interface {0} is not described in front of it")]
    Interface(u32),
    #[error("its block is said to have {said} of its bytes and has only {has}")]
    Short { said: u32, has: usize },
    #[error("its block has only {0} bytes, too few for any packet")]
    NoHeader(usize),
}

/// Reads a capture, block after block.
pub(crate) struct Reader<R> {
    stream: R,
    order: Order,
    /// Those of the section; `None` for a description without a link type.
    interfaces: Vec<Option<Interface>>,
    /// What is behind the two lengths of the last packet's block.
    body: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream, order: Order::Little, interfaces: Vec::new(), body: Vec::new() }
    }

    /// The next packet; `None` behind the last block. All of its block has been read then, and
    /// nothing behind it: it may be long until there is more.
    pub(crate) fn next_packet(&mut self) -> Result<Option<Result<Packet<'_>, Broken>>, End> {
        loop {
            if self.stream.fill_buf()?.is_empty() {
                return Ok(None);
            }
            let (kind, length) = (self.bytes()?, self.bytes()?);
            if u32::from_be_bytes(kind) == SECTION_HEADER {
                self.section(length)?;
                continue;
            }
            let length = self.order.u32(length);
            match self.order.u32(kind) {
                INTERFACE_DESCRIPTION => self.interface(length)?,
                kind @ (PACKET | SIMPLE_PACKET | ENHANCED_PACKET) => {
                    self.packet_block(length)?;
                    return Ok(Some(self.packet(kind)));
                }
                _ => self.rest(length, 8)?,
            }
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], End> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => End::Cut,
            _ => error.into(),
        })?;
        Ok(bytes)
    }

    /// Passes over what is left of a block of which so many bytes were read.
    fn rest(&mut self, length: u32, read: u32) -> Result<(), End> {
        // The second length has the last 4 bytes.
        let left = length.checked_sub(read + 4).filter(|_| length.is_multiple_of(4));
        let left = u64::from(left.ok_or(End::Length(length))?);
        if io::copy(&mut self.stream.by_ref().take(left), &mut io::sink())? < left {
            return Err(End::Cut);
        }
        self.trailer(length)
    }

    fn trailer(&mut self, length: u32) -> Result<(), End> {
        let behind = self.bytes()?;
        match self.order.u32(behind) {
            behind if behind == length => Ok(()),
            behind => Err(End::Lengths(length, behind)),
        }
    }

    fn section(&mut self, length: [u8; 4]) -> Result<(), End> {
        let magic = self.bytes()?;
        self.order = [Order::Little, Order::Big]
            .into_iter()
            .find(|order| order.u32(magic) == BYTE_ORDER_MAGIC)
            .ok_or(End::NoOrder)?;
        let version: [u8; 4] = self.bytes()?;
        match self.order.u16_at(&version, 0) {
            Some(1) | None => {}
            Some(other) => return Err(End::Version(other)),
        }
        self.interfaces.clear();
        self.rest(self.order.u32(length), 16)
    }

    fn interface(&mut self, length: u32) -> Result<(), End> {
        // Too short a one has its number all the same.
        if length < 20 {
            self.interfaces.push(None);
            return self.rest(length, 8);
        }
        let head: [u8; 8] = self.bytes()?;
        let order = self.order;
        self.interfaces.push(
            order
                .u16_at(&head, 0)
                .zip(order.u32_at(&head, 4))
                .map(|(link, snap)| Interface { link: u32::from(link).into(), snap }),
        );
        self.rest(length, 16)
    }

    fn packet_block(&mut self, length: u32) -> Result<(), End> {
        let body = length.checked_sub(12).filter(|_| length.is_multiple_of(4));
        let body = body.ok_or(End::Length(length))?;
        if length > LONGEST_PACKET_BLOCK {
            return Err(End::TooLong(length));
        }
        self.body.clear();
        // Memory is taken as the bytes come: a length may be wrong.
        let read = self.stream.by_ref().take(body.into()).read_to_end(&mut self.body)?;
        if read < body as usize {
            return Err(End::Cut);
        }
        self.trailer(length)
    }

    fn packet(&self, kind: u32) -> Result<Packet<'_>, Broken> {
        let (order, body) = (self.order, &self.body[..]);
        let known = |interface: u32| {
            let known = self.interfaces.get(interface as usize).copied().flatten();
            known.ok_or(Broken::Interface(interface))
        };
        let no_header = Broken::NoHeader(body.len() + 12);
        if kind == SIMPLE_PACKET {
            let original = order.u32_at(body, 0).ok_or(no_header)?;
            let Interface { link, snap } = known(0)?;
            let said = if snap == 0 { original } else { original.min(snap) };
            // The rest of the block is padding.
            let bytes = captured(body, 4, said)?.0;
            return Ok(Packet { link, bytes, original, options: &[], order });
        }
        let (Some(said), Some(original)) = (order.u32_at(body, 12), order.u32_at(body, 16)) else {
            return Err(no_header);
        };
        let interface = match kind {
            PACKET => order.u16_at(body, 0).map(u32::from),
            _ => order.u32_at(body, 0),
        };
        let Interface { link, .. } = known(interface.ok_or(no_header)?)?;
        let (bytes, options) = captured(body, 20, said)?;
        Ok(Packet { link, bytes, original, options, order })
    }
}

/// The packet's bytes from there on, and what is behind them and their padding.
fn captured(body: &[u8], at: usize, said: u32) -> Result<(&[u8], &[u8]), Broken> {
    let rest = &body[at..];
    let bytes = rest.get(..said as usize).ok_or(Broken::Short { said, has: rest.len() })?;
    let options = rest.get((said as usize).next_multiple_of(4)..).unwrap_or(&[]);
    Ok((bytes, options))
}
