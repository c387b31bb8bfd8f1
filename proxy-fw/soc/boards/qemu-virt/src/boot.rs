//! The boot loader of this board (`proxy-fw/soc/docs/boot.md`).

use crate::console::Console;
use crate::layout::{BOARD, FLASH_BASE, LAYOUT, MEMORY};
use crate::{clint, end, flash, retained};
use card_image::{
    HEADER_LEN, Header, KeyId, Requirements, Role, SecurityVersion, SlotId, TrustedKey,
};
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use proxy_core::control::ResetCause;
use soc::boot::{Chosen, choose, policy, recovery};
use soc::reset::{self, Death};
use soc::settings::MAX_TRUSTED;

/// Keys whose images are started: the list that the build was given.
const KEYS: &[TrustedKey] = include!(concat!(env!("OUT_DIR"), "/keys.rs"));

/// The first bytes of the public part of the key that everybody has (`proxy-fw/flash/keys`).
const DEVELOPMENT: [u8; 4] = [0xea, 0xa2, 0xd3, 0x30];

/// An image was entered, and has not taken over interrupts and exceptions yet.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// How long an image has to take them over.
const BOUND: Duration = Duration::from_secs(10);

/// Decides, loads and enters an image; stays when there is none.
pub fn run_boot() -> ! {
    let life = retained::with(|kept| reset::begin(kept, None));
    let mut flash = match flash::open().or_else(|_| flash::open()) {
        Ok(flash) => flash,
        Err(error) => {
            say(format_args!("\nDxPU boot loader: {error}"));
            recovery(&mut Console);
            wait();
        }
    };
    if KEYS.iter().any(|key| key.key.starts_with(&DEVELOPMENT)) {
        say(format_args!("\nthis boot loader trusts the development key: for a bench only"));
    }
    let policy = policy(&mut flash, LAYOUT.config());
    let is_known = policy.is_some();
    let policy = policy.unwrap_or_default();
    if !is_known {
        say(format_args!("\nthe settings cannot be read: whom they trust is not known"));
    }
    for key in &policy.keys {
        say(format_args!("\nthe settings trust the key {}", key.id));
    }
    // Those that were built in are found first: the settings make none of them another.
    let keys = KEYS.iter().chain(&policy.keys).copied();
    let keys: heapless::Vec<TrustedKey, { KEYS.len() + MAX_TRUSTED }> = keys.collect();
    let requirements = Requirements {
        board: BOARD,
        // A card of this board can be either.
        role: Role::Any,
        memory: MEMORY,
        keys: &keys,
        anti_downgrade: policy.anti_downgrade,
        lowest_security: SecurityVersion(0),
    };
    let chosen = choose(&mut flash, LAYOUT, &requirements, is_known, &life, &mut Console);
    let Some(Chosen { boot, started }) = chosen else { wait() };
    retained::with(|kept| reset::set_started(kept, started));
    ENTERED.store(true, Ordering::Relaxed);
    clint::interrupt_at(clint::Ticks::of(clint::now() + BOUND));
    // SAFETY: all of the image was checked, and it fits the memory for images; interrupts and
    // exceptions come to `boot_trapped`, which does not return.
    unsafe {
        load(boot.slot, &boot.header);
        riscv::register::mie::set_mtimer();
        riscv::register::mstatus::set_mie();
        enter(boot.header.entry)
    }
}

/// Copies an image's payload to where it runs.
///
/// # Safety
///
/// The header was checked against [`MEMORY`], and the slot has all of the image.
unsafe fn load(slot: SlotId, header: &Header) {
    let from = FLASH_BASE + LAYOUT.slot(slot).start + HEADER_LEN as u32;
    // SAFETY: the flash is memory while it is only read; the destination is apart from it, and from
    // this program.
    unsafe {
        core::ptr::copy_nonoverlapping(
            from as usize as *const u8,
            header.load as usize as *mut u8,
            header.payload_len as usize,
        );
    }
}

/// Goes to an image's first instruction, for good.
///
/// # Safety
///
/// An image was loaded that is entered there.
unsafe fn enter(entry: u32) -> ! {
    // SAFETY: what was written is made visible to the fetching of instructions (RISC-V
    // unprivileged ISA, Zifencei) before it runs.
    unsafe { core::arch::asm!("fence.i", "jr {entry}", entry = in(reg) entry, options(noreturn)) }
}

/// The boot loader itself is broken: it says so.
pub fn boot_panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    say(format_args!("\nDxPU boot loader: {info}"));
    recovery(&mut Console);
    wait()
}

/// The core met something that it cannot execute, or the image has not begun in time.
pub extern "C" fn boot_trapped() -> ! {
    let (cause, at) = (riscv::register::mcause::read().bits(), riscv::register::mepc::read());
    let value = riscv::register::mtval::read();
    if ENTERED.load(Ordering::Relaxed) {
        let cause = if (cause as isize) < 0 { ResetCause::Watchdog } else { ResetCause::Trap };
        let lived = clint::now().as_nanos() / 1_000_000;
        let text = format_args!("the image did not begin ({value:#x})");
        end::reset(&Death::new(cause, at as u32, lived, text));
    }
    say(format_args!("\nDxPU boot loader: trap {cause} at {at:#010x} with {value:#010x}"));
    recovery(&mut Console);
    wait()
}

fn say(line: core::fmt::Arguments<'_>) {
    // The console takes everything.
    let _ = writeln!(Console, "{line}");
}

/// Waits for a probe, which can stop the core here.
fn wait() -> ! {
    loop {
        riscv::asm::wfi();
    }
}
