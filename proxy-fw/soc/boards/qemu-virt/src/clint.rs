//! The machine's timer.

use core::time::Duration;
use proxy_core::time::Instant;

const MTIMECMP: usize = 0x0200_4000;
const MTIME: usize = 0x0200_bff8;

/// Nanoseconds of a tick: QEMU's machine counts at 10 MHz.
const TICK: u64 = 100;

fn read(address: usize) -> u32 {
    // SAFETY: the CLINT's registers are at these addresses and readable by anybody.
    unsafe { (address as *const u32).read_volatile() }
}

fn write(address: usize, value: u32) {
    // SAFETY: the CLINT's compare register is only written here, by the one hart.
    unsafe { (address as *mut u32).write_volatile(value) }
}

/// The ticks since the machine was started.
fn count() -> u64 {
    loop {
        let (high, low) = (read(MTIME + 4), read(MTIME));
        if read(MTIME + 4) == high {
            return u64::from(high) << 32 | u64::from(low);
        }
    }
}

/// The time since the machine was started.
pub(crate) fn now() -> Instant {
    Instant::from_nanos(count() * TICK)
}

/// A time as the timer compares with it. To make one takes a division.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticks(u64);

impl Ticks {
    /// The machine's start.
    pub(crate) const START: Self = Self(0);

    /// The last tick that is not behind that time.
    pub(crate) fn of(at: Instant) -> Self {
        Self(at.as_nanos() / TICK)
    }

    /// So long from now. That is divided when this is compiled.
    #[inline(always)]
    pub(crate) fn after(length: Duration) -> Self {
        Self(count() + length.as_nanos() as u64 / TICK)
    }
}

/// The timer's interrupt is pending from then on.
pub(crate) fn interrupt_at(Ticks(ticks): Ticks) {
    // Never early in between (RISC-V privileged architecture 1.12, section 3.2.1).
    write(MTIMECMP + 4, u32::MAX);
    write(MTIMECMP, ticks as u32);
    write(MTIMECMP + 4, (ticks >> 32) as u32);
}

/// The log's clock.
#[unsafe(no_mangle)]
fn dxpu_microseconds() -> u64 {
    now().as_nanos() / 1000
}
