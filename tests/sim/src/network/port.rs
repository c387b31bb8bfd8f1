//! One direction of one cable, with the queue of the port in front of it and all that goes wrong
//! with it.

use super::counts::HeldUp;
use super::{Harm, Loss, damage};
use crate::profile::{Cable, Trouble};
use crate::random::{Drawer, Random};
use proxy_core::time::Instant;
use std::time::Duration;

/// Preamble, Ethernet header, frame check sequence and gap: bytes on the cable beside the frame.
const OVERHEAD: usize = 8 + 14 + 4 + 12;
/// What loses more than so many in a million by itself is not whole.
const RARELY_PPM: u32 = 50_000;
/// What Ethernet pads a payload to.
const SHORTEST: usize = 46;

/// What becomes of a frame that enters a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It comes to the other end then; and once more, if it is doubled. Whether it was marked, for
    /// what it found in the queue.
    Comes { at: Instant, again: Option<Instant>, marked: bool },
    /// It is lost, for this reason.
    Lost(Loss),
}

/// A port and its cable.
#[derive(Debug)]
pub(super) struct Port {
    cable: Cable,
    busy_until: Instant,
    /// Nothing leaves before then (a pause frame, a stalled switch).
    paused_until: Instant,
    /// What is wrong with it now, in addition to what always is.
    storms: Vec<(u32, Trouble)>,
    always: Trouble,
    /// The faults that hold it down, the last one last.
    pub(super) down: Vec<Loss>,
    /// It died by itself until then.
    dead_until: Instant,
    /// Since when it is whole, but for what `paused_until` and `dead_until` say.
    whole_since: Instant,
    /// Smaller frames only, one entry for each fault.
    shrunk: Vec<(u32, usize)>,
    /// Frames take so much longer.
    spikes: Vec<(u32, Duration)>,
    in_burst: bool,
    pub(super) held_up: HeldUp,
    random: Random,
}

impl Port {
    pub(super) fn new(seed: u64, index: usize, cable: Cable, always: Trouble) -> Self {
        Self {
            cable,
            busy_until: Instant::ZERO,
            paused_until: Instant::ZERO,
            storms: Vec::new(),
            always,
            down: Vec::new(),
            dead_until: Instant::ZERO,
            whole_since: Instant::ZERO,
            shrunk: Vec::new(),
            spikes: Vec::new(),
            in_burst: false,
            held_up: HeldUp::default(),
            random: Random::stream(seed, Drawer::Port, index as u64),
        }
    }

    /// Everything that is wrong by itself ends; the faults of the schedule end by themselves.
    pub(super) fn heal(&mut self) {
        self.always = Trouble::default();
        self.in_burst = false;
        self.whole_since = self.whole_since.max(self.dead_until);
        self.dead_until = Instant::ZERO;
    }

    /// Whether anything passes.
    pub(super) fn carries(&self, now: Instant) -> bool {
        self.down.is_empty() && self.dead_until <= now
    }

    /// Since when everything passes, in its time, if it does.
    pub(super) fn whole_since(&self, now: Instant) -> Option<Instant> {
        let faults = self.storms.len() + self.shrunk.len() + self.spikes.len();
        let faults = faults + usize::from(self.always.loss_ppm > RARELY_PPM);
        let whole = self.carries(now) && faults == 0 && !self.in_burst && self.paused_until <= now;
        whole.then(|| self.whole_since.max(self.paused_until).max(self.dead_until))
    }

    /// One of the faults that hold it down is over.
    pub(super) fn mend(&mut self, now: Instant, why: Loss) {
        if let Some(at) = self.down.iter().position(|fault| *fault == why) {
            self.down.remove(at);
        }
        self.whole_since = now;
    }

    pub(super) fn storm(&mut self, id: u32, trouble: Trouble) {
        self.storms.push((id, trouble));
    }

    pub(super) fn shrink(&mut self, id: u32, mtu: usize) {
        self.shrunk.push((id, mtu));
    }

    pub(super) fn spike(&mut self, id: u32, delay: Duration) {
        self.spikes.push((id, delay));
    }

    pub(super) fn pause(&mut self, until: Instant) {
        self.paused_until = self.paused_until.max(until);
    }

    /// A fault is over.
    pub(super) fn end(&mut self, now: Instant, id: u32) {
        self.whole_since = now;
        self.storms.retain(|s| s.0 != id);
        self.shrunk.retain(|s| s.0 != id);
        self.spikes.retain(|s| s.0 != id);
        self.in_burst &= !self.storms.is_empty();
    }

