//! What the peer received: acknowledgements taken in, losses found, timeouts.

use super::flight::{Entry, Fate};
use super::sequence::before;
use super::types::{LinkState, Violation};
use super::{Fault, Link};
use crate::control::LinkDownReason;
use crate::time::{Instant, Timer};
use core::time::Duration;
use tlp_codec::fabric::{Ack, CloseReason};

/// A record is lost when a frame so many later on the same path was received (RFC 9002,
/// section 6.1.1).
const REORDERING: u32 = 3;

/// Whether a packet is so much older than the largest that arrived that it arrived before, or is lost.
fn overtaken(packet: u32, largest: u32) -> bool {
    before(packet, largest) && largest.wrapping_sub(packet) >= REORDERING
}

impl Link {
    /// Takes an acknowledgement in.
    pub(super) fn handle_ack(&mut self, now: Instant, ack: &Ack) -> Result<(), Violation> {
        let path = ack.path.get() as usize;
        let sent = self.paths.get(path).is_some_and(|path| path.may_acknowledge(ack.packet));
        let end = ack.next.wrapping_add(ack.sacks.end());
        if !sent
            || !self.flight.may_acknowledge(ack.next)
            || !self.flight.may_acknowledge(end)
            || path >= self.path_count && self.faulty(Fault::RefuseLateAck)
        {
            return Err(Violation::Acknowledgement);
        }
        let known = ack.delay_us < u16::MAX;
        let delay = known.then(|| Duration::from_micros(ack.delay_us.into()));
        for path in 0..self.path_count {
            if self.paths[path].backoff > 0 {
                self.heard_again(now, path, ack);
            }
        }
        let news = self.paths[path].acknowledged(ack.packet, delay, now, &self.times);
        self.paths[path].echo(ack.ce, now);
        let mut progress = 0_u8;
        while before(self.flight.oldest(), ack.next) {
            progress |= self.acknowledge(self.flight.oldest());
            self.flight.retire();
        }
        for range in ack.sacks.as_slice() {
            let first = ack.next.wrapping_add(range.offset.into());
            // What is over already is not gone through: a list may say much of it.
            let over = self.flight.oldest().wrapping_sub(first);
            let over = if before(first, self.flight.oldest()) { over } else { 0 };
            for n in over..range.length.into() {
                progress |= self.acknowledge(first.wrapping_add(n));
            }
        }
        // A full list says nothing of what lies behind it.
        let judged = if ack.sacks.is_full() { end } else { self.flight.next() };
        let matters = ack.sacks.is_full() || self.flight.has_untold();
        let is_latest = matters && self.is_latest(ack, judged);
        if is_latest && self.flight.has_untold() {
            self.judge_untold(now, judged);
        }
        while progress != 0 {
            let path = progress.trailing_zeros() as usize;
            progress &= progress - 1;
            if self.paths[path].backoff > 0 {
                self.paths[path].heard_again(now, 0, self.peer_limits.frame);
            }
            self.restart_timeout(now, path);
        }
        if news {
            if self.paths[path].carried_at >= self.paths[path].round_at {
                self.round_over(now, path);
            }
            self.path_heard(now, path, ack.packet);
            self.paths[path].judged = judged;
            self.find_losses(now, path);
        }
        if is_latest && ack.sacks.is_full() {
            (0..self.path_count).for_each(|path| self.land_overtaken(path, end));
        }
        Ok(())
    }

    /// What comes back after timeouts of a path: whether the peer speaks of that at all, and how large a
    /// frame was of those that were sent once, and only late (as RFC 5682, section 2.1, tells it).
    #[inline(never)] // there are few timeouts: short code counts
    fn heard_again(&mut self, now: Instant, path: usize, ack: &Ack) {
        let named = path == usize::from(ack.path.get());
        let mut speaks = named && self.paths[path].is_news(ack.packet);
        let (mut frame, mut bytes, mut late) = (None, 0, 0);
        for sequence in self.flight.sequences().take_while(|s| before(*s, ack.next)) {
            let entry = self.flight.entry(sequence);
            if usize::from(entry.path) != path || entry.fate == Fate::Acknowledged {
                continue;
            }
            speaks = true;
            if entry.tries == 1 {
                let again = frame.replace(entry.packet) == Some(entry.packet);
                bytes = usize::from(entry.bytes) + if again { bytes } else { 0 };
                late = late.max(bytes);
            }
        }
        if speaks {
            self.paths[path].heard_again(now, late, self.peer_limits.frame);
        }
    }

