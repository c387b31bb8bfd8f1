//! What is said, for what there is in the flash.

use super::*;
use crate::reset::{self, RETAINED};
use crate::settings;
use card_image::{
    AntiDowngrade, BoardName, HEADER_LEN, Header, ImageParts, KeyId, Region, Role, SecurityVersion,
    TrustedKey, Version, public_key, seal,
};
use embedded_storage::nor_flash::{ErrorType, ReadNorFlash};
use nor_model::{Direct, Fault, Nor, Part};
use std::string::String;
use std::vec::Vec;

type Flash = Direct<4, 1024>;

const SECRET: [u8; 32] = [3; 32];
const KEY: KeyId = KeyId(1);
const LOAD: u32 = 0x8000_0000;

fn board() -> BoardName {
    BoardName::new("small").unwrap()
}

fn layout() -> Layout {
    Layout::packed(16 << 10, 1 << 10, 1 << 10, 4 << 10).unwrap()
}

fn image(board: BoardName, major: u16) -> Vec<u8> {
    let parts = ImageParts {
        board,
        role: Role::Box,
        version: Version { major, ..Version::default() },
        security: SecurityVersion(0),
        load: LOAD,
        entry: LOAD,
    };
    let payload = [major as u8; 700];
    let header = seal(parts.unsigned(&payload).unwrap(), KEY, &SECRET).unwrap();
    [&header.emit()[..], &payload].concat()
}

/// A card after power-on, with these images.
fn flash(images: [Option<Vec<u8>>; 2]) -> Flash {
    let mut nor = Nor::new(Part::small(16 << 10), 1);
    for (slot, image) in SlotId::ALL.iter().zip(images) {
        if let Some(image) = image {
            nor.preload(layout().slot(*slot).start, &image);
        }
    }
    Direct(nor)
}

/// What a boot loader with these keys demands.
fn requirements(keys: &[TrustedKey]) -> Requirements<'_> {
    Requirements {
        board: board(),
        role: Role::Any,
        memory: Region { start: LOAD, len: 4096 },
        keys,
        anti_downgrade: AntiDowngrade::BySecurityVersion,
        lowest_security: SecurityVersion(0),
    }
}

/// One start, and what it said.
fn start<F: NorFlash>(flash: &mut F) -> (Option<Chosen>, String) {
    start_with(flash, &[TrustedKey { id: KEY, key: public_key(&SECRET) }], true)
}

/// One start with these keys, which are or are not all that are trusted.
fn start_with<F: NorFlash>(
    flash: &mut F,
    keys: &[TrustedKey],
    is_known: bool,
) -> (Option<Chosen>, String) {
    let requirements = requirements(keys);
    let life = reset::begin(&mut [0; RETAINED], None);
    let mut said = String::new();
    let chosen = choose(flash, layout(), &requirements, is_known, &life, &mut said);
    (chosen, said)
}

#[test]
fn a_new_image_is_tried_and_then_given_up() {
    let mut flash = flash([Some(image(board(), 1)), Some(image(board(), 2))]);
    for left in [2, 1, 0] {
        let (chosen, said) = start(&mut flash);
        let chosen = chosen.unwrap();
        let started = Started { slot: SlotId::B, trying: true, fallback: false };
        assert_eq!(chosen.started, started, "the higher version");
        assert!(said.contains("start 1: power came on"), "{said}");
        assert!(said.contains(&std::format!("slot b is new, with {left} more starts")), "{said}");
        assert!(said.contains("starting slot b: box 2.0.0+0"), "{said}");
    }
    let (chosen, said) = start(&mut flash);
    assert_eq!(chosen.unwrap().boot.slot, SlotId::A);
    assert!(said.contains("slot b: its image never reported that it is healthy"), "{said}");
    assert!(said.contains("starting slot a: box 1.0.0+0"), "{said}");
}

