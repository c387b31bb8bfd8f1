//! Writing an image into a slot, in pieces, over power cuts.

use embedded_storage::nor_flash::NorFlash;

use crate::check::{Demands, KeysOfBootLoader, Requirements};
use crate::header::{HEADER_LEN, Header, ImageId};
use crate::state::{BootState, SlotEvent, SlotId, SlotState};
use crate::store::{BootStore, PAGE, StoreError};

/// An image that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Staging {
    slot: SlotId,
    image: ImageId,
    /// Bytes of the image.
    length: u32,
    /// Bytes that have come.
    next: u32,
    /// Those of the last page that have come.
    page: [u8; PAGE],
}

/// What is left to write of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The bytes from this offset in the image on (its header is at 0).
    At(u32),
    /// Nothing: it is all there and was checked.
    Complete,
}

impl BootStore {
    /// The slot that an update goes to: not the one that runs; where none does, one that is not
    /// the last good one.
    #[must_use]
    pub fn update_slot(&self, running: Option<SlotId>) -> SlotId {
        match (running, self.state.slot(SlotId::A)) {
            (Some(running), _) => running.other(),
            (None, SlotState::Healthy { .. }) => SlotId::B,
            (None, _) => SlotId::A,
        }
    }

    /// Begins to write an image, of which the header is given, or goes on with it where a power
    /// cut or a new connection has stopped it. The header's bytes count as come. `running` is the
    /// slot whose image runs, none in a boot loader and at a bench.
    ///
    /// # Errors
    ///
    /// When the header is refused, the slot's image runs or is the only good one, or it cannot be
    /// recorded.
    pub fn begin<F: NorFlash>(
        &mut self,
        flash: &mut F,
        slot: SlotId,
        running: Option<SlotId>,
        header: &[u8],
        requirements: &Requirements<'_>,
    ) -> Result<Begun, StoreError<F::Error>> {
        self.staging = None;
        let parsed = Header::parse(header).map_err(StoreError::Refused)?;
        parsed
            .check(requirements, self.layout.slot(slot).len, self.state.lowest_security)
            .map_err(StoreError::Refused)?;
        self.begin_checked(flash, slot, running, (parsed.id(), parsed.payload_len), header)
    }

