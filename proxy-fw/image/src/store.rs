//! A card's slots and its boot state, in flash.

use core::fmt;

use embedded_storage::nor_flash::NorFlash;

use crate::boot::WhyNot;
use crate::check::{Demands, Keys, KeysOfBootLoader, PayloadCheck, Refusal, Requirements};
use crate::header::{HEADER_LEN, Header, ImageId};
use crate::journal::{Journal, JournalError};
use crate::layout::Layout;
use crate::staging::Staging;
use crate::state::{BootState, STATE_RECORD, SlotEvent, SlotId, SlotState, WrongTransition};

/// Bytes that are read and written at a time: a program page.
pub(crate) const PAGE: usize = 256;

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError<E> {
    /// The flash did not do it.
    Flash(E),
    /// The boot state could not be recorded.
    Journal(JournalError<E>),
    /// The image is not one for this card.
    Refused(Refusal),
    /// The slot's image is running.
    Running(SlotId),
    /// The slot has the only image that is known to be good.
    LastGood(SlotId),
    /// The slot's image cannot be started.
    NotBootable(SlotId),
    /// No image is being written.
    NothingBegun,
    /// The bytes are not the next ones.
    OutOfOrder {
        /// Offset in the image that is next.
        expected: u32,
    },
    /// More bytes than the image has.
    TooMuch {
        /// Bytes of the image.
        length: u32,
    },
    /// Not all of the image has come.
    Incomplete {
        /// Bytes that have.
        have: u32,
        /// Bytes of the image.
        need: u32,
    },
    /// What was written reads back as something else.
    NotKept {
        /// Where in the flash.
        at: u32,
    },
    /// It cannot happen in the slot's state.
    Transition(WrongTransition),
}

impl<E: fmt::Debug> fmt::Display for StoreError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flash(error) => write!(f, "the flash failed: {error:?}"),
            Self::Journal(error) => write!(f, "the boot state was not recorded: {error}"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Running(slot) => {
                write!(f, "the image in slot {slot} is running: write the other slot")
            }
            Self::LastGood(slot) => write!(
                f,
                "slot {slot} has the only good image: wait until the other one reports healthy"
            ),
            Self::NotBootable(slot) => write!(f, "slot {slot} has no image that can be started"),
            Self::NothingBegun => f.write_str("no image is being written: begin with its header"),
            Self::OutOfOrder { expected } => {
                write!(f, "these bytes are not next: go on at offset {expected}")
            }
            Self::TooMuch { length } => write!(f, "the image has only {length} bytes"),
            Self::Incomplete { have, need } => {
                write!(f, "only {have} of the image's {need} bytes have come")
            }
            Self::NotKept { at } => {
                write!(
                    f,
                    "the flash does not keep what is written at {at:#x}: worn out or protected"
                )
            }
            Self::Transition(wrong) => wrong.fmt(f),
        }
    }
}

impl<E: fmt::Debug> core::error::Error for StoreError<E> {}

impl<E> From<WrongTransition> for StoreError<E> {
    fn from(wrong: WrongTransition) -> Self {
        Self::Transition(wrong)
    }
}

/// The slots and the boot state of a card. The flash is given to each call: others use it, too.
#[derive(Clone, Debug)]
pub struct BootStore {
    pub(crate) layout: Layout,
    journal: Journal<STATE_RECORD>,
    pub(crate) state: BootState,
    pub(crate) staging: Option<Staging>,
    /// The owner's keys and the policy are in the requirements, as far as there are any.
    pub(crate) knows_policy: bool,
}

impl BootStore {
    /// Reads the boot state. A flash without one is a card that nothing is known of.
    ///
    /// # Errors
    ///
    /// When the flash cannot be read.
    ///
    /// # Panics
    ///
    /// When the layout is not this flash's: its erase blocks are not whole ones, or a program page is
    /// not whole units of writing. What is beyond the end of a flash that says that it is smaller is
    /// an error when it is read: what a part says of itself comes over a bus that may err.
    pub fn open<F: NorFlash>(flash: &mut F, layout: Layout) -> Result<Self, F::Error> {
        assert!((layout.erase_block() as usize).is_multiple_of(F::ERASE_SIZE));
        assert!(PAGE.is_multiple_of(F::WRITE_SIZE) && PAGE.is_multiple_of(F::READ_SIZE));
        let mut state = BootState::NEW;
        let journal = Journal::open(flash, layout.boot_state(), |content| {
            let found = BootState::parse(content);
            state = found.unwrap_or(state);
            found.is_some()
        })?;
        Ok(Self { layout, journal, state, staging: None, knows_policy: true })
    }

