//! The two ends' stamps of the same TLPs, joined, and requests with their completions.
//!
//! What joins them is the binding and the entry of the outstanding table, or the link's sequence
//! of a posted request. An entry is used again after 65,536 requests, and either end may have lost
//! stamps: of several that have the same name, the first is meant whose date is close, and if none
//! is, it is not known what the other end stamped.

use super::collect::Collected;
use proxy_core::control::StampEntry;
use proxy_core::stamps::{Stage, StampedTlp};
use std::collections::{HashMap, VecDeque};
use tlp_codec::ids::{BindingKey, OutstandingRef};
use tlp_codec::tlp::{ByteEnables, Class, Packet, TlpType};

/// Stamps whose dates on the network's side are further apart than this are not of the same TLP,
/// nanoseconds. Clocks are known to a few milliseconds all the time, and a name is not used again as
/// soon.
pub(super) const NOT_THE_SAME: u64 = 200_000_000;

/// The times of one TLP at one end; three of the six are there.
pub type Times = [Option<u64>; 6];

/// One TLP with what both ends stamped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tlp<'a> {
    /// The binding.
    pub binding: BindingKey,
    /// Whether the request that it is, or answers, came from the host.
    pub from_host: bool,
    /// What it is.
    pub what: StampedTlp,
    /// Its first bytes.
    pub bytes: &'a [u8],
    /// Bytes of the whole TLP.
    pub length: u16,
    /// The host proxy's times, by its clock.
    pub host: Times,
    /// The box proxy's times, by its clock.
    pub boxed: Times,
}

impl Tlp<'_> {
    /// Whether the host proxy sent it.
    pub fn sent_by_host(&self) -> bool {
        self.from_host != matches!(self.what, StampedTlp::Completion(_))
    }

    /// Times of the end that sent it and of the end that received it.
    fn ends(&self) -> (&Times, &Times) {
        if self.sent_by_host() { (&self.host, &self.boxed) } else { (&self.boxed, &self.host) }
    }

    /// Type, address and size in words, as far as its bytes say.
    pub fn describe(&self) -> Described {
        let Ok(packet) = Packet::new_header_checked(self.bytes) else {
            return Described { kind: "?".into(), address: None, target: None, bytes: None };
        };
        let kind = packet.tlp_type();
        let is_config =
            matches!(kind, TlpType::CfgRd0 | TlpType::CfgWr0 | TlpType::CfgRd1 | TlpType::CfgWr1);
        let is_message = matches!(kind, TlpType::Msg(_) | TlpType::MsgD(_));
        let is_atomic = matches!(kind, TlpType::FetchAdd | TlpType::Swap | TlpType::Cas);
        let is_request = matches!(packet.class(), Some(Class::Posted | Class::NonPosted));
        let bytes = if is_request && !is_message && !is_atomic {
            enables(&packet).byte_count(packet.length_dw()).into()
        } else {
            packet.payload_len() as u32
        };
        Described {
            kind: kind.to_string(),
            address: (is_request && !is_config && !is_message).then(|| packet.address()),
            target: is_config
                .then(|| format!("{} register {:#x}", packet.destination(), packet.register())),
            bytes: Some(bytes),
        }
    }
}

/// The byte enables of a request. A steering tag stands in their place where a type other than MWr
/// has hints: all bytes are meant then.
fn enables(packet: &Packet<&[u8]>) -> ByteEnables {
    match packet.tlp_type() {
        TlpType::MRd | TlpType::MRdLk | TlpType::DMWr if packet.has_hints() => {
            ByteEnables::all(packet.length_dw())
        }
        _ => packet.byte_enables(),
    }
}

/// A TLP in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its type, such as `MRd`.
    pub kind: String,
    /// The address of memory and I/O requests.
    pub address: Option<u64>,
    /// Whom a configuration request is for.
    pub target: Option<String>,
    /// Bytes that it asks for or has.
    pub bytes: Option<u32>,
}

impl Described {
    /// In one line.
    pub fn line(&self) -> String {
        let mut line = self.kind.clone();
        if let Some(address) = self.address {
            line.push_str(&format!(" {address:#x}"));
        }
        if let Some(target) = &self.target {
            line.push_str(&format!(" {target}"));
        }
        if let Some(bytes) = self.bytes {
            line.push_str(&format!(" {bytes} B"));
        }
        line
    }
}

/// The date of a TLP on the network's side of an end, or as near to it as was stamped.
pub(super) fn on_network(at: &Times, end: &Collected) -> u64 {
    let sides = [Stage::Sent, Stage::Received].map(|stage| at[stage as usize]);
    let time = sides.iter().chain(at).flatten().next();
    end.date(time.copied().unwrap_or(0))
}