    fn lost(&mut self, now: Instant, trouble: &Trouble) -> bool {
        if self.in_burst {
            self.whole_since = now;
            self.in_burst = !self.random.chance(trouble.burst_end_ppm.max(1));
            return true;
        }
        self.in_burst = self.random.chance(trouble.burst_ppm);
        self.in_burst || self.random.chance(trouble.loss_ppm)
    }

    /// A bit error somewhere in the frame, at the cable's rate: most are caught by the FCS.
    fn damaged(&mut self, trouble: &Trouble, length: usize) -> bool {
        // Errors of 10^-12 a bit, times bits: a chance in 10^12, drawn in one go.
        let in_ten_to_12 = trouble.bit_errors_e12.saturating_mul(length as u64 * 8);
        in_ten_to_12 > 0 && self.random.below(1_000_000_000_000) < in_ten_to_12
    }

    /// A frame enters at `now`; what is changed of it is noted.
    pub(super) fn enter(&mut self, now: Instant, frame: &mut [u8], harm: &mut Harm) -> Fate {
        if !self.carries(now) {
            return Fate::Lost(self.down.last().copied().unwrap_or(Loss::Died));
        }
        let mtu = self.shrunk.iter().map(|s| s.1).min().unwrap_or(self.cable.mtu);
        if frame.len() > mtu {
            return Fate::Lost(Loss::TooLarge);
        }
        let start = self.busy_until.max(now).max(self.paused_until);
        // What is in front of it; a pause by itself fills no queue.
        let waits = start.saturating_since(now.max(self.paused_until)).as_nanos() as u64;
        let queued = waits.saturating_mul(self.cable.rate_mbps) / 8_000;
        if queued > self.cable.queue_kb * 1024 {
            self.whole_since = now;
            return Fate::Lost(Loss::QueueFull);
        }
        let marked = self.cable.mark_kb > 0 && queued > self.cable.mark_kb * 1024;
        let bits = (frame.len().max(SHORTEST) + OVERHEAD) as u64 * 8;
        self.busy_until = start + Duration::from_nanos(bits * 1_000 / self.cable.rate_mbps);
        let straight = self.busy_until + Duration::from_nanos(self.cable.delay_ns);
        let spiked = self.spikes.iter().fold(straight, |comes, spike| comes + spike.1);
        let (at, again) = match self.go_wrong(now, spiked, frame, harm) {
            Ok(comes) => comes,
            Err(why) => return Fate::Lost(why),
        };
        let paused = now < self.paused_until && self.paused_until <= start;
        self.held_up.by_pauses += u64::from(paused);
        self.held_up.by_spikes += u64::from(spiked > straight);
        self.held_up.alone += u64::from(at > spiked);
        Fate::Comes { at, again, marked }
    }

    /// What is wrong now and always happens to a frame. When it comes, and when once more if it is
    /// doubled; or why not.
    fn go_wrong(
        &mut self,
        now: Instant,
        mut comes: Instant,
        frame: &mut [u8],
        harm: &mut Harm,
    ) -> Result<(Instant, Option<Instant>), Loss> {
        let mut again = None;
        for source in 0..=self.storms.len() {
            let trouble = match source {
                0 => self.always,
                n => self.storms[n - 1].1,
            };
            if trouble == Trouble::default() {
                continue;
            }
            if self.random.chance(trouble.dies_ppm) {
                let lasts = self.random.between(1, trouble.dies_us.max(1));
                self.dead_until = now + Duration::from_micros(lasts);
                return Err(Loss::Died);
            }
            if self.lost(now, &trouble) {
                return Err(Loss::OnCable);
            }
            if self.damaged(&trouble, frame.len()) {
                if !self.random.chance(trouble.escapes_ppm) {
                    return Err(Loss::Damaged);
                }
                damage::flip(frame, &mut harm.flipped, &mut self.random);
            }
            if self.random.chance(trouble.lies_ppm) {
                harm.lies.extend(damage::lie(frame, &mut self.random));
            }
            if self.random.chance(trouble.late_ppm) {
                comes = comes + Duration::from_micros(self.random.below(trouble.late_us.max(1)));
            }
            if self.random.chance(trouble.twice_ppm) {
                let later = self.random.below(trouble.late_us.max(1));
                again = Some(comes + Duration::from_micros(later));
            }
        }
        Ok((comes, again))
    }
}
