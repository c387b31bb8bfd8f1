//! The TLPs of one binding in one direction, against the ordering table of the base specification
//! (PCIe 5.0 section 2.4.1, table 2-40).
//!
//! A TLP is known by a digest of what no proxy may change: everything but requester and completer
//! ID and tag, and for completions the request that they answer. Two TLPs that are alike in all of
//! that are taken for each other, which is the reading that forgives most.

use super::{Verdict, Violation};
use crate::random::{fold, mix};
use proxy_core::time::Instant;
use std::collections::VecDeque;
use tlp_codec::tlp::{Class, CplStatus, Packet};

/// What the table looks at, and the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) class: Class,
    pub(crate) digest: u64,
    /// Attributes RO and IDO.
    relaxed: bool,
    by_id: bool,
    /// The requester's, or of a completion the completer's ID.
    id: u16,
    /// A completion of an I/O or configuration write.
    of_write: bool,
    /// An I/O, configuration or atomic request with data ("NPR with Data").
    with_data: bool,
    /// A completion that refuses, without data: a proxy may have said it by itself.
    pub(super) refuses: bool,
    /// A completion after which its request gets no more.
    pub(crate) last: bool,
    /// It went before its function had an address, and so on another binding than its function's,
    /// between which and this one there is no order (`wire.md`, section 9).
    unplaced: bool,
}

impl Seen {
    /// Looks at a TLP; `None` for what is none.
    pub(crate) fn of(tlp: &[u8]) -> Option<Self> {
        let packet = Packet::new_checked(tlp).ok()?;
        let class = packet.class()?;
        let attributes = packet.attributes();
        let completion = class == Class::Completion;
        let id = if completion { packet.completer() } else { packet.requester() };
        Some(Self {
            class,
            digest: digest(&packet, completion),
            relaxed: attributes.relaxed_ordering,
            by_id: attributes.id_based_ordering,
            id: id.bits(),
            of_write: false,
            refuses: completion && is_made_up(tlp),
            with_data: class == Class::NonPosted && packet.has_data(),
            last: completion && is_last(&packet),
            unplaced: false,
        })
    }

    /// Whether it has relaxed ordering.
    pub(crate) fn is_relaxed(&self) -> bool {
        self.relaxed
    }

    /// A request to where its function will have its memory, and had nothing yet; or its answer.
    pub(crate) fn unplaced(self, unplaced: bool) -> Self {
        Self { unplaced, ..self }
    }

    /// A completion of an I/O or configuration write, which it does not show itself.
    pub(crate) fn answers_write(self, of_write: bool) -> Self {
        Self { of_write, ..self }
    }

    /// Whether this one may pass a posted request that was sent before it: the column "Posted
    /// Request" of the table, row by row.
    fn may_pass_posted(&self, posted: &Seen) -> bool {
        if self.unplaced != posted.unplaced {
            return true;
        }
        // IDO: only where the IDs differ.
        let by_id = self.by_id && self.id != posted.id;
        match self.class {
            // A2a, A2b.
            Class::Posted => self.relaxed || by_id,
            // C2a, C2b: non-posted requests with data; B2a, B2b: read requests.
            Class::NonPosted => by_id || self.with_data && self.relaxed,
            // D2a, D2b: completions of I/O and configuration writes may.
            Class::Completion => self.relaxed || by_id || self.of_write,
        }
    }
}

/// Whether a completion is the last one of its request: its byte count, which says what is left, is
/// no more than what it holds (PCIe 5.0 section 2.3.1.1).
fn is_last(packet: &Packet<&[u8]>) -> bool {
    let data = packet.payload_len().saturating_sub(usize::from(packet.lower_address() & 3));
    packet.status() != CplStatus::Success
        || !packet.has_data()
        || data >= usize::from(packet.byte_count())
}

/// Of a TLP with prefixes and a digest that is looked at: whether it is right is what counts, as
/// it changes with what a proxy may change. What is posted comes as it was sent, all but its requester.
fn digest(packet: &Packet<&[u8]>, completion: bool) -> u64 {
    let hash = match packet.digest_is_good() {
        Some(good) => fold(1 + u64::from(good), packet.prefix_bytes()),
        None if packet.prefix_bytes().is_empty() => 0,
        None => fold(3, packet.prefix_bytes()),
    };
    let bytes = &packet.as_bytes()[packet.prefix_bytes().len()..];
    let posted = packet.class() == Some(Class::Posted);
    let without = if packet.has_digest() && !posted { bytes.len() - 4 } else { bytes.len() };
    // With hints a write has its steering tag where others have a tag.
    let steers = if posted && packet.has_hints() { u64::from(bytes[6]) << 8 } else { 0 };
    hash ^ digest_of(&bytes[..without], completion, steers)
}

