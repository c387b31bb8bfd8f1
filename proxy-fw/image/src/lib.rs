//! Images of the card's firmware, and which of them a card boots.
//!
//! A card has two slots for images. [`Header`] is what stands in front of an image's payload:
//! for which board and role it is, its version, digest and Ed25519 signature. [`Layout`] says
//! where in a card's flash things are, [`BootState`] what is known of each slot, kept in a
//! [`Journal`] that a power cut cannot lose, and [`BootStore`] writes images, decides which one to
//! boot, and goes back to the last good one. `docs/image.md` is the specification of it all.
//!
//! Nothing here knows a device: flash is whatever implements `embedded_storage`'s traits. The boot
//! loader, the firmware and the programs at a bench use the same code.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod boot;
mod check;
mod header;
mod journal;
mod layout;
mod look;
mod names;
mod seal;
mod staging;
mod state;
mod store;
#[cfg(test)]
mod test_card;

pub use boot::{Boot, BootReason, Decision, WhyNot};
pub use check::{
    AntiDowngrade, Demands, Keys, KeysOfBootLoader, PayloadCheck, Refusal, Requirements, TrustedKey,
};
pub use header::{FORMAT_VERSION, HEADER_LEN, Header, ImageId, MAGIC};
pub use journal::{Journal, JournalError, TRIES as JOURNAL_TRIES};
pub use layout::{Layout, LayoutError, LayoutParts, Region};
pub use look::Look;
pub use names::{BadName, BoardName, KeyId, Role, SecurityVersion, Version};
pub use seal::{ImageParts, public_key, seal};
pub use staging::Begun;
pub use state::{
    BOOT_TRIES, BootState, STATE_RECORD, SlotEvent, SlotId, SlotState, WrongTransition,
};
pub use store::{BootStore, StoreError};