    /// Where things are.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What is known.
    #[must_use]
    pub fn state(&self) -> &BootState {
        &self.state
    }

    /// Whether a boot state was ever recorded.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.journal.has_record()
    }

    /// Reads the header that stands in a slot, whatever the boot state says.
    ///
    /// # Errors
    ///
    /// When the flash cannot be read; inside, why it is no header.
    pub fn header<F: NorFlash>(
        &self,
        flash: &mut F,
        slot: SlotId,
    ) -> Result<Result<Header, Refusal>, F::Error> {
        let mut bytes = [0; HEADER_LEN];
        flash.read(self.layout.slot(slot).start, &mut bytes)?;
        Ok(Header::parse(&bytes))
    }

    /// Checks all of the image in a slot, whatever the boot state says of it.
    ///
    /// # Errors
    ///
    /// When the flash cannot be read; inside, why it is not to be run.
    pub fn verify<F: NorFlash, K: Keys>(
        &self,
        flash: &mut F,
        slot: SlotId,
        requirements: &Demands<K>,
    ) -> Result<Result<Header, Refusal>, F::Error> {
        let region = self.layout.slot(slot);
        let header = match self.header(flash, slot)? {
            Ok(header) => header,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if let Err(refusal) = header.check(requirements, region.len, self.state.lowest_security) {
            return Ok(Err(refusal));
        }
        let mut payload = PayloadCheck::new();
        let mut at = HEADER_LEN as u32;
        // It fits the slot, whose length is whole pages.
        let end = at + header.payload_len;
        while at < end {
            let mut page = [0; PAGE];
            flash.read(region.start + at, &mut page)?;
            let some = (end - at).min(PAGE as u32);
            payload.update(&page[..some as usize]);
            at += some;
        }
        Ok(payload.finish(&header).map(|()| header))
    }

    /// Checks the image of a slot, and that it is the one that the boot state has there, if it has
    /// one. What is wrong is looked at twice: a bus may err where the flash does not.
    pub(crate) fn verify_twice<F: NorFlash>(
        &self,
        flash: &mut F,
        slot: SlotId,
        recorded: Option<ImageId>,
        requirements: &Requirements<'_>,
    ) -> Result<Header, WhyNot> {
        let mut once = || match self.verify(flash, slot, requirements) {
            Ok(Ok(header)) if recorded.is_none_or(|recorded| header.id() == recorded) => Ok(header),
            Ok(Ok(_)) => Err(WhyNot::Refused(Refusal::NotAsRecorded)),
            Ok(Err(refusal)) => Err(self.refused(refusal)),
            Err(_) => Err(WhyNot::Unreadable),
        };
        once().or_else(|_| once())
    }

    /// Records a state; it is known from then on.
    pub(crate) fn record<F: NorFlash>(
        &mut self,
        flash: &mut F,
        next: BootState,
    ) -> Result<(), StoreError<F::Error>> {
        if next != self.state || !self.journal.has_record() {
            self.journal.append(flash, &next.emit()).map_err(StoreError::Journal)?;
            self.state = next;
        }
        Ok(())
    }

    /// The image that runs from this slot is healthy: it is wanted and not tried any more. Images
    /// with a lower security version are not run from now on, but where the policy is off. That is
    /// recorded under either policy: one that is switched on later bars what is older, too. Again
    /// it does nothing.
    ///
    /// # Errors
    ///
    /// When the slot was not started, its header cannot be read, or it cannot be recorded.
    pub fn report_healthy<F: NorFlash>(
        &mut self,
        flash: &mut F,
        slot: SlotId,
    ) -> Result<(), StoreError<F::Error>> {
        let mut next = self.state.after(slot, SlotEvent::Healthy)?;
        let header = self.header(flash, slot).map_err(StoreError::Flash)?;
        let security = header.map_err(StoreError::Refused)?.security;
        next.lowest_security = next.lowest_security.max(security);
        // One that was made to want the other meanwhile still does.
        self.record(flash, next)
    }

    /// Has a slot started from the next boot on, after all of its image was checked.
    ///
    /// # Errors
    ///
    /// When the slot has no image that may be started, it is not right, or cannot be recorded.
    pub fn want<F: NorFlash>(
        &mut self,
        flash: &mut F,
        slot: SlotId,
        requirements: &Requirements<'_>,
    ) -> Result<(), StoreError<F::Error>> {
        let state = self.state.slot(slot);
        let image = state.image().filter(|_| state.is_bootable());
        let image = image.ok_or(StoreError::NotBootable(slot))?;
        self.verify_twice(flash, slot, Some(image), requirements).map_err(|why| match why {
            WhyNot::Refused(refusal) => StoreError::Refused(refusal),
            _ => StoreError::NotBootable(slot),
        })?;
        self.record(flash, BootState { wanted: slot, ..self.state })
    }

    /// As [`want`](Self::want), and leaves it to the boot loader to look at the image: that starts the
    /// other one where this one is wrong.
    ///
    /// # Errors
    ///
    /// When the slot has no image that may be started, or it cannot be recorded.
    pub fn want_unread<F: NorFlash>(
        &mut self,
        flash: &mut F,
        slot: SlotId,
    ) -> Result<(), StoreError<F::Error>> {
        if !self.state.slot(slot).is_bootable() {
            return Err(StoreError::NotBootable(slot));
        }
        self.record(flash, BootState { wanted: slot, ..self.state })
    }

    /// Goes back from the image that runs to the other one, from the next boot on. One that has
    /// not yet reported that it is healthy is not started again.
    ///
    /// # Errors
    ///
    /// When the other slot's image was never healthy, is not right any more or not allowed any
    /// more, or it cannot be recorded.
    pub fn roll_back<F: NorFlash>(
        &mut self,
        flash: &mut F,
        running: SlotId,
        requirements: &Requirements<'_>,
    ) -> Result<(), StoreError<F::Error>> {
        let back = running.other();
        let SlotState::Healthy { image } = self.state.slot(back) else {
            return Err(StoreError::NotBootable(back));
        };
        self.verify_twice(flash, back, Some(image), requirements).map_err(|why| match why {
            WhyNot::Refused(refusal) => StoreError::Refused(refusal),
            _ => StoreError::NotBootable(back),
        })?;
        self.record_roll_back(flash, running)
    }

    /// As [`roll_back`](Self::roll_back), by the image's header; it leaves it to the boot loader to
    /// look at the rest.
    ///
    /// # Errors
    ///
    /// When the other slot's image was never healthy, is not allowed any more, or it cannot be
    /// recorded.
    pub fn roll_back_unread<F: NorFlash>(
        &mut self,
        flash: &mut F,
        running: SlotId,
        demands: &Demands<KeysOfBootLoader>,
    ) -> Result<(), StoreError<F::Error>> {
        let back = running.other();
        if !matches!(self.state.slot(back), SlotState::Healthy { .. }) {
            return Err(StoreError::NotBootable(back));
        }
        let header = self.header(flash, back).map_err(StoreError::Flash)?;
        header
            .and_then(|there| {
                there.check(demands, self.layout.slot(back).len, self.state.lowest_security)
            })
            .map_err(StoreError::Refused)?;
        self.record_roll_back(flash, running)
    }

    fn record_roll_back<F: NorFlash>(
        &mut self,
        flash: &mut F,
        running: SlotId,
    ) -> Result<(), StoreError<F::Error>> {
        let mut next = BootState { wanted: running.other(), ..self.state };
        if let SlotState::Trying { .. } = self.state.slot(running) {
            next = next.after(running, SlotEvent::Fail)?;
        }
        self.record(flash, next)
    }

    /// Takes over an image that a probe wrote to a slot: checks it, and has it started from the
    /// next boot on, as an image that is new.
    ///
    /// # Errors
    ///
    /// When the flash cannot be read, the image is not right, or it cannot be recorded.
    pub fn adopt<F: NorFlash>(
        &mut self,
        flash: &mut F,
        slot: SlotId,
        requirements: &Requirements<'_>,
    ) -> Result<Header, StoreError<F::Error>> {
        let header = self.verify(flash, slot, requirements).map_err(StoreError::Flash)?;
        let header = header.map_err(StoreError::Refused)?;
        let next = self.state.after(slot, SlotEvent::Adopt(header.id()))?;
        self.record(flash, BootState { wanted: slot, ..next })?;
        Ok(header)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod whole_life;
