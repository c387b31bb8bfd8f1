//! What is known of each slot, and how that changes (`docs/image.md`, "States").

use core::fmt;

use crate::header::ImageId;
use crate::names::SecurityVersion;

/// Starts that a new image has to report that it is healthy.
pub const BOOT_TRIES: u8 = 3;

/// Bytes of a record of the boot state in its journal.
pub const STATE_RECORD: usize = 64;

/// Version of the record's format.
const RECORD_VERSION: u8 = 1;

/// One of the two slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SlotId {
    /// The first.
    A = 0,
    /// The second.
    B = 1,
}

impl SlotId {
    /// Both.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// 0 or 1.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::A => "a",
            Self::B => "b",
        })
    }
}

/// What is known of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing is in it.
    Empty,
    /// An image is being written.
    Writing {
        /// Which.
        image: ImageId,
        /// Bytes of it that are there, whole units of progress.
        done: u32,
    },
    /// An image was written and checked, and not started yet.
    Staged {
        /// Which.
        image: ImageId,
    },
    /// It was started and has not said that it is healthy.
    Trying {
        /// Which.
        image: ImageId,
        /// Further starts that it has.
        left: u8,
    },
    /// It said that it is healthy.
    Healthy {
        /// Which.
        image: ImageId,
    },
    /// It is not started again.
    Failed {
        /// Which.
        image: ImageId,
    },
}

/// What happens to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotEvent {
    /// The first block of an image is about to be erased for this one.
    Begin(ImageId),
    /// So many bytes of the image are there.
    Progress(u32),
    /// All of the image is there and right.
    Written,
    /// An image is there and right that somebody else wrote.
    Adopt(ImageId),
    /// It is about to be started.
    Try,
    /// It said that it is healthy.
    Healthy,
    /// It is not to be started again: wrong, out of tries, or given up.
    Fail,
}

/// An event that cannot happen in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongTransition {
    /// The state.
    pub state: SlotState,
    /// The event.
    pub event: SlotEvent,
}

impl fmt::Display for WrongTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a slot that is {:?} cannot have {:?} happen", self.state, self.event)
    }
}

impl core::error::Error for WrongTransition {}

impl SlotState {
    /// The state after an event: the transition table.
    ///
    /// # Errors
    ///
    /// When the event cannot happen in this state.
    pub fn after(self, event: SlotEvent) -> Result<Self, WrongTransition> {
        use SlotEvent as E;
        use SlotState as S;
        Ok(match (self, event) {
            (_, E::Begin(image)) => S::Writing { image, done: 0 },
            (_, E::Adopt(image)) => S::Staged { image },
            (S::Writing { image, done }, E::Progress(now)) if now > done => {
                S::Writing { image, done: now }
            }
            (S::Writing { image, .. }, E::Written) => S::Staged { image },
            (S::Writing { image, .. }, E::Fail) => S::Failed { image },
            (S::Staged { image }, E::Try) => S::Trying { image, left: BOOT_TRIES - 1 },
            (S::Staged { image }, E::Fail) => S::Failed { image },
            (S::Trying { image, left: left @ 1.. }, E::Try) => S::Trying { image, left: left - 1 },
            (S::Trying { image, .. }, E::Healthy) => S::Healthy { image },
            (S::Trying { image, .. }, E::Fail) => S::Failed { image },
            (S::Healthy { image }, E::Try | E::Healthy) => S::Healthy { image },
            (S::Healthy { image }, E::Fail) => S::Failed { image },
            (S::Failed { image }, E::Fail) => S::Failed { image },
            (state, event) => return Err(WrongTransition { state, event }),
        })
    }

    /// The image that is in it, or becomes so.
    #[must_use]
    pub fn image(&self) -> Option<ImageId> {
        match *self {
            Self::Empty => None,
            Self::Writing { image, .. }
            | Self::Staged { image }
            | Self::Trying { image, .. }
            | Self::Healthy { image }
            | Self::Failed { image } => Some(image),
        }
    }

