//! The end of a life: what ended it is written down, and the machine starts anew.

use crate::{clint, retained};
use board_common::panic::Brief;
use core::fmt;
use core::panic::PanicInfo;
use core::time::Duration;
use proxy_core::control::ResetCause;
use riscv::register::{mcause, mepc, mtval};
use soc::reset::{self, Death};

/// QEMU's test finisher, and what resets the machine there.
const FINISHER: *mut u32 = 0x10_0000 as *mut u32;
const RESET: u32 = 0x7777;

/// Ends this life.
pub(crate) fn end(cause: ResetCause, place: usize, text: fmt::Arguments<'_>) -> ! {
    let lived = Duration::from_nanos(clint::now().as_nanos());
    let death = Death::new(cause, place as u32, lived.as_millis() as u64, text);
    // Before it is logged: whatever the console does, the next life knows of it.
    write_down(&death);
    defmt::error!(
        "{=str} at {=u32:#010x}: {=str}",
        reset::name(cause),
        death.place,
        death.text.as_str()
    );
    start_anew()
}

/// Writes down what ends this life, and resets the machine.
pub(crate) fn reset(death: &Death) -> ! {
    write_down(death);
    start_anew()
}

fn write_down(death: &Death) {
    retained::with(|kept| reset::write_down(kept, death));
}

fn start_anew() -> ! {
    // What was written is there before the machine is reset.
    riscv::asm::fence();
    // SAFETY: the finisher resets the machine, which is what is wanted.
    unsafe { FINISHER.write_volatile(RESET) }
    loop {
        riscv::asm::wfi();
    }
}

/// A firmware's panic handler.
pub fn panicked(info: &PanicInfo<'_>) -> ! {
    end(ResetCause::Panic, 0, format_args!("{}", Brief(info)))
}

/// The start-up code's name for who gets exceptions.
#[unsafe(export_name = "ExceptionHandler")]
extern "C" fn trapped() -> ! {
    let (cause, value) = (mcause::read().code(), mtval::read());
    end(ResetCause::Trap, mepc::read(), format_args!("exception {cause} with {value:#010x}"))
}
