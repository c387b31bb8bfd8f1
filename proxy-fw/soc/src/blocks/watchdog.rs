//! The watchdog (`hw/regs/card.md`, "watchdog").

use card_regs::Bus;
use card_regs::watchdog::{Control, Feed, Period, Warning, Watchdog as Block};
use core::time::Duration;

/// What it is fed with (`watchdog.feed`).
const FOOD: u32 = 0xfeed_d09d;

/// The watchdog, once it counts.
#[derive(Clone, Copy, Debug)]
pub struct Watchdog<B>(Block<B>);

impl<B: Bus + Copy> Watchdog<B> {
    /// Starts it, for good: without food it resets the core after `period`, and raises its interrupt
    /// source `warning` before that; none for a warning of 0. Both count in microseconds, up to
    /// about 71 minutes.
    ///
    /// One that an earlier part of this life locked keeps the periods that it has.
    ///
    /// # Panics
    ///
    /// When the period is none, or the warning no shorter: the board's constants are wrong.
    pub fn start(block: Block<B>, period: Duration, warning: Duration) -> Self {
        assert!(!period.is_zero() && warning < period, "it warns before it resets");
        let micros = |time: Duration| time.as_micros().try_into().unwrap_or(u32::MAX);
        block.period().write(Period::RESET.with_microseconds(micros(period).max(1)));
        block.warning().write(Warning::RESET.with_microseconds(micros(warning)));
        let watchdog = Self(block);
        block.control().write(Control::RESET.with_enable(true).with_lock(true));
        watchdog.feed();
        watchdog
    }

    /// The period begins anew.
    pub fn feed(&self) {
        self.0.feed().write(Feed::RESET.with_key(FOOD));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use std::vec::Vec;

    /// The block: what was written, in its order.
    #[derive(Default)]
    struct Model(RefCell<Vec<(u32, u32)>>);

    impl Bus for Model {
        fn read32(&self, offset: u32) -> u32 {
            panic!("read of {offset:#x}")
        }

        fn write32(&self, offset: u32, value: u32) {
            self.0.borrow_mut().push((offset, value));
        }
    }

    #[test]
    fn it_knows_its_periods_before_it_counts_and_is_fed() {
        let model = Model::default();
        let (period, warning) = (Duration::from_secs(6), Duration::from_millis(5));
        let watchdog = Watchdog::start(Block::at(&model, 0), period, warning);
        let food = (0x0c, 0xfeed_d09d);
        let expected = [(0x00, 6_000_000), (0x04, 5_000), (0x08, 0b11), food];
        assert_eq!(*model.0.borrow(), expected);
        watchdog.feed();
        assert_eq!(model.0.borrow()[4..], [food]);
    }

    #[test]
    #[should_panic(expected = "warns before")]
    fn a_warning_behind_the_reset_is_none() {
        let second = Duration::from_secs(1);
        Watchdog::start(Block::at(&Model::default(), 0), second, second);
    }
}
