//! The frame: its header as a view and as its meaning, and a writer.

use super::{
    Close, FRAME_CRC, FrameError, Full, HEADER, MAX_SACKS, Open, Record, Records, SACK, TlpRecord,
    VERSION, u16_at, u32_at,
};
use crate::crc;
use crate::ids::{NodeId, PathId};

/// Byte offsets of the fixed header (`docs/wire.md`, "Frame header").
mod field {
    pub(super) const VERSION: usize = 0;
    pub(super) const KIND: usize = 1;
    pub(super) const LENGTH: usize = 2;
    pub(super) const DESTINATION: usize = 4;
    pub(super) const SOURCE: usize = 6;
    pub(super) const SOURCE_INCARNATION: usize = 8;
    pub(super) const DESTINATION_INCARNATION: usize = 12;
    pub(super) const SESSION: usize = 16;
    pub(super) const PATH: usize = 20;
    pub(super) const FLAGS: usize = 21;
    pub(super) const KEY: usize = 22;
    pub(super) const PACKET: usize = 24;
    pub(super) const SEQUENCE: usize = 28;
    pub(super) const ACK_SEQUENCE: usize = 32;
    pub(super) const ACK_PACKET: usize = 36;
    pub(super) const ACK_DELAY: usize = 40;
    pub(super) const ACK_PATH: usize = 42;
    pub(super) const SACKS: usize = 43;
    pub(super) const CE: usize = 44;
}

/// The destination incarnation is known to the sender.
const KNOWS_DESTINATION: u8 = 1 << 0;
/// The acknowledgement fields mean something.
const ACKNOWLEDGES: u8 = 1 << 1;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// Begins a link; body is [`Open`].
    Open = 1,
    /// Carries records, an acknowledgement, or both.
    Data = 2,
    /// Ends a link; body is [`Close`].
    Close = 3,
    /// Asks whether a path carries frames of this length; the body is any number of zero bytes.
    Probe = 4,
}

/// A run of records that were received and stored beyond the cumulative acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SackRange {
    /// Distance of the first one from [`Ack::next`]; at least 1.
    pub offset: u16,
    /// How many; at least 1.
    pub length: u16,
}

/// Up to [`MAX_SACKS`] ranges, ascending, with a gap before each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sacks {
    list: [SackRange; MAX_SACKS],
    count: u8,
}

impl Default for Sacks {
    #[inline]
    fn default() -> Self {
        Self { list: [SackRange { offset: 0, length: 0 }; MAX_SACKS], count: 0 }
    }
}

impl Sacks {
    /// Adds a range behind the others.
    ///
    /// # Errors
    ///
    /// When there are [`MAX_SACKS`] already. (The list then tells less than is known, which a
    /// full list says by being full.)
    ///
    /// # Panics
    ///
    /// When the range is empty or does not leave a gap behind the one before.
    #[inline]
    pub fn push(&mut self, range: SackRange) -> Result<(), Full> {
        assert!(
            range.length > 0 && u32::from(range.offset) > self.end(),
            "ranges ascend with gaps"
        );
        let place = self.list.get_mut(self.count as usize).ok_or(Full)?;
        *place = range;
        self.count += 1;
        Ok(())
    }

    /// The ranges.
    #[inline]
    pub fn as_slice(&self) -> &[SackRange] {
        &self.list[..self.count as usize]
    }

    /// Whether no further range would fit, so that the list may say less than the receiver has.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.count as usize == MAX_SACKS
    }

    /// Distance from [`Ack::next`] of the first sequence behind the last range; 0 if there is no
    /// range.
    #[inline]
    pub fn end(&self) -> u32 {
        self.as_slice().last().map_or(0, |r| u32::from(r.offset) + u32::from(r.length))
    }
}

/// What the sender of a frame says about the frames of the other direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Every record before this link sequence was received and stored.
    pub next: u32,
    /// The path that `packet`, `delay_us` and `ce` speak of.
    pub path: PathId,
    /// Largest packet number received on that path.
    pub packet: u32,
    /// How long ago that packet came, in microseconds (65,535: that or longer).
    pub delay_us: u16,
    /// How many frames of that path came with Congestion Experienced, modulo 2^16.
    pub ce: u16,
    /// What was received beyond `next`.
    pub sacks: Sacks,
}

