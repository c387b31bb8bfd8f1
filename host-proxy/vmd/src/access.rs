//! One access of the machine, as the requests that it takes.
//!
//! A processor reads and writes up to eight bytes, but an access may be of any length and at any
//! address: it is cut at doublewords of configuration space and where requests end, and the parts
//! are done one after the other.

use crate::settings::Region;
use proxy_core::limits::SYNTHESISED_COMPLETION;
use proxy_core::outstanding::{Progress, RequestInfo};
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, CplStatus, Kind, Packet};

/// When a request that nobody answered is over. The proxy below answers in its own time, which is
/// shorter.
pub const COMPLETION_TIMEOUT: Duration = Duration::from_secs(3);

/// How long after its first request an access makes further ones when one failed: asks a device
/// again that is not ready, or for the part behind one that was refused. A device may ask for retries
/// for 1 s after a reset, of which software waits 0.1 s before it asks (PCIe 5.0 section 6.6.1).
pub const RETRY_BOUND: Duration = Duration::from_millis(900);

/// How long the machine may have waited, for this access and those before it, when a request is
/// made that has an answer.
pub const REQUEST_BOUND: Duration = Duration::from_millis(2700);

/// How long it waits at most: the last request is answered by then, by the role below if by nobody
/// else. QEMU gives up after five seconds.
pub const ANSWER_BOUND: Duration = Duration::from_millis(4900);

/// Between two tries of a request that got retry status.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(1);

const _: () = {
    assert!(SYNTHESISED_COMPLETION.as_nanos() < COMPLETION_TIMEOUT.as_nanos());
    let answered = REQUEST_BOUND.as_nanos() + SYNTHESISED_COMPLETION.as_nanos();
    assert!(answered < ANSWER_BOUND.as_nanos() && ANSWER_BOUND.as_nanos() < 5_000_000_000);
};

/// Bytes of one memory request: no boundary of PCIe's (4 KB) is in the middle of an aligned block
/// of so many, and every device takes so much data.
const BLOCK: u64 = 64;

/// What a part of an access is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Bytes of a doubleword of a function's configuration space.
    Configuration {
        function: Bdf,
        /// A multiple of 4.
        register: u16,
        enables: u8,
        /// The first byte in the doubleword.
        first: usize,
        len: usize,
    },
    /// Bytes at an address of the domain, within an aligned block.
    Memory { address: u64, len: usize },
}

impl Part {
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Configuration { len, .. } | Self::Memory { len, .. } => len,
        }
    }
}

/// How far a part is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// The next part can be begun.
    Ready,
    /// A request is out.
    Waiting { part: Part, info: RequestInfo, deadline: Instant, filled: usize },
    /// The device asked for a retry.
    Pausing { until: Instant },
}

/// What a completion meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completed {
    /// The part goes on or is done.
    Taken,
    /// It is not for this request.
    Unexpected,
    /// The device refused, or its data is poisoned.
    Failed { poisoned: bool },
    /// The device is not ready.
    Retry,
}

/// An access in hand.
#[derive(Debug)]
pub(crate) struct Access {
    region: Region,
    /// Offset in configuration space, or address of the domain.
    at: u64,
    write: bool,
    len: usize,
    done: usize,
    /// When its first request was made that has an answer.
    began: Option<Instant>,
    /// How long the machine had waited by then.
    waited: Duration,
    pub(crate) stage: Stage,
    /// A part ended without an answer: the others are not begun.
    gave_up: bool,
}

impl Access {
    pub(crate) const fn new(region: Region, at: u64, len: usize, write: bool) -> Self {
        Self {
            region,
            at,
            write,
            len,
            done: 0,
            began: None,
            waited: Duration::ZERO,
            stage: Stage::Ready,
            gave_up: false,
        }
    }

    pub(crate) const fn is_write(&self) -> bool {
        self.write
    }

    /// When its first request was made that has an answer.
    pub(crate) const fn began(&self) -> Option<Instant> {
        self.began
    }

    pub(crate) const fn is_done(&self) -> bool {
        self.done == self.len
    }

    /// Where the current part's bytes are among those of the access.
    pub(crate) const fn done(&self) -> usize {
        self.done
    }

    /// The part that is to be done next; `None` at the end.
    pub(crate) fn part(&self) -> Option<Part> {
        let left = self.len - self.done;
        if left == 0 {
            return None;
        }
        let at = self.at.wrapping_add(self.done as u64);
        if self.region == Region::Configuration {
            let first = (at & 3) as usize;
            let len = left.min(4 - first);
            return Some(Part::Configuration {
                function: Bdf::from_bits((at >> 12) as u16),
                register: (at & 0xffc) as u16,
                enables: ((1_u8 << len) - 1) << first,
                first,
                len,
            });
        }
        let room = (BLOCK - at % BLOCK) as usize;
        Some(Part::Memory { address: at, len: left.min(room) })
    }

    /// The part is done.
    pub(crate) fn advance(&mut self, part: Part) {
        self.done += part.len();
        self.stage = Stage::Ready;
    }

