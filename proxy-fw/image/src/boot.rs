//! Which slot to boot.

use core::fmt;

use embedded_storage::nor_flash::NorFlash;

use crate::check::{Refusal, Requirements};
use crate::header::Header;
use crate::state::{BootState, SlotEvent, SlotId, SlotState};
use crate::store::BootStore;

/// What a boot loader does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "one at a time is made, and there is no allocation")]
pub enum Decision {
    /// It starts an image.
    Boot(Boot),
    /// It stays, since neither slot can be started: why not, for each.
    Recovery([WhyNot; 2]),
}

/// What to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// The slot.
    pub slot: SlotId,
    /// Its image's header. All of the image was checked.
    pub header: Header,
    /// Why this one.
    pub reason: BootReason,
}

/// Why a slot is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootReason {
    /// It is wanted, and was healthy before.
    Healthy,
    /// It is wanted and has to say that it is healthy; if it does not, it is started so many
    /// times more.
    Trying {
        /// Further starts.
        left: u8,
    },
    /// The other one is wanted, and cannot be started.
    Instead(WhyNot),
    /// Its starts are used up, and the other one cannot be started either, for this reason. Where
    /// that one's are used up, too, it is its turn at the next boot.
    Again(WhyNot),
}

/// Why a slot is not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// Nothing is in it.
    Empty,
    /// Its image is not all there.
    Unfinished,
    /// Its image failed before.
    Failed,
    /// Its image was started as often as it may be, and never said that it is healthy.
    TriesUsedUp,
    /// Its image is not right for this card.
    Refused(Refusal),
    /// Its image is not one that is started by what is known of keys and policy, which is not all.
    PolicyUnknown,
    /// The flash could not be read.
    Unreadable,
    /// The start could not be recorded, so that a bad image would be started for ever.
    NotRecorded,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the slot is empty"),
            Self::Unfinished => f.write_str("its image was not written to the end"),
            Self::Failed => f.write_str("its image failed before"),
            Self::TriesUsedUp => f.write_str("its image never reported that it is healthy"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::PolicyUnknown => f.write_str(
                "whether its image may be started is in the settings, which could not be read",
            ),
            Self::Unreadable => f.write_str("the flash could not be read"),
            Self::NotRecorded => f.write_str("the start could not be recorded in flash"),
        }
    }
}

impl WhyNot {
    /// Whether the next boot may find otherwise.
    #[must_use]
    pub fn may_pass(self) -> bool {
        matches!(self, Self::PolicyUnknown | Self::Unreadable | Self::NotRecorded)
    }
}

impl BootStore {
    /// From here on the requirements lack what a card's owner says of keys and downgrades, since it
    /// could not be read: no image is given up for want of that.
    pub fn policy_is_unknown(&mut self) {
        self.knows_policy = false;
    }

    /// What a refusal says of a slot.
    pub(crate) fn refused(&self, refusal: Refusal) -> WhyNot {
        let by_policy = matches!(refusal, Refusal::UnknownKey(_) | Refusal::Downgrade { .. });
        if by_policy && !self.knows_policy {
            return WhyNot::PolicyUnknown;
        }
        WhyNot::Refused(refusal)
    }

    /// Decides which slot to boot, and records the start of an image that has not been healthy
    /// yet, or whose turn it is next of two that have used up their tries. It is the boot loader's,
    /// once after each reset.
    ///
    /// The wanted slot comes first, then the other one. An image that is not right is not started
    /// again, nor is one that has used up its tries as long as there is another to start. Where
    /// nothing was ever recorded, the images in the slots are taken over, the higher version first.
    pub fn decide<F: NorFlash>(
        &mut self,
        flash: &mut F,
        requirements: &Requirements<'_>,
    ) -> Decision {
        let mut next = self.state;
        let mut why = [WhyNot::Empty; 2];
        if !self.is_recorded() {
            next = self.find(flash, requirements, &mut why);
        }
        let first = next.wanted;
        for slot in [first, first.other()] {
            let before = next;
            let header = match self.judge(flash, requirements, slot, &mut next) {
                Ok(header) => header,
                // What it was found to be instead is known.
                Err(WhyNot::Empty) => continue,
                Err(reason) => {
                    why[slot.index()] = reason;
                    continue;
                }
            };
            let mut after = next;
            let instead = (slot != first).then(|| why[first.index()]);
            if instead.is_some_and(|reason| !reason.may_pass()) {
                after.wanted = slot;
            }
            let trying = match after.slot(slot) {
                SlotState::Trying { left, .. } => Some(left),
                _ => None,
            };
            // An erase may fail for once.
            let is_recorded = (0..2).any(|_| self.record(flash, after).is_ok());
            // A good image is started also where nothing can be recorded any more.
            if !is_recorded && trying.is_some() {
                why[slot.index()] = WhyNot::NotRecorded;
                next = before;
                continue;
            }
            let reason = match (instead, trying) {
                (Some(why), _) => BootReason::Instead(why),
                (None, Some(left)) => BootReason::Trying { left },
                (None, None) => BootReason::Healthy,
            };
            return Decision::Boot(Boot { slot, header, reason });
        }
        self.start_again(flash, requirements, why)
    }

