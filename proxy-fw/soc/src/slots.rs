//! The slots of a card whose boot loader started it from one of them: the trial of the image that
//! runs, and what the manager asks of the others.

use crate::log;
use crate::reset::Started;
use crate::settings::Settings;
use crate::update::{FirmwareAnswer, Update};
use card_image::{
    BoardName, Demands, JournalError, KeysOfBootLoader, Layout, Region, Role, SecurityVersion,
    SlotId, StoreError,
};
use core::time::Duration;
use embedded_storage::nor_flash::NorFlash;
use proxy_core::control::{ControlError, FirmwareError, FirmwareRequest, RoleKind};
use proxy_core::time::Instant;

/// Why a life ends in which that is so (`Slots::trial_is_over`).
pub const TRIAL_IS_OVER: &str = "a new image did not join in its trial";

/// What a board says of its images: to its boot loader and to its firmware.
#[derive(Clone, Copy, Debug)]
pub struct Images {
    /// What they say that they are for.
    pub board: BoardName,
    /// Where they are in the flash.
    pub layout: Layout,
    /// Memory for one, and for all that it needs while it runs.
    pub memory: Region,
}

/// The slots.
#[derive(Clone, Debug)]
pub struct Slots {
    update: Update,
    /// The image that runs has yet to report that it is healthy.
    trying: bool,
    /// Until when it has to, where there is another image to go back to.
    trial: Option<Instant>,
}

impl Slots {
    /// Of a card that its boot loader started so, and that has this role and these settings.
    pub fn new(
        images: &Images,
        started: Started,
        kind: RoleKind,
        settings: &Settings,
        now: Instant,
    ) -> Self {
        let role = match kind {
            RoleKind::Host { .. } => Role::Host,
            RoleKind::Box { .. } => Role::Box,
        };
        let demands = Demands {
            board: images.board,
            role,
            memory: images.memory,
            keys: KeysOfBootLoader,
            anti_downgrade: settings.anti_downgrade,
            lowest_security: SecurityVersion(0),
        };
        let trial = Duration::from_secs(settings.trial.into());
        Self {
            update: Update::new(images.layout, started.slot, demands),
            trying: started.trying,
            trial: started.gives_way().then(|| now + trial),
        }
    }

    /// Whether by then a new image had its time and has not joined: its life ends so, and the boot
    /// loader counts this try.
    pub fn trial_is_over(&self, by: Instant) -> bool {
        self.trial.is_some_and(|end| end <= by)
    }

    /// Whether an image is on trial that may have to go.
    pub fn is_on_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// The card has joined the manager: the image that runs is healthy, which is recorded once. The
    /// card stands still meanwhile: some milliseconds, and as long as an erase takes once in thousands
    /// of times.
    pub fn joined<F: NorFlash, E>(&mut self, open: impl FnOnce() -> Result<F, E>) {
        self.trial = None;
        if !self.trying {
            return;
        }
        let slot = match self.update.running() {
            SlotId::A => "a",
            SlotId::B => "b",
        };
        let record = |mut flash| {
            let mut reports = (0..2).map(|_| self.update.report_healthy(&mut flash));
            // A flash may read wrong for once. One that did not do what it was told may be busy still:
            // to wait for it once more would take the watchdog, and the journal has tried other places.
            let is_last = |reported: &Result<_, _>| {
                use StoreError::{Flash, Journal};
                matches!(reported, Ok(()) | Err(Flash(_) | Journal(JournalError::Flash(_))))
            };
            reports.find(is_last).is_some_and(|reported| reported.is_ok())
        };
        if open().is_ok_and(record) {
            log!(info, "the image in slot {=str} is healthy", slot);
            self.trying = false;
        } else {
            // It is tried again when the card joins again, and after the next reset.
            log!(error, "that slot {=str} is healthy was not recorded", slot);
        }
    }

