//! A watchdog by the machine's timer, which has no other: it looks every [`PERIOD`] whether it was
//! fed since the last look, and bites at the second time that it was not. So a computer that lets
//! the whole machine stand still, while its clock goes on, is forgiven: there is one look then, and
//! the next a whole period later.

use crate::clint::Ticks;
use crate::{clint, end};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use critical_section::Mutex;
use proxy_core::control::ResetCause;
use proxy_core::time::Instant;
use riscv::register::{mcycle, mepc, mie};

/// Between two looks: it bites after twice this at the earliest, and three times this at the latest.
const PERIOD: Duration = Duration::from_secs(3);

/// It was fed since the last look.
static FED: AtomicBool = AtomicBool::new(false);

/// It was not, at the last look.
static HUNGRY: AtomicBool = AtomicBool::new(false);

/// When it looks next.
static NEXT: Mutex<Cell<Ticks>> = Mutex::new(Cell::new(Ticks::START));

/// Looks from now on.
pub(crate) fn start() {
    feed();
    set_next();
    // SAFETY: the timer's interrupt is handled below.
    unsafe {
        mie::set_mtimer();
        riscv::interrupt::enable();
    }
}

/// Looks no more, and nothing interrupts the core: for who waits for a person.
pub(crate) fn stop() {
    riscv::interrupt::disable();
    // SAFETY: only which interrupts there are; what is pending would end each sleep at once.
    unsafe { mie::clear_mtimer() }
}

/// There was progress.
pub(crate) fn feed() {
    FED.store(true, Ordering::Relaxed);
}

/// The next look is a period from now. A core that has just woken for something else waits for that.
fn set_next() {
    let at = Ticks::after(PERIOD);
    critical_section::with(|cs| NEXT.borrow(cs).set(at));
    clint::interrupt_at(at);
}

/// Sleeps until an interrupt, or that time; no handler is called for what ends the sleep. The core's
/// cycles as they were when it woke.
pub(crate) fn sleep(until: Instant) -> u32 {
    riscv::interrupt::free(|| {
        let next = critical_section::with(|cs| NEXT.borrow(cs).get());
        clint::interrupt_at(Ticks::of(until).min(next));
        // SAFETY: only which interrupts end the sleep; they are off meanwhile.
        unsafe { mie::set_mext() };
        riscv::asm::wfi();
        let woken = mcycle::read() as u32;
        // SAFETY: as above; from here on only the timer's is taken.
        unsafe { mie::clear_mext() };
        clint::interrupt_at(next);
        woken
    })
}

/// The start-up code's name for who gets the timer's interrupt: looks.
#[unsafe(export_name = "MachineTimer")]
extern "C" fn look() {
    let is_hungry = !FED.swap(false, Ordering::Relaxed);
    if !(HUNGRY.swap(is_hungry, Ordering::Relaxed) && is_hungry) {
        set_next();
        return;
    }
    end::end(ResetCause::Watchdog, mepc::read(), format_args!("no progress for some seconds"))
}