#[test]
fn an_image_that_has_used_up_its_starts_is_started_where_there_is_no_other() {
    let mut flash = flash([Some(image(board(), 1)), Some(image(board(), 2))]);
    let slot = start(&mut flash).0.unwrap().boot.slot;
    let mut store = BootStore::open(&mut flash, layout()).unwrap();
    store.report_healthy(&mut flash, slot).unwrap();
    let trusted = [TrustedKey { id: KEY, key: public_key(&SECRET) }];
    store.want(&mut flash, SlotId::A, &requirements(&trusted)).unwrap();
    // There is one to go back to, as far as the boot loader knows, until it has looked at it.
    flash.0.flip(layout().slot(SlotId::B).start + 300, 1);
    for _ in 0..3 {
        let started = Started { slot: SlotId::A, trying: true, fallback: true };
        assert_eq!(start(&mut flash).0.unwrap().started, started);
    }
    for _ in 0..2 {
        let (chosen, said) = start(&mut flash);
        let started = Started { slot: SlotId::A, trying: true, fallback: false };
        assert_eq!(chosen.unwrap().started, started, "{said}");
        assert!(said.contains("slot b: the image's payload is damaged"), "{said}");
        assert!(said.contains("slot a has used up its starts, and there is no other"), "{said}");
        assert!(said.contains("starting slot a: box 1.0.0+0"), "{said}");
    }
    // What could not be read now may be the next time. It does not give way to that: no start counts
    // any more, so one that refuses to start would do so over and over.
    flash.0.flip(layout().slot(SlotId::B).start + 300, 1);
    let again = start_with(&mut UnreadableSlotB(flash.clone()), &trusted, true);
    let started = Started { slot: SlotId::A, trying: true, fallback: false };
    assert_eq!(again.0.unwrap().started, started, "{}", again.1);
    assert!(!started.gives_way());
    assert!(again.1.contains("slot b: the flash could not be read"), "{}", again.1);
    assert_eq!(start(&mut flash).0.unwrap().started.slot, SlotId::B);
}

#[test]
fn an_image_that_is_not_counted_any_more_does_not_give_way() {
    let mut flash = flash([Some(image(board(), 1)), Some(image(board(), 2))]);
    let trusted = [TrustedKey { id: KEY, key: public_key(&SECRET) }];
    // The other key is the settings', which cannot be read from then on.
    let parts = Header::parse(&image(board(), 2)).unwrap();
    let owner = seal(parts, KeyId(2), &[4; 32]).unwrap();
    flash.0.preload(layout().slot(SlotId::B).start, &owner.emit());
    let both = [trusted[0], TrustedKey { id: KeyId(2), key: public_key(&[4; 32]) }];
    let slot = start_with(&mut flash, &both, true).0.unwrap().boot.slot;
    assert_eq!(slot, SlotId::B);
    let mut store = BootStore::open(&mut flash, layout()).unwrap();
    store.report_healthy(&mut flash, slot).unwrap();
    store.want(&mut flash, SlotId::A, &requirements(&trusted)).unwrap();
    for fallback in [true, true, true, false, false] {
        let (chosen, said) = start_with(&mut flash, &trusted, false);
        let started = Started { slot: SlotId::A, trying: true, fallback };
        assert_eq!(chosen.unwrap().started, started, "{said}");
    }
    assert_eq!(start_with(&mut flash, &both, true).0.unwrap().boot.slot, SlotId::B);
}

/// A flash of which slot b cannot be read.
struct UnreadableSlotB(Flash);

impl ErrorType for UnreadableSlotB {
    type Error = Fault;
}

impl ReadNorFlash for UnreadableSlotB {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        let slot = layout().slot(SlotId::B);
        if (slot.start..slot.start + slot.len).contains(&offset) {
            return Err(Fault::Busy);
        }
        self.0.read(offset, bytes)
    }

    fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl NorFlash for UnreadableSlotB {
    const WRITE_SIZE: usize = 4;
    const ERASE_SIZE: usize = 1024;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), Fault> {
        self.0.erase(from, to)
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.0.write(offset, bytes)
    }
}

