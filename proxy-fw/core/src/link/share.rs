//! Which binding's TLP is next: shares by weight, guaranteed rates, limited rates.
//!
//! Devices take turns. In each turn a device may send as many bytes as its weight says, and what
//! it sends beyond that it lacks in its next one (deficit round robin, Shreedhar and Varghese,
//! 1996, with the deficit spent behind instead of saved before, so that no length has to be known
//! in advance). One that is below its guaranteed rate goes before all turns; one that has reached
//! its limit waits. All functions of a device have its turn in common, and send a TLP of each of
//! them after the other in it.

use super::Link;
use super::faults::Fault;
use super::flight::Sent;
use super::rtt::nanos;
use super::send::Splitting;
use super::transmit::split_sizes;
use crate::control::Share;
use crate::limits::TLP_BUFFER;
use crate::stamps::Stamps;
use crate::time::Instant;
use core::time::Duration;
use tlp_codec::fabric::{MAX_OVERHEAD, SPLIT_HEADER, TLP_OVERHEAD};

/// Bytes of one turn for each unit of weight. Of long turns nothing comes where few TLPs can wait
/// for them: who has nothing left in the middle of one does not get its weight. A TLP that is longer
/// than some turns is paid for with them.
const QUANTUM: i32 = 512;

/// What a binding may owe of its turns at most, in bytes: what it sends by its guaranteed rate counts
/// for them, and who owes much pays it off turn by turn when the others have nothing.
const MOST_OWED: i32 = 16 * LEAST_SAVED as i32;

/// How long a binding that did not send may save up what its guaranteed rate allows: so long it
/// holds up all others afterwards.
const GUARANTEE_SAVED: Duration = Duration::from_millis(1);

/// How long a binding that did not send may save up what its limit allows. It is longer than a round
/// of all turns takes, or who waits for its turn stays below its limit.
const LIMIT_SAVED: Duration = Duration::from_millis(10);

/// How long it takes at most until what a binding was given is paid for.
const OWED: Duration = Duration::from_millis(10);

const SECOND: u64 = 1_000_000_000;

/// What may be saved up at any rate, in bytes: the longest TLP's record.
const LEAST_SAVED: u64 = (TLP_BUFFER + TLP_OVERHEAD) as u64;

/// Bytes that may be sent at a certain rate, as the time that they take at that (the virtual
/// scheduling of ITU-T I.371, annex A). What is sent at once beyond it is owed.
#[derive(Clone, Debug)]
struct Bucket {
    /// Bytes a second; 0: there is no such rate.
    rate: u64,
    /// How long may be saved up, in nanoseconds.
    saved: u64,
    /// When all that was sent has had its time, in nanoseconds: what lies between now and then is
    /// owed, or saved up.
    paid_at: u64,
    /// What of a nanosecond was sent beyond that, in bytes times 10^9.
    rest: u64,
}

impl Bucket {
    fn new(rate: u64, saved: Duration) -> Self {
        let saved = nanos(saved).max(LEAST_SAVED * SECOND / rate.max(1));
        Self { rate, saved, paid_at: 0, rest: 0 }
    }

    /// Whether something may be sent now.
    fn has_some(&mut self, now: Instant) -> bool {
        let now = now.as_nanos();
        // Who had more than its guaranteed rate while nobody else wanted it has that rate again soon
        // when others come.
        let owed = self.saved.max(nanos(OWED));
        self.paid_at = self.paid_at.clamp(now.saturating_sub(self.saved), now + owed);
        self.paid_at < now
    }

    fn take(&mut self, bytes: u64) {
        let sent = (bytes * SECOND).saturating_add(self.rest);
        if let Some(time) = sent.checked_div(self.rate) {
            self.paid_at = self.paid_at.saturating_add(time);
            self.rest = sent - time * self.rate;
        }
    }

    /// When something may be sent again.
    fn refilled_at(&self) -> Instant {
        Instant::from_nanos(self.paid_at.saturating_add(1))
    }
}

