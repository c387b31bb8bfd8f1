//! What a boot loader does, but for what only its board can do: give the memory that an image is
//! loaded to, and enter it.
//!
//! A boot loader [opens](open) the flash, [decides](decide), [loads](load), says so to the firmware
//! (`crate::reset::set_started`) and enters the image; what interrupts it from then on is the
//! image's end ([`trapped`]).

use crate::reset::{Death, Life, Started};
use crate::settings::{self, Policy};
use crate::slots::Images;
use card_image::{
    Boot, BootReason, BootStore, Decision, HEADER_LEN, Header, Layout, PayloadCheck, Region,
    Requirements, Role, SecurityVersion, SlotId, SlotState, TrustedKey,
};
use core::fmt::{Display, Write};
use embedded_storage::nor_flash::NorFlash;
use proxy_core::control::ResetCause;

pub use crate::settings::MAX_TRUSTED;

/// The first bytes of the public part of the key that everybody has (`proxy-fw/flash/keys`).
const DEVELOPMENT: [u8; 4] = [0xea, 0xa2, 0xd3, 0x30];

/// The flash, which is asked twice. `None`: it does not answer; the console says why.
pub fn open<F, E: Display>(open: impl Fn() -> Result<F, E>, console: &mut impl Write) -> Option<F> {
    match open().or_else(|_| open()) {
        Ok(flash) => Some(flash),
        Err(error) => {
            say(console, format_args!("\nDxPU boot loader: {error}"));
            recovery(console);
            None
        }
    }
}

/// Decides which image to start, by all that is trusted: the keys that the build was given, and
/// those of the settings, `KEYS` together at most. As [`choose`].
///
/// # Panics
///
/// When there are more keys: they are the build's and [`MAX_TRUSTED`].
pub fn decide<F: NorFlash, const KEYS: usize>(
    flash: &mut F,
    images: &Images,
    built_in: &[TrustedKey],
    life: &Life,
    console: &mut impl Write,
) -> Option<Chosen> {
    if built_in.iter().any(|key| key.key.starts_with(&DEVELOPMENT)) {
        say(
            console,
            format_args!("\nthis boot loader trusts the development key: for a bench only"),
        );
    }
    let policy = policy(flash, images.layout.config());
    let is_known = policy.is_some();
    let policy = policy.unwrap_or_default();
    if !is_known {
        say(console, format_args!("\nthe settings cannot be read: whom they trust is not known"));
    }
    for key in &policy.keys {
        say(console, format_args!("\nthe settings trust the key {}", key.id));
    }
    // Those that were built in are found first: the settings make none of them another.
    let keys: heapless::Vec<TrustedKey, KEYS> =
        built_in.iter().chain(&policy.keys).copied().collect();
    let requirements = Requirements {
        board: images.board,
        // A card of a board can be either.
        role: Role::Any,
        memory: images.memory,
        keys: &keys,
        anti_downgrade: policy.anti_downgrade,
        lowest_security: SecurityVersion(0),
    };
    choose(flash, images.layout, &requirements, is_known, life, console)
}

/// What is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The image.
    pub boot: Boot,
    /// What the firmware is told.
    pub started: Started,
}

/// What the settings say of images: nothing where there are none. `None`: they cannot be read, though
/// it was tried twice.
#[inline(never)] // its stack is needed once
pub fn policy<F: NorFlash>(flash: &mut F, config: Region) -> Option<Policy> {
    let mut once = || settings::load(flash, config);
    let text = once().or_else(|_| once()).ok()?;
    Some(text.map_or_else(Policy::default, |text| Policy::of(&text)))
}

