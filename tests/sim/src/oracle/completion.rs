//! Requests that wait for their completions, by tag, at whoever asked.

use super::{Verdict, Violation};
use crate::dress;
use proxy_core::time::Instant;
use std::ops::Range;
use std::time::Duration;
use tlp_codec::ids::Bdf;
use tlp_codec::tlp::{CplStatus, Packet, TlpType};

/// What a request's completions have to look like (PCIe 5.0 section 2.3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    /// So many bytes, in one or several completions, the next one from this address on.
    Bytes { left: u16, lower: u8 },
    /// So many bytes in one completion.
    Data(u16),
    /// A completion without data.
    Nothing,
}

/// A request that is outstanding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<T> {
    /// Its number in this run.
    pub(crate) request: u64,
    /// What it is for.
    pub(crate) purpose: T,
    /// When the proxy took it.
    pub(crate) since: Instant,
    pub(crate) requester: Bdf,
    configuration: bool,
    /// Traffic class, relaxed ordering and no snoop, which its completions have, too.
    says: (u8, bool, bool),
    owed: Owed,
    /// The data so far.
    got: u16,
}

/// What a completion did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed<T> {
    pub(crate) asked: Asked<T>,
    pub(crate) status: CplStatus,
    /// Where in the request's data its data belongs, and how many bytes of the payload's front
    /// are not part of it.
    pub(crate) offset: usize,
    pub(crate) skip: usize,
    /// How many bytes of a read it holds.
    pub(crate) bytes: Option<usize>,
    pub(crate) last: bool,
    /// It may be the answer to another request: what it holds means nothing.
    pub(crate) doubtful: bool,
}

/// The requests of one requester.
pub(crate) struct Requests<T> {
    by_tag: Vec<Option<Asked<T>>>,
    /// Those that may be used.
    tags: Range<usize>,
    next: usize,
    live: usize,
    /// When the oldest one may have begun; never late.
    oldest: Instant,
}

impl<T: Copy> Requests<T> {
    pub(crate) fn new() -> Self {
        let tags = 0..256;
        Self { by_tag: vec![None; 1024], tags, next: 0, live: 0, oldest: Instant::FAR_FUTURE }
    }

    /// Whether tags have 10 bits from now on, or 8 (PCIe 5.0 section 2.2.6.2).
    pub(crate) fn use_ten_bits(&mut self, ten: bool) {
        self.tags = if ten { 256..1024 } else { 0..256 };
        if !self.tags.contains(&self.next) {
            self.next = self.tags.start;
        }
    }

    /// A tag that is free. Tags come round as late as can be, so that a completion that comes
    /// twice finds nobody.
    pub(crate) fn free_tag(&mut self) -> Option<u16> {
        let Range { start, end } = self.tags;
        let tag = (self.next..end).chain(start..self.next).find(|&t| self.by_tag[t].is_none())?;
        self.next = if tag + 1 == end { start } else { tag + 1 };
        Some(tag as u16)
    }

