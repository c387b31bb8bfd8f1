//! Erasing a device by its own means.

use core::fmt;
use serde::{Deserialize, Serialize};
use tlp_codec::ids::BindingKey;

/// Ways to erase that there are.
pub const MAX_ERASE_METHODS: usize = 5;

/// How a device erases itself (NVM Express base specification 1.4, sections 5.23 and 5.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EraseMethod {
    /// NVMe Sanitize, cryptographic erase: the media's keys are changed.
    SanitizeCrypto,
    /// NVMe Sanitize, block erase.
    SanitizeBlock,
    /// NVMe Sanitize, overwrite, one pass.
    SanitizeOverwrite,
    /// NVMe Format NVM with cryptographic erase, namespace by namespace, in the format each has.
    FormatCrypto,
    /// NVMe Format NVM with user data erase, as above.
    FormatUser,
}

impl EraseMethod {
    /// Every method, in the order of their numbers.
    pub const ALL: [EraseMethod; MAX_ERASE_METHODS] = [
        Self::SanitizeCrypto,
        Self::SanitizeBlock,
        Self::SanitizeOverwrite,
        Self::FormatCrypto,
        Self::FormatUser,
    ];
}

/// Ways to erase, best first. In one number, so that reading it costs a card next to nothing: three
/// bits for each, lowest first, the method's number and one; 0 ends the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EraseMethods(u16);

impl EraseMethods {
    /// The methods. Numbers that mean none are left out.
    pub fn iter(self) -> impl Iterator<Item = EraseMethod> {
        let numbers = (0..MAX_ERASE_METHODS).map(move |at| usize::from(self.0 >> (3 * at) & 7));
        let numbers = numbers.take_while(|number| *number > 0);
        numbers.filter_map(|number| EraseMethod::ALL.get(number - 1).copied())
    }
}

impl FromIterator<EraseMethod> for EraseMethods {
    /// The first [`MAX_ERASE_METHODS`] of them.
    fn from_iter<I: IntoIterator<Item = EraseMethod>>(methods: I) -> Self {
        let methods = methods.into_iter().take(MAX_ERASE_METHODS).enumerate();
        Self(methods.fold(0, |bits, (at, method)| bits | (method as u16 + 1) << (3 * at)))
    }
}

/// What is to be erased, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EraseRequest {
    /// The binding that has ended and left its data. It names the erasure, too: asked for again
    /// under the same key, the answer is how that stands.
    pub key: BindingKey,
    /// Serial number of the device that is meant (0: it has none), so that no other one is erased
    /// that was put into its place.
    pub serial: u64,
    /// The ways that will do. The first one that the device offers is taken.
    pub methods: EraseMethods,
    /// How long it may take, seconds.
    pub within_s: u32,
}

/// How an erasure stands; [`ErasureCode`] on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erasure {
    /// It goes on: so many thousandths, as far as the device says.
    Running(u16),
    /// The device says that everything on it is erased, and was reset and ready since.
    Done(EraseMethod),
    /// It is not erased.
    Failed(EraseFailure),
}

/// Why a device is not erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraseFailure {
    /// It is no NVMe controller: this proxy knows no means of it.
    NoMeans,
    /// It offers none of the methods that were asked for.
    NotOffered,
    /// It refused or failed a command with this NVMe status (status code and, from bit 8 on, its
    /// type), of 11 bits.
    Status(u16),
    /// It does not do what NVMe says: it did not become ready, or does not answer.
    Broken,
    /// It did not end in time.
    TooLong,
    /// It ended well, and then the device failed its reset or its readiness test.
    NotReady,
}

/// An [`Erasure`] as one number, so that cards which never say one have next to no code for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasureCode(u32);

const DONE: u32 = 0x1_0000;
const STATUS: u32 = 0x2_0000;
const FAILED: u32 = 0x2_0800;

/// Failures without a status, in the order of their numbers from [`FAILED`] on.
const FAILURES: [EraseFailure; 5] = [
    EraseFailure::NoMeans,
    EraseFailure::NotOffered,
    EraseFailure::Broken,
    EraseFailure::TooLong,
    EraseFailure::NotReady,
];

impl From<Erasure> for ErasureCode {
    fn from(erasure: Erasure) -> Self {
        Self(match erasure {
            Erasure::Running(permille) => permille.into(),
            Erasure::Done(method) => DONE + method as u32,
            Erasure::Failed(EraseFailure::Status(status)) => STATUS + u32::from(status & 0x7ff),
            Erasure::Failed(failure) => {
                let place = FAILURES.iter().position(|known| *known == failure);
                FAILED + place.expect("all without a status are listed") as u32
            }
        })
    }
}

/// A number that says nothing of an erasure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownErasure;

impl TryFrom<ErasureCode> for Erasure {
    type Error = UnknownErasure;

    fn try_from(ErasureCode(code): ErasureCode) -> Result<Self, UnknownErasure> {
        let of = |base: u32| (code - base) as usize;
        match code {
            ..DONE => Some(Self::Running(code as u16)),
            DONE..STATUS => EraseMethod::ALL.get(of(DONE)).copied().map(Self::Done),
            STATUS..FAILED => Some(Self::Failed(EraseFailure::Status(of(STATUS) as u16))),
            FAILED.. => FAILURES.get(of(FAILED)).copied().map(Self::Failed),
        }
        .ok_or(UnknownErasure)
    }
}

impl fmt::Display for EraseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMeans => f.write_str("it is no NVMe controller"),
            Self::NotOffered => f.write_str("it offers no method that was asked for"),
            Self::Status(status) => write!(f, "it failed the command with NVMe status {status:#x}"),
            Self::Broken => f.write_str("it does not do what NVMe says"),
            Self::TooLong => f.write_str("it did not end in time"),
            Self::NotReady => f.write_str("it failed its reset or readiness test afterwards"),
        }
    }
}
