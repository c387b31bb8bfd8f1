//! Which stamped TLPs the records of frames are.
//!
//! A record says whose it is, and of what request, but not which completion of it, and an entry of
//! the outstanding table is used again after a while. The time tells: a TLP that came has the time
//! of the frame that brought it as its *received*, and the frame that first sent one was begun
//! before its *sent*. A record that comes again has the same sequence.
//!
//! Both are in the order of time, and a proxy may say anything: each is looked at a few times.

use super::collect::{Collected, KeptFrame};
use super::join::{NOT_THE_SAME, Times, Tlp};
use super::pcapng::{self, comment};
use proxy_core::stamps::{Stage, StampedTlp};
use std::collections::{HashMap, VecDeque};
use tlp_codec::crc;
use tlp_codec::fabric::{
    FRAME_CRC, Frame, HEADER, Header, MAX_OVERHEAD, RECORD_HEADER, Record, RecordAddress,
    RecordError, SPLIT_HEADER, TlpTraits,
};
use tlp_codec::ids::BindingKey;
use tlp_codec::tlp::Class;

/// One way of one link, and the sequence of a record on it.
type Place = (bool, u32, u32);

type Name = (BindingKey, bool, StampedTlp);

/// What the records of frames carry.
pub(super) struct Carried<'a> {
    at_host: bool,
    by_place: HashMap<Place, &'a Tlp<'a>>,
}

/// A record that carries a TLP or a part of one.
struct Carrier {
    /// Its sequence.
    sequence: u32,
    address: RecordAddress,
    class: Class,
    /// Of one that says what it carries.
    traits: Option<TlpTraits>,
    /// Of one that has more of a split TLP: which of its parts.
    part: u16,
}

impl<'a> Carried<'a> {
    /// Finds for each record the TLP, among those that this end stamped.
    pub(super) fn new(seen: &Collected, at_host: bool, tlps: &'a [Tlp<'a>]) -> Self {
        // Those that came, by when; those that were sent, in the order of being sent.
        let mut waiting: HashMap<(Name, Option<u64>), VecDeque<&Tlp<'_>>> = HashMap::new();
        let times = |tlp: &'a Tlp<'_>| if at_host { &tlp.host } else { &tlp.boxed };
        for tlp in tlps {
            let name = (tlp.binding, tlp.from_host, tlp.what);
            let came = times(tlp)[Stage::Received as usize];
            waiting.entry((name, came)).or_default().push_back(tlp);
        }
        let mut carried = Self { at_host, by_place: HashMap::new() };
        for frame in &seen.frames {
            let Some((header, carriers)) = carriers(frame) else { continue };
            for carrier in carriers {
                let place = (frame.received, header.session, carrier.sequence);
                if carried.by_place.contains_key(&place) {
                    continue;
                }
                let Some(name) = carried.name(frame, &carrier) else { continue };
                let came = frame.received.then_some(frame.at);
                let Some(queue) = waiting.get_mut(&(name, came)) else { continue };
                // Frames are in the order of their times, too: what was sent before this one was
                // begun is of none behind it.
                while queue.front().is_some_and(|tlp| is_over(frame, times(tlp))) {
                    queue.pop_front();
                }
                if queue.front().is_some_and(|tlp| is_begun(frame, times(tlp))) {
                    carried.by_place.extend(queue.pop_front().map(|tlp| (place, tlp)));
                }
            }
        }
        carried
    }

    /// Whether the sender of a frame is the host's proxy.
    fn sent_by_host(&self, frame: &KeptFrame) -> bool {
        self.at_host != frame.received
    }

    fn is_from_host(&self, frame: &KeptFrame, class: Class) -> bool {
        // A completion goes where the request came from.
        self.sent_by_host(frame) != (class == Class::Completion)
    }

    /// What a record says of the TLP that begins in it.
    fn name(&self, frame: &KeptFrame, carrier: &Carrier) -> Option<Name> {
        let what = match (carrier.class, carrier.traits?.outstanding) {
            (Class::Posted, _) => StampedTlp::Posted(Some(carrier.sequence)),
            (Class::NonPosted, entry) => StampedTlp::Request(entry?),
            (Class::Completion, entry) => StampedTlp::Completion(entry?),
        };
        let binding = carrier.address.binding(self.sent_by_host(frame));
        Some((binding, self.is_from_host(frame, carrier.class), what))
    }

    /// What is known of the TLPs of a frame: words for each of its records that carries one, as
    /// [`comment`] has them, behind the record's sequence. Of a TLP without stamps they are what
    /// the record says.
    pub(super) fn comments(&self, frame: &KeptFrame) -> Vec<String> {
        let Some((header, carriers)) = carriers(frame) else { return Vec::new() };
        let words = |carrier: Carrier| {
            let begun = carrier.sequence.wrapping_sub(carrier.part.into());
            let known = self.by_place.get(&(frame.received, header.session, begun));
            let said = known.map_or_else(|| self.unstamped(frame, &carrier), |tlp| comment(tlp));
            match carrier.part {
                0 => format!("record={} {said}", carrier.sequence),
                part => format!("record={} part={part} {said}", carrier.sequence),
            }
        };
        carriers.into_iter().map(words).collect()
    }

    fn unstamped(&self, frame: &KeptFrame, carrier: &Carrier) -> String {
        let what = self.name(frame, carrier).map(|(_, _, what)| what);
        let binding = carrier.address.binding(self.sent_by_host(frame));
        let from_host = self.is_from_host(frame, carrier.class);
        pcapng::name(carrier.class, what, from_host, &binding)
    }
}

