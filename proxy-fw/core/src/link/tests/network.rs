//! The network between the two ends.

use crate::limits::{MAX_FRAME, MAX_PATHS};
use crate::time::Instant;
use core::time::Duration;
use std::vec::Vec;
use tlp_codec::crc;
use tlp_codec::fabric::{FRAME_CRC, Frame, Record};
use tlp_codec::ids::PathId;

/// SplitMix64 (Steele, Lea, Flood 2014): small, and every seed gives another sequence.
#[derive(Clone)]
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True so many times in a thousand.
    pub(super) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// What goes wrong, in so many frames of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    pub(super) loss: u64,
    pub(super) duplication: u64,
    /// A bit is flipped.
    pub(super) damage: u64,
    /// A byte of a TLP is changed and the frame CRC made right again: memory that lies.
    pub(super) lies: u64,
    /// Frames take up to this many microseconds more, each as it likes.
    pub(super) jitter_us: u64,
}

impl Trouble {
    pub(super) const HEAVY: Trouble =
        Trouble { loss: 100, duplication: 100, damage: 50, lies: 0, jitter_us: 500 };
}

/// One path between the ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) delay: Duration,
    /// Nothing gets through to this end.
    pub(super) cut: [bool; 2],
    /// Longer frames get lost.
    pub(super) mtu: usize,
    /// So many of a thousand frames get lost, besides those of [`Trouble`].
    pub(super) loss: u64,
}

struct InTransit {
    at: Instant,
    order: u64,
    to: usize,
    bytes: Vec<u8>,
}

pub(super) struct Network {
    pub(super) trouble: Trouble,
    pub(super) routes: [Route; MAX_PATHS],
    pub(super) cut: bool,
    pub(super) delivered: u64,
    /// Frames that were sent by each path.
    pub(super) carried: [u64; MAX_PATHS],
    transit: Vec<InTransit>,
    order: u64,
}

impl Network {
    pub(super) fn new(trouble: Trouble) -> Self {
        let delay = Duration::from_micros(20);
        Self {
            trouble,
            routes: [Route { delay, cut: [false; 2], mtu: MAX_FRAME, loss: 0 }; MAX_PATHS],
            cut: false,
            delivered: 0,
            carried: [0; MAX_PATHS],
            transit: Vec::new(),
            order: 0,
        }
    }

    pub(super) fn send(
        &mut self,
        rng: &mut Rng,
        now: Instant,
        path: PathId,
        to: usize,
        frame: &[u8],
    ) {
        let Trouble { loss, duplication, damage, lies, jitter_us } = self.trouble;
        let route = self.routes[usize::from(path.get())];
        self.carried[usize::from(path.get())] += 1;
        if self.cut || route.cut[to] || frame.len() > route.mtu || rng.chance(loss + route.loss) {
            return;
        }
        for _ in 0..1 + u64::from(rng.chance(duplication)) {
            let mut bytes = frame.to_vec();
            if rng.chance(damage) {
                let bit = rng.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            if rng.chance(lies) {
                lie(&mut bytes);
            }
            let jitter = if jitter_us == 0 { 0 } else { rng.below(jitter_us) };
            let at = now + route.delay + Duration::from_micros(jitter);
            self.order += 1;
            self.transit.push(InTransit { at, order: self.order, to, bytes });
        }
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.transit.iter().map(|t| t.at).min()
    }

    /// The next frame that has arrived by `now`.
    pub(super) fn arrive(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        let (index, _) = self
            .transit
            .iter()
            .enumerate()
            .filter(|(_, t)| t.at <= now)
            .min_by_key(|(_, t)| (t.at, t.order))?;
        let InTransit { to, bytes, .. } = self.transit.swap_remove(index);
        self.delivered += 1;
        Some((to, bytes))
    }
}

/// Changes a byte of the first TLP in a frame and makes the frame's CRC right.
pub(super) fn lie(bytes: &mut [u8]) {
    let Ok(frame) = Frame::new_checked(&bytes) else { return };
    let Some(Ok(Record::Tlp(record))) = frame.records().find(|r| matches!(r, Ok(Record::Tlp(_))))
    else {
        return;
    };
    let at = record.tlp.as_ptr() as usize - bytes.as_ptr() as usize;
    let covered = frame.frame_len() - FRAME_CRC;
    bytes[at + 8] ^= 0x10;
    let crc = crc::frame(&bytes[..covered]);
    bytes[covered..covered + FRAME_CRC].copy_from_slice(&crc.to_le_bytes());
}