/// The meaning of a frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: FrameKind,
    /// Who is to get it.
    pub destination: NodeId,
    /// Who sent it.
    pub source: NodeId,
    /// The sender's life.
    pub source_incarnation: u32,
    /// The receiver's life, if the sender knows it (only an open frame may not).
    pub destination_incarnation: Option<u32>,
    /// The receiver's number for this link, from its open frame; 0 in open frames.
    pub session: u32,
    /// The path that it was sent on.
    pub path: PathId,
    /// Counts up by one for each frame of the path, retransmission or not.
    pub packet: u32,
    /// Link sequence of the first record; the others follow. Of a frame without records: the
    /// sequence that the next new record will have.
    pub sequence: u32,
    /// Acknowledgement, if any frame was received yet.
    pub ack: Option<Ack>,
}

/// A frame over `T`'s bytes. After [`Frame::new_checked`] no accessor panics.
#[derive(Clone, Copy, Debug)]
pub struct Frame<T: AsRef<[u8]>> {
    bytes: T,
    length: u16,
}

impl<T: AsRef<[u8]>> Frame<T> {
    /// Checks everything that needs no knowledge of the link: version, length, CRC, kind, nodes,
    /// path, ranges. Bytes behind the frame's own length (Ethernet pads short frames) are left
    /// alone.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says what is wrong; the first of the checks in the order of `docs/wire.md`.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, FrameError> {
        let b = bytes.as_ref();
        let smallest = HEADER + FRAME_CRC;
        if b.len() < smallest {
            return Err(FrameError::CutShort { need: smallest, have: b.len() });
        }
        if b[field::VERSION] != VERSION {
            return Err(FrameError::Version(b[field::VERSION]));
        }
        let length = u16_at(b, field::LENGTH);
        let need = length as usize;
        if need < smallest {
            return Err(FrameError::Length(length));
        }
        if need > b.len() {
            return Err(FrameError::CutShort { need, have: b.len() });
        }
        let (covered, carried) = (&b[..need - FRAME_CRC], u32_at(b, need - FRAME_CRC));
        let computed = crc::frame(covered);
        if carried != computed {
            return Err(FrameError::Crc { carried, computed });
        }
        let frame = Self { bytes, length };
        frame.check_fields()?;
        Ok(frame)
    }

    #[inline]
    fn check_fields(&self) -> Result<(), FrameError> {
        let b = self.bytes.as_ref();
        if u16_at(b, field::KEY) != 0 {
            return Err(FrameError::Key(u16_at(b, field::KEY)));
        }
        if !(1..=4).contains(&b[field::KIND]) {
            return Err(FrameError::Kind(b[field::KIND]));
        }
        for at in [field::SOURCE, field::DESTINATION] {
            NodeId::new(u16_at(b, at)).map_err(|_| FrameError::Node(u16_at(b, at)))?;
        }
        for at in [field::PATH, field::ACK_PATH] {
            PathId::new(b[at]).map_err(|_| FrameError::Path(b[at]))?;
        }
        self.check_sacks()
    }

    #[inline]
    fn check_sacks(&self) -> Result<(), FrameError> {
        let count = self.bytes.as_ref()[field::SACKS] as usize;
        if count > MAX_SACKS || HEADER + count * SACK + FRAME_CRC > self.length as usize {
            return Err(FrameError::Sacks);
        }
        let mut end = 0;
        for range in (0..count).map(|n| self.sack(n)) {
            if range.length == 0 || u32::from(range.offset) <= end {
                return Err(FrameError::Sacks);
            }
            end = u32::from(range.offset) + u32::from(range.length);
        }
        Ok(())
    }

    #[inline]
    fn sack(&self, n: usize) -> SackRange {
        let (b, at) = (self.bytes.as_ref(), HEADER + n * SACK);
        SackRange { offset: u16_at(b, at), length: u16_at(b, at + 2) }
    }

    #[inline]
    fn node(&self, at: usize) -> NodeId {
        NodeId::new(u16_at(self.bytes.as_ref(), at)).unwrap_or(NodeId::MAX)
    }

    #[inline]
    fn path_at(&self, at: usize) -> PathId {
        PathId::new(self.bytes.as_ref()[at]).unwrap_or(PathId::MAX)
    }

    /// Bytes of the frame, its CRC among them, without what pads it.
    #[inline]
    pub fn size(&self) -> usize {
        self.length.into()
    }

    /// What the frame is.
    #[inline]
    pub fn kind(&self) -> FrameKind {
        match self.bytes.as_ref()[field::KIND] {
            1 => FrameKind::Open,
            3 => FrameKind::Close,
            4 => FrameKind::Probe,
            _ => FrameKind::Data,
        }
    }

    /// Who sent it.
    #[inline]
    pub fn source(&self) -> NodeId {
        self.node(field::SOURCE)
    }

    /// Bytes of the frame, with its CRC, without padding.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.length as usize
    }

    /// The header's meaning.
    #[inline]
    pub fn header(&self) -> Header {
        let b = self.bytes.as_ref();
        let flags = b[field::FLAGS];
        Header {
            kind: self.kind(),
            destination: self.node(field::DESTINATION),
            source: self.node(field::SOURCE),
            source_incarnation: u32_at(b, field::SOURCE_INCARNATION),
            destination_incarnation: (flags & KNOWS_DESTINATION != 0)
                .then(|| u32_at(b, field::DESTINATION_INCARNATION)),
            session: u32_at(b, field::SESSION),
            path: self.path_at(field::PATH),
            packet: u32_at(b, field::PACKET),
            sequence: u32_at(b, field::SEQUENCE),
            ack: (flags & ACKNOWLEDGES != 0).then(|| self.ack()),
        }
    }

    #[inline]
    fn ack(&self) -> Ack {
        let b = self.bytes.as_ref();
        let mut sacks = Sacks { count: b[field::SACKS], ..Sacks::default() };
        for n in 0..sacks.count as usize {
            sacks.list[n] = self.sack(n);
        }
        Ack {
            next: u32_at(b, field::ACK_SEQUENCE),
            path: self.path_at(field::ACK_PATH),
            packet: u32_at(b, field::ACK_PACKET),
            delay_us: u16_at(b, field::ACK_DELAY),
            ce: u16_at(b, field::CE),
            sacks,
        }
    }

    /// What lies between the header with its ranges and the CRC.
    #[inline]
    pub fn body(&self) -> &[u8] {
        let b = self.bytes.as_ref();
        let start = HEADER + b[field::SACKS] as usize * SACK;
        &b[start..self.length as usize - FRAME_CRC]
    }

    /// The records of a data frame, in order.
    #[inline]
    pub fn records(&self) -> Records<'_> {
        Records::new(self.body())
    }

    /// The body of an open frame.
    ///
    /// # Errors
    ///
    /// [`FrameError::Body`] when it has not the size of one.
    #[inline]
    pub fn open(&self) -> Result<Open, FrameError> {
        Open::parse(self.body())
    }

    /// The body of a close frame.
    ///
    /// # Errors
    ///
    /// [`FrameError::Body`] when it has not the size of one.
    #[inline]
    pub fn close(&self) -> Result<Close, FrameError> {
        Close::parse(self.body())
    }
}