#[test]
fn a_healthy_image_starts_without_more_words() {
    let mut flash = flash([Some(image(board(), 1)), None]);
    let slot = start(&mut flash).0.unwrap().boot.slot;
    let mut store = BootStore::open(&mut flash, layout()).unwrap();
    store.report_healthy(&mut flash, slot).unwrap();
    let (chosen, said) = start(&mut flash);
    let started = Started { slot, trying: false, fallback: false };
    assert_eq!(chosen.unwrap().started, started);
    assert!(!said.contains("new"), "{said}");
}

#[test]
fn without_an_image_it_says_why_and_what_to_do() {
    let other = BoardName::new("other").unwrap();
    let (chosen, said) = start(&mut flash([Some(image(other, 1)), None]));
    assert_eq!(chosen, None);
    assert!(said.contains("slot a: the image is for the board other"), "{said}");
    assert!(said.contains("slot b: the slot is empty"), "{said}");
    assert!(said.contains("recovery: nothing can be started"), "{said}");
}

#[test]
fn a_flash_that_cannot_be_read_is_said() {
    let mut flash = flash([Some(image(board(), 1)), None]);
    flash.0.power_off();
    let (chosen, said) = start(&mut flash);
    assert_eq!(chosen, None);
    assert!(said.contains("the flash cannot be read"), "{said}");
    assert!(said.contains("recovery"), "{said}");
}

/// A flash that fails once, at one of its operations, and did nothing then.
struct Failing {
    flash: Flash,
    /// Operations until then.
    left: u32,
    /// It does not say so, and gives a wrong bit, where it is read then.
    silently: bool,
}

impl Failing {
    fn new(flash: &Flash, left: u32) -> Self {
        Self { flash: flash.clone(), left, silently: false }
    }

    fn is_next(&mut self) -> bool {
        let now = self.left == 0;
        self.left = self.left.wrapping_sub(1);
        now
    }

    fn next(&mut self) -> Result<(), Fault> {
        if self.is_next() && !self.silently { Err(Fault::Busy) } else { Ok(()) }
    }

    fn has_failed(&self) -> bool {
        self.left > u32::MAX / 2
    }
}

impl ErrorType for Failing {
    type Error = Fault;
}

impl ReadNorFlash for Failing {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        match (self.is_next(), self.silently) {
            (true, false) => return Err(Fault::Busy),
            (now, _) => {
                self.flash.read(offset, bytes)?;
                bytes[0] ^= u8::from(now);
            }
        }
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.flash.capacity()
    }
}

impl NorFlash for Failing {
    const WRITE_SIZE: usize = 4;
    const ERASE_SIZE: usize = 1024;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), Fault> {
        self.next()?;
        self.flash.erase(from, to)
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.next()?;
        self.flash.write(offset, bytes)
    }
}

#[test]
fn a_flash_that_fails_once_anywhere_costs_nothing() {
    let mut good = flash([Some(image(board(), 1)), Some(image(board(), 2))]);
    // Slot b was healthy, so there is a record.
    start(&mut good).0.unwrap();
    let mut store = BootStore::open(&mut good, layout()).unwrap();
    store.report_healthy(&mut good, SlotId::B).unwrap();
    for left in 0.. {
        let mut failing = Failing::new(&good, left);
        let (chosen, said) = start(&mut failing);
        assert_eq!(chosen.unwrap().boot.slot, SlotId::B, "{left}: {said}");
        // Nor does it leave anything behind.
        let (again, said) = start(&mut failing.flash);
        let again = again.unwrap();
        assert_eq!((again.boot.slot, again.started.trying), (SlotId::B, false), "{left}: {said}");
        if !failing.has_failed() {
            assert!(left > 30, "it fails at some of its operations");
            break;
        }
    }
}