    /// As [`begin`](Self::begin), for a firmware whose boot loader checks signature and digest at
    /// the next start: it says itself which image this is, and needs no code for either.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub fn begin_unread<F: NorFlash>(
        &mut self,
        flash: &mut F,
        slot: SlotId,
        running: Option<SlotId>,
        image: (ImageId, &[u8]),
        demands: &Demands<KeysOfBootLoader>,
    ) -> Result<Begun, StoreError<F::Error>> {
        self.staging = None;
        let (id, header) = image;
        let parsed = Header::parse(header).map_err(StoreError::Refused)?;
        parsed
            .check(demands, self.layout.slot(slot).len, self.state.lowest_security)
            .map_err(StoreError::Refused)?;
        self.begin_checked(flash, slot, running, (id, parsed.payload_len), header)
    }

    fn begin_checked<F: NorFlash>(
        &mut self,
        flash: &mut F,
        slot: SlotId,
        running: Option<SlotId>,
        (image, payload_len): (ImageId, u32),
        header: &[u8],
    ) -> Result<Begun, StoreError<F::Error>> {
        // It fits a slot.
        let length = HEADER_LEN as u32 + payload_len;
        let state = self.state.slot(slot);
        let done = match state {
            // One that has used up its tries or failed is written anew, and has all its tries again.
            _ if state.is_bootable() && state.image() == Some(image) => return Ok(Begun::Complete),
            SlotState::Writing { image: there, done }
                if there == image
                    && done < length
                    && done.is_multiple_of(self.layout.progress()) =>
            {
                done
            }
            _ => {
                self.may_overwrite(slot, running)?;
                self.record_begin(flash, slot, image)?;
                0
            }
        };
        let mut page = [0xff; PAGE];
        let mut next = done;
        if done == 0 {
            // It was parsed, so all of it is there.
            page[..HEADER_LEN].copy_from_slice(&header[..HEADER_LEN]);
            next = HEADER_LEN as u32;
        }
        self.staging = Some(Staging { slot, image, length, next, page });
        Ok(Begun::At(next))
    }

    fn may_overwrite<E>(&self, slot: SlotId, running: Option<SlotId>) -> Result<(), StoreError<E>> {
        let healthy = |slot| matches!(self.state.slot(slot), SlotState::Healthy { .. });
        if running == Some(slot) {
            Err(StoreError::Running(slot))
        } else if healthy(slot) && !healthy(slot.other()) {
            Err(StoreError::LastGood(slot))
        } else {
            Ok(())
        }
    }

    fn record_begin<F: NorFlash>(
        &mut self,
        flash: &mut F,
        slot: SlotId,
        image: ImageId,
    ) -> Result<(), StoreError<F::Error>> {
        let mut next = self.state.after(slot, SlotEvent::Begin(image))?;
        // What is about to be erased is not to be started.
        if self.state.slot(slot.other()).is_bootable() {
            next.wanted = slot.other();
        }
        self.record(flash, next)
    }

    /// Writes the next bytes of the image, and records how far it has come.
    ///
    /// # Errors
    ///
    /// When they are not the next ones or more than the image has; then nothing is written. When
    /// the flash fails; then the image must be begun again, which goes on where it was.
    pub fn write<F: NorFlash>(
        &mut self,
        flash: &mut F,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), StoreError<F::Error>> {
        let mut staging = self.staging.take().ok_or(StoreError::NothingBegun)?;
        let length = staging.length;
        let wrong = if offset != staging.next {
            Some(StoreError::OutOfOrder { expected: staging.next })
        } else if bytes.len() > (length - offset) as usize {
            Some(StoreError::TooMuch { length })
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.staging = Some(staging);
            return Err(wrong);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let filled = staging.next as usize % PAGE;
            if filled == 0 {
                // The header's page is full when the image is begun.
                self.write_page_before(flash, &mut staging)?;
            }
            let some = rest.len().min(PAGE - filled);
            staging.page[filled..filled + some].copy_from_slice(&rest[..some]);
            staging.next += some as u32;
            rest = &rest[some..];
        }
        self.staging = Some(staging);
        Ok(())
    }

    /// Writes the page that ends at the next byte, unless it was written before this boot.
    fn write_page_before<F: NorFlash>(
        &mut self,
        flash: &mut F,
        staging: &mut Staging,
    ) -> Result<(), StoreError<F::Error>> {
        let end = staging.next.next_multiple_of(PAGE as u32);
        let done = match self.state.slot(staging.slot) {
            SlotState::Writing { done, .. } => done,
            _ => 0,
        };
        if end == done {
            return Ok(());
        }
        let start = end - PAGE as u32;
        let at = self.layout.slot(staging.slot).start + start;
        let block = self.layout.erase_block();
        if start.is_multiple_of(block) {
            // However blank it looks: nobody knows whether its last erase came to an end.
            flash.erase(at, at + block).map_err(StoreError::Flash)?;
        }
        flash.write(at, &staging.page).map_err(StoreError::Flash)?;
        let mut back = [0; PAGE];
        flash.read(at, &mut back).map_err(StoreError::Flash)?;
        if back != staging.page {
            return Err(StoreError::NotKept { at });
        }
        staging.page.fill(0xff);
        if end.is_multiple_of(self.layout.progress()) && end < staging.length {
            let next = self.state.after(staging.slot, SlotEvent::Progress(end))?;
            self.record(flash, next)?;
        }
        Ok(())
    }

    /// Ends the writing of an image: when all of it is there, all of it is read and checked, and
    /// the slot can be wanted.
    ///
    /// # Errors
    ///
    /// When bytes are missing; then it goes on. When the flash fails; then the image must be begun
    /// again. When the image is refused; then the slot has failed.
    pub fn finish<F: NorFlash>(
        &mut self,
        flash: &mut F,
        requirements: &Requirements<'_>,
    ) -> Result<Header, StoreError<F::Error>> {
        let (slot, image) = self.write_last_page(flash)?;
        let verified = self.verify(flash, slot, requirements).map_err(StoreError::Flash)?;
        let verified = verified.and_then(|header| match header.id() == image {
            true => Ok(header),
            false => Err(crate::Refusal::NotAsRecorded),
        });
        let event = if verified.is_ok() { SlotEvent::Written } else { SlotEvent::Fail };
        let next: BootState = self.state.after(slot, event)?;
        self.record(flash, next)?;
        verified.map_err(StoreError::Refused)
    }

    /// As [`finish`](Self::finish), and leaves it to the boot loader to look at the image. Every
    /// page was read back when it was written.
    ///
    /// # Errors
    ///
    /// When bytes are missing; then it goes on. When the flash fails; then the image must be begun
    /// again.
    pub fn finish_unread<F: NorFlash>(
        &mut self,
        flash: &mut F,
    ) -> Result<(), StoreError<F::Error>> {
        let (slot, _) = self.write_last_page(flash)?;
        let next = self.state.after(slot, SlotEvent::Written)?;
        self.record(flash, next)
    }

    fn write_last_page<F: NorFlash>(
        &mut self,
        flash: &mut F,
    ) -> Result<(SlotId, ImageId), StoreError<F::Error>> {
        let mut staging = self.staging.take().ok_or(StoreError::NothingBegun)?;
        let (have, need) = (staging.next, staging.length);
        if have < need {
            self.staging = Some(staging);
            return Err(StoreError::Incomplete { have, need });
        }
        self.write_page_before(flash, &mut staging)?;
        Ok((staging.slot, staging.image))
    }
}
