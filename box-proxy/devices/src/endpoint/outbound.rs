//! What a function sends beside read requests: posted TLPs and completions, in queues of their
//! own, each entry with its place in the order in which everything was handed over.

use super::interrupts::Message;
use super::requester::chunk;
use std::collections::VecDeque;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{Attributes, ByteEnables, CplStatus, Kind, MsgCode, MsgRouting, Repr};

/// Bytes of DMA writes that wait to be sent. A further write is refused until there is room.
pub const WRITE_QUEUE_BYTES: usize = 256 * 1024;

/// Writes, interrupts and messages that wait to be sent. A further write is refused, an
/// interrupt stays pending.
pub const POSTED_QUEUE: usize = 1024;

/// Messages that have room beside as many: writes may wait for Bus Master Enable, which messages do
/// not ask for. A further one is dropped and counted.
const MESSAGES: usize = 64;

/// Requests whose completions wait to be sent: the function's non-posted credits. A further
/// request is dropped and counted as receiver overflow.
pub const COMPLETION_QUEUE: usize = 64;

enum Posted {
    Write {
        address: u64,
        data: Vec<u8>,
        sent: usize,
        attributes: Attributes,
        /// The interrupt vector whose message it is.
        vector: Option<u16>,
    },
    Message {
        routing: MsgRouting,
        code: MsgCode,
    },
}

impl Posted {
    fn is_message(&self) -> bool {
        matches!(self, Self::Message { .. })
    }
}

/// Which posted TLPs may leave: Bus Master Enable is about memory requests alone (PCIe 5.0 section
/// 7.5.1.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    All,
    Messages,
}

/// Posted TLPs, in order.
pub(super) struct PostedQueue {
    queue: VecDeque<(u64, Posted)>,
    bytes: usize,
}

impl PostedQueue {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::new(), bytes: 0 }
    }

    /// Whether a write of `len` bytes has room. One that is longer than the queue has room alone.
    pub(super) fn has_room(&self, len: usize) -> bool {
        let bytes = self.bytes == 0 || self.bytes + len <= WRITE_QUEUE_BYTES;
        bytes && self.queue.len() < POSTED_QUEUE
    }

    /// The same for a message.
    pub(super) fn has_room_for_message(&self) -> bool {
        self.queue.len() < POSTED_QUEUE + MESSAGES
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push_write(
        &mut self,
        order: u64,
        address: u64,
        data: Vec<u8>,
        attributes: Attributes,
    ) {
        self.push(order, address, data, attributes, None);
    }

    pub(super) fn push_interrupt(&mut self, order: u64, message: &Message) {
        let Message { address, data, vector } = *message;
        // PCIe 5.0 section 6.1.4: no relaxed ordering, no no-snoop.
        let attributes = Attributes::default();
        self.push(order, address, data.to_le_bytes().to_vec(), attributes, Some(vector));
    }

    fn push(
        &mut self,
        order: u64,
        address: u64,
        data: Vec<u8>,
        attributes: Attributes,
        vector: Option<u16>,
    ) {
        self.bytes += data.len();
        self.queue.push_back((order, Posted::Write { address, data, sent: 0, attributes, vector }));
    }

    pub(super) fn push_message(&mut self, order: u64, routing: MsgRouting, code: MsgCode) {
        self.queue.push_back((order, Posted::Message { routing, code }));
    }

    /// The place in the order of the oldest entry, or of the oldest message.
    pub(super) fn next_order(&self, of: Leaving) -> Option<u64> {
        self.next(of).map(|at| self.queue[at].0)
    }

    fn next(&self, of: Leaving) -> Option<usize> {
        match of {
            Leaving::All => (!self.queue.is_empty()).then_some(0),
            Leaving::Messages => self.queue.iter().position(|(_, posted)| posted.is_message()),
        }
    }

    /// Takes the interrupts out; gives their vectors.
    pub(super) fn take_interrupts(&mut self) -> Vec<u16> {
        let mut vectors = Vec::new();
        self.queue.retain(|(_, posted)| match posted {
            Posted::Write { data, vector: Some(vector), .. } => {
                vectors.push(*vector);
                self.bytes -= data.len();
                false
            }
            _ => true,
        });
        vectors
    }

    /// Drops DMA writes; says how many.
    pub(super) fn drop_writes(&mut self) -> u64 {
        let before = self.queue.len();
        self.queue.retain(|(_, posted)| posted.is_message());
        self.bytes = 0;
        (before - self.queue.len()) as u64
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }

    /// The next posted TLP into `buf`.
    pub(super) fn emit(
        &mut self,
        of: Leaving,
        requester: Bdf,
        max_payload: usize,
        buf: &mut [u8],
    ) -> Option<usize> {
        let next = self.next(of)?;
        let (_, posted) = self.queue.get_mut(next)?;
        let (length, finished) = match posted {
            Posted::Message { routing, code } => {
                let kind = Kind::Message {
                    routing: *routing,
                    code: *code,
                    requester,
                    tag: TAG_ZERO,
                    fields: [0; 8],
                    data: &[],
                };
                (Repr::new(kind).emit(buf).expect(VALID), true)
            }
            Posted::Write { address, data, sent, attributes, .. } => {
                let at = address.wrapping_add(*sent as u64);
                let len = chunk(at, data.len() - *sent, max_payload);
                let length = emit_write(requester, *attributes, at, &data[*sent..][..len], buf);
                *sent += len;
                (length, *sent == data.len())
            }
        };
        if finished && let Some((_, Posted::Write { data, .. })) = self.queue.remove(next) {
            self.bytes -= data.len();
        }
        Some(length)
    }
}

