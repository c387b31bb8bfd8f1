//! A TLP on its way from the adapter to the switch.

use super::Below;
use crate::front::routes::port_of;
use proxy_core::limits::{LONGEST_HOLD, MAX_PORTS, SYNTHESISED_COMPLETION, TLP_BUFFER};
use proxy_core::switch::VirtualSwitch;
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::PortId;
use tlp_codec::tlp::{Class, Packet};
use vmd_adapter::{ANSWER_BOUND, REQUEST_BOUND};

/// The same for all TLPs together that the machine may wait behind ([`Budget`]).
const ALL_HOLDS: Duration = Duration::from_millis(1800);

/// What every device has to take a TLP even so: a few turns. What takes no longer is no hold but
/// the flow of a device that is sent much.
const FLOOR: Duration = Duration::from_millis(5);

/// The holds, and once for each device that hangs the floor.
const ALL_FLOORS: Duration = ALL_HOLDS.saturating_add(FLOOR.saturating_mul(MAX_PORTS as u32));

/// How long QEMU waits for an answer. All that it wrote before is in its socket by then, and goes
/// through the lane first.
const PATIENCE: Duration = Duration::from_secs(5);

/// A turn, which a hold may last longer than it should.
const TURN: Duration = Duration::from_millis(1);

/// What the machine has waited when no TLP is held any more: its last request is answered by then,
/// and every device has had the floor once more.
const LAST_HOLD: Duration = REQUEST_BOUND
    .saturating_add(SYNTHESISED_COMPLETION)
    .saturating_add(FLOOR.saturating_mul(MAX_PORTS as u32));

const _: () = {
    assert!(LONGEST_HOLD.as_nanos() < ALL_HOLDS.as_nanos());
    // The last hold may begin when all the others are over. There is time for a request behind them.
    let holds = ALL_FLOORS.as_nanos() + FLOOR.as_nanos() + TURN.as_nanos();
    assert!(holds < REQUEST_BOUND.as_nanos());
    assert!(REQUEST_BOUND.as_nanos() + LONGEST_HOLD.as_nanos() < LAST_HOLD.as_nanos());
    assert!(LAST_HOLD.as_nanos() + FLOOR.as_nanos() + 2 * TURN.as_nanos() < PATIENCE.as_nanos());
    assert!(ANSWER_BOUND.as_nanos() + TURN.as_nanos() < PATIENCE.as_nanos());
};

/// The time that a machine's read may wait behind TLPs which the switch had no room for, whatever
/// became of them: what devices take late makes the read as late as what they do not take.
///
/// - Each hold counts that lasted for [`FLOOR`] or longer. Shorter ones are a device's flow control
///   at work, of which there may be any number, and nothing is lost by them.
/// - A TLP may be held for what is left, but for the last 300 ms; of these each gets a quarter, and
///   the floor at least, so that a healthy device among hung ones is not dropped at first sight.
///   When the floors are used up, too, it is: better a lost write than a machine whose QEMU gives
///   the adapter up.
/// - It begins anew when nothing of the machine waits any more, since a read that comes later has
///   none of these holds before it, and when the last one is so long ago that whoever read then is
///   not waiting any more. So a device that is slow now and then loses nothing, however long it is
///   used.
/// - Waits for answers are counted beside the holds, all of them: writes of configuration space have
///   an answer, too, and a machine may have many on their way. When both together are too much, a
///   request that has an answer is not made (the adapter's [`REQUEST_BOUND`]), and a TLP without
///   room held for the floor alone, until there is no time for that either.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    /// By holds.
    spent: Duration,
    /// By waits for answers.
    waited: Duration,
    /// When the last of them ended.
    last: Instant,
}

impl Budget {
    /// What is left of it when something begins.
    fn at(self, since: Instant) -> Self {
        let over = since.saturating_since(self.last) >= PATIENCE;
        if over { Self::default() } else { self }
    }

    /// All that the machine waited.
    fn total(&self, since: Instant) -> Duration {
        let Self { spent, waited, .. } = self.at(since);
        spent + waited
    }

    /// How long a TLP may be held that waits since then, of an access that has waited so long.
    fn bound(&self, since: Instant, own: Duration, tlp: &[u8]) -> Duration {
        let Self { spent, waited, .. } = self.at(since);
        let total = spent + waited;
        if spent >= ALL_FLOORS || total >= LAST_HOLD {
            return Duration::ZERO;
        }
        let left = ALL_HOLDS.saturating_sub(spent);
        let bound = left.saturating_sub(ALL_HOLDS.saturating_sub(LONGEST_HOLD));
        let bound = bound.max(left / 4).max(FLOOR);
        match is_posted(tlp) {
            true if total >= REQUEST_BOUND => FLOOR,
            true => bound,
            // The answer is still to come.
            false => bound.min(REQUEST_BOUND.saturating_sub(total + own)),
        }
    }

    /// A TLP was held. One that has an answer is waited for until that comes ([`wait`](Self::wait)).
    fn spend(&mut self, since: Instant, now: Instant, tlp: &[u8]) {
        let held = now.saturating_since(since);
        if held >= FLOOR && is_posted(tlp) {
            let before = self.at(since);
            *self = Self { spent: before.spent + held, last: now, ..before };
        }
    }

    fn wait(&mut self, since: Instant, now: Instant) {
        let before = self.at(since);
        let waited = before.waited + now.saturating_since(since);
        *self = Self { waited, last: now, ..before };
    }
}

/// Ports whose device took nothing for too long, and has taken nothing since. What is for no one port
/// is not among them.
#[derive(Clone, Copy, Debug, Default)]
struct Stuck(u32);

