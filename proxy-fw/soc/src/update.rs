//! What the manager asks of a card's firmware ([`FirmwareRequest`]), answered from its slots.
//!
//! The slot that runs is never written. Signatures and digests are the boot loader's: what is written
//! here is checked by it at the next start, and where it is refused the image before goes on. So there
//! is no code for either in a firmware, whose room is small.
//!
//! A request is done at once, and the card stands still meanwhile: for an erase block where one
//! begins, and for two erase blocks of the boot state the first time. `docs/boot.md` says how long that is.

use card_image::{
    AntiDowngrade, Begun, BootStore, Demands, HEADER_LEN, Header, ImageId, KeysOfBootLoader,
    Layout, Refusal, SlotId, SlotState, StoreError,
};
use embedded_storage::nor_flash::NorFlash;
use proxy_core::control::{
    FIRMWARE_HEADER, FirmwareError, FirmwareId, FirmwareRequest, FirmwareSlot, FirmwareState,
    FirmwareStatus, FirmwareVersion, Reply, SlotFirmware,
};

const _: () = assert!(FIRMWARE_HEADER == HEADER_LEN);

/// An answer, small where [`Reply`] is large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirmwareAnswer {
    /// It is so.
    Done,
    /// The byte that is wanted next.
    Next(u32),
    /// What is in the slots.
    Status(FirmwareStatus),
}

impl From<FirmwareAnswer> for Reply {
    fn from(answer: FirmwareAnswer) -> Self {
        match answer {
            FirmwareAnswer::Done => Self::Done,
            FirmwareAnswer::Next(offset) => Self::FirmwareNext(offset),
            FirmwareAnswer::Status(status) => Self::Firmware(status),
        }
    }
}

/// The slots of a card that runs from one of them.
#[derive(Clone, Debug)]
pub struct Update {
    layout: Layout,
    running: SlotId,
    demands: Demands<KeysOfBootLoader>,
    /// Once it was read. It is read anew after the flash has failed.
    store: Option<BootStore>,
}

impl Update {
    /// Of a card whose boot loader started this slot, and has these demands besides its keys.
    pub fn new(layout: Layout, running: SlotId, demands: Demands<KeysOfBootLoader>) -> Self {
        Self { layout, running, demands, store: None }
    }

    /// The slot whose image runs.
    pub fn running(&self) -> SlotId {
        self.running
    }

    /// Does what is asked for. [`FirmwareRequest::Restart`] is the card's own: it is answered, and
    /// nothing happens here.
    ///
    /// # Errors
    ///
    /// Why not. After [`FirmwareError::Flash`] an image that was being written is to be begun
    /// again, and goes on where it was.
    pub fn handle<F: NorFlash>(
        &mut self,
        flash: &mut F,
        request: &FirmwareRequest,
    ) -> Result<FirmwareAnswer, FirmwareError> {
        let Self { layout, running, demands, store } = self;
        let mut opened = match store.take() {
            Some(store) => store,
            None => BootStore::open(flash, *layout).map_err(|_| FirmwareError::Flash)?,
        };
        let answer =
            Asked { store: &mut opened, flash, running: *running, demands }.answer(request);
        if answer != Err(FirmwareError::Flash) {
            *store = Some(opened);
        }
        answer
    }

    /// The image that runs has joined the manager: it is healthy.
    ///
    /// # Errors
    ///
    /// When it cannot be recorded.
    pub fn report_healthy<F: NorFlash>(
        &mut self,
        flash: &mut F,
    ) -> Result<(), StoreError<F::Error>> {
        let mut store = match self.store.take() {
            Some(store) => store,
            None => BootStore::open(flash, self.layout).map_err(StoreError::Flash)?,
        };
        store.report_healthy(flash, self.running)?;
        self.store = Some(store);
        Ok(())
    }
}

/// One request, and all that it needs.
struct Asked<'a, F> {
    store: &'a mut BootStore,
    flash: &'a mut F,
    running: SlotId,
    demands: &'a Demands<KeysOfBootLoader>,
}