/// The kinds of turns: those of all, and what is sent by a guaranteed rate.
const BY_TURN: usize = 0;
const BY_GUARANTEE: usize = 1;

/// What a device may send, and has sent.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    /// The places of its functions; of none, whose device is nobody's.
    places: u64,
    /// The place that sent last of them.
    last: u8,
    weight: u8,
    /// What is left of its turn, in bytes.
    left: i32,
    /// When it last had its turn, and when it last sent by its guaranteed rate, by the link's count of
    /// both. Whoever has waited longest is next.
    had: [u32; 2],
    limit: Bucket,
    guarantee: Bucket,
}

impl Turn {
    pub(super) fn new(share: Share) -> Self {
        Self {
            places: 0,
            last: 0,
            weight: share.weight.max(1),
            left: 0,
            had: [0; 2],
            limit: Bucket::new(share.limit, LIMIT_SAVED),
            guarantee: Bucket::new(share.guarantee, GUARANTEE_SAVED),
        }
    }

    /// It is over, if it is one of those that have begun.
    fn end(&mut self, begun: &mut u64, turns: &mut u32) {
        if *begun & self.places != 0 {
            *begun &= !self.places;
            self.had(BY_TURN, turns);
        }
    }

    /// It was the one of this kind that has this number of all turns.
    fn had(&mut self, kind: usize, turns: &mut u32) {
        self.had[kind] = *turns;
        *turns = turns.wrapping_add(1);
    }

    /// Whether it is no device's.
    pub(super) fn is_free(&self) -> bool {
        self.places == 0
    }

    /// A place is one of its device's from now on.
    pub(super) fn join(&mut self, index: usize) {
        self.places |= 1 << index;
    }

    /// A place is none of its device's any more. What it has sent is not given back to the others.
    pub(super) fn leave(&mut self, index: usize) {
        self.places &= !(1 << index);
    }

    /// What it may send is another. Returns the places that this is about.
    pub(super) fn set(&mut self, share: Share) -> u64 {
        let Self { places, last, .. } = *self;
        *self = Self { places, last, ..Self::new(share) };
        places
    }
}

#[cfg(test)]
impl Turn {
    /// What is left of it, in bytes.
    pub(super) fn left(&self) -> i32 {
        self.left
    }
}

impl Link {
    /// The place whose TLP is to be sent next, of those in `set` that may have one. Each path asks for
    /// those that it carries.
    fn whose_turn(&mut self, now: Instant, set: u64) -> Option<usize> {
        let mut guaranteed = self.out.tlps & set & self.out.guaranteed;
        while guaranteed != 0 {
            // Where more is guaranteed than there is, all have some of it.
            let index = self.waited_longest(guaranteed, BY_GUARANTEE);
            if !self.is_limited(now, index) && self.channels.turn(index).guarantee.has_some(now) {
                return Some(index);
            }
            guaranteed &= !self.channels.turn(index).places;
        }
        if self.out.first {
            return None;
        }
        loop {
            let ready = self.out.tlps & set;
            if ready == 0 {
                return None;
            }
            // Another path's frame may have come between, but not ended the turn.
            let begun = ready & self.out.begun;
            let index = self.waited_longest(if begun == 0 { ready } else { begun }, BY_TURN);
            if self.channels.turn(index).limit.rate != 0 && self.is_limited(now, index) {
                continue;
            }
            let turn = self.channels.turn(index);
            if self.out.begun & turn.places == 0 {
                self.out.begun |= turn.places;
                turn.left += i32::from(turn.weight) * QUANTUM;
            }
            if turn.left > 0 || self.faulty(Fault::EndlessTurn) {
                return Some(index);
            }
            self.channels.turn(index).end(&mut self.out.begun, &mut self.out.turns);
        }
    }