type Key = (BindingKey, bool, StampedTlp);

/// One end's stamps by name, in the order in which they were taken.
struct Index<'a> {
    end: &'a Collected,
    by_key: HashMap<Key, VecDeque<&'a StampEntry>>,
}

impl<'a> Index<'a> {
    fn new(end: &'a Collected) -> Self {
        let mut by_key: HashMap<Key, VecDeque<&StampEntry>> = HashMap::new();
        for (_, stamps) in &end.stamps {
            let key = (stamps.binding, stamps.from_host, stamps.tlp);
            by_key.entry(key).or_default().push_back(stamps);
        }
        Self { end, by_key }
    }

    /// Takes the first of this name that is not far from a date. What is later is left for others.
    fn take(&mut self, key: &Key, date: u64) -> Option<&'a StampEntry> {
        let queue = self.by_key.get_mut(key)?;
        while let Some(first) = queue.front() {
            let there = on_network(&first.at, self.end);
            if there.abs_diff(date) <= NOT_THE_SAME {
                return queue.pop_front();
            }
            if there > date {
                return None;
            }
            queue.pop_front();
        }
        None
    }

    /// What the other end stamped and this end did, of which `here` is a TLP.
    fn join(&mut self, here: &StampEntry, near: &Collected, at_host: bool) -> Tlp<'a> {
        let StampEntry { binding, from_host, tlp: what, at, .. } = *here;
        let date = on_network(&at, near);
        let there = self.take(&(binding, from_host, what), date);
        let far = there.map_or([None; 6], |s| s.at);
        let (host, boxed) = if at_host { (at, far) } else { (far, at) };
        Tlp { binding, from_host, what, bytes: &[], length: 0, host, boxed }
    }
}

/// TLPs that one end recorded, each with what both ends stamped, in the order of recording.
pub fn tlps<'a>(host: &'a Collected, boxed: &'a Collected, at_host: bool) -> Vec<Tlp<'a>> {
    let (near, far) = if at_host { (host, boxed) } else { (boxed, host) };
    // An id is used again for another TLP after a while, which has another time.
    let name = |id: u32, s: &StampEntry| (id, s.at.iter().flatten().next().copied());
    let mut own: HashMap<(u32, Option<u64>), VecDeque<&StampEntry>> = HashMap::new();
    for (id, stamps) in &near.stamps {
        own.entry(name(*id, stamps)).or_default().push_back(stamps);
    }
    let mut others = Index::new(far);
    let mut all = Vec::with_capacity(near.tlps.len());
    for tlp in &near.tlps {
        let mine = own.get_mut(&name(tlp.id, &tlp.stamps)).and_then(VecDeque::pop_front);
        let joined = others.join(mine.unwrap_or(&tlp.stamps), near, at_host);
        all.push(Tlp { bytes: &tlp.bytes, length: tlp.length, ..joined });
    }
    all
}

/// As [`tlps`], of all that one end stamped, in the order in which it had its last stamp, whether
/// its bytes were recorded or not: none are given.
pub fn stamped<'a>(host: &'a Collected, boxed: &'a Collected, at_host: bool) -> Vec<Tlp<'a>> {
    let (near, far) = if at_host { (host, boxed) } else { (boxed, host) };
    let mut others = Index::new(far);
    near.stamps.iter().map(|(_, here)| others.join(here, near, at_host)).collect()
}

/// A request and its completions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trip<'a> {
    /// The request.
    pub request: Tlp<'a>,
    /// What answers it, in the order in which it came.
    pub completions: Vec<Tlp<'a>>,
}

/// Joins requests and completions; requests in their order.
pub fn trips(tlps: Vec<Tlp<'_>>) -> Vec<Trip<'_>> {
    let mut trips: Vec<Trip<'_>> = Vec::new();
    let mut open: HashMap<(BindingKey, bool, OutstandingRef), usize> = HashMap::new();
    for tlp in tlps {
        match tlp.what {
            StampedTlp::Completion(entry) => {
                if let Some(at) = open.get(&(tlp.binding, tlp.from_host, entry)) {
                    trips[*at].completions.push(tlp);
                }
            }
            StampedTlp::Request(entry) => {
                open.insert((tlp.binding, tlp.from_host, entry), trips.len());
                trips.push(Trip { request: tlp, completions: Vec::new() });
            }
            StampedTlp::Posted(_) => trips.push(Trip { request: tlp, completions: Vec::new() }),
        }
    }
    trips
}

/// Whether further completions are owed after this one, by its header (PCIe 5.0, section 2.3.1.1).
fn owes_more(completion: &[u8]) -> bool {
    Packet::new_header_checked(completion).is_ok_and(|packet| {
        let skipped = u16::from(packet.lower_address() & 3);
        let given = (packet.length_dw() * 4).saturating_sub(skipped);
        packet.tlp_type() == TlpType::CplD && given < packet.byte_count()
    })
}

/// How long each stage of a TLP took at one end, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Until it was encoded, or decoded.
    pub first: u64,
    /// From there until it was sent, or delivered.
    pub second: u64,
}