/// A new card, or one whose boot state was erased: what is recorded first is what is believed from
/// then on.
#[test]
fn a_first_start_whose_flash_fails_once_anywhere_costs_no_image() {
    let id = |image: &[u8]| Header::parse(image).unwrap().id();
    let (one, two) = (image(board(), 1), image(board(), 2));
    for (silently, both) in [(false, false), (false, true), (true, false), (true, true)] {
        let good = flash([Some(two.clone()), both.then(|| one.clone())]);
        for left in 0.. {
            let mut failing = Failing { silently, ..Failing::new(&good, left) };
            let (chosen, said) = start(&mut failing);
            let slot = chosen.map(|chosen| chosen.boot.slot);
            assert_eq!(slot, Some(SlotId::A), "{left}, silently {silently}, both {both}: {said}");
            let mut store = BootStore::open(&mut failing.flash, layout()).unwrap();
            let [a, b] = SlotId::ALL.map(|slot| store.state().slot(slot));
            assert_eq!(a, SlotState::Trying { image: id(&two), left: 2 }, "{left}: {said}");
            let other = if both { SlotState::Staged { image: id(&one) } } else { SlotState::Empty };
            assert_eq!(b, other, "{left}: {said}");
            store.report_healthy(&mut failing.flash, SlotId::A).unwrap();
            assert_eq!(start(&mut failing.flash).0.unwrap().boot.slot, SlotId::A);
            if !failing.has_failed() {
                assert!(left > 30, "it fails at some of its operations");
                break;
            }
        }
    }
}

#[test]
fn settings_outlast_a_flash_that_fails_once_anywhere() {
    let config = layout().config();
    let mut good = flash([None, None]);
    settings::store(&mut good, config, "name = old").unwrap();
    for left in 0.. {
        let mut failing = Failing::new(&good, left);
        let stored = settings::store(&mut failing, config, "name = new");
        let text = settings::load(&mut failing.flash, config).unwrap().unwrap();
        assert!(text == "name = new" || stored.is_err() && text == "name = old", "{left}");
        let mut failing = Failing::new(&good, left);
        let loaded = settings::load(&mut failing, config);
        assert!(loaded.is_err() || loaded == Ok(Some("name = old".try_into().unwrap())));
        if stored.is_ok() {
            break;
        }
    }
}

#[test]
fn settings_are_read_though_the_flash_fails_once_anywhere() {
    let config = layout().config();
    let key = "22".repeat(32);
    let text = std::format!("name = a\ntrust = 3:{key}");
    let mut good = flash([None, None]);
    settings::store(&mut good, config, &text).unwrap();
    assert_eq!(policy(&mut flash([None, None]), config), Some(Policy::default()), "there are none");
    for left in 0.. {
        let mut failing = Failing::new(&good, left);
        assert_eq!(policy(&mut failing, config), Some(Policy::of(&text)), "{left}");
        let failed = failing.has_failed();
        // A firmware opens it each time, which may fail, too.
        let mut lefts = [left, u32::MAX].into_iter();
        let open = || {
            let mut failing = Failing::new(&good, lefts.next().unwrap());
            failing.next().map(|()| failing)
        };
        let loaded = settings::load_twice(open, config).unwrap().unwrap();
        assert_eq!(loaded, *text, "{left}");
        if !failed {
            assert!(left > 1, "it fails at some of its operations");
            break;
        }
    }
    // One that fails always is no flash without settings.
    good.0.power_off();
    assert_eq!(policy(&mut good, config), None);
    assert!(settings::load_twice(|| Ok(good.clone()), config).is_err());
}