    /// Of places, the one whose device's last turn of this kind is longest ago, and which follows the
    /// one that this sent from last.
    fn waited_longest(&mut self, set: u64, kind: usize) -> usize {
        let turns = self.out.turns;
        let (mut longest, mut found) = (0, set.trailing_zeros() as usize);
        if set & (set - 1) == 0 {
            return found;
        }
        let mut rest = set;
        while rest != 0 {
            let index = rest.trailing_zeros() as usize;
            let turn = self.channels.turn(index);
            rest &= !turn.places;
            let waited = turns.wrapping_sub(turn.had[kind]);
            if waited > longest {
                (longest, found) = (waited, index);
            }
        }
        let turn = self.channels.turn(found);
        let ready = set & turn.places;
        let behind = ready & u64::MAX << turn.last << 1;
        if behind == 0 { ready } else { behind }.trailing_zeros() as usize
    }

    /// Whether a device has reached its limit. It waits then, whatever its turn.
    fn is_limited(&mut self, now: Instant, index: usize) -> bool {
        let Turn { limit, places, .. } = self.channels.turn(index);
        if limit.rate == 0 || limit.has_some(now) {
            return false;
        }
        let (at, places) = (limit.refilled_at(), *places);
        if self.faulty(Fault::IgnoreLimit) {
            return false;
        }
        self.share_at.no_later(at);
        self.out.limited |= self.out.tlps & places;
        self.out.tlps &= !places;
        self.counters.sends_limited += 1;
        // What is left of its turn it may not save up until its limit is another.
        self.leave_turn(index);
        true
    }

    /// A binding has nothing that it may send now. Its device may have others that do.
    fn leave_turn(&mut self, index: usize) {
        self.out.tlps &= !(1 << index);
        let turn = self.channels.turn(index);
        if self.out.tlps & turn.places == 0 {
            turn.left = turn.left.min(0);
            turn.end(&mut self.out.begun, &mut self.out.turns);
        }
    }

    /// What left a path up to now was heard of: the window there is for those who sent it.
    pub(super) fn round_over(&mut self, now: Instant, path: usize) {
        let entry = &mut self.paths[path];
        entry.round_at = now;
        let places = core::mem::take(&mut entry.sent_by);
        entry.heard = places;
        if places == 0 {
            return;
        }
        let (weight, rate) = self.together(places);
        let all = self.paths().iter().fold(places, |all, path| all | path.heard);
        self.out.weight = if all == places { weight } else { self.together(all).0 };
        let entry = &mut self.paths[path];
        let mut guaranteed = 0;
        if rate > 0 {
            // What is above that the queue may be of its own making. (Below it may be, too, where more is
            // guaranteed than the path carries: a slow queue of others is no shorter.)
            let round_trip = entry.rtt.smoothed().min(entry.rtt.target(&self.times));
            guaranteed = rate.saturating_mul(round_trip / 1000) / (SECOND / 1000);
        }
        entry.congestion.share(weight, guaranteed);
    }

    /// What the devices of these places weigh together, and are guaranteed.
    #[inline(never)] // one call a round trip: short code counts
    fn together(&mut self, mut places: u64) -> (u32, u64) {
        let (mut weight, mut rate) = (0, 0_u64);
        while places != 0 {
            let turn = self.channels.turn(places.trailing_zeros() as usize);
            places &= !turn.places;
            weight += u32::from(turn.weight);
            rate = rate.saturating_add(turn.guarantee.rate);
        }
        (weight, rate)
    }

    /// What all that sent lately weigh together.
    pub(crate) fn weight(&self) -> u32 {
        self.out.weight
    }

    /// Whether something waits that has not had its guaranteed rate, or an acknowledgement that waited for
    /// as long as it may: where turns are long the peer would think that nothing arrives.
    pub(crate) fn goes_first(&mut self, now: Instant) -> bool {
        if self.paths().iter().any(|path| path.ack_now && path.ack_at.is_due(now)) {
            return true;
        }
        let mut waits = self.out.tlps & self.out.guaranteed;
        while waits != 0 {
            let turn = self.channels.turn(waits.trailing_zeros() as usize);
            if turn.guarantee.has_some(now) {
                return true;
            }
            waits &= !turn.places;
        }
        false
    }

