//! The boot loader of this board (`proxy-fw/soc/docs/boot.md`): LiteX's BIOS put it into main memory
//! and entered it.

use crate::hardware::{IMAGES, console, now, open_flash};
use crate::layout::LAYOUT;
use crate::{end, machine, shared};
use board_common::boot::{enter, memory, wait};
use card_image::{Header, KeyId, TrustedKey};
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};
use soc::boot::{self, Chosen, MAX_TRUSTED, Trap};
use soc::reset::{self, Life, Started};

/// Keys whose images are started: the list that the build was given.
const KEYS: &[TrustedKey] = include!(concat!(env!("OUT_DIR"), "/keys.rs"));

/// Those, and the settings'.
const ALL_KEYS: usize = KEYS.len() + MAX_TRUSTED;

/// An image was entered, and has not taken over interrupts and exceptions yet.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Decides, loads and enters an image; stays when there is none.
pub extern "C" fn run_boot() -> ! {
    let console = &mut console();
    let life = shared::with_retained(|kept| reset::begin(kept, end::hardware_cause()));
    // The flash is given back in there, so that the window through which the BIOS and a probe read it
    // is as it was, also where nothing can be started and a person comes with a probe.
    let Some((header, started)) = load(&life, console) else { wait() };
    shared::with_retained(|kept| reset::set_started(kept, started));
    ENTERED.store(true, Ordering::Relaxed);
    // An image that does nothing is reset. That it counts tells a firmware that a boot loader began
    // its life (`machine::is_started_by_boot_loader`).
    machine::start_watchdog();
    // SAFETY: all of the image was checked where it is; interrupts and exceptions come to
    // `boot_trapped`, which does not return.
    unsafe { enter(header.entry) }
}

/// Chooses an image and loads it; nothing where none can be started, which was said.
fn load(life: &Life, console: &mut impl Write) -> Option<(Header, Started)> {
    let mut flash = boot::open(open_flash, console)?;
    let chosen = boot::decide::<_, ALL_KEYS>(&mut flash, &IMAGES, KEYS, life, console);
    let Chosen { boot, started } = chosen?;
    let header = boot.header;
    // SAFETY: the header was checked against the memory for images, in which this program is not.
    let memory = unsafe { memory(header.load, header.payload_len) };
    let slot = LAYOUT.slot(boot.slot);
    boot::load(&mut flash, slot, &header, memory, console).then_some((header, started))
}

/// The boot loader itself is broken: it says so.
pub fn boot_panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    boot::panicked(info, &mut console());
    wait()
}

/// The core met something that it cannot execute, or the watchdog warns: the image has not begun.
pub extern "C" fn boot_trapped() -> ! {
    let trap = Trap {
        cause: riscv::register::mcause::read().bits(),
        at: riscv::register::mepc::read(),
        value: riscv::register::mtval::read(),
    };
    let lived = now().as_nanos() / 1_000_000;
    let console = &mut console();
    match boot::trapped(trap, ENTERED.load(Ordering::Relaxed), lived, console) {
        Some(death) => end::reset(&death),
        None => wait(),
    }
}
