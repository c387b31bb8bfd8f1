//! Credits: what a receiver has promised to store.
//!
//! Each binding has, for each class, a *minimum* that is set aside for it whether it is open or
//! not, and a *target* that it may grow to out of a part of the pool that all bindings share. A
//! promise, once given, is never taken back; it ends when the TLP that used it is drained. So the
//! pool is never overdrawn as long as
//!
//! ```text
//! buffers >= channels * sum(minimum) + shared
//! shared  >= sum over open bindings and classes of max(0, promised - minimum)
//! ```
//!
//! The first line is the pool's size, the second is kept by [`Shared`]. A class grows only while
//! its sender is short of credit, and shrinks as it drains once other bindings have opened, so
//! that each comes to its fair part.
//!
//! A sender is short when little of what it was told is left; but what is on its way to here looks
//! as if it were left. So it is short, too, when in a round trip it uses half of what it is
//! promised or more: as much as fast as it hears of it.

use crate::limits::{CREDIT_TARGETS, GUARANTEED_CREDITS};
use crate::time::Instant;

/// The part of the receive pool that no binding has for itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    size: u32,
    used: u32,
    /// Open bindings.
    open: u32,
    /// What each buffer that a class of a binding wants counts for, in 2^-32ths, rounded up, when all that are
    /// open want as much: a division that is not made for each TLP.
    part: u64,
}

impl Shared {
    /// So many buffers.
    pub(super) fn new(size: usize) -> Self {
        Self { size: size as u32, used: 0, open: 0, part: 0 }.divided()
    }

    /// With the parts of those that are open now.
    fn divided(self) -> Self {
        let all: u32 = CREDIT_TARGETS.iter().zip(GUARANTEED_CREDITS).map(|(t, g)| t - g).sum();
        let wanted = u64::from(all * self.open.max(1));
        Self { part: (u64::from(self.size) << 32).div_ceil(wanted), ..self }
    }

    /// How many bindings are open.
    pub(super) fn open(&self) -> u32 {
        self.open
    }

    /// A binding was opened.
    pub(super) fn open_one(&mut self) {
        *self = Self { open: self.open + 1, ..*self }.divided();
    }

    /// A binding was closed.
    pub(super) fn close_one(&mut self) {
        *self = Self { open: self.open - 1, ..*self }.divided();
    }

    /// How many buffers there are.
    pub(super) fn size(&self) -> usize {
        self.size as usize
    }

    /// As many buffers, all of them there.
    pub(super) fn cleared(&self) -> Self {
        Self { used: 0, open: 0, ..*self }.divided()
    }

    /// The most that one class of one binding is to have out of the shared part, when all that
    /// are open have the same.
    fn fair(&self, minimum: u32, target: u32) -> u32 {
        let wanted = target - minimum;
        wanted.min(((u64::from(wanted) * self.part) >> 32) as u32)
    }

    /// Buffers that are lent.
    #[cfg(test)]
    pub(super) fn used(&self) -> u32 {
        self.used
    }
}

/// What this end has promised one class of one binding, as cumulative counts modulo 2^32.
#[derive(Clone, Debug)]
pub(super) struct Account {
    minimum: u32,
    target: u32,
    /// How many may ever have been taken.
    limit: u32,
    /// The limit as last told to the sender.
    advertised: u32,
    /// How many took a buffer.
    taken: u32,
    /// How many gave it back.
    released: u32,
    /// Since when it is counted how many the sender uses, and where the count began.
    since: Instant,
    from: u32,
    /// As it was counted last, what is promised is too little for a round trip.
    short: bool,
}

impl Account {
    /// A new binding's: its minimum is promised.
    pub(super) fn new(minimum: u32, target: u32) -> Self {
        Self {
            minimum,
            target,
            limit: minimum,
            advertised: 0,
            taken: 0,
            released: 0,
            since: Instant::ZERO,
            from: 0,
            short: false,
        }
    }

    /// Buffers in use or promised.
    fn promised(&self) -> u32 {
        self.limit.wrapping_sub(self.released)
    }

    /// What the sender may still send, as far as it was told.
    fn left(&self) -> u32 {
        self.advertised.wrapping_sub(self.taken)
    }

    /// The sender used one. `false` when it had none.
    #[must_use]
    pub(super) fn take(&mut self) -> bool {
        if self.left() == 0 {
            return false;
        }
        self.taken = self.taken.wrapping_add(1);
        true
    }

    /// One was drained: it is promised again, and one more if the sender is short and the pool
    /// has it.
    pub(super) fn release(&mut self, shared: &mut Shared) {
        let short = self.short || self.left() < self.promised() / 2;
        if self.promised() > self.minimum {
            shared.used -= 1;
        }
        self.released = self.released.wrapping_add(1);
        let fair = self.minimum + shared.fair(self.minimum, self.target);
        for _ in 0..1 + u32::from(short) {
            if self.promised() >= self.minimum {
                if self.promised() >= fair || shared.used == shared.size {
                    break;
                }
                shared.used += 1;
            }
            self.limit = self.limit.wrapping_add(1);
        }
    }

    /// Everything ends with the binding.
    pub(super) fn close(&mut self, shared: &mut Shared) {
        shared.used -= self.promised().saturating_sub(self.minimum);
        *self = Self::new(self.minimum, self.target);
    }