impl<F: NorFlash> Asked<'_, F> {
    fn answer(mut self, request: &FirmwareRequest) -> Result<FirmwareAnswer, FirmwareError> {
        match request {
            FirmwareRequest::Status => self.status(),
            FirmwareRequest::Begin { image, header } => self.begin(*image, header),
            FirmwareRequest::Piece { offset, bytes } => self.piece(*offset, bytes),
            FirmwareRequest::Finish(image) => self.finish(*image),
            FirmwareRequest::RollBack(image) => self.roll_back(*image),
            FirmwareRequest::Restart { .. } => Ok(FirmwareAnswer::Done),
        }
    }

    fn status(&mut self) -> Result<FirmwareAnswer, FirmwareError> {
        let [a, b] = SlotId::ALL.map(|slot| self.slot(slot));
        let state = self.store.state();
        let mut board = heapless::String::new();
        // With its policy off there is nothing that is too old for the card.
        let lowest_security = match self.demands.anti_downgrade {
            AntiDowngrade::Off => 0,
            AntiDowngrade::BySecurityVersion => {
                state.lowest_security.max(self.demands.lowest_security).0
            }
        };
        let fits = board.push_str(self.demands.board.as_str()).is_ok();
        assert!(fits, "a name has 16 bytes at most");
        Ok(FirmwareAnswer::Status(FirmwareStatus {
            board,
            room: self.store.layout().slot(self.running.other()).len,
            lowest_security,
            running: named(self.running),
            wanted: named(state.wanted),
            slots: [a?, b?],
        }))
    }

    fn slot(&mut self, slot: SlotId) -> Result<SlotFirmware, FirmwareError> {
        let state = self.store.state().slot(slot);
        let Some(image) = state.image() else {
            let (state, image) = (FirmwareState::Empty, FirmwareId::default());
            return Ok(SlotFirmware { state, image, version: None });
        };
        let header = self.store.header(self.flash, slot).map_err(|_| FirmwareError::Flash)?;
        // Before the first progress the header of what was there before may be.
        let is_there = !matches!(state, SlotState::Writing { done: 0, .. });
        let version = header.ok().filter(|_| is_there).map(|header| {
            let version = header.version;
            let release = [version.major, version.minor, version.patch];
            FirmwareVersion { release, build: version.build }
        });
        let state = match state {
            SlotState::Empty => FirmwareState::Empty,
            SlotState::Writing { done, .. } => FirmwareState::Writing { done },
            SlotState::Staged { .. } => FirmwareState::Staged,
            SlotState::Trying { left, .. } => FirmwareState::Trying { left },
            SlotState::Healthy { .. } => FirmwareState::Healthy,
            SlotState::Failed { .. } => FirmwareState::Failed,
        };
        Ok(SlotFirmware { state, image: FirmwareId(image.0), version })
    }

    fn begin(&mut self, image: FirmwareId, header: &[u8]) -> Result<FirmwareAnswer, FirmwareError> {
        let Self { store, flash, running, demands } = self;
        let slot = store.update_slot(Some(*running));
        let image = (ImageId(image.0), header);
        match store.begin_unread(*flash, slot, Some(*running), image, demands).map_err(said)? {
            Begun::At(offset) => Ok(FirmwareAnswer::Next(offset)),
            Begun::Complete => {
                let header = Header::parse(header).map_err(refused)?;
                Ok(FirmwareAnswer::Next(HEADER_LEN as u32 + header.payload_len))
            }
        }
    }

    fn piece(&mut self, offset: u32, bytes: &[u8]) -> Result<FirmwareAnswer, FirmwareError> {
        match self.store.write(self.flash, offset, bytes) {
            Ok(()) => Ok(FirmwareAnswer::Next(offset + bytes.len() as u32)),
            Err(StoreError::OutOfOrder { expected }) => Ok(FirmwareAnswer::Next(expected)),
            Err(error) => Err(said(error)),
        }
    }

    fn finish(&mut self, image: FirmwareId) -> Result<FirmwareAnswer, FirmwareError> {
        let (slot, image) = (self.running.other(), ImageId(image.0));
        let state = self.store.state().slot(slot);
        if state.image() != Some(image) {
            return Err(FirmwareError::NothingBegun);
        }
        if !state.is_bootable() {
            self.store.finish_unread(self.flash).map_err(said)?;
        }
        self.store.want_unread(self.flash, slot).map_err(said)?;
        Ok(FirmwareAnswer::Done)
    }

    fn roll_back(&mut self, image: FirmwareId) -> Result<FirmwareAnswer, FirmwareError> {
        // An image that is only staged is no way back, also where it is wanted already.
        let runs = self.store.state().slot(self.running).image() == Some(ImageId(image.0));
        if runs {
            let Self { store, flash, running, demands } = self;
            store.roll_back_unread(*flash, *running, demands).map_err(said)?;
        }
        Ok(FirmwareAnswer::Done)
    }
}

fn named(slot: SlotId) -> FirmwareSlot {
    match slot {
        SlotId::A => FirmwareSlot::A,
        SlotId::B => FirmwareSlot::B,
    }
}

/// What the manager is told.
fn said<E>(error: StoreError<E>) -> FirmwareError {
    match error {
        StoreError::Refused(refusal) => refused(refusal),
        StoreError::Running(_) | StoreError::LastGood(_) => FirmwareError::LastGood,
        StoreError::NotBootable(_) | StoreError::Transition(_) => FirmwareError::NotBootable,
        StoreError::NothingBegun => FirmwareError::NothingBegun,
        StoreError::OutOfOrder { expected: from } | StoreError::Incomplete { have: from, .. } => {
            FirmwareError::Incomplete(from)
        }
        StoreError::TooMuch { .. } => FirmwareError::TooLarge,
        StoreError::Flash(_) | StoreError::Journal(_) | StoreError::NotKept { .. } => {
            FirmwareError::Flash
        }
    }
}

fn refused(refusal: Refusal) -> FirmwareError {
    match refusal {
        Refusal::Truncated { .. }
        | Refusal::NotAnImage
        | Refusal::NewerFormat(_)
        | Refusal::HeaderDamaged
        | Refusal::Malformed(_) => FirmwareError::NotAnImage,
        Refusal::OtherBoard(_) => FirmwareError::OtherBoard,
        Refusal::OtherRole(_) => FirmwareError::OtherRole,
        Refusal::TooLarge { .. } | Refusal::NoMemory { .. } => FirmwareError::TooLarge,
        Refusal::Unsigned | Refusal::UnknownKey(_) | Refusal::BadSignature => {
            FirmwareError::Unsigned
        }
        Refusal::Downgrade { lowest, .. } => FirmwareError::Downgrade(lowest.0),
        // Of payloads, at which nobody looks here.
        Refusal::BadCrc | Refusal::BadDigest | Refusal::NotAsRecorded => FirmwareError::NotAnImage,
    }
}

#[cfg(test)]
mod tests;