    /// Whether all its tries are used up, and it has not said that it is healthy.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        matches!(self, Self::Trying { left: 0, .. })
    }

    /// Whether it may be started, as far as the state goes. One whose tries are used up may not,
    /// but where [nothing else can be](BootState::to_be_started).
    #[must_use]
    pub fn is_bootable(&self) -> bool {
        matches!(self, Self::Staged { .. } | Self::Trying { left: 1.., .. } | Self::Healthy { .. })
    }

    /// Number, tries or 0, bytes done or 0.
    fn numbers(&self) -> (u8, u8, u32) {
        match *self {
            Self::Empty => (0, 0, 0),
            Self::Writing { done, .. } => (1, 0, done),
            Self::Staged { .. } => (2, 0, 0),
            Self::Trying { left, .. } => (3, left, 0),
            Self::Healthy { .. } => (4, 0, 0),
            Self::Failed { .. } => (5, 0, 0),
        }
    }

    fn emit(&self, into: &mut [u8; 24]) {
        let (number, left, done) = self.numbers();
        into[..4].copy_from_slice(&[number, left, 0, 0]);
        into[4..8].copy_from_slice(&done.to_le_bytes());
        into[8..].copy_from_slice(&self.image().map_or([0; 16], |image| image.0));
    }

    fn parse(bytes: &[u8; 24]) -> Option<Self> {
        let (head, image) = bytes.split_first_chunk::<8>()?;
        let [number, left, 0, 0, done @ ..] = *head else { return None };
        let (image, done) = (ImageId(image.try_into().ok()?), u32::from_le_bytes(done));
        let state = match number {
            0 => Self::Empty,
            1 => Self::Writing { image, done },
            2 => Self::Staged { image },
            3 if left < BOOT_TRIES => Self::Trying { image, left },
            4 => Self::Healthy { image },
            5 => Self::Failed { image },
            _ => return None,
        };
        // What a state has no room for is zero.
        let same = state.numbers() == (number, left, done)
            && state.image().unwrap_or(ImageId([0; 16])) == image;
        same.then_some(state)
    }
}

/// All that outlasts a reset of what is booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootState {
    /// The slots, a and b.
    pub slots: [SlotState; 2],
    /// The slot that is started when it can be.
    pub wanted: SlotId,
    /// The lowest security version that is run, where the policy is by security version.
    pub lowest_security: SecurityVersion,
}

impl BootState {
    /// Of a card that nothing is known of.
    pub const NEW: Self = Self {
        slots: [SlotState::Empty; 2],
        wanted: SlotId::A,
        lowest_security: SecurityVersion(0),
    };

    /// What is known of a slot.
    #[must_use]
    pub fn slot(&self, slot: SlotId) -> SlotState {
        self.slots[slot.index()]
    }

    /// The slot that the next boot starts, as far as the states go: the image in it may be wrong.
    /// None when there is none that may be started.
    #[must_use]
    pub fn to_be_started(&self) -> Option<SlotId> {
        let first = |may: fn(&SlotState) -> bool| {
            [self.wanted, self.wanted.other()].into_iter().find(|slot| may(&self.slot(*slot)))
        };
        first(SlotState::is_bootable).or_else(|| first(SlotState::is_used_up))
    }

    /// The state after an event of one slot.
    ///
    /// # Errors
    ///
    /// When the event cannot happen.
    pub fn after(&self, slot: SlotId, event: SlotEvent) -> Result<Self, WrongTransition> {
        let mut next = *self;
        next.slots[slot.index()] = self.slot(slot).after(event)?;
        Ok(next)
    }

    /// The content of a record.
    #[must_use]
    pub fn emit(&self) -> [u8; STATE_RECORD - 8] {
        let mut bytes = [0; STATE_RECORD - 8];
        bytes[0] = RECORD_VERSION;
        bytes[1] = self.wanted as u8;
        bytes[4..8].copy_from_slice(&self.lowest_security.0.to_le_bytes());
        let (slots, _) = bytes[8..].as_chunks_mut::<24>();
        self.slots.iter().zip(slots).for_each(|(slot, into)| slot.emit(into));
        bytes
    }

    /// Reads a record's content.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; STATE_RECORD - 8] = bytes.try_into().ok()?;
        let (head, slots) = bytes.split_first_chunk::<8>()?;
        let [RECORD_VERSION, wanted, 0, 0, lowest @ ..] = *head else { return None };
        let wanted = *SlotId::ALL.get(usize::from(wanted))?;
        let (slots, _) = slots.as_chunks::<24>();
        let [a, b] = slots else { return None };
        Some(Self {
            slots: [SlotState::parse(a)?, SlotState::parse(b)?],
            wanted,
            lowest_security: SecurityVersion(u32::from_le_bytes(lowest)),
        })
    }
}

#[cfg(test)]
mod tests;