    /// Marks one record as received. The bit of the path that it was under way on, if that is
    /// news.
    fn acknowledge(&mut self, sequence: u32) -> u8 {
        let Some(entry) = self.flight.acknowledge(sequence) else { return 0 };
        if entry.tries == 1 {
            // It was in no other packet.
            self.paths[entry.path as usize].arrived(entry.packet, self.peer_limits.frame);
        }
        if entry.fate == Fate::Flying {
            let path = &mut self.paths[entry.path as usize];
            let (bytes, in_flight) = (u64::from(entry.bytes), path.in_flight);
            path.in_flight -= bytes;
            let delayed = path.rtt.is_delayed(&self.times);
            path.congestion.acknowledged(bytes, in_flight, delayed);
        }
        self.record_done(entry.what);
        1 << entry.path
    }

    /// Judges what was sent on `path`, as far as the last acknowledgement tells, by the largest packet
    /// number that arrived there.
    fn find_losses(&mut self, now: Instant, path: usize) {
        let Some(largest) = self.paths[path].largest_acked else { return };
        self.paths[path].loss_at.iter_mut().for_each(Timer::stop);
        let (patience, judged) = (self.paths[path].rtt.reordering(), self.paths[path].judged);
        // A frame takes several records with it, one after the other.
        let mut frame = None;
        for sequence in self.flight.sequences() {
            if !before(sequence, judged) {
                break;
            }
            let entry = *self.flight.entry(sequence);
            if entry.path as usize != path || entry.fate != Fate::Flying {
                continue;
            }
            if !before(entry.packet, largest) {
                if entry.tries == 1 {
                    // New records go out in order: all that follow are later still.
                    break;
                }
                continue;
            }
            if overtaken(entry.packet, largest) || now.nanos_since(entry.last_sent) > patience {
                self.lose(sequence);
                let again = frame.replace(entry.packet) == Some(entry.packet);
                self.count_loss(now, &entry, again);
            } else {
                // Nothing more may come back that would have it looked at again.
                let at = entry.last_sent.after_nanos(patience + 1);
                self.paths[path].loss_at.iter_mut().for_each(|timer| timer.no_later(at));
            }
        }
    }

    /// Whether an acknowledgement, which was taken in, knows of all that is known up to where it judges.
    /// One that went by another path may come after others that were sent later: by such a one the
    /// record that all wait for could land, and then no timer runs any more.
    fn is_latest(&self, ack: &Ack, judged: u32) -> bool {
        let told = ack.sacks.as_slice().iter().map(|range| usize::from(range.length)).sum();
        let acknowledged = |s: &u32| self.flight.entry(*s).fate == Fate::Acknowledged;
        let judges = self.flight.sequences().take_while(|s| before(*s, judged));
        ack.next == self.flight.oldest() && judges.filter(acknowledged).count() == told
    }

    /// What an acknowledgement's list does not reach, from `end` on, and left `path` long enough before
    /// something that arrived is not under way any more, and takes no part of the window. Else the
    /// records that are missing, of which the list is full, could wait for room that they themselves
    /// have to make.
    fn land_overtaken(&mut self, path: usize, end: u32) {
        let Some(largest) = self.paths[path].largest_acked else { return };
        for sequence in self.flight.sequences_from(end) {
            let entry = *self.flight.entry(sequence);
            let here = usize::from(entry.path) == path && entry.fate == Fate::Flying;
            if here && overtaken(entry.packet, largest) {
                let bytes = self.flight.land(sequence);
                self.paths[path].in_flight -= u64::from(bytes);
            }
        }
        self.paths[path].stop_if_idle();
    }

    /// A later list reaches to `end`, and has all that arrived until there.
    fn judge_untold(&mut self, now: Instant, end: u32) {
        let mut frame = None;
        for sequence in self.flight.sequences() {
            if !before(sequence, end) {
                break;
            }
            let entry = *self.flight.entry(sequence);
            if entry.fate == Fate::Untold {
                self.flight.told_lost(sequence);
                let of = (entry.path, entry.packet);
                let again = frame.replace(of) == Some(of);
                self.count_loss(now, &entry, again);
            }
        }
    }