impl Stuck {
    const fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn has(self, port: Option<PortId>) -> bool {
        self.0 & bit_of(port) != 0
    }

    fn add(&mut self, port: Option<PortId>) {
        self.0 |= bit_of(port);
    }

    fn remove(&mut self, port: Option<PortId>) {
        self.0 &= !bit_of(port);
    }
}

fn bit_of(port: Option<PortId>) -> u32 {
    port.map_or(0, |port| 1 << port.get())
}

/// One TLP that waits until the switch has room for it.
pub(super) struct Lane {
    tlp: Box<[u8; TLP_BUFFER]>,
    held: Option<(usize, Instant)>,
    /// Where the machine may wait behind the lane.
    budget: Option<Budget>,
    /// When the access of the TLP made its first request that has an answer.
    asks_since: Option<Instant>,
    stuck: Stuck,
}

/// What became of a lane's TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// The switch has it.
    Taken,
    /// It waits.
    Held,
    /// It waited for too long, or its device was waited for before, and it is gone.
    GivenUp,
}

impl Lane {
    /// One that the machine does not wait behind.
    pub(super) fn new() -> Self {
        Self {
            tlp: Box::new([0; TLP_BUFFER]),
            held: None,
            budget: None,
            asks_since: None,
            stuck: Stuck::default(),
        }
    }

    /// That of the machine's own requests.
    pub(super) fn of_requests() -> Self {
        Self { budget: Some(Budget::default()), ..Self::new() }
    }

    /// The TLP that waits.
    pub(super) fn held(&self) -> Option<&[u8]> {
        self.held.map(|(length, _)| &self.tlp[..length])
    }

    /// Forgets the TLP, and what devices took.
    pub(super) fn clear(&mut self) {
        (self.held, self.stuck) = (None, Stuck::default());
    }

    /// How long the machine has waited behind the lane and for answers.
    pub(super) fn waited(&self, now: Instant) -> Duration {
        self.budget.map_or(Duration::ZERO, |budget| budget.total(now))
    }

    /// The machine waited for the answer to a request that went through the lane then.
    pub(super) fn note_answer(&mut self, since: Instant, now: Instant) {
        if let Some(budget) = &mut self.budget {
            budget.wait(since, now);
        }
    }

    /// The TLP is of an access whose first request that has an answer was made then.
    pub(super) fn note_request(&mut self, asks_since: Option<Instant>) {
        self.asks_since = asks_since;
    }

    /// Whether it is worth a look whether anything of the machine waits.
    pub(super) fn has_waited(&self, now: Instant) -> bool {
        self.waited(now) >= FLOOR
    }

    /// Nothing of the machine waits behind the lane.
    pub(super) fn note_idle(&mut self) {
        if self.held.is_none() {
            self.begin_anew();
        }
    }

    pub(super) fn begin_anew(&mut self) {
        self.budget = self.budget.map(|_| Budget::default());
    }

    /// Takes the next TLP, if none waits. Whether one does now.
    pub(super) fn fill(
        &mut self,
        now: Instant,
        next: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        if self.held.is_none() {
            self.held = next(&mut self.tlp[..]).map(|length| (length, now));
        }
        self.held.is_some()
    }

    /// Hands the TLP that waits over.
    ///
    /// # Panics
    ///
    /// When none waits.
    pub(super) fn pass(&mut self, now: Instant, below: &mut impl Below) -> Passed {
        let (length, since) = self.held.take().expect("the caller filled the lane");
        let tlp = &self.tlp[..length];
        let given_up = below.given_up();
        let taken = below.handle_tlp(now, tlp).is_ok();
        // What waits for as long as this is given up below, and answered there.
        let given_up = below.given_up() != given_up;
        if taken && !given_up && self.stuck.is_empty() {
            self.spend(since, now, length);
            return Passed::Taken;
        }
        let port = below.switch().and_then(|switch| port_of(switch, tlp));
        let own = self.asks_since.map_or(Duration::ZERO, |asked| since.saturating_since(asked));
        let bound = self.budget.map_or(LONGEST_HOLD, |budget| budget.bound(since, own, tlp));
        if !taken && !self.stuck.has(port) && now.saturating_since(since) < bound {
            self.held = Some((length, since));
            return Passed::Held;
        }
        self.spend(since, now, length);
        if given_up {
            self.stuck.add(port);
            return Passed::Taken;
        }
        if taken {
            self.stuck.remove(port);
            return Passed::Taken;
        }
        // One that had no time at all may be the next moment's.
        if bound >= FLOOR {
            self.stuck.add(port);
        }
        Passed::GivenUp
    }

    fn spend(&mut self, since: Instant, now: Instant, length: usize) {
        if let Some(budget) = &mut self.budget {
            budget.spend(since, now, &self.tlp[..length]);
        }
    }
}

/// Whether a completion may not pass a TLP that waits: when that is a write to the same device
/// (PCIe 5.0 section 2.4.1), or to one that cannot be told.
pub(super) fn must_wait(switch: Option<&VirtualSwitch>, completion: &[u8], held: &[u8]) -> bool {
    let is_write = is_posted(held);
    let same = |switch| {
        port_of(switch, held).is_some_and(|port| port_of(switch, completion) == Some(port))
    };
    is_write && switch.is_none_or(same)
}

fn is_posted(tlp: &[u8]) -> bool {
    Packet::new_header_checked(tlp).is_ok_and(|tlp| tlp.class() == Some(Class::Posted))
}

#[cfg(test)]
mod patience;
#[cfg(test)]
pub(super) mod tests;