/// Writes one frame into a buffer: header first, then records or a body, then length and CRC.
#[derive(Debug)]
pub struct FrameWriter<'a> {
    buffer: &'a mut [u8],
    at: usize,
    /// The first eight bytes, which the length goes into.
    first: u64,
}

impl<'a> FrameWriter<'a> {
    /// Writes the header. The frame will not be longer than the buffer.
    ///
    /// # Errors
    ///
    /// When the buffer does not take even an empty frame.
    #[inline]
    pub fn new(buffer: &'a mut [u8], header: &Header) -> Result<Self, Full> {
        let end = buffer.len().min(u16::MAX as usize).checked_sub(FRAME_CRC).ok_or(Full)?;
        let buffer = &mut buffer[..end + FRAME_CRC];
        let words = fixed_words(header);
        let fixed = buffer.first_chunk_mut::<HEADER>().ok_or(Full)?;
        for (place, word) in fixed.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let mut at = HEADER;
        if let Some(ack) = &header.ack {
            for range in ack.sacks.as_slice() {
                let place = buffer.get_mut(at..at + SACK).ok_or(Full)?;
                place[..2].copy_from_slice(&range.offset.to_le_bytes());
                place[2..].copy_from_slice(&range.length.to_le_bytes());
                at += SACK;
            }
        }
        if at > end {
            return Err(Full);
        }
        Ok(Self { buffer, at, first: words[0] })
    }