    /// Does what the manager asks for.
    ///
    /// # Errors
    ///
    /// Why not: [`Update::handle`], or a flash that does not answer.
    pub fn handle<F: NorFlash, E>(
        &mut self,
        open: impl FnOnce() -> Result<F, E>,
        request: &FirmwareRequest,
    ) -> Result<FirmwareAnswer, ControlError> {
        let mut flash = open().map_err(|_| ControlError::Firmware(FirmwareError::Flash))?;
        self.update.handle(&mut flash, request).map_err(ControlError::Firmware)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::spi::{SECTOR, SpiFlash};
    use card_image::{
        BootState, BootStore, Header, ImageId, ImageParts, Journal, KeyId, STATE_RECORD, SlotState,
        Version, seal,
    };
    use core::cell::Cell;
    use embedded_hal::delay::DelayNs;
    use nor_model::{Direct, EraseKind, Fault, Nor, Part, Shared, SpiNor};
    use std::rc::Rc;

    type Flash = Direct<4, 1024>;

    fn images() -> Images {
        Images {
            board: BoardName::new("small").unwrap(),
            layout: Layout::packed(16 << 10, 1 << 10, 1 << 10, 4 << 10).unwrap(),
            memory: Region { start: 0x8000_0000, len: 4096 },
        }
    }

    /// The header of the image in slot b.
    fn header() -> Header {
        let parts = ImageParts {
            board: images().board,
            role: Role::Box,
            version: Version::default(),
            security: SecurityVersion(0),
            load: images().memory.start,
            entry: images().memory.start,
        };
        seal(parts.unsigned(&[0; 700]).unwrap(), KeyId(1), &[3; 32]).unwrap()
    }

    /// A flash whose slot b was started on trial, with slot a to go back to.
    fn flash() -> Flash {
        let mut nor = Nor::new(Part::small(16 << 10), 1);
        nor.preload(images().layout.slot(SlotId::B).start, &header().emit());
        let mut flash = Direct(nor);
        let slots = [
            SlotState::Healthy { image: ImageId([1; 16]) },
            SlotState::Trying { image: header().id(), left: 2 },
        ];
        let state = BootState { slots, wanted: SlotId::B, lowest_security: SecurityVersion(0) };
        let mut journal: Journal<STATE_RECORD> =
            Journal::open(&mut flash, images().layout.boot_state(), |_| true).unwrap();
        journal.append(&mut flash, &state.emit()).unwrap();
        flash
    }

    fn slots(trying: bool, fallback: bool) -> Slots {
        let settings = "name = a\nmanager = 10.0.0.1:1\ntrial = 10\n".parse().unwrap();
        let started = Started { slot: SlotId::B, trying, fallback };
        Slots::new(&images(), started, RoleKind::Box { slots: 4 }, &settings, second(5))
    }

    fn second(second: u64) -> Instant {
        Instant::from_nanos(second * 1_000_000_000)
    }

    #[test]
    fn only_an_image_with_one_to_go_back_to_has_its_time() {
        let slots = slots(true, true);
        assert!(slots.is_on_trial());
        assert!(!slots.trial_is_over(second(14)) && slots.trial_is_over(second(15)));
        for (trying, fallback) in [(true, false), (false, true), (false, false)] {
            let slots = self::slots(trying, fallback);
            assert!(!slots.is_on_trial() && !slots.trial_is_over(second(1000)));
        }
    }

    #[test]
    fn who_joined_is_healthy_and_says_so_once() {
        let (mut flash, mut slots) = (flash(), slots(true, true));
        // The flash does not answer the first time: it is said again when the card joins again.
        slots.joined(|| Err::<Flash, _>(Fault::Busy));
        assert!(!slots.trial_is_over(second(1000)), "the trial is over for good");
        slots.joined(|| Ok::<_, Fault>(&mut flash));
        let mut store = BootStore::open(&mut flash, images().layout).unwrap();
        let image = header().id();
        assert_eq!(store.state().slot(SlotId::B), SlotState::Healthy { image });
        slots.joined(|| -> Result<Flash, Fault> { panic!("it was said") });
        let failed =
            slots.handle(|| Err::<Flash, _>(Fault::Busy), &FirmwareRequest::Status).unwrap_err();
        assert_eq!(failed, ControlError::Firmware(FirmwareError::Flash));
        let said = slots.handle(|| Ok::<_, Fault>(&mut flash), &FirmwareRequest::Status).unwrap();
        let FirmwareAnswer::Status(status) = said else { panic!("{said:?}") };
        assert_eq!(status.running, proxy_core::control::FirmwareSlot::B);
        store = BootStore::open(&mut flash, images().layout).unwrap();
        assert_eq!(store.state().wanted, SlotId::B);
    }

    /// Time that passes for a part, and is counted in nanoseconds.
    struct Waited(Shared<SpiNor>, Rc<Cell<u64>>);

    impl DelayNs for Waited {
        fn delay_ns(&mut self, nanos: u32) {
            self.1.set(self.1.get() + u64::from(nanos));
            self.0.delay_ns(nanos);
        }
    }

    #[test]
    fn a_flash_that_stays_busy_is_waited_for_once() {
        const SLOW: EraseKind =
            EraseKind { size: SECTOR, opcode: 0x20, time: Duration::from_secs(20) };
        let part = Part { size: 64 << 10, erases: &[SLOW], ..Part::W25Q128 };
        let layout = Layout::packed(part.size, SECTOR, SECTOR, 16 << 10).unwrap();
        let (images, image) = (Images { layout, ..images() }, header().id());
        let mut nor = Nor::new(part, 1);
        nor.preload(layout.slot(SlotId::B).start, &header().emit());
        let mut flash: Direct<1, { SECTOR as usize }> = Direct(nor);
        let slots = [SlotState::Empty, SlotState::Trying { image, left: 2 }];
        let state = BootState { slots, wanted: SlotId::B, lowest_security: SecurityVersion(0) };
        let mut journal: Journal<STATE_RECORD> =
            Journal::open(&mut flash, layout.boot_state(), |_| true).unwrap();
        // One block of them is full: the next record has to erase.
        for _ in 0..SECTOR as usize / STATE_RECORD {
            journal.append(&mut flash, &state.emit()).unwrap();
        }
        let chip = Shared::new(SpiNor::new(flash.0));
        let waited = Rc::new(Cell::new(0));
        let flash = SpiFlash::new(chip.clone(), Waited(chip, waited.clone())).unwrap();
        let settings = "name = a\nmanager = 10.0.0.1:1\n".parse().unwrap();
        let started = Started { slot: SlotId::B, trying: true, fallback: true };
        let kind = RoleKind::Box { slots: 4 };
        let mut slots = Slots::new(&images, started, kind, &settings, second(5));
        slots.joined(|| Ok::<_, Fault>(flash));
        assert!(slots.trying, "it is not recorded");
        // The watchdog waits for 6 s, and who opens the flash may have waited so long, too.
        let waited = Duration::from_nanos(waited.get());
        assert!((2..3).contains(&waited.as_secs()), "{waited:?}");
    }
}
