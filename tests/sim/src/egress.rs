//! TLPs that wait to be taken by a proxy, in the order in which PCIe lets them go.

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
    repr
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

    /// Writes a TLP and puts it behind the others.
    pub(crate) fn push(&mut self, repr: &Repr<'_>, mark: M) {
        let class = repr.tlp_type().class().expect("only TLPs of known kinds are made here");
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(repr.buffer_len(), 0);
        let length = repr.emit(&mut bytes).expect("the models make only TLPs that can be written");
        bytes.truncate(length);
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

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Forgets what `wanted` does not want.
    pub(crate) fn retain(&mut self, wanted: impl FnMut(&Waiting<M>) -> bool) {
        self.queue.retain(wanted);
    }
}
