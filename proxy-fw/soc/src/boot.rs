//! What a boot loader does, but for what only its board can do: load an image and enter it.

use crate::reset::{Life, Started};
use crate::settings::{self, Policy};
use card_image::{
    Boot, BootReason, BootStore, Decision, Layout, Region, Requirements, SlotId, SlotState,
};
use core::fmt::Write;
use embedded_storage::nor_flash::NorFlash;

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
            }
            say(console, format_args!("starting slot {slot}: {} {}", header.role, header.version));
            let state = |slot| store.state().slot(slot);
            let started = Started {
                slot: *slot,
                trying: matches!(state(*slot), SlotState::Trying { .. }),
                fallback: matches!(state(slot.other()), SlotState::Healthy { .. }),
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

fn say(console: &mut impl Write, line: core::fmt::Arguments<'_>) {
    // A console that takes nothing is no reason not to boot.
    let _ = writeln!(console, "{line}");
}

/// Says what a person can do who has nothing that starts.
pub fn recovery(console: &mut impl Write) {
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
