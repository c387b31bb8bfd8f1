//! The timer (`hw/regs/card.md`, "timer").

use crate::board::wait_by;
use card_regs::Bus;
use card_regs::timer::{AlarmHigh, AlarmLow, Timer as Block};
use embedded_hal::delay::DelayNs;
use proxy_core::time::Instant;

/// The timer.
#[derive(Clone, Copy, Debug)]
pub struct Timer<B>(Block<B>);

impl<B: Bus + Copy> Timer<B> {
    /// The timer of this block.
    pub const fn new(block: Block<B>) -> Self {
        Self(block)
    }

    /// The time since the reset. Not to be asked by an interrupt handler and what it interrupts:
    /// reading one half latches the other.
    pub fn now(&self) -> Instant {
        let low = self.0.low().read().nanoseconds();
        let high = self.0.high().read().nanoseconds();
        Instant::from_nanos(u64::from(high) << 32 | u64::from(low))
    }

    /// Raises the timer's interrupt source at that time; at once where it is over.
    pub fn alarm_at(&self, at: Instant) {
        let nanoseconds = at.as_nanos();
        self.0.alarm_low().write(AlarmLow::RESET.with_nanoseconds(nanoseconds as u32));
        self.0.alarm_high().write(AlarmHigh::RESET.with_nanoseconds((nanoseconds >> 32) as u32));
    }
}

impl<B: Bus + Copy> DelayNs for Timer<B> {
    fn delay_ns(&mut self, ns: u32) {
        wait_by(|| self.now(), ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};
    use std::vec::Vec;

    /// The block: time goes on by 100 ns at each access.
    #[derive(Default)]
    struct Model {
        nanoseconds: Cell<u64>,
        latched: Cell<u32>,
        writes: RefCell<Vec<(u32, u32)>>,
    }

    impl Bus for Model {
        fn read32(&self, offset: u32) -> u32 {
            let now = self.nanoseconds.get() + 100;
            self.nanoseconds.set(now);
            match offset {
                0x00 => {
                    self.latched.set((now >> 32) as u32);
                    now as u32
                }
                0x04 => self.latched.get(),
                _ => panic!("read of {offset:#x}"),
            }
        }

        fn write32(&self, offset: u32, value: u32) {
            self.writes.borrow_mut().push((offset, value));
        }
    }

    #[test]
    fn both_halves_belong_together() {
        let model = Model::default();
        model.nanoseconds.set((1 << 32) - 200);
        let timer = Timer::new(Block::at(&model, 0));
        let mut last = timer.now();
        assert_eq!(last.as_nanos(), (1 << 32) - 100);
        for _ in 0..4 {
            let now = timer.now();
            assert_eq!(now.as_nanos(), last.as_nanos() + 200);
            last = now;
        }
    }

    #[test]
    fn it_waits_no_less_than_it_is_told_to() {
        let model = Model::default();
        let mut timer = Timer::new(Block::at(&model, 0));
        timer.delay_us(10);
        assert!((10_000..11_000).contains(&model.nanoseconds.get()));
    }

    #[test]
    fn the_half_that_arms_the_alarm_is_last() {
        let model = Model::default();
        Timer::new(Block::at(&model, 0)).alarm_at(Instant::from_nanos(5 << 32 | 7));
        assert_eq!(*model.writes.borrow(), [(0x10, 7), (0x14, 5)]);
    }
}