#[test]
fn an_image_is_not_given_up_for_a_key_that_could_not_be_read() {
    let mut flash = flash([Some(image(board(), 1)), None]);
    start(&mut flash).0.unwrap();
    let mut store = BootStore::open(&mut flash, layout()).unwrap();
    store.report_healthy(&mut flash, SlotId::A).unwrap();
    // The settings have its key, and cannot be read.
    let (chosen, said) = start_with(&mut flash, &[], false);
    assert_eq!(chosen, None);
    assert!(said.contains("slot a: whether its image may be started is in the settings"), "{said}");
    // The next time they can.
    let started = start(&mut flash).0.unwrap().started;
    assert_eq!((started.slot, started.trying), (SlotId::A, false));
    // An image in the other slot whose key is built in is started meanwhile, and no more than that.
    let other = KeyId(2);
    let built_in = [TrustedKey { id: other, key: public_key(&[4; 32]) }];
    let new = image(board(), 2);
    let header = seal(Header::parse(&new).unwrap(), other, &[4; 32]).unwrap();
    let new = [&header.emit()[..], &new[HEADER_LEN..]].concat();
    flash.0.preload(layout().slot(SlotId::B).start, &new);
    let keys = [built_in[0], TrustedKey { id: KEY, key: public_key(&SECRET) }];
    let mut store = BootStore::open(&mut flash, layout()).unwrap();
    store.adopt(&mut flash, SlotId::B, &requirements(&keys)).unwrap();
    assert_eq!(start_with(&mut flash, &keys, true).0.unwrap().started.slot, SlotId::B);
    let mut store = BootStore::open(&mut flash, layout()).unwrap();
    store.report_healthy(&mut flash, SlotId::B).unwrap();
    store.want(&mut flash, SlotId::A, &requirements(&keys)).unwrap();
    assert_eq!(start_with(&mut flash, &built_in, false).0.unwrap().started.slot, SlotId::B);
    assert_eq!(start_with(&mut flash, &keys, true).0.unwrap().started.slot, SlotId::A);
    // With settings that can be read and lack the key, it is given up for good.
    assert_eq!(start_with(&mut flash, &built_in, true).0.unwrap().started.slot, SlotId::B);
    assert_eq!(start_with(&mut flash, &keys, true).0.unwrap().started.slot, SlotId::B);
}

/// Of two images of which nothing is recorded, the settings' key has signed one, and they cannot be
/// read at the first start.
#[test]
fn an_image_is_not_forgotten_for_a_key_that_could_not_be_read() {
    let other = TrustedKey { id: KeyId(2), key: public_key(&[4; 32]) };
    let built_in = [TrustedKey { id: KEY, key: public_key(&SECRET) }];
    let both = [built_in[0], other];
    for (theirs, first) in [(3, SlotId::A), (1, SlotId::B)] {
        let bytes = image(board(), theirs);
        let header = seal(Header::parse(&bytes).unwrap(), other.id, &[4; 32]).unwrap();
        let bytes = [&header.emit()[..], &bytes[HEADER_LEN..]].concat();
        let mut flash = flash([Some(bytes), Some(image(board(), 2))]);
        let (chosen, said) = start_with(&mut flash, &built_in, false);
        assert_eq!(chosen.unwrap().started.slot, SlotId::B, "{said}");
        let mut store = BootStore::open(&mut flash, layout()).unwrap();
        let staged = SlotState::Staged { image: header.id() };
        assert_eq!(store.state().slot(SlotId::A), staged, "{said}");
        // The next time they can be read, the higher version is started.
        let mut next = flash.clone();
        assert_eq!(start_with(&mut next, &both, true).0.unwrap().started.slot, first);
        store.want(&mut next, SlotId::A, &requirements(&both)).unwrap();
        assert_eq!(start_with(&mut next, &both, true).0.unwrap().started.slot, SlotId::A);
        // Where they can, and lack the key, it is given up, whichever comes first.
        store = BootStore::open(&mut flash, layout()).unwrap();
        store.want_unread(&mut flash, SlotId::A).unwrap();
        assert_eq!(start_with(&mut flash, &built_in, true).0.unwrap().started.slot, SlotId::B);
        store = BootStore::open(&mut flash, layout()).unwrap();
        let failed = SlotState::Failed { image: header.id() };
        assert_eq!(store.state().slot(SlotId::A), failed);
    }
}