impl Part {
    fn of(times: &Times, stages: [Stage; 3]) -> Option<Self> {
        let [a, b, c] = stages.map(|stage| times[stage as usize]);
        Some(Self { first: b?.checked_sub(a?)?, second: c?.checked_sub(b?)? })
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.first + self.second
    }
}

const SENDING: [Stage; 3] = [Stage::Arrived, Stage::Encoded, Stage::Sent];
const RECEIVING: [Stage; 3] = [Stage::Received, Stage::Decoded, Stage::Delivered];

/// What happened at the other end between the request's coming and the answer's going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Far {
    /// Received to delivered.
    pub request: Part,
    /// Delivered, to the arrival of the last completion: the device itself, or the host's memory.
    pub original: u64,
    /// Arrived to sent, of the last completion.
    pub answer: Part,
}

impl Far {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.request.total() + self.original + self.answer.total()
    }
}

/// A whole round trip, in differences of one clock each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// When it began, by the requester's proxy's clock.
    pub start: u64,
    /// At the requester's proxy: arrived to sent.
    pub request: Part,
    /// From there until the last completion was received there.
    pub away: u64,
    /// Received to delivered, of the last completion.
    pub answer: Part,
    /// The part of `away` that the other proxy saw, if it did.
    pub far: Option<Far>,
}

impl RoundTrip {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.request.total() + self.away + self.answer.total()
    }

    /// What the network took, both ways. Two clocks that do not run at quite the same rate may
    /// leave less than nothing: that is 0.
    pub fn network(&self) -> Option<u64> {
        self.far.map(|far| self.away.saturating_sub(far.total()))
    }
}

impl Trip<'_> {
    /// The completion that ends it, if it has come: not one after which more are owed, as far as its
    /// header was recorded.
    fn last(&self) -> Option<&Tlp<'_>> {
        self.completions.last().filter(|last| !owes_more(last.bytes))
    }

    /// Its times, if it is a request that was answered and the requester's proxy saw all of it.
    pub fn round_trip(&self) -> Option<RoundTrip> {
        let last = self.last()?;
        let ((near_out, _), (_, near_in)) = (self.request.ends(), last.ends());
        let sent = near_out[Stage::Sent as usize]?;
        Some(RoundTrip {
            start: near_out[Stage::Arrived as usize]?,
            request: Part::of(near_out, SENDING)?,
            away: near_in[Stage::Received as usize]?.checked_sub(sent)?,
            answer: Part::of(near_in, RECEIVING)?,
            far: self.far(),
        })
    }

    /// What the other proxy than the requester's saw of a request that was answered.
    fn far(&self) -> Option<Far> {
        let last = self.last()?;
        let ((_, far_in), (far_out, _)) = (self.request.ends(), last.ends());
        let delivered = far_in[Stage::Delivered as usize]?;
        Some(Far {
            request: Part::of(far_in, RECEIVING)?,
            original: far_out[Stage::Arrived as usize]?.checked_sub(delivered)?,
            answer: Part::of(far_out, SENDING)?,
        })
    }

    /// Of what the requester's proxy did not stamp: when it came to the other one, by that one's
    /// clock, what it took there, and all that was seen there if it was answered.
    pub fn seen_at_receiver(&self) -> Option<(u64, Part, Option<Far>)> {
        let (_, receiver) = self.request.ends();
        let start = receiver[Stage::Received as usize]?;
        Some((start, Part::of(receiver, RECEIVING)?, self.far()))
    }

    /// Of a posted request: when it began at its sender, what it took there, and at the receiver.
    pub fn one_way(&self) -> Option<(u64, Part, Option<Part>)> {
        let (sender, receiver) = self.request.ends();
        let start = sender[Stage::Arrived as usize]?;
        Some((start, Part::of(sender, SENDING)?, Part::of(receiver, RECEIVING)))
    }
}

#[cfg(test)]
mod tests;