    /// The first tag is the next one again: what comes too late finds somebody.
    pub(crate) fn begin_anew(&mut self) {
        self.next = self.tags.start;
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// A request was handed over.
    pub(crate) fn ask(&mut self, now: Instant, tlp: &[u8], request: u64, purpose: T) {
        let packet = Packet::new_checked(tlp).expect("own TLPs are sound");
        let kind = packet.tlp_type();
        let owed = match kind {
            TlpType::MRd => {
                let enables = dress::enables(&packet);
                let left = enables.byte_count(packet.length_dw());
                Owed::Bytes { left, lower: enables.lower_address(packet.address()) }
            }
            TlpType::FetchAdd | TlpType::Swap => Owed::Data(packet.payload_len() as u16),
            TlpType::Cas => Owed::Data(packet.payload_len() as u16 / 2),
            TlpType::CfgRd0 | TlpType::CfgRd1 => Owed::Data(4),
            _ => Owed::Nothing,
        };
        let configuration =
            matches!(kind, TlpType::CfgRd0 | TlpType::CfgRd1 | TlpType::CfgWr0 | TlpType::CfgWr1);
        let place = &mut self.by_tag[packet.tag().get() as usize];
        debug_assert!(place.is_none(), "a tag is used once at a time");
        let (since, requester) = (now, packet.requester());
        let says = says(&packet);
        let got = 0;
        *place = Some(Asked { request, purpose, since, requester, configuration, says, owed, got });
        self.live += 1;
        self.oldest = self.oldest.min(now);
    }

    /// The request that a completion says it is for.
    pub(crate) fn of(&self, tlp: &[u8]) -> Verdict<Asked<T>> {
        let packet = Packet::new_checked(tlp).map_err(|e| Violation::new(1, e.to_string()))?;
        let tag = packet.tag().get();
        let asked = self.by_tag.get(tag as usize).copied().flatten();
        let Some(asked) = asked else {
            let what = format!(
                "a completion for tag {tag:#x}, which nothing waits under: twice or crossed"
            );
            return Err(Violation::new(3, what));
        };
        if packet.requester() != asked.requester {
            let (is, request) = (packet.requester(), asked.request);
            let what = format!("a completion of request {request} is for requester {is}");
            return Err(Violation::new(3, what));
        }
        Ok(asked)
    }

    /// A completion came. Of a device that answers twice or under wrong tags (`doubtful`) it may be
    /// the answer to another request of the same size, which only its address would tell.
    pub(crate) fn complete(&mut self, tlp: &[u8], doubtful: bool) -> Verdict<Completed<T>> {
        let asked = self.of(tlp)?;
        let packet = Packet::new_checked(tlp).expect("looked at just now");
        let status = packet.status();
        let wrong = |what: &str| {
            Err(Violation::new(3, format!("{what} (request {}, {:?})", asked.request, asked.owed)))
        };
        // PCIe 5.0 section 2.2.9. ID-based ordering is the completer's own choice.
        if says(&packet) != asked.says && !doubtful {
            return wrong("a completion of another traffic class, relaxed ordering or no snoop");
        }
        let (mut offset, mut skip, mut bytes, mut last) = (0, 0, None, true);
        let mut owed = asked.owed;
        match (status, asked.owed) {
            (CplStatus::Success, Owed::Bytes { left, lower }) => {
                let lower = if doubtful { packet.lower_address() } else { lower };
                if packet.byte_count() != left || packet.lower_address() != lower {
                    return wrong("a completion of other bytes than the next ones that are owed");
                }
                skip = usize::from(lower & 3);
                let data = packet.payload_len().saturating_sub(skip);
                // The last doubleword may be filled up; there is no further one.
                if data >= usize::from(left) + 4 {
                    return wrong("a completion with more data than is owed");
                }
                let room = data.min(left.into()) as u16;
                if room == 0 {
                    return wrong("a completion of a read without data");
                }
                offset = usize::from(asked.got);
                bytes = Some(usize::from(room));
                last = room == left;
                owed =
                    Owed::Bytes { left: left - room, lower: lower.wrapping_add(room as u8) & 0x7f };
            }
            (CplStatus::Success, Owed::Data(length))
                if packet.payload_len() != usize::from(length) =>
            {
                return wrong("a completion with another amount of data than was asked for");
            }
            (CplStatus::Success, Owed::Nothing) if packet.has_data() => {
                return wrong("a completion with data that nobody asked for");
            }
            (CplStatus::ConfigRetry, _) if !asked.configuration => {
                return wrong("retry status for what is no configuration request");
            }
            (CplStatus::Success, _) => {}
            _ if packet.has_data() => return wrong("data without success"),
            _ => {}
        }
        let place = &mut self.by_tag[packet.tag().get() as usize];
        if last {
            *place = None;
            self.live -= 1;
        } else if let (Some(there), Owed::Bytes { left, .. }) = (place, owed) {
            let Owed::Bytes { left: before, .. } = there.owed else {
                unreachable!("a read stays one")
            };
            there.got += before - left;
            there.owed = owed;
        }
        Ok(Completed { asked, status, offset, skip, bytes, last, doubtful })
    }

    /// The tags and requests that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (u16, &Asked<T>)> {
        let by_tag = self.by_tag.iter().enumerate();
        by_tag.filter_map(|(tag, asked)| Some((tag as u16, asked.as_ref()?)))
    }

    /// Whether something waits for longer than it may; `still`: how long who has to end it stood still
    /// since then.
    pub(crate) fn check(
        &mut self,
        now: Instant,
        bound: Duration,
        still: impl Fn(Instant) -> Duration,
    ) -> Verdict {
        if self.live == 0 || now.saturating_since(self.oldest) <= bound {
            return Ok(());
        }
        let oldest = self.by_tag.iter().flatten().min_by_key(|asked| asked.since);
        let Some(oldest) = oldest else { return Ok(()) };
        self.oldest = oldest.since;
        if now.saturating_since(oldest.since) <= bound + still(oldest.since) {
            return Ok(());
        }
        let age = now.saturating_since(oldest.since);
        Err(Violation::new(3, format!("request {} waits since {age:?}", oldest.request)))
    }

    /// Nobody waits for anything any more.
    pub(crate) fn forget(&mut self) {
        self.by_tag.fill(None);
        self.use_ten_bits(false);
        self.live = 0;
        self.oldest = Instant::FAR_FUTURE;
    }
}

/// What a request and its completions have in common.
fn says(packet: &Packet<&[u8]>) -> (u8, bool, bool) {
    let attributes = packet.attributes();
    (packet.traffic_class(), attributes.relaxed_ordering, attributes.no_snoop)
}

#[cfg(test)]
mod tests;
