//! TLPs that wait to be taken by a proxy, in the order in which PCIe lets them go.

use crate::dress;
use crate::random::Random;
use std::collections::VecDeque;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{Class, CplStatus, Kind, Packet, Repr};

/// A TLP that waits.
#[derive(Debug)]
pub(crate) struct Waiting<M> {
    pub(crate) class: Class,
    pub(crate) bytes: Vec<u8>,
    /// What its sender remembers of it.
    pub(crate) mark: M,
}

/// What a completer answers to a request; with data a byte count and a lower address.
pub(crate) fn completion<'a>(
    asked: &Packet<&[u8]>,
    (completer, tag): (Bdf, Tag),
    status: CplStatus,
    (byte_count, lower_address): (u16, u8),
    data: &'a [u8],
) -> Repr<'a> {
    let mut repr = Repr::new(Kind::Completion {
        completer,
        requester: asked.requester(),
        tag,
        status,
        bcm: false,
        byte_count,
        lower_address,
        locked: false,
        data,
    });
    repr.attributes = asked.attributes();
    repr.traffic_class = asked.traffic_class();
    repr
}

/// A part of a read's data, in a completion of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where in the doublewords that were asked for it is.
    pub(crate) at: usize,
    pub(crate) length: usize,
    /// Byte count and lower address of its completion.
    pub(crate) says: (u16, u8),
    pub(crate) last: bool,
}

/// The parts in which a read is answered, of such a payload at most: whole, or cut at boundaries of its
/// completer's own choice (PCIe 5.0 section 2.3.1.1).
pub(crate) fn pieces(
    asked: &Packet<&[u8]>,
    (payload, boundary): (usize, usize),
    random: &mut Random,
) -> Vec<Piece> {
    let enables = dress::enables(asked);
    let mut left = enables.byte_count(asked.length_dw());
    let mut lower = enables.lower_address(asked.address());
    let mut pieces = Vec::new();
    let mut at = 0;
    while left > 0 {
        let address = asked.address() as usize + at;
        let skip = usize::from(lower & 3);
        let whole = (usize::from(left) + skip).div_ceil(4) * 4;
        let most = payload - address % boundary;
        let length = if whole <= most && !random.chance(200_000) {
            whole
        } else {
            let boundaries = (most / boundary).max(1) as u64;
            let cut = random.between(1, boundaries) as usize * boundary - address % boundary;
            cut.min(whole)
        };
        let says = (left, lower);
        left -= (length - skip).min(left.into()) as u16;
        pieces.push(Piece { at, length, says, last: left == 0 });
        at += length;
        lower = (asked.address() as usize + at) as u8 & 0x7f;
    }
    pieces
}

/// Writes a TLP, with a digest as [`dress::finish`] does, over what is there.
fn write(repr: &Repr<'_>, bytes: &mut Vec<u8>) {
    bytes.resize(repr.buffer_len(), 0);
    let length = repr.emit(bytes).expect("the models make only TLPs that can be written");
    bytes.truncate(length);
    dress::finish(bytes);
}

/// A TLP as [`Egress::push`] writes it.
pub(crate) fn written(repr: &Repr<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(repr, &mut bytes);
    bytes
}

/// The queue in front of a proxy.
#[derive(Debug)]
pub(crate) struct Egress<M> {
    queue: VecDeque<Waiting<M>>,
    spare: Vec<Vec<u8>>,
}

impl<M> Egress<M> {
    pub(crate) fn new() -> Self {
        Self { queue: VecDeque::new(), spare: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Writes a TLP and puts it behind the others; a digest as [`dress::finish`] does.
    pub(crate) fn push(&mut self, repr: &Repr<'_>, mark: M) {
        let class = repr.tlp_type().class().expect("only TLPs of known kinds are made here");
        let mut bytes = self.spare.pop().unwrap_or_default();
        write(repr, &mut bytes);
        self.queue.push_back(Waiting { class, bytes, mark });
    }

    /// Bytes as they are.
    pub(crate) fn push_bytes(&mut self, class: Class, bytes: Vec<u8>, mark: M) {
        self.queue.push_back(Waiting { class, bytes, mark });
    }

    /// Offers what may go to `take`, which says whether it was taken. Nothing passes a posted TLP
    /// that has to wait; a non-posted one or completion that waits is passed by the other classes.
    pub(crate) fn offer<E>(
        &mut self,
        mut take: impl FnMut(&mut Waiting<M>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let (mut at, mut any) = (0, false);
        let mut blocked = [false; 3];
        while at < self.queue.len() && !blocked[0] && !(blocked[1] && blocked[2]) {
            let waiting = &mut self.queue[at];
            let class = waiting.class as usize;
            if !blocked[class] && take(waiting)? {
                any = true;
                let gone = self.queue.remove(at).expect("it is there");
                if self.spare.len() < 256 {
                    self.spare.push(gone.bytes);
                }
                continue;
            }
            blocked[class] = true;
            at += 1;
        }
        Ok(any)
    }

    /// What is to go first.
    pub(crate) fn front(&self) -> Option<&Waiting<M>> {
        self.queue.front()
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Forgets what `wanted` does not want.
    pub(crate) fn retain(&mut self, wanted: impl FnMut(&Waiting<M>) -> bool) {
        self.queue.retain(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Drawer;
    use tlp_codec::tlp::ByteEnables;

    #[test]
    fn pieces_end_at_boundaries_and_are_all_that_was_asked_for() {
        let mut random = Random::stream(1, Drawer::Answer, 0);
        let mut cut = 0;
        for n in 0..2000 {
            let (address, bytes) = (0x1000 + random.below(512), 1 + random.below(512) as usize);
            let (enables, length_dw) = ByteEnables::for_range(address, bytes);
            let repr = Repr::new(Kind::MemRead {
                requester: Bdf::from_bits(8),
                tag: Tag::new(1).unwrap(),
                address: address & !3,
                length_dw,
                enables,
                hint: None,
                locked: false,
            });
            let mut read = vec![0; repr.buffer_len()];
            let length = repr.emit(&mut read).unwrap();
            let packet = Packet::new_checked(&read[..length]).unwrap();
            let boundary = [64, 128][n % 2];
            let pieces = pieces(&packet, (256, boundary), &mut random);
            let mut at = 0;
            for piece in &pieces {
                let from = (address as usize & !3) + piece.at;
                assert_eq!(piece.at, at);
                assert!(piece.length <= 256 && piece.length % 4 == 0);
                assert!(piece.last || (from + piece.length).is_multiple_of(boundary));
                assert_eq!(piece.says.1 & 0x7c, from as u8 & 0x7c);
                at += piece.length;
            }
            assert_eq!((pieces[0].says.0, at), (bytes as u16, usize::from(length_dw) * 4));
            assert_eq!(pieces.iter().filter(|piece| piece.last).count(), 1);
            cut += usize::from(pieces.len() > 1);
        }
        assert!(cut > 500, "{cut}");
    }
}