    /// Bytes that records may still take.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.buffer.len() - FRAME_CRC - self.at
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// When it does not fit any more; the frame is as it was.
    #[inline]
    pub fn push(&mut self, record: &Record<'_>) -> Result<(), Full> {
        let end = self.buffer.len() - FRAME_CRC;
        self.at += record.emit(&mut self.buffer[self.at..end])?;
        Ok(())
    }

    /// As [`FrameWriter::push`], of the records that there are most of: what is not made a
    /// [`Record`] first need not be moved.
    ///
    /// # Errors
    ///
    /// When it does not fit any more; the frame is as it was.
    #[inline(always)]
    pub fn push_tlp(&mut self, record: &TlpRecord<'_>) -> Result<(), Full> {
        let end = self.buffer.len() - FRAME_CRC;
        self.at += record.emit(&mut self.buffer[self.at..end])?;
        Ok(())
    }

    /// Adds the bytes of an open or close body.
    ///
    /// # Errors
    ///
    /// When they do not fit.
    #[inline]
    pub fn body(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let end = self.buffer.len() - FRAME_CRC;
        let place = self.buffer[self.at..end].get_mut(..bytes.len()).ok_or(Full)?;
        place.copy_from_slice(bytes);
        self.at += bytes.len();
        Ok(())
    }

    /// Adds zero bytes until the finished frame is `length` bytes long, or as long as the buffer.
    #[inline]
    pub fn pad(&mut self, length: usize) {
        let end = length.min(self.buffer.len()).saturating_sub(FRAME_CRC).max(self.at);
        self.buffer[self.at..end].fill(0);
        self.at = end;
    }

    /// Writes length and CRC and gives the frame's length.
    #[inline]
    pub fn finish(self) -> usize {
        let length = self.at + FRAME_CRC;
        let first = self.first | (length as u64) << (field::LENGTH * 8);
        self.buffer[..8].copy_from_slice(&first.to_le_bytes());
        let (covered, rest) = self.buffer.split_at_mut(self.at);
        rest[..FRAME_CRC].copy_from_slice(&crc::frame(covered).to_le_bytes());
        length
    }
}

/// The fixed header in words of eight bytes, little-endian, without the length. What comes next
/// over these bytes is the CRC, which would wait for smaller stores to be through.
#[inline]
fn fixed_words(header: &Header) -> [u64; HEADER / 8] {
    let mut words = [0; HEADER / 8];
    let mut put = |at: usize, value: u64| words[at / 8] |= value << (at % 8 * 8);
    put(field::VERSION, VERSION.into());
    put(field::KIND, header.kind as u64);
    put(field::DESTINATION, header.destination.get().into());
    put(field::SOURCE, header.source.get().into());
    put(field::SOURCE_INCARNATION, header.source_incarnation.into());
    if let Some(incarnation) = header.destination_incarnation {
        put(field::FLAGS, KNOWS_DESTINATION.into());
        put(field::DESTINATION_INCARNATION, incarnation.into());
    }
    put(field::SESSION, header.session.into());
    put(field::PATH, header.path.get().into());
    put(field::PACKET, header.packet.into());
    put(field::SEQUENCE, header.sequence.into());
    if let Some(ack) = &header.ack {
        put(field::FLAGS, ACKNOWLEDGES.into());
        put(field::ACK_SEQUENCE, ack.next.into());
        put(field::ACK_PACKET, ack.packet.into());
        put(field::ACK_DELAY, ack.delay_us.into());
        put(field::ACK_PATH, ack.path.get().into());
        put(field::SACKS, ack.sacks.count.into());
        put(field::CE, ack.ce.into());
    }
    words
}
