//! One path: its packet numbers, both ways, and what they tell.

use super::congestion::Congestion;
use super::rtt::Rtt;
use super::sequence::before;
use super::types::LinkConfig;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

/// Frames whose time of departure is remembered, for round-trip samples.
const REMEMBERED: usize = 64;

/// No packet, at no time.
const NEVER: (u32, Instant) = (u32::MAX, Instant::ZERO);

/// The state of one path.
#[derive(Debug)]
pub(super) struct Path {
    /// Number of the next frame.
    pub(super) next_packet: u32,
    /// When the last frames left, by packet number modulo their count.
    sent_at: Box<[(u32, Instant)]>,
    /// Largest packet number that the peer said it received.
    pub(super) largest_acked: Option<u32>,
    /// Largest packet number received, and when.
    pub(super) received: Option<(u32, Instant)>,
    /// Frames received with Congestion Experienced.
    pub(super) marked: u16,
    /// The peer's count of the same, as last told.
    marks_told: u16,
    /// Record bytes under way.
    pub(super) in_flight: u64,
    /// Round-trip estimate.
    pub(super) rtt: Rtt,
    /// Congestion window.
    pub(super) congestion: Congestion,
}

impl Path {
    /// A path that nothing was sent on.
    pub(super) fn new(config: &LinkConfig) -> Self {
        Self::unused(vec![NEVER; REMEMBERED].into_boxed_slice(), config)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, config: &LinkConfig) {
        let mut sent_at = core::mem::take(&mut self.sent_at);
        sent_at.fill(NEVER);
        *self = Self::unused(sent_at, config);
    }

    fn unused(sent_at: Box<[(u32, Instant)]>, config: &LinkConfig) -> Self {
        Self {
            next_packet: 0,
            sent_at,
            largest_acked: None,
            received: None,
            marked: 0,
            marks_told: 0,
            in_flight: 0,
            rtt: Rtt::new(config.initial_rtt),
            congestion: Congestion::new(config.max_frame),
        }
    }

    /// Numbers a frame that leaves now.
    pub(super) fn depart(&mut self, now: Instant) -> u32 {
        let packet = self.next_packet;
        self.sent_at[packet as usize % REMEMBERED] = (packet, now);
        self.next_packet = packet.wrapping_add(1);
        packet
    }

    /// A frame with this number came.
    pub(super) fn arrive(&mut self, packet: u32, now: Instant) {
        if self.received.is_none_or(|(largest, _)| before(largest, packet)) {
            self.received = Some((packet, now));
        }
    }

    /// The peer received `packet` and said so `delay` later. Whether that is news.
    pub(super) fn acknowledged(&mut self, packet: u32, delay: Duration, now: Instant) -> bool {
        if self.largest_acked.is_some_and(|largest| !before(largest, packet)) {
            return false;
        }
        self.largest_acked = Some(packet);
        let (number, sent) = self.sent_at[packet as usize % REMEMBERED];
        if number == packet {
            self.rtt.sample(now.saturating_since(sent).saturating_sub(delay));
        }
        true
    }

    /// The peer's count of marked frames; one more than before is congestion.
    pub(super) fn echo(&mut self, marks: u16, now: Instant) {
        let news = marks.wrapping_sub(self.marks_told);
        if news != 0 && news < 1 << 15 {
            self.marks_told = marks;
            let round_trip = self.rtt.smoothed().as_nanos() as u64;
            let sent = Instant::from_nanos(now.as_nanos().saturating_sub(round_trip));
            self.congestion.congested(now, sent);
        }
    }
}
