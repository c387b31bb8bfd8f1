//! The firmware of a card, and how it is replaced over the network. What images, slots and their
//! states are is in `proxy-fw/image/docs/image.md`.

use core::fmt;
use heapless::{String, Vec};
use serde::{Deserialize, Serialize};

/// Bytes of an image's header.
pub const FIRMWARE_HEADER: usize = 256;

/// Bytes of an image in one request, at most.
pub const FIRMWARE_PIECE: usize = 512;

const _: () = assert!(FIRMWARE_HEADER <= FIRMWARE_PIECE);

/// Longest name of a board, in bytes.
pub const MAX_BOARD: usize = 16;

/// What an image is known by: the first bytes of the SHA-512 of its header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct FirmwareId(pub [u8; 16]);

impl fmt::Display for FirmwareId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// One of a card's two places for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FirmwareSlot {
    /// The first.
    A,
    /// The second.
    B,
}

impl fmt::Display for FirmwareSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::A => "a",
            Self::B => "b",
        })
    }
}

/// What is asked of a card's firmware. The slot whose image runs is never written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // messages live on the stack for one call
pub enum FirmwareRequest {
    /// Say what is in the slots.
    Status,
    /// Begin to write an image with this header to the slot that does not run, or go on with it
    /// where a power cut or a lost connection stopped it.
    Begin {
        /// The image; the boot loader starts no other one there.
        image: FirmwareId,
        /// Its [`FIRMWARE_HEADER`] bytes.
        header: Vec<u8, FIRMWARE_PIECE>,
    },
    /// Write the next bytes of the image that was begun.
    Piece {
        /// Where they are in the image; its header is at 0.
        offset: u32,
        /// The bytes.
        bytes: Vec<u8, FIRMWARE_PIECE>,
    },
    /// All of this image is there: have it started from the next boot on.
    Finish(FirmwareId),
    /// Leave this image, which runs, for the other one from the next boot on. Where it does not
    /// run any more there is nothing to do.
    RollBack(FirmwareId),
    /// End the life with this number, so that the boot loader starts what is wanted. In another
    /// life there is nothing to do.
    Restart {
        /// The number of the life, as in [`Hello`](super::Hello).
        incarnation: u32,
    },
}

/// Version of an image, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FirmwareVersion {
    /// Major, minor and patch.
    pub release: [u16; 3],
    /// The build.
    pub build: u32,
}

impl fmt::Display for FirmwareVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.release;
        write!(f, "{major}.{minor}.{patch}+{}", self.build)
    }
}

/// What is known of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FirmwareState {
    /// Nothing is in it.
    Empty,
    /// An image is being written.
    Writing {
        /// Bytes of it that outlast a power cut.
        done: u32,
    },
    /// An image was written, and was not started yet.
    Staged,
    /// It was started, and has not joined the manager yet.
    Trying {
        /// Further starts that it has.
        left: u8,
    },
    /// It has joined the manager.
    Healthy,
    /// It is not started again.
    Failed,
}

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotFirmware {
    /// What is known of it.
    pub state: FirmwareState,
    /// Its image; zeros when it is empty.
    pub image: FirmwareId,
    /// The image's version; none where its header is not in the slot.
    pub version: Option<FirmwareVersion>,
}

/// The firmware of a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareStatus {
    /// The board that images must be for.
    pub board: String<MAX_BOARD>,
    /// Bytes of the longest image, with its header.
    pub room: u32,
    /// The lowest security version that is started.
    pub lowest_security: u32,
    /// Whose image runs.
    pub running: FirmwareSlot,
    /// Which one is started at the next boot, if it can be.
    pub wanted: FirmwareSlot,
    /// The slots a and b.
    pub slots: [SlotFirmware; 2],
}

impl FirmwareStatus {
    /// The slot whose image runs.
    pub fn running(&self) -> &SlotFirmware {
        &self.slots[self.running as usize]
    }

    /// The slot that is started at the next boot, if it can be.
    pub fn wanted(&self) -> &SlotFirmware {
        &self.slots[self.wanted as usize]
    }
}

/// Why a card does not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FirmwareError {
    /// The header is no image's, or is damaged, or of a later format.
    NotAnImage,
    /// The image is for another board.
    OtherBoard,
    /// The image is for the other role.
    OtherRole,
    /// The image is larger than a slot, or than the memory at its load address.
    TooLarge,
    /// Nobody signed the image.
    Unsigned,
    /// The image's security version is below this one.
    Downgrade(u32),
    /// The slot that does not run has the only image that has joined the manager.
    LastGood,
    /// There is no image to go to that has joined the manager and is right still.
    NotBootable,
    /// No image was begun in this life, or another one.
    NothingBegun,
    /// Bytes are missing from here on.
    Incomplete(u32),
    /// The flash failed.
    Flash,
}

impl fmt::Display for FirmwareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnImage => f.write_str("the header is not that of a firmware image"),
            Self::OtherBoard => f.write_str("the image is for another board"),
            Self::OtherRole => f.write_str("the image is for the other role"),
            Self::TooLarge => f.write_str("the image is too large for the card"),
            Self::Unsigned => f.write_str("the image is not signed"),
            Self::Downgrade(lowest) => {
                write!(f, "the card runs no image with a security version below {lowest}")
            }
            Self::LastGood => f.write_str(
                "the other slot has the only image that has joined; wait until this one has",
            ),
            Self::NotBootable => f.write_str("there is no other image that has joined before"),
            Self::NothingBegun => f.write_str("the image was not begun"),
            Self::Incomplete(from) => write!(f, "the image is missing from byte {from} on"),
            Self::Flash => f.write_str("its flash failed"),
        }
    }
}
