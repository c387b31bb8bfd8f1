//! One path: its packet numbers, both ways, and what they tell.

use super::congestion::Congestion;
use super::rtt::{Rtt, Times, nanos};
use super::sequence::before;
use super::types::LinkConfig;
use crate::limits::{ACK_EVERY, LINK_WINDOW, LOSS_TIMER};
use crate::time::{Instant, Timer};
use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

/// Frames whose time of departure is remembered, for round-trip samples: as many as can be under way
/// with a record each. With fewer there would be no sample just when queues are longest.
const REMEMBERED: usize = LINK_WINDOW;

/// A packet's number, and the low half of its time of departure in units of 4 ns: it is known for
/// longer than anything is under way.
type Departure = (u32, u32);

/// No packet, at no time.
const NEVER: Departure = (u32::MAX, 0);

/// Nanoseconds of a unit, as a power of two.
const UNIT: u32 = 2;

fn units(at: Instant) -> u32 {
    (at.as_nanos() >> UNIT) as u32
}

/// What this end thinks of a path, towards the peer. The peer judges the other direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// What goes in comes out. `asked`: a probe waits for its answer.
    Good { asked: bool },
    /// Nothing of it was seen to come out, or not for a retransmission timeout.
    Suspect {
        /// The first packet that, acknowledged, proves that it carries frames again.
        since: u32,
        /// How long until the next probe, in nanoseconds.
        pause: u64,
        /// Probes that were sent in vain.
        tries: u8,
        /// Something did not come out in time. Else it was only not seen yet whether it does.
        lost: bool,
    },
}

/// The state of one path.
#[derive(Debug)]
pub(super) struct Path {
    /// Number of the next frame, which wraps.
    pub(super) next_packet: u32,
    /// Frames that were sent.
    pub(super) frames_sent: u64,
    /// Frames of those that the peer's acknowledgements showed to be lost.
    pub(super) losses: u32,
    /// When the last frames left, by packet number modulo their count.
    sent_at: Box<[Departure]>,
    /// Largest packet number that the peer said it received.
    pub(super) largest_acked: Option<u32>,
    /// When that packet left: then, the path carried something.
    pub(super) carried_at: Instant,
    /// Largest packet number received, and when.
    pub(super) received: Option<u32>,
    pub(super) received_at: Instant,
    /// A packet was missing or late, and since then a record is missing.
    gap: bool,
    /// Frames with records since the last acknowledgement that spoke of this path.
    unacknowledged: u16,
    /// An acknowledgement that speaks of this path is to be sent at once.
    pub(super) ack_now: bool,
    /// As `ack_now`, at this time at the latest.
    pub(super) ack_at: Timer,
    /// Frames received with Congestion Experienced.
    pub(super) marked: u16,
    /// The peer's count of the same, as last told.
    marks_told: u16,
    /// Record bytes under way.
    pub(super) in_flight: u64,
    /// Round-trip estimate.
    pub(super) rtt: Rtt,
    /// When the first of a run of frames was acknowledged that took longer than a timeout, which the
    /// estimate does not have; [`Instant::FAR_FUTURE`] where it has the last one.
    late_at: Instant,
    /// Congestion window.
    pub(super) congestion: Congestion,
    /// When its round trip began, bindings that sent TLPs by it since then, and in the one before.
    pub(super) round_at: Instant,
    pub(super) sent_by: u64,
    pub(super) heard: u64,
    /// Retransmission timer, and timeouts in a row.
    pub(super) timeout_at: Timer,
    pub(super) backoff: u8,
    /// Up to which sequence the last acknowledgement that spoke of it tells what arrived.
    pub(super) judged: u32,
    /// When what later frames have overtaken has had its time, where there is such a timer.
    pub(super) loss_at: [Timer; LOSS_TIMER as usize],
    /// When what is under way here for longest takes another path, too, or on a link's only path goes once
    /// more.
    pub(super) doubt_at: Timer,
    pub(super) health: Health,
    /// When the next probe is due; nothing on a link's only path.
    pub(super) probe_at: Timer,
    /// A probe of so many bytes is to be sent.
    pub(super) probe: Option<usize>,
    /// Largest frame that is sent on it, in bytes.
    pub(super) frame: usize,
    /// What that was before timeouts or probes in vain made it small, of late and by a guess; else 0.
    pub(super) shrunk_from: u16,
    /// When it is tried whether larger frames pass again, and how that stands.
    pub(super) raise_at: Timer,
    pub(super) raise: Raise,
}

/// Whether frames pass again that are larger than a path's are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raise {
    /// Nothing tries it.
    Idle,
    /// The next frame with new records may be as large as the peer takes.
    Wanted,
    /// This packet is larger than others: so many bytes.
    Tried { packet: u32, length: usize },
}