    /// Bindings that had reached their limit may send again.
    pub(super) fn handle_share_timeout(&mut self, now: Instant) {
        if self.share_at.take_due(now) {
            self.out.tlps |= core::mem::take(&mut self.out.limited);
        }
    }

    /// The next TLP of the bindings that may use a path.
    pub(super) fn next_tlp(
        &mut self,
        now: Instant,
        path: usize,
        room: usize,
        stamps: &mut Stamps,
    ) -> Option<Sent> {
        while let Some(index) = self.whose_turn(now, self.reach[path]) {
            let place = self.channels.place(index);
            let Some(class) = place.sendable(&self.out.slab) else {
                self.leave_turn(index);
                continue;
            };
            let outgoing = &mut place.outgoing[class as usize];
            let buffer = outgoing.queue.front().expect("a sendable class has a first TLP");
            let length = self.out.slab.length(buffer);
            let frame = self.peer_limits.record_frame();
            let split = TLP_OVERHEAD + length > frame - MAX_OVERHEAD;
            let need = match split {
                true => SPLIT_HEADER + split_sizes(frame).0,
                false => TLP_OVERHEAD + length,
            };
            if need > room {
                // It is first in the next frame.
                return None;
            }
            outgoing.queue.pop(&mut self.out.slab);
            self.paths[path].sent_by |= 1 << index;
            outgoing.used = outgoing.used.wrapping_add(1);
            let bytes = TLP_OVERHEAD + length;
            let turn = self.channels.turn(index);
            turn.last = index as u8;
            turn.left = (turn.left - bytes as i32).max(-MOST_OWED);
            turn.limit.take(bytes as u64);
            turn.guarantee.take(bytes as u64);
            if self.out.guaranteed & 1 << index != 0 {
                turn.had(BY_GUARANTEE, &mut self.out.turns);
            }
            let meta = self.out.slab.meta_mut(buffer);
            meta.records = 1;
            if let Some(stamp) = meta.stamp.take() {
                stamps.sent(stamp, self.flight.next(), self.out.slab.bytes(buffer));
            }
            self.counters.tlps_sent += 1;
            if !split {
                return Some(Sent::Tlp(buffer));
            }
            self.counters.tlps_split += 1;
            let parts = self.parts(buffer);
            self.out.splitting = Some(Splitting { buffer, next_part: 1, parts });
            return Some(Sent::SplitHeader(buffer));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_rate_and_no_more() {
        let mut bucket = Bucket::new(1_000_000, GUARANTEE_SAVED);
        let (mut now, mut sent) = (Instant::ZERO + Duration::from_secs(5), 0);
        let end = now + Duration::from_secs(1);
        while now < end {
            if bucket.has_some(now) {
                bucket.take(500);
                sent += 500;
            } else {
                let at = bucket.refilled_at();
                assert!(at > now, "time goes on");
                now = at;
            }
        }
        // What was saved up before, and the last one sent beyond it.
        let most = 1_000_000 + LEAST_SAVED + 500;
        assert!((1_000_000..=most).contains(&sent), "{sent} bytes in a second");
    }

    #[test]
    fn a_bucket_does_not_save_up_for_ever() {
        let mut bucket = Bucket::new(1_000_000_000, LIMIT_SAVED);
        let now = Instant::ZERO + Duration::from_secs(100);
        let mut sent = 0;
        while bucket.has_some(now) {
            bucket.take(1000);
            sent += 1000;
        }
        assert_eq!(sent, 10_000_000);
    }

    #[test]
    fn a_rate_that_divides_no_nanosecond_is_kept_to_the_byte() {
        let mut bucket = Bucket::new(7_000_000_003, LIMIT_SAVED);
        let (start, mut sent) = (Duration::from_secs(1), 0_u64);
        assert!(bucket.has_some(Instant::ZERO + start));
        for _ in 0..10_000_000 {
            bucket.take(280);
            sent += 280;
        }
        let took = bucket.paid_at - nanos(start - LIMIT_SAVED);
        assert_eq!(took, sent * SECOND / 7_000_000_003);
    }
}