/// Whether a TLP with these stamps of this end was first sent before a frame that is sent.
fn is_over(frame: &KeptFrame, times: &Times) -> bool {
    !frame.received && times[Stage::Sent as usize].is_some_and(|sent| sent < frame.at)
}

/// Whether a TLP with these stamps of this end can have been there when a frame was made.
fn is_begun(frame: &KeptFrame, times: &Times) -> bool {
    // A frame has the time of its proxy's turn, and a TLP that came in that turn may have a later
    // one: of the same name, and much later, are others.
    let soon = frame.at.saturating_add(NOT_THE_SAME);
    frame.received || times[Stage::Arrived as usize].is_some_and(|arrived| arrived <= soon)
}

/// The header of a frame and its records that carry TLPs, as far as they were kept.
fn carriers(frame: &KeptFrame) -> Option<(Header, Vec<Carrier>)> {
    let (header, mut at) = header(frame)?;
    let end = usize::from(frame.length).checked_sub(FRAME_CRC)?;
    let kept = &frame.bytes[..frame.bytes.len().min(end)];
    let (mut found, mut last) = (Vec::new(), Vec::new());
    for number in 0_u32.. {
        let Some(rest) = kept.get(at..).filter(|rest| !rest.is_empty()) else { break };
        let record = match Record::parse(rest) {
            Err(RecordError::CutShort { need, .. }) if need > rest.len() && at + need <= end => {
                // What follows its head is not looked at.
                last.extend_from_slice(rest);
                last.resize(need, 0);
                Record::parse(&last)
            }
            whole => whole,
        };
        let Ok((record, length)) = record else { break };
        let head =
            if matches!(record, Record::SplitHeader(_)) { SPLIT_HEADER } else { RECORD_HEADER };
        if !matches!(record, Record::Nop) && rest.len() < head {
            break;
        }
        at += length;
        let sequence = header.sequence.wrapping_add(number);
        let begins = |address, traits: TlpTraits| {
            let (class, traits) = (traits.class, Some(traits));
            Carrier { sequence, address, class, traits, part: 0 }
        };
        found.push(match record {
            Record::Tlp(r) => begins(r.address, r.traits),
            Record::SplitHeader(r) => begins(r.address, r.traits),
            Record::SplitData(r) => {
                let (address, class, part) = (r.address, r.class, r.part);
                Carrier { sequence, address, class, traits: None, part }
            }
            Record::Nop | Record::Sideband(..) | Record::Credits(_) | Record::Unbind(_) => continue,
        });
    }
    Some((header, found))
}

/// The header of a frame, and where its records begin.
fn header(frame: &KeptFrame) -> Option<(Header, usize)> {
    /// Where a frame has its length (`docs/wire.md`, "Frame header").
    const LENGTH: usize = 2;
    const LONGEST: usize = MAX_OVERHEAD - FRAME_CRC;
    if frame.bytes.len() < HEADER {
        return None;
    }
    // A frame of as many bytes as a header can have, with a CRC of its own, is enough to be read.
    let mut alone = [0; MAX_OVERHEAD];
    let there = frame.bytes.len().min(LONGEST);
    alone[..there].copy_from_slice(&frame.bytes[..there]);
    alone[LENGTH..][..2].copy_from_slice(&(MAX_OVERHEAD as u16).to_le_bytes());
    let (covered, place) = alone.split_at_mut(LONGEST);
    place.copy_from_slice(&crc::frame(covered).to_le_bytes());
    let parsed = Frame::new_checked(&alone[..]).ok()?;
    Some((parsed.header(), LONGEST - parsed.body().len()))
}

#[cfg(test)]
mod tests;