impl Path {
    /// A path that nothing was sent on.
    pub(super) fn new(config: &LinkConfig) -> Self {
        Self::unused(vec![NEVER; REMEMBERED].into_boxed_slice(), config)
    }

    /// Bytes that it allocated.
    pub(super) fn allocated(&self) -> usize {
        size_of_val(&*self.sent_at)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, config: &LinkConfig) {
        let mut sent_at = core::mem::take(&mut self.sent_at);
        sent_at.fill(NEVER);
        *self = Self::unused(sent_at, config);
    }

    fn unused(sent_at: Box<[Departure]>, config: &LinkConfig) -> Self {
        Self {
            next_packet: 0,
            frames_sent: 0,
            losses: 0,
            sent_at,
            largest_acked: None,
            carried_at: Instant::ZERO,
            received: None,
            received_at: Instant::ZERO,
            gap: false,
            unacknowledged: 0,
            ack_now: false,
            ack_at: Timer::STOPPED,
            marked: 0,
            marks_told: 0,
            in_flight: 0,
            rtt: Rtt::new(config.initial_rtt),
            late_at: Instant::FAR_FUTURE,
            congestion: Congestion::new(config.max_frame),
            sent_by: 0,
            heard: 0,
            round_at: Instant::ZERO,
            timeout_at: Timer::STOPPED,
            backoff: 0,
            judged: 0,
            loss_at: [Timer::STOPPED; _],
            doubt_at: Timer::STOPPED,
            health: Health::Suspect {
                since: 0,
                pause: nanos(config.min_rto),
                tries: 0,
                lost: false,
            },
            probe_at: Timer::STOPPED,
            probe: None,
            frame: config.max_frame,
            shrunk_from: 0,
            raise_at: Timer::STOPPED,
            raise: Raise::Idle,
        }
    }

    /// Whether what is sent on it arrives, as far as is known.
    pub(super) fn is_good(&self) -> bool {
        matches!(self.health, Health::Good { .. })
    }

    /// Whether that packet tries whether larger frames pass.
    pub(super) fn is_try(&self, packet: u32) -> bool {
        matches!(self.raise, Raise::Tried { packet: tried, .. } if tried == packet)
    }

    /// A packet of this number arrived. If it was one that tried it, frames of its length pass again, and
    /// larger ones are tried next, up to the `largest`.
    pub(super) fn arrived(&mut self, packet: u32, largest: usize) {
        let Raise::Tried { packet: tried, length } = self.raise else { return };
        if tried == packet {
            self.passes(length, largest);
            if length < largest {
                self.raise = Raise::Wanted;
            }
        }
    }

    /// Frames up to this size pass, as far as is known: larger ones are tried in their time, up to the
    /// `largest`.
    pub(super) fn passes(&mut self, frame: usize, largest: usize) {
        self.frame = frame;
        self.raise = Raise::Idle;
        if frame >= largest {
            self.raise_at.stop();
        }
    }

    /// Numbers a frame that leaves now.
    pub(super) fn depart(&mut self, now: Instant) -> u32 {
        let packet = self.next_packet;
        self.sent_at[packet as usize % REMEMBERED] = (packet, units(now));
        self.next_packet = packet.wrapping_add(1);
        self.frames_sent += 1;
        packet
    }

    /// A frame with this number came.
    pub(super) fn arrive(&mut self, packet: u32, now: Instant) {
        let expected = self.received.map(|largest| largest.wrapping_add(1));
        self.gap |= expected != Some(packet);
        if expected.is_none_or(|expected| !before(packet, expected)) {
            (self.received, self.received_at) = (Some(packet), now);
        }
    }

    /// A frame with records came. The acknowledgement waits a little, unless the peer should know
    /// at once: something is `missing` and this path may have lost it, or came `again`.
    pub(super) fn want_ack(&mut self, now: Instant, delay: Duration, missing: bool, again: bool) {
        self.gap &= missing;
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        self.ack_now |= self.gap || again || self.unacknowledged >= ACK_EVERY;
        self.ack_at.start_if_stopped(now + delay);
    }

    /// An acknowledgement that speaks of this path was sent.
    pub(super) fn acknowledgement_sent(&mut self) {
        self.ack_now = false;
        self.ack_at.stop();
        self.unacknowledged = 0;
    }

    /// Whether a frame of that number was sent, as far as numbers tell that repeat.
    pub(super) fn may_acknowledge(&self, packet: u32) -> bool {
        let ago = self.next_packet.wrapping_sub(packet);
        before(packet, self.next_packet) && u64::from(ago) <= self.frames_sent
    }