/// Decides which image to start, and says on the console what it decided and why. `None`: nothing
/// can be started; the console says what to do. Where the [policy] in the requirements is not the
/// settings' (`is_known`), no image is given up for what those may say.
pub fn choose<F: NorFlash>(
    flash: &mut F,
    layout: Layout,
    requirements: &Requirements<'_>,
    is_known: bool,
    life: &Life,
    console: &mut impl Write,
) -> Option<Chosen> {
    say(console, format_args!("\nDxPU boot loader, start {}: {}", life.number, life.cause));
    let mut opened = BootStore::open(flash, layout);
    if opened.is_err() {
        // A bus may err where the flash does not.
        opened = BootStore::open(flash, layout);
    }
    let Ok(mut store) = opened else {
        say(console, format_args!("the flash cannot be read"));
        recovery(console);
        return None;
    };
    if !is_known {
        store.policy_is_unknown();
    }
    match store.decide(flash, requirements) {
        Decision::Boot(boot) => {
            let Boot { slot, header, reason } = &boot;
            match reason {
                BootReason::Healthy => {}
                BootReason::Trying { left } => {
                    say(console, format_args!("slot {slot} is new, with {left} more starts"));
                }
                BootReason::Instead(why) => {
                    say(console, format_args!("slot {}: {why}", slot.other()));
                }
                BootReason::Again(why) => {
                    say(console, format_args!("slot {}: {why}", slot.other()));
                    say(
                        console,
                        format_args!("slot {slot} has used up its starts, and there is no other"),
                    );
                }
            }
            // Such a start is not counted: a life that gave way would begin over and over.
            let is_again = matches!(reason, BootReason::Again(_));
            say(console, format_args!("starting slot {slot}: {} {}", header.role, header.version));
            let state = |slot| store.state().slot(slot);
            let started = Started {
                slot: *slot,
                trying: matches!(state(*slot), SlotState::Trying { .. }),
                fallback: matches!(state(slot.other()), SlotState::Healthy { .. }) && !is_again,
            };
            Some(Chosen { boot, started })
        }
        Decision::Recovery(reasons) => {
            for (slot, why) in SlotId::ALL.iter().zip(reasons) {
                say(console, format_args!("slot {slot}: {why}"));
            }
            recovery(console);
            None
        }
    }
}

/// Copies an image's payload to the memory where it runs, and checks it there: a bus may err after
/// the image was chosen. Whether it is there; if not, the console says so.
pub fn load<F: NorFlash>(
    flash: &mut F,
    slot: Region,
    header: &Header,
    memory: &mut [u8],
    console: &mut impl Write,
) -> bool {
    let mut once = || {
        flash
            .read(slot.start + HEADER_LEN as u32, memory)
            .map_err(|_| "the flash cannot be read")?;
        let mut check = PayloadCheck::new();
        check.update(memory);
        check.finish(header).map_err(|_| "the flash does not give what it gave a moment ago")
    };
    let loaded = once().or_else(|_| once());
    if let Err(why) = loaded {
        say(console, format_args!("{why}"));
        recovery(console);
    }
    loaded.is_ok()
}

/// What a core says of what interrupted it (RISC-V privileged architecture, `mcause`, `mepc`,
/// `mtval`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// Why; its highest bit is set for an interrupt.
    pub cause: usize,
    /// Where.
    pub at: usize,
    /// What it says beside that.
    pub value: usize,
}

/// The core met something that it cannot execute, or the image that was entered (`entered`) has not
/// begun in time. How the life ends, so many milliseconds after it began, where it was the image's;
/// else it is the boot loader that is broken, and the console says so.
pub fn trapped(
    trap: Trap,
    entered: bool,
    lived_ms: u64,
    console: &mut impl Write,
) -> Option<Death> {
    let Trap { cause, at, value } = trap;
    if !entered {
        say(
            console,
            format_args!("\nDxPU boot loader: trap {cause} at {at:#010x} with {value:#010x}"),
        );
        recovery(console);
        return None;
    }
    let cause = if (cause as isize) < 0 { ResetCause::Watchdog } else { ResetCause::Trap };
    let text = format_args!("the image did not begin ({value:#x})");
    Some(Death::new(cause, at as u32, lived_ms, text))
}

/// The boot loader itself is broken: the console says so.
pub fn panicked(info: &core::panic::PanicInfo<'_>, console: &mut impl Write) {
    say(console, format_args!("\nDxPU boot loader: {info}"));
    recovery(console);
}

fn say(console: &mut impl Write, line: core::fmt::Arguments<'_>) {
    // A console that takes nothing is no reason not to boot.
    let _ = writeln!(console, "{line}");
}

/// Says what a person can do who has nothing that starts.
fn recovery(console: &mut impl Write) {
    say(
        console,
        format_args!(
            "recovery: nothing can be started; write an image with a probe (dxpu-flash write), \
             then reset the card"
        ),
    );
}

#[cfg(test)]
mod tests;
