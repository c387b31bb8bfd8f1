//! What a boot loader would start, for somebody with a probe, who decides nothing.

use embedded_storage::nor_flash::NorFlash;

use crate::check::{Demands, Keys, Refusal, Requirements, TrustedKey};
use crate::header::{Header, ImageId};
use crate::state::{SlotEvent, SlotId, SlotState};
use crate::store::{BootStore, StoreError};

/// What there is to see of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Why a boot loader does not start the image of each slot, where the states let it be started.
    pub wrong: [Option<Refusal>; 2],
    /// The slot that is started at the next boot; none when there is none that can be.
    pub next: Option<SlotId>,
}

/// What these keys have signed must be right. Others may be the boot loader's.
struct IfKnown<'a>(&'a [TrustedKey]);

impl Keys for IfKnown<'_> {
    fn check(&self, header: &Header) -> Result<(), Refusal> {
        match header.check_signature(self.0) {
            Err(Refusal::UnknownKey(_)) => Ok(()),
            checked => checked,
        }
    }
}

fn if_known<'a>(requirements: &Requirements<'a>) -> Demands<IfKnown<'a>> {
    Demands {
        board: requirements.board,
        role: requirements.role,
        memory: requirements.memory,
        keys: IfKnown(requirements.keys),
        anti_downgrade: requirements.anti_downgrade,
        lowest_security: requirements.lowest_security,
    }
}

impl BootStore {
    /// Records the images that stand in the slots, if they are right and nothing was ever recorded:
    /// what a boot loader does at the first start. So what is written after that does not make it
    /// forget the image beside it. An image that is signed with a key that is not given counts as one
    /// whose signature is right.
    ///
    /// # Errors
    ///
    /// When the flash cannot be read, or it cannot be recorded.
    pub fn record_found<F: NorFlash>(
        &mut self,
        flash: &mut F,
        requirements: &Requirements<'_>,
    ) -> Result<(), StoreError<F::Error>> {
        if self.is_recorded() {
            return Ok(());
        }
        let (demands, mut right) = (if_known(requirements), [None, None]);
        for slot in SlotId::ALL {
            let found = self.verify(flash, slot, &demands).map_err(StoreError::Flash)?;
            right[slot.index()] = found.ok();
        }
        let next = self.with_found(right);
        if next == self.state { Ok(()) } else { self.record(flash, next) }
    }

    /// Looks at the images that may be started, and says which one a boot loader
    /// [starts](Self::decide), where anything was recorded. Nothing is recorded. An image that is
    /// signed with a key that is not given counts as one whose signature is right.
    ///
    /// # Errors
    ///
    /// When the flash cannot be read.
    pub fn look<F: NorFlash>(
        &self,
        flash: &mut F,
        requirements: &Requirements<'_>,
    ) -> Result<Look, F::Error> {
        let demands = if_known(requirements);
        let (mut wrong, mut state) = ([None; 2], self.state);
        for slot in SlotId::ALL {
            let Some(refusal) = self.find_wrong(flash, slot, &demands)? else { continue };
            wrong[slot.index()] = Some(refusal);
            state = state.after(slot, SlotEvent::Fail).expect("it may be started");
        }
        Ok(Look { wrong, next: state.to_be_started() })
    }

    /// Whether a slot may take an image at a bench, where nothing runs: not where it has the only
    /// good one. What a boot loader was seen to refuse is not good, though it was healthy.
    #[must_use]
    pub fn may_take(&self, look: &Look, slot: SlotId, image: ImageId) -> bool {
        let is_good = |slot: SlotId| {
            let is_healthy = matches!(self.state.slot(slot), SlotState::Healthy { .. });
            is_healthy && look.wrong[slot.index()].is_none()
        };
        let is_there = self.state.slot(slot).image() == Some(image);
        is_there || !is_good(slot) || is_good(slot.other())
    }

    /// As a boot loader looks at it: what is wrong is looked at twice.
    fn find_wrong<F: NorFlash>(
        &self,
        flash: &mut F,
        slot: SlotId,
        demands: &Demands<IfKnown<'_>>,
    ) -> Result<Option<Refusal>, F::Error> {
        let state = self.state.slot(slot);
        let may_be_started = state.is_bootable() || state.is_used_up();
        let Some(recorded) = state.image().filter(|_| may_be_started) else { return Ok(None) };
        let mut once = || {
            Ok(match self.verify(flash, slot, demands)? {
                Ok(header) if header.id() == recorded => None,
                Ok(_) => Some(Refusal::NotAsRecorded),
                Err(refusal) => Some(refusal),
            })
        };
        if once()?.is_none() { Ok(None) } else { once() }
    }

    /// Gives up a slot's image, which was seen to be wrong. So it may be overwritten, also where it
    /// was healthy.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be recorded.
    pub fn give_up<F: NorFlash>(
        &mut self,
        flash: &mut F,
        slot: SlotId,
    ) -> Result<(), StoreError<F::Error>> {
        let next = self.state.after(slot, SlotEvent::Fail)?;
        self.record(flash, next)
    }
}