fn digest_of(tlp: &[u8], completion: bool, steers: u64) -> u64 {
    let word =
        |at: usize| u64::from(u32::from_le_bytes([tlp[at], tlp[at + 1], tlp[at + 2], tlp[at + 3]]));
    // Types 4 and 5 are configuration requests of type 0 and 1: a bridge makes one of the other.
    let kind = word(0) & !u64::from(u8::from(!completion && tlp[0] & 0x1e == 0x04));
    // Of 10-bit tags the upper two bits are there.
    let kind = kind & !0x8800;
    let hash = mix(kind | (tlp.len() as u64) << 32);
    if completion {
        // Status, byte count and lower address; neither IDs nor tag.
        let what = u64::from(tlp[6]) | u64::from(tlp[7]) << 8 | u64::from(tlp[11]) << 16;
        fold(mix(hash ^ what), &tlp[12..])
    } else {
        fold(mix(hash ^ (u64::from(tlp[7]) | steers)), &tlp[8..])
    }
}

/// Instead of a request: a posted TLP that its device was not told to send.
pub(crate) const STRAY: u64 = u64::MAX;

/// A TLP that was sent and has not come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    number: u64,
    seen: Seen,
    /// The request that it is, or that it answers; 0 of posted ones, and [`STRAY`].
    pub(crate) request: u64,
    /// It may be lost on purpose: dropped by a rule, or ended with what it belongs to.
    optional: bool,
    pub(crate) at: Instant,
}

impl Sent {
    /// Whether it need not come.
    pub(crate) fn is_optional(&self) -> bool {
        self.optional
    }

    /// As [`Seen::unplaced`].
    pub(crate) fn is_unplaced(&self) -> bool {
        self.seen.unplaced
    }
}

/// One binding's TLPs in one direction.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    under_way: [VecDeque<Sent>; 3],
    sent: u64,
    /// TLPs that came.
    pub(crate) delivered: u64,
    closed: bool,
}

impl Flow {
    /// A proxy took a TLP in.
    pub(crate) fn send(&mut self, at: Instant, seen: Seen, request: u64, optional: bool) {
        self.sent += 1;
        let sent = Sent { number: self.sent, seen, request, optional, at };
        self.under_way[seen.class as usize].push_back(sent);
    }

    /// Whether nothing comes any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// A proxy gave a TLP out at the other end; for a completion, of this request.
    pub(crate) fn deliver(&mut self, seen: Seen, request: Option<u64>) -> Verdict<Sent> {
        self.deliver_by(seen, request, false)
    }

    /// As [`Flow::deliver`]; if it is `apart`, a completion came another way than what is posted, and
    /// between the two there is no order.
    pub(crate) fn deliver_by(
        &mut self,
        seen: Seen,
        request: Option<u64>,
        apart: bool,
    ) -> Verdict<Sent> {
        let those = |optional: bool| {
            let alike = self.alike(&seen, request);
            alike.filter(move |(_, sent)| sent.optional == optional).map(|(at, _)| at)
        };
        // Of two that are alike, one that may not be lost is meant before one that may, unless that
        // would be wrong.
        let mut first = None;
        let mut fits = |at: &usize| {
            let verdict = self.check(*at, seen.class, apart);
            let fits = verdict.is_ok();
            first = first.take().or(verdict.err());
            fits
        };
        let owed = those(false).next().filter(&mut fits);
        let at = owed.or_else(|| those(true).find(&mut fits));
        let class = seen.class;
        if self.closed && (at.is_some() || first.is_some()) {
            return Err(Violation::new(2, format!("a {class:?} TLP came after its binding")));
        }
        let Some(at) = at else {
            let what =
                format!("a {class:?} TLP came that is not under way: never sent so, or twice");
            return Err(first.unwrap_or_else(|| Violation::new(1, what)));
        };
        let sent = self.under_way[class as usize][at];
        if class != Class::Posted && !(apart && class == Class::Completion) {
            // Of the posted ones that it passed, and which may be lost, none comes any more. Of several
            // that are alike it may be the first.
            let alike = self.alike(&seen, request).next();
            let first = alike.map_or(sent.number, |(_, first)| first.number);
            let before = |posted: &Sent| posted.number < first;
            let passed = |posted: &Sent| !sent.seen.may_pass_posted(&posted.seen);
            let posted = &mut self.under_way[Class::Posted as usize];
            if posted.iter().take_while(|posted| before(posted)).any(passed) {
                posted.retain(|posted| !(before(posted) && passed(posted)));
            }
        }
        self.under_way[class as usize].remove(at);
        self.delivered += 1;
        Ok(sent)
    }

    /// Whether the one at this place of a class may come now.
    fn check(&self, at: usize, class: Class, apart: bool) -> Verdict {
        let sent = &self.under_way[class as usize][at];
        self.check_same_class(at, sent)?;
        if class == Class::Posted || apart && class == Class::Completion {
            return Ok(());
        }
        self.check_posted(sent)
    }