    /// The peer received `packet` and said so `delay` later; `None`: later than it can tell, which
    /// gives no round trip. Whether that is news.
    pub(super) fn acknowledged(
        &mut self,
        packet: u32,
        delay: Option<Duration>,
        now: Instant,
        times: &Times,
    ) -> bool {
        if !self.is_news(packet) {
            return false;
        }
        self.largest_acked = Some(packet);
        let (number, sent) = self.sent_at[packet as usize % REMEMBERED];
        if number == packet {
            let passed = u64::from(units(now).wrapping_sub(sent)) << UNIT;
            let sent = Instant::from_nanos(now.as_nanos().saturating_sub(passed));
            self.carried_at = sent;
            if let Some(delay) = delay {
                self.measured(now, sent, passed.saturating_sub(nanos(delay)), times);
            }
        }
        true
    }

    /// A frame that left at `sent` took so long to be acknowledged, in nanoseconds.
    fn measured(&mut self, now: Instant, sent: Instant, round_trip: u64, times: &Times) {
        if sent < self.late_at && round_trip > self.timeout(times) {
            // A peer that stood still is no long path: of one what leaves from now on is late, too. (So is
            // it of one that stands still again before anything was in time.)
            self.late_at = self.late_at.min(now);
            return;
        }
        self.late_at = Instant::FAR_FUTURE;
        self.rtt.sample(now, round_trip);
        let target = self.rtt.target(times);
        self.congestion.delayed(now, sent, round_trip, target);
    }

    /// Whether that packet is later than all that the peer said it received.
    pub(super) fn is_news(&self, packet: u32) -> bool {
        self.largest_acked.is_none_or(|largest| before(largest, packet))
    }

    /// Something comes back after timeouts: also of what left before them, `late` bytes in a frame or 0.
    /// Frames of up to `largest` bytes may pass.
    pub(super) fn heard_again(&mut self, now: Instant, late: usize, largest: usize) {
        self.backoff = 0;
        self.congestion.heard_again(now);
        let from = usize::from(core::mem::take(&mut self.shrunk_from));
        if from == 0 {
            return;
        }
        if late * 2 > from {
            // The peer only stood still.
            self.passes(from, largest);
        } else if self.frame < largest {
            // Nothing came back, of whatever size: that large frames do not pass was a guess.
            self.raise = Raise::Idle;
            self.raise_at.start(now);
        }
    }

    /// The peer's count of marked frames; one more than before is congestion.
    pub(super) fn echo(&mut self, marks: u16, now: Instant) {
        let news = marks.wrapping_sub(self.marks_told);
        if news != 0 && news < 1 << 15 {
            self.marks_told = marks;
            let sent = Instant::from_nanos(now.as_nanos().saturating_sub(self.rtt.smoothed()));
            self.congestion.congested(now, sent);
        }
    }

    /// The retransmission timeout, in nanoseconds.
    pub(super) fn timeout(&self, times: &Times) -> u64 {
        self.rtt.timeout(times, self.backoff.into())
    }

    /// Starts the timers over, or stops them when nothing is under way here.
    pub(super) fn restart_timeout(&mut self, now: Instant, times: &Times, several: bool) {
        self.timeout_at.stop();
        self.doubt_at.stop();
        if self.in_flight > 0 {
            let timeout = self.timeout(times);
            self.timeout_at.start(now.after_nanos(timeout));
            self.doubt_at.start(now.after_nanos(self.patience(timeout, several)));
        }
    }

    /// After so long a path is doubted whose timeout is this, in nanoseconds: two round trips, as in RFC
    /// 8985 section 7.2, and time for an acknowledgement that is held back. A peer that stood still once
    /// makes the estimate long for many round trips, and of those an idle path has few: the latest one
    /// counts, too. Where there are no `several` paths it is more likely that the peer is slow.
    pub(super) fn patience(&self, timeout: u64, several: bool) -> u64 {
        let round_trip = self.rtt.smoothed().min(self.rtt.latest());
        (round_trip * 2).max(timeout >> if several { 2 } else { 1 })
    }

    /// Nothing is waited for.
    pub(super) fn stop_waiting(&mut self) {
        self.timeout_at.stop();
        self.doubt_at.stop();
        self.loss_at.iter_mut().for_each(Timer::stop);
    }

    /// What was under way is not any more: nothing is waited for, and what is sent next is waited
    /// for anew.
    pub(super) fn stop_if_idle(&mut self) {
        if self.in_flight == 0 {
            self.stop_waiting();
        }
    }

    /// The peer has no other path any more: whether this one works shows by itself.
    pub(super) fn is_alone(&mut self) {
        self.probe_at.stop();
        self.doubt_at.stop();
        self.probe = None;
        if self.is_good() {
            self.health = Health::Good { asked: false };
        }
    }

    /// How long a frame that leaves now is expected to be under way, in nanoseconds: half a round
    /// trip, and what is before it at the rate of a window in each round trip.
    pub(super) fn expected_delay(&self) -> u64 {
        let round_trip = self.rtt.smoothed();
        let window = self.congestion.window().max(1);
        round_trip / 2 + round_trip.saturating_mul(self.in_flight) / window
    }
}