    /// Whether the rest is not worth a request.
    pub(crate) const fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Gives up what is left when the machine has waited for too long, before this part is asked
    /// for; for accesses before this one it had waited so long.
    pub(crate) fn look_at_the_time(&mut self, now: Instant, waited: Duration, part: Part) {
        let is_answered = !self.write || matches!(part, Part::Configuration { .. });
        if !is_answered {
            return;
        }
        if self.began.is_none() {
            (self.began, self.waited) = (Some(now), waited);
        }
        self.gave_up |= self.waited(now) >= REQUEST_BOUND;
    }

    /// How long the machine has waited for this access and those before it.
    fn waited(&self, now: Instant) -> Duration {
        self.waited + self.began.map_or(Duration::ZERO, |began| now.saturating_since(began))
    }

    /// The part ends without an answer.
    pub(crate) fn give_up(&mut self, part: Part) {
        self.gave_up = true;
        self.advance(part);
    }

    /// A request for the part is out.
    pub(crate) fn wait(&mut self, now: Instant, part: Part, info: RequestInfo) {
        let left = ANSWER_BOUND.saturating_sub(self.waited(now));
        let deadline = now + COMPLETION_TIMEOUT.min(left);
        self.stage = Stage::Waiting { part, info, deadline, filled: 0 };
    }

    /// Whether the machine can wait for one more request.
    pub(crate) fn has_time(&self, now: Instant) -> bool {
        let waited = self.waited(now);
        waited < self.waited + RETRY_BOUND && waited < REQUEST_BOUND
    }

    /// The device asked for a retry: whether there is time for one.
    pub(crate) fn pause(&mut self, now: Instant) -> bool {
        let again = self.has_time(now);
        if again {
            self.stage = Stage::Pausing { until: now + RETRY_PAUSE };
        }
        again
    }

    /// When the stage ends by itself.
    pub(crate) const fn timeout(&self) -> Option<Instant> {
        match self.stage {
            Stage::Ready => None,
            Stage::Waiting { deadline, .. } => Some(deadline),
            Stage::Pausing { until } => Some(until),
        }
    }

    /// Takes a completion; `data` holds the bytes of a read, all of them.
    pub(crate) fn complete(&mut self, packet: &Packet<&[u8]>, data: &mut [u8]) -> Completed {
        let Stage::Waiting { part, info, filled, .. } = &mut self.stage else {
            return Completed::Unexpected;
        };
        if packet.requester() != info.requester || packet.tag() != info.tag {
            return Completed::Unexpected;
        }
        let Ok(progress) = info.accept(packet) else { return Completed::Unexpected };
        match packet.status() {
            CplStatus::Success if packet.is_poisoned() => {
                return Completed::Failed { poisoned: true };
            }
            CplStatus::Success => {}
            CplStatus::ConfigRetry => return Completed::Retry,
            _ => return Completed::Failed { poisoned: false },
        }
        let (part, payload) = (*part, packet.payload());
        if !self.write {
            let skip = match part {
                Part::Configuration { first, .. } => first,
                Part::Memory { address, .. } => (address as usize + *filled) & 3,
            };
            let len = (payload.len() - skip).min(part.len() - *filled);
            let at = self.done + *filled;
            data[at..at + len].copy_from_slice(&payload[skip..skip + len]);
            *filled += len;
        }
        if progress == Progress::Final {
            self.advance(part);
        }
        Completed::Taken
    }
}

/// The request that a part takes, if it goes below the root port. `data` are the bytes to write;
/// `None` for a read. `block` is room for them as doublewords.
pub(crate) fn request<'a>(
    part: Part,
    requester: Bdf,
    tag: Tag,
    secondary: u8,
    data: Option<&[u8]>,
    block: &'a mut [u8; BLOCK as usize],
) -> Kind<'a> {
    block.fill(0);
    match (part, data) {
        (Part::Configuration { function, register, enables, .. }, None) => Kind::ConfigRead {
            type1: function.bus().get() != secondary,
            requester,
            tag,
            destination: function,
            register,
            first_be: enables,
        },
        (Part::Configuration { function, register, enables, first, len }, Some(data)) => {
            block[first..first + len].copy_from_slice(data);
            Kind::ConfigWrite {
                type1: function.bus().get() != secondary,
                requester,
                tag,
                destination: function,
                register,
                first_be: enables,
                data: &block[..4],
            }
        }
        (Part::Memory { address, len }, data) => {
            let (enables, length_dw) = ByteEnables::for_range(address, len);
            let (address, skip, hint) = (address & !3, (address & 3) as usize, None);
            match data {
                None => Kind::MemRead {
                    requester,
                    tag,
                    address,
                    length_dw,
                    enables,
                    hint,
                    locked: false,
                },
                Some(data) => {
                    block[skip..skip + len].copy_from_slice(data);
                    let data = &block[..usize::from(length_dw) * 4];
                    Kind::MemWrite { requester, tag, address, enables, hint, data }
                }
            }
        }
    }
}