    /// Within a class: posted ones by the table's A2, completions of one request by D5b.
    fn check_same_class(&self, at: usize, sent: &Sent) -> Verdict {
        match sent.seen.class {
            Class::Posted => self.check_posted(sent),
            // B3, C3: they may pass each other.
            Class::NonPosted => Ok(()),
            Class::Completion => {
                let earlier = self.under_way[2].iter().take(at);
                match earlier.filter(|e| !e.optional && e.request == sent.request).count() {
                    0 => Ok(()),
                    _ => Err(Violation::new(1, "completions of one request changed places")),
                }
            }
        }
    }

    /// No posted TLP that is still under way, has to come and was sent before may have been passed, if
    /// the table does not allow it.
    fn check_posted(&self, sent: &Sent) -> Verdict {
        let all = self.under_way[Class::Posted as usize].iter();
        let passed = all
            .take_while(|posted| posted.number < sent.number)
            .find(|posted| !posted.optional && !sent.seen.may_pass_posted(&posted.seen));
        let Some(posted) = passed else { return Ok(()) };
        let what = format!(
            "a {:?} TLP came before a posted one, number {} of its flow, that was sent before it (or that one \
             is lost)",
            sent.seen.class, posted.number
        );
        Err(Violation::new(1, what))
    }

    /// What is under way may come or not.
    pub(crate) fn relax(&mut self) {
        self.under_way.iter_mut().flatten().for_each(|sent| sent.optional = true);
    }

    /// What belongs to a request may come or not.
    pub(crate) fn relax_request(&mut self, request: u64) {
        let of_it = |sent: &&mut Sent| sent.request == request;
        self.under_way.iter_mut().flatten().filter(of_it).for_each(|sent| sent.optional = true);
    }

    /// Requests that are under way may come or not.
    pub(crate) fn relax_requests(&mut self) {
        let [posted, non_posted, _] = &mut self.under_way;
        posted.iter_mut().chain(non_posted).for_each(|sent| sent.optional = true);
    }

    /// A request that is under way never comes.
    pub(crate) fn drop_request(&mut self, request: u64) {
        self.under_way[Class::NonPosted as usize].retain(|sent| sent.request != request);
    }

    /// What is under way is gone.
    pub(crate) fn drop_all(&mut self) {
        self.under_way.iter_mut().for_each(VecDeque::clear);
    }

    /// How many were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// What of some classes was sent so early is gone.
    pub(crate) fn drop_before(&mut self, last: u64, classes: &[Class]) {
        for class in classes {
            self.under_way[*class as usize].retain(|sent| sent.number > last);
        }
    }

    /// Nothing may come any more.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// The TLPs under way: their class, whether they have ID-based ordering, and whether they are
    /// completions of writes.
    #[cfg(test)]
    pub(crate) fn marks(&self) -> impl Iterator<Item = (Class, bool, bool)> {
        let seen = self.under_way.iter().flatten().map(|sent| sent.seen);
        seen.map(|seen| (seen.class, seen.by_id, seen.of_write))
    }

    /// How many TLPs of a class are under way that may not be lost.
    pub(crate) fn held(&self, class: Class) -> usize {
        self.under_way[class as usize].iter().filter(|sent| !sent.optional).count()
    }

    /// No more than these are held: what is under way, with what need not come.
    pub(crate) fn most_held(&self, class: Class) -> usize {
        self.under_way[class as usize].len()
    }

    /// Whether there is such a TLP under way; if it is said so, for this request.
    pub(crate) fn knows(&self, seen: &Seen, request: Option<u64>) -> bool {
        self.alike(seen, request).next().is_some()
    }

    /// As [`Flow::knows`], one that may not be lost.
    pub(crate) fn owes(&self, seen: &Seen, request: Option<u64>) -> bool {
        self.alike(seen, request).any(|(_, sent)| !sent.optional)
    }

    /// What is under way and looks so, and where it is among its class.
    fn alike(&self, seen: &Seen, request: Option<u64>) -> impl Iterator<Item = (usize, &Sent)> {
        let digest = seen.digest;
        let is_it = move |sent: &Sent| {
            sent.seen.digest == digest && request.is_none_or(|request| request == sent.request)
        };
        let all = self.under_way[seen.class as usize].iter().enumerate();
        all.filter(move |(_, sent)| is_it(sent))
    }

    /// TLPs under way that may not be lost, and since when the oldest is.
    pub(crate) fn owed(&self) -> (usize, Option<Instant>) {
        let owed = || self.under_way.iter().flatten().filter(|sent| !sent.optional);
        (owed().count(), owed().map(|sent| sent.at).min())
    }
}

/// Whether a completion is what a proxy itself says for a request: Unsupported Request and no data.
pub(crate) fn is_made_up(tlp: &[u8]) -> bool {
    Packet::new_checked(tlp)
        .is_ok_and(|p| p.status() == CplStatus::UnsupportedRequest && !p.has_data())
}

#[cfg(test)]
mod tests;