    /// A record was lost with its frame, of which another one was counted before if it is `again`.
    fn count_loss(&mut self, now: Instant, entry: &Entry, again: bool) {
        self.counters.losses_detected += 1;
        let path = &mut self.paths[usize::from(entry.path)];
        path.losses = path.losses.saturating_add(u32::from(!again));
        // That a frame is too large is no sign of congestion.
        if !path.is_try(entry.packet) {
            path.congestion.congested(now, entry.last_sent);
        }
    }

    fn lose(&mut self, sequence: u32) {
        let path = self.flight.entry(sequence).path as usize;
        if let Some(bytes) = self.flight.lose(sequence) {
            self.paths[path].in_flight -= u64::from(bytes);
            self.paths[path].stop_if_idle();
            if self.faulty(Fault::ForgetLoss) {
                self.flight.resend(sequence, path as u8, u32::MAX, Instant::FAR_FUTURE);
                self.paths[path].in_flight += u64::from(bytes);
            }
        }
    }

    /// Everything under way on a path is lost.
    pub(super) fn lose_path(&mut self, path: usize) {
        for sequence in self.flight.sequences() {
            if usize::from(self.flight.entry(sequence).path) == path {
                self.lose(sequence);
            }
        }
    }

    /// What the frame carried that has been under way on a path for longest is lost.
    pub(super) fn lose_oldest_frame(&mut self, path: usize) {
        let mut oldest = None;
        for sequence in self.flight.sequences() {
            let entry = self.flight.entry(sequence);
            let here = usize::from(entry.path) == path && entry.fate == Fate::Flying;
            if here && *oldest.get_or_insert(entry.packet) == entry.packet {
                self.lose(sequence);
            }
        }
    }

    /// Whether the oldest frame that is under way on a path tries whether larger ones pass.
    pub(super) fn oldest_is_try(&self, path: usize) -> bool {
        self.oldest_on(path).is_some_and(|entry| self.paths[path].is_try(entry.packet))
    }

    /// The record that is next in order of those under way on a path.
    pub(super) fn oldest_on(&self, path: usize) -> Option<&Entry> {
        let mut entries = self.flight.sequences().map(|sequence| self.flight.entry(sequence));
        entries.find(|entry| usize::from(entry.path) == path && entry.fate == Fate::Flying)
    }

    /// When the oldest record has waited too long. It must have been sent twice, and the second
    /// time long enough ago: a proxy that was stopped for a while finds old records and a peer
    /// that is well.
    pub(super) fn give_up_at(&self) -> Option<Instant> {
        let entry = self.flight.oldest_entry().filter(|entry| entry.tries >= 2)?;
        let second_chance = entry.last_sent.after_nanos(self.times.min);
        Some(second_chance.max(entry.first_sent + self.config.give_up))
    }

    /// What later frames have overtaken has had its time, or has more of it by now: a round trip was
    /// longer since.
    fn overtaken_is_late(&mut self, now: Instant, path: usize) {
        let before = self.paths[path].in_flight;
        self.find_losses(now, path);
        if self.paths[path].in_flight != before {
            self.restart_timeout(now, path);
        }
    }

    /// The retransmission timers or the bound of the link.
    pub(super) fn handle_flight_timeout(&mut self, now: Instant) {
        if self.state != LinkState::Up {
            return;
        }
        if self.give_up_at().is_some_and(|at| at <= now) {
            self.go_down(LinkDownReason::GaveUp, Some(CloseReason::GaveUp));
            return;
        }
        for path in 0..self.path_count {
            if self.paths[path].loss_at.iter_mut().any(|timer| timer.take_due(now)) {
                self.overtaken_is_late(now, path);
            }
            let entry = &mut self.paths[path];
            // What was under way may have been lost by other signs.
            if entry.timeout_at.take_due(now) && entry.in_flight > 0 {
                self.path_timed_out(now, path);
            }
            let entry = &mut self.paths[path];
            if entry.doubt_at.take_due(now) && entry.in_flight > 0 {
                self.doubt_path(now, path);
            }
        }
    }
}