/// What is wrong when a TLP of the endpoint is not written.
pub(super) const VALID: &str = "what the endpoint builds is a valid TLP and fits a MAX_TLP buffer";

const TAG_ZERO: Tag = match Tag::new(0) {
    Ok(tag) => tag,
    Err(_) => unreachable!(),
};

/// A memory write of bytes that need not start or end at a doubleword.
fn emit_write(
    requester: Bdf,
    attributes: Attributes,
    address: u64,
    bytes: &[u8],
    buf: &mut [u8],
) -> usize {
    let (enables, length_dw) = ByteEnables::for_range(address, bytes.len());
    let skip = (address & 3) as usize;
    let mut padded = Vec::new();
    let data = if skip == 0 && bytes.len().is_multiple_of(4) {
        bytes
    } else {
        padded.resize(usize::from(length_dw) * 4, 0);
        padded[skip..skip + bytes.len()].copy_from_slice(bytes);
        &padded
    };
    let kind = Kind::MemWrite {
        requester,
        tag: TAG_ZERO,
        address: address & !3,
        enables,
        hint: None,
        data,
    };
    let mut repr = Repr::new(kind);
    repr.attributes = attributes;
    repr.emit_inline(buf).expect(VALID)
}

/// What a completion repeats from its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) requester: Bdf,
    pub(super) tag: Tag,
    pub(super) traffic_class: u8,
    pub(super) attributes: Attributes,
    pub(super) locked: bool,
}

/// The answer to one request.
struct Answer {
    origin: Origin,
    status: CplStatus,
    /// Address of the first byte that was asked for.
    address: u64,
    /// Whole doublewords; empty for a completion without data.
    data: Vec<u8>,
    /// Bytes from the first one asked for to the last.
    count: usize,
    /// Of those, how many have been sent.
    sent: usize,
}

/// Completions, in order.
pub(super) struct CompletionQueue {
    queue: VecDeque<(u64, Answer)>,
}

impl CompletionQueue {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(COMPLETION_QUEUE) }
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < COMPLETION_QUEUE
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// A completion without data. `count` is what PCIe 5.0 section 2.2.9 wants in Byte Count: 4,
    /// or what was asked for if the request was a memory read.
    pub(super) fn push_status(
        &mut self,
        order: u64,
        origin: Origin,
        status: CplStatus,
        count: u16,
    ) {
        let answer =
            Answer { origin, status, address: 0, data: Vec::new(), count: count.into(), sent: 0 };
        self.queue.push_back((order, answer));
    }

    /// `count` bytes from `address` on, in `data`'s whole doublewords.
    pub(super) fn push_data(
        &mut self,
        order: u64,
        origin: Origin,
        address: u64,
        count: usize,
        data: Vec<u8>,
    ) {
        let status = CplStatus::Success;
        self.queue.push_back((order, Answer { origin, status, address, data, count, sent: 0 }));
    }

    pub(super) fn next_order(&self) -> Option<u64> {
        self.queue.front().map(|&(order, _)| order)
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    /// The next completion into `buf`. Data is split at Max_Payload_Size, and where more follows
    /// it ends at a multiple of 128: the read completion boundary of everything but a root
    /// complex (PCIe 5.0 section 2.3.1.1), which divides every Max_Payload_Size.
    pub(super) fn emit(
        &mut self,
        completer: Bdf,
        max_payload: usize,
        buf: &mut [u8],
    ) -> Option<usize> {
        let (_, answer) = self.queue.front_mut()?;
        let address = answer.address.wrapping_add(answer.sent as u64);
        let left = answer.count - answer.sent;
        let (data, len): (&[u8], usize) = if answer.data.is_empty() {
            (&[], left)
        } else {
            let len = chunk(address, left, max_payload);
            let lead = (answer.address & 3) as usize;
            let from = (lead + answer.sent) & !3;
            let to = (lead + answer.sent + len).next_multiple_of(4);
            (&answer.data[from..to], len)
        };
        let origin = answer.origin;
        let mut repr = Repr::new(Kind::Completion {
            completer,
            requester: origin.requester,
            tag: origin.tag,
            status: answer.status,
            bcm: false,
            byte_count: left as u16,
            lower_address: (address & 0x7f) as u8,
            locked: origin.locked,
            data,
        });
        repr.traffic_class = origin.traffic_class;
        repr.attributes = origin.attributes;
        let length = repr.emit(buf).expect(VALID);
        answer.sent += len;
        if answer.sent == answer.count {
            self.queue.pop_front();
        }
        Some(length)
    }
}