    /// What is started where nothing is left to be started (`why` not, for each): an image that has
    /// used up its tries, since it may have been the network that kept it from joining, and a card
    /// that starts nothing has to be fetched. It has no tries to lose, and is passed over as soon as
    /// there is another one. Two such take turns, since one of them may be no good.
    fn start_again<F: NorFlash>(
        &mut self,
        flash: &mut F,
        requirements: &Requirements<'_>,
        mut why: [WhyNot; 2],
    ) -> Decision {
        let first = self.state.wanted;
        let mut chosen = None;
        for slot in [first, first.other()] {
            let SlotState::Trying { image, left: 0 } = self.state.slot(slot) else { continue };
            match self.verify_twice(flash, slot, Some(image), requirements) {
                Ok(header) if chosen.is_none() => chosen = Some((slot, header)),
                Ok(_) => {
                    // The chosen one is started also where nothing can be recorded any more.
                    let _ = self.record(flash, BootState { wanted: slot, ..self.state });
                }
                Err(reason) => why[slot.index()] = reason,
            }
        }
        match chosen {
            Some((slot, header)) => {
                let reason = BootReason::Again(why[slot.other().index()]);
                Decision::Boot(Boot { slot, header, reason })
            }
            None => Decision::Recovery(why),
        }
    }

    /// Whether a slot can be started, and what its state is then, or is when not.
    fn judge<F: NorFlash>(
        &self,
        flash: &mut F,
        requirements: &Requirements<'_>,
        slot: SlotId,
        state: &mut BootState,
    ) -> Result<Header, WhyNot> {
        let image = match state.slot(slot) {
            SlotState::Empty => return Err(WhyNot::Empty),
            SlotState::Writing { .. } => return Err(WhyNot::Unfinished),
            SlotState::Failed { .. } => return Err(WhyNot::Failed),
            SlotState::Trying { left: 0, .. } => {
                *state = happened(state, slot, SlotEvent::Fail);
                return Err(WhyNot::TriesUsedUp);
            }
            SlotState::Staged { image }
            | SlotState::Trying { image, .. }
            | SlotState::Healthy { image } => image,
        };
        let verified = self.verify_twice(flash, slot, Some(image), requirements);
        match verified {
            Ok(_) => *state = happened(state, slot, SlotEvent::Try),
            Err(WhyNot::Refused(_)) => *state = happened(state, slot, SlotEvent::Fail),
            Err(_) => {}
        }
        verified
    }

    /// The state of a card of which nothing was ever recorded, by what is in its slots, and why an
    /// image is not right. One that the next boot may find to be right is taken over, too: what is
    /// once recorded as empty is not looked at again.
    fn find<F: NorFlash>(
        &self,
        flash: &mut F,
        requirements: &Requirements<'_>,
        why: &mut [WhyNot; 2],
    ) -> BootState {
        let found = SlotId::ALL.map(|slot| {
            let reason = match self.verify_twice(flash, slot, None, requirements) {
                Ok(header) => return Some(header),
                Err(WhyNot::Refused(Refusal::NotAnImage)) => return None,
                Err(reason) => reason,
            };
            why[slot.index()] = reason;
            if reason.may_pass() { self.header(flash, slot).ok()?.ok() } else { None }
        });
        self.with_found(found)
    }

    /// The state of a card whose slots were filled, with these images, by somebody who did not
    /// record it.
    pub(crate) fn with_found(&self, found: [Option<Header>; 2]) -> BootState {
        let mut state = self.state;
        let mut best = None;
        for (slot, header) in SlotId::ALL.into_iter().zip(found) {
            let Some(header) = header else { continue };
            state = happened(&state, slot, SlotEvent::Adopt(header.id()));
            if best.is_none_or(|best| header.version > best) {
                best = Some(header.version);
                state.wanted = slot;
            }
        }
        state
    }
}

fn happened(state: &BootState, slot: SlotId, event: SlotEvent) -> BootState {
    state.after(slot, event).expect("the slot's state was looked at")
}

#[cfg(test)]
mod tests;
