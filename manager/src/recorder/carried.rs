//! Which stamped TLPs the records of frames are.
//!
//! A record says whose it is, and of what request, but not which completion of it, and an entry of
//! the outstanding table is used again after a while. The time tells: a TLP that came has the time
//! of the frame that brought it as its *received*, and the frame that first sent one was begun
//! before its *sent*. A record that comes again has the same sequence.

use super::collect::{Collected, KeptFrame};
use super::join::{NOT_THE_SAME, Times, Tlp};
use super::pcapng::{self, comment};
use proxy_core::stamps::{Stage, StampedTlp};
use std::collections::{HashMap, VecDeque};
use tlp_codec::crc;
use tlp_codec::fabric::{
    FRAME_CRC, Frame, HEADER, Header, RECORD_HEADER, Record, RecordAddress, SPLIT_HEADER, TlpTraits,
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
        let mut waiting: HashMap<Name, VecDeque<&Tlp<'_>>> = HashMap::new();
        for tlp in tlps {
            waiting.entry((tlp.binding, tlp.from_host, tlp.what)).or_default().push_back(tlp);
        }
        let mut carried = Self { at_host, by_place: HashMap::new() };
        for frame in &seen.frames {
            let Some((header, carriers)) = carriers(frame) else { continue };
            for carrier in carriers {
                let place = (frame.received, header.session, carrier.sequence);
                if carried.by_place.contains_key(&place) {
                    continue;
                }
                let queue = carried.name(frame, &carrier).and_then(|name| waiting.get_mut(&name));
                let Some(queue) = queue else { continue };
                let fits =
                    |tlp: &&Tlp<'_>| is_of(frame, if at_host { &tlp.host } else { &tlp.boxed });
                if let Some(tlp) = queue.iter().position(fits).and_then(|at| queue.remove(at)) {
                    carried.by_place.insert(place, tlp);
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

/// Whether a TLP with these stamps of this end can have come with a frame, or first left with it.
fn is_of(frame: &KeptFrame, times: &Times) -> bool {
    let at = |stage: Stage| times[stage as usize];
    if frame.received {
        return at(Stage::Received) == Some(frame.at);
    }
    // A frame has the time of its proxy's turn, and a TLP that came in that turn may have a later
    // one: of the same name, and much later, are others.
    let soon = frame.at.saturating_add(NOT_THE_SAME);
    at(Stage::Arrived).is_some_and(|arrived| arrived <= soon)
        && at(Stage::Sent).is_none_or(|sent| frame.at <= sent)
}

/// The header of a frame and its records that carry TLPs, as far as they were kept.
fn carriers(frame: &KeptFrame) -> Option<(Header, Vec<Carrier>)> {
    let whole = made_whole(frame)?;
    let parsed = Frame::new_checked(&whole[..]).ok()?;
    let (header, mut found) = (parsed.header(), Vec::new());
    let mut at = whole.len() - FRAME_CRC - parsed.body().len();
    for (number, record) in parsed.records().map_while(Result::ok).enumerate() {
        let head =
            if matches!(record, Record::SplitHeader(_)) { SPLIT_HEADER } else { RECORD_HEADER };
        if !matches!(record, Record::Nop) && at + head > frame.bytes.len() {
            // From here on it is made up.
            break;
        }
        at += record.emitted_len();
        let sequence = header.sequence.wrapping_add(number as u32);
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

/// The bytes of a frame; of one that was cut, zeros where nothing was kept, and a CRC that is right
/// for them, which is what it takes to be read.
fn made_whole(frame: &KeptFrame) -> Option<Vec<u8>> {
    let (mut bytes, length) = (frame.bytes.clone(), usize::from(frame.length));
    if bytes.len() < length {
        if bytes.len() < HEADER {
            return None;
        }
        bytes.resize(length, 0);
        let (covered, place) = bytes.split_at_mut(length - FRAME_CRC);
        place.copy_from_slice(&crc::frame(covered).to_le_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
