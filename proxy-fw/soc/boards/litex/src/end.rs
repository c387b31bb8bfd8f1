//! The end of a life: what ended it is written down, and the card starts anew.

use crate::hardware::{card, now};
use crate::shared;
use board_common::panic::Brief;
use card_regs::reset_control::Request;
use card_regs::values;
use core::fmt;
use core::panic::PanicInfo;
use core::time::Duration;
use proxy_core::control::ResetCause;
use riscv::register::{mcause, mepc, mtval};
use soc::reset::{self, Death};

/// What a reset is asked for with (`reset_control.request`).
const KEY: u16 = 0xd0ff;

/// Why the hardware says that this life began.
pub(crate) fn hardware_cause() -> Option<ResetCause> {
    match card().reset().status().read().cause() {
        values::ResetCause::Power => Some(ResetCause::Power),
        values::ResetCause::Pin => Some(ResetCause::Pin),
        values::ResetCause::Watchdog => Some(ResetCause::Watchdog),
        values::ResetCause::Software => Some(ResetCause::Software),
        values::ResetCause::Panic => Some(ResetCause::Panic),
        values::ResetCause::Debug => Some(ResetCause::Debugger),
        values::ResetCause::Unknown(_) => None,
    }
}

/// Ends this life.
pub(crate) fn end(cause: ResetCause, place: usize, text: fmt::Arguments<'_>) -> ! {
    let lived = Duration::from_nanos(now().as_nanos());
    let death = Death::new(cause, place as u32, lived.as_millis() as u64, text);
    // Before it is logged: the watchdog that warned of its reset does not wait for a slow console.
    shared::with_retained(|kept| reset::write_down(kept, &death));
    defmt::error!("the end at {=u32:#010x}: {=str}", death.place, death.text.as_str());
    start_anew(cause)
}

/// Writes down what ends this life, and resets the card.
pub(crate) fn reset(death: &Death) -> ! {
    shared::with_retained(|kept| reset::write_down(kept, death));
    start_anew(death.cause)
}

fn start_anew(cause: ResetCause) -> ! {
    // What was written is there before the card is reset.
    riscv::asm::fence();
    let said = match cause {
        ResetCause::Software => values::ResetCause::Software,
        _ => values::ResetCause::Panic,
    };
    card().reset().request().write(Request::RESET.with_cause(said).with_key(KEY));
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

/// The start-up code's name for who gets the card's interrupts, of which one is taken while the core
/// does not sleep: the watchdog's warning. One that is over when it is looked at was of what ended a
/// sleep.
#[unsafe(export_name = "MachineExternal")]
extern "C" fn warned() {
    if !card().irq().pending().read().watchdog() {
        return;
    }
    end(ResetCause::Watchdog, mepc::read(), format_args!("no progress for some seconds"))
}
