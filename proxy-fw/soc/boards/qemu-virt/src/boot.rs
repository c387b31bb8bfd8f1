//! The boot loader of this board (`proxy-fw/soc/docs/boot.md`).

use crate::console::Console;
use crate::layout::LAYOUT;
use crate::{clint, end, flash, retained};
use board_common::boot::{enter, memory, wait};
use card_image::{KeyId, TrustedKey};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use soc::boot::{self, Chosen, MAX_TRUSTED, Trap};
use soc::reset;

/// Keys whose images are started: the list that the build was given.
const KEYS: &[TrustedKey] = include!(concat!(env!("OUT_DIR"), "/keys.rs"));

/// Those, and the settings'.
const ALL_KEYS: usize = KEYS.len() + MAX_TRUSTED;

/// An image was entered, and has not taken over interrupts and exceptions yet.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// How long an image has to take them over.
const BOUND: Duration = Duration::from_secs(10);

/// Decides, loads and enters an image; stays when there is none.
pub extern "C" fn run_boot() -> ! {
    let console = &mut Console;
    let life = retained::with(|kept| reset::begin(kept, None));
    let Some(mut flash) = boot::open(flash::open, console) else { wait() };
    let chosen = boot::decide::<_, ALL_KEYS>(&mut flash, &flash::IMAGES, KEYS, &life, console);
    let Some(Chosen { boot, started }) = chosen else { wait() };
    let header = &boot.header;
    // SAFETY: the header was checked against the memory for images, in which this program is not.
    let memory = unsafe { memory(header.load, header.payload_len) };
    if !boot::load(&mut flash, LAYOUT.slot(boot.slot), header, memory, console) {
        wait()
    }
    retained::with(|kept| reset::set_started(kept, started));
    ENTERED.store(true, Ordering::Relaxed);
    clint::interrupt_at(clint::Ticks::of(clint::now() + BOUND));
    // SAFETY: all of the image was checked where it is; interrupts and exceptions come to
    // `boot_trapped`, which does not return.
    unsafe {
        riscv::register::mie::set_mtimer();
        enter(header.entry)
    }
}

/// The boot loader itself is broken: it says so.
pub fn boot_panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    boot::panicked(info, &mut Console);
    wait()
}

/// The core met something that it cannot execute, or the image has not begun in time.
pub extern "C" fn boot_trapped() -> ! {
    let trap = Trap {
        cause: riscv::register::mcause::read().bits(),
        at: riscv::register::mepc::read(),
        value: riscv::register::mtval::read(),
    };
    let lived = clint::now().as_nanos() / 1_000_000;
    match boot::trapped(trap, ENTERED.load(Ordering::Relaxed), lived, &mut Console) {
        Some(death) => end::reset(&death),
        None => wait(),
    }
}