    /// The limit, to be told to the sender now, which hears of it and is heard of in
    /// `round_trip` nanoseconds.
    pub(super) fn advertise(&mut self, now: Instant, round_trip: u64) -> u32 {
        let passed = now.as_nanos().saturating_sub(self.since.as_nanos());
        if passed >= round_trip {
            let (used, promised) = (self.taken.wrapping_sub(self.from), self.promised());
            let a_round_trip = |count: u32| u64::from(count).saturating_mul(round_trip);
            self.short = a_round_trip(2 * used) >= u64::from(promised).saturating_mul(passed);
            (self.since, self.from) = (now, self.taken);
        }
        self.advertised = self.limit;
        self.limit
    }

    /// What the sender is to be told.
    pub(super) fn news(&self) -> News {
        let (quarter, behind) = (self.promised() / 4, self.limit.wrapping_sub(self.advertised));
        match behind {
            0 => News::None,
            _ if behind >= quarter || self.left() <= quarter => News::Urgent,
            _ => News::Later,
        }
    }
}

/// What the sender does not know of an [`Account`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing.
    None,
    /// A limit that can wait for others.
    Later,
    /// A limit that it should be told soon: a quarter came back, or it has little left.
    Urgent,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{MAX_CHANNELS, SHARED_RECEIVE};
    use proptest::prelude::*;

    #[test]
    fn a_sender_with_all_its_credit_used_gets_more_as_it_drains() {
        let mut shared = Shared::new(100);
        shared.open_one();
        let mut account = Account::new(4, 16);
        account.advertise(Instant::ZERO, 1);
        for _ in 0..100 {
            while account.take() {}
            while account.taken != account.released {
                account.release(&mut shared);
            }
            account.advertise(Instant::ZERO, 1);
        }
        assert_eq!(account.promised(), 16.min(4 + shared.fair(4, 16)));
        account.close(&mut shared);
        assert_eq!(shared.used, 0);
    }

    /// One whose TLPs come one by one, as many in a round trip as it has credit for, each of which is
    /// drained and told at once: never is much of it used up as it looks from here.
    #[test]
    fn a_sender_whose_credit_is_on_its_way_gets_more_and_one_that_is_slow_does_not() {
        let grown = |in_a_round_trip: &dyn Fn(u32) -> u64| {
            let mut shared = Shared::new(100_000);
            shared.open_one();
            let mut account = Account::new(16, 64);
            let (mut now, round_trip) = (1_000_000, 100_000);
            account.advertise(Instant::from_nanos(now), round_trip);
            for _ in 0..10_000 {
                now += round_trip / in_a_round_trip(account.promised());
                assert!(account.take());
                account.release(&mut shared);
                account.advertise(Instant::from_nanos(now), round_trip);
            }
            account.promised()
        };
        assert_eq!(grown(&|promised| u64::from(promised)), 64, "as many as it is promised");
        assert_eq!(grown(&|_| 7), 16, "fewer than half of them");
        assert!(
            (41..64).contains(&grown(&|_| 20)),
            "two round trips' worth, and what it grew while that was seen"
        );
    }

    #[test]
    fn parts_are_those_that_a_division_gives() {
        let all: u32 = CREDIT_TARGETS.iter().zip(GUARANTEED_CREDITS).map(|(t, g)| t - g).sum();
        for size in [0, 1, 20, 64, 1000, SHARED_RECEIVE as u32] {
            let mut shared = Shared::new(size as usize);
            for open in 1..=MAX_CHANNELS as u32 {
                shared.open_one();
                for (target, minimum) in CREDIT_TARGETS.into_iter().zip(GUARANTEED_CREDITS) {
                    let wanted = target - minimum;
                    let exact = wanted.min(size * wanted / (all * open));
                    assert_eq!(
                        shared.fair(minimum, target),
                        exact,
                        "{wanted} of {size} for {open}"
                    );
                }
            }
        }
    }

    #[test]
    fn taking_without_credit_is_seen() {
        let mut account = Account::new(2, 2);
        assert!(!account.take(), "nothing advertised yet");
        account.advertise(Instant::ZERO, 1);
        assert!(account.take() && account.take() && !account.take());
    }

    proptest! {
        /// Whatever happens in whatever order, promises never exceed the pool.
        #[test]
        fn the_pool_is_never_overdrawn(
            steps in proptest::collection::vec((0usize..6, 0u8..4), 0..2000),
        ) {
            let mut shared = Shared::new(20);
            let mut accounts: std::vec::Vec<Account> =
                (0..6).map(|n| Account::new(4, if n % 2 == 0 { 30 } else { 4 })).collect();
            for (time, (n, step)) in (0..).zip(steps) {
                let account = &mut accounts[n];
                match step {
                    0 => { let _ = account.take(); }
                    1 if account.taken != account.released => account.release(&mut shared),
                    2 => { account.advertise(Instant::from_nanos(time), 30); }
                    3 if account.taken.is_multiple_of(7) => account.close(&mut shared),
                    _ if shared.open < 6 => shared.open_one(),
                    _ => (0..5).for_each(|_| shared.close_one()),
                }
                let lent: u32 =
                    accounts.iter().map(|a| a.promised().saturating_sub(a.minimum)).sum();
                prop_assert_eq!(lent, shared.used);
                prop_assert!(lent <= shared.size);
                for account in &accounts {
                    prop_assert!(account.promised() >= account.minimum);
                    prop_assert!(account.left() <= account.promised());
                }
            }
        }
    }
}
